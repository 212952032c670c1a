"""`regard compare` from the command line, with a run and files, right and wrong."""

import json

import pytest
from cli.typing_in import Command
from tiny import table

from regard.evaluation import text_scores
from regard.run import load
from regard.tasks import start

COMMAND = Command("compare")
typed, right, refused = COMMAND.typed, COMMAND.right, COMMAND.refused

SOURCES = [f"{i} {i + 1} {i + 2}" for i in range(12)]
REFERENCES = [f"the {i} is a good {i + 1}" for i in range(12)]
GOOD = [*REFERENCES[:9], "the 9 was a good 10", "", "the 11 is \x1b[31ma good 12"]
POOR = ["a bad thing", *REFERENCES[1:3], *(text.replace("good", "poor") for text in REFERENCES[3:])]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("compared")
    for name, texts in (("source", SOURCES), ("reference", REFERENCES), ("good", GOOD), ("poor", POOR)):
        (home / name).write_text("".join(f"{text}\n" for text in texts))
    return home


def files(home):
    return ["--source", home / "source", "--reference", home / "reference"]


def test_two_files(home):
    shown = right(home / "poor", home / "good", *files(home), "--examples", 1)
    assert shown.stderr == ""
    lines = shown.stdout.splitlines()
    assert lines[:3] == [f"A  {home / 'poor'}", f"B  {home / 'good'}", "12 sentences, 2 of them identical in both"]
    names = ["metric", "BLEU", "chrF", "TER", "exact match", "character error rate", "token error rate"]
    assert [line.split("  ")[0] for line in lines[4:11]] == names
    assert lines[5].split()[1:4] == [
        f"{text_scores.bleu(POOR, REFERENCES):.2f}",
        f"{text_scores.bleu(GOOD, REFERENCES):.2f}",
        f"+{text_scores.bleu(GOOD, REFERENCES) - text_scores.bleu(POOR, REFERENCES):.2f}",
    ]
    assert lines[12].startswith("B is better by ")
    assert lines[17:22] == [
        "  A is better in sentence 11",
        "  source     10 11 12",
        "  reference  the 10 is a good 11",
        f"  A {text_scores.chrf(POOR[10:11], REFERENCES[10:11]):6.1f}   the 10 is a [poor] 11",
        "  B    0.0   ‸",
    ]
    assert lines[23:] == [
        "  B is better in sentence 1",
        "  source     0 1 2",
        "  reference  the 0 is a good 1",
        f"  A {text_scores.chrf(POOR[:1], REFERENCES[:1]):6.1f}   ‸ a [bad thing]",
        "  B  100.0   the 0 is a good 1",
    ]
    assert "\x1b" not in typed(home / "poor", home / "good", *files(home), "--examples", 99).stdout


def test_json_and_options(home):
    options = ["--json", "--metrics", "exact,bleu", "--seed", 7, "--resamples", 150, "--examples", 2]
    found = json.loads(typed(home / "poor", home / "good", *files(home), *options).stdout)
    assert list(found["metrics"]) == ["exact", "bleu"]
    assert (found["seed"], found["resamples"], found["sentences"]) == (7, 150, 12)
    exact = found["metrics"]["exact"]
    assert (exact["a"], exact["b"], exact["better"], exact["significant"]) == (2 / 12, 9 / 12, "B", True)
    assert exact["difference"] == pytest.approx(7 / 12)
    low, high = exact["interval"]
    assert 0 < low < exact["difference"] < high
    assert found["said"].startswith(
        "B is better by 58.33 percentage points of exact match; the difference is significant"
    )
    assert len(found["b_better"]) == 2
    assert found["b_better"][0]["number"] == 1
    assert found["b_better"][0]["a_chrf"] == text_scores.chrf(POOR[:1], REFERENCES[:1])
    assert found == json.loads(typed(home / "poor", home / "good", *files(home), *options).stdout)
    turned = json.loads(typed(home / "good", home / "poor", *files(home), *options).stdout)
    assert turned["a_better"][0]["number"] == 1


def test_a_run_and_its_own_output(home):
    start(table(home, training__steps=2), home / "run")
    (home / "output").write_text("".join(f"{text}\n" for text in load(home / "run").translate(SOURCES)))
    shown = right(home / "run", home / "output", *files(home))
    assert "12 sentences, 12 of them identical in both" in shown.stdout
    assert "\nA and B are equal by BLEU.\n" in shown.stdout
    assert "differ most" not in shown.stdout
    right(home / "run", home / "run", *files(home), "--beam", 1)


FILES = "--source source --reference reference"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("good poor", "--source: missing, expected a text file with one sentence per line"),
        ("good poor --source good", "--reference: missing, expected a text file with one sentence per line"),
        (f"good no {FILES}", "no: no such file or folder, expected a run folder or a text"),
        (f"good . {FILES}", ".: not a run folder, it has no config.toml; regard runs lists run folders"),
        (f"good two {FILES}", "two has 2 lines and reference has 12; expected"),
        (f"good poor {FILES} --metrics perplexity", "--metrics: 'perplexity' given, no such metric; expected one of "),
        (
            f"good poor {FILES} --tokenize x",
            "--tokenize: 'x' given, no such tokenisation; expected one of auto, 13a, intl",
        ),
        (f"good poor {FILES} --alternatives", "source: none of its 12 lines occurs twice"),
    ],
)
def test_mistakes_are_one_sentence(home, monkeypatch, arguments, said):
    monkeypatch.chdir(home)
    (home / "two").write_text("a\nb\n")
    assert refused(*arguments.split()).startswith(said)
