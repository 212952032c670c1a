"""`regard eval` as a person types it, on a tiny run and on files, with mistakes."""

import gzip
import json
import math
import subprocess
import sys

import pytest
import sacrebleu
from cli.typing_in import Command
from tiny import table

from regard.run import load
from regard.tasks import start

pytestmark = pytest.mark.unchecked  # typer's own classes are not those it documents
COMMAND = Command("eval")
typed, refused = COMMAND.typed, COMMAND.refused


def right(*arguments):
    shown = typed(*arguments)
    assert shown.exit_code == 0, shown.output
    return shown


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A run that has learned next to nothing, a test set with an empty line and a source that comes twice."""
    home = tmp_path_factory.mktemp("evaluated")
    short = {"training__steps": 2, "data__longest": 20}
    start(table(home, **short), home / "run")
    start(table(home, training__seed=1, **short), home / "second")
    encoder = {"kind": "encoder", "size": 16, "heads": 2, "layers": 1, "hidden": 16}
    start(table(home, task="language-model", model=encoder, **short), home / "language")
    (home / "source").write_text("1 2 3\n\n9 8 7 6\n1 2 3\n5\n")
    (home / "reference").write_text("3 2 1\n\n6 7 8 9\n3 2 1 0\n5\n")
    (home / "output").write_text("3 2 1\nx\n6 7 8\n3 2 2\nFive\n")
    return home


def test_a_run(home):
    given = ["--source", home / "source", "--reference", home / "reference"]
    shown = right(home / "run", *given, "--out", home / "kept", "--plot", home / "plot.svg", "--device", "cpu")
    assert shown.stderr == ""
    outputs = load(home / "run").translate((home / "source").read_text().split("\n")[:-1], beam=5)
    assert (home / "kept").read_text() == "".join(f"{text}\n" for text in outputs)
    assert outputs[1] == ""
    first, _, head, *rest = shown.stdout.splitlines()
    assert first == f"{home / 'run'}, beam 5, length penalty 0.6: 5 sentences, 1 of them with an empty source"
    assert head.split() == ["metric", "score", "signature"]
    # The best checkpoint of this run is that of least loss.
    names = ["perplexity", "BLEU", "chrF", "TER", "exact match", "character error rate", "token error rate"]
    assert [line[: len(name)] for line, name in zip(rest, names, strict=False)] == names
    assert all("|" in line for line in rest[: len(names)])
    assert rest[len(names) + 1] == "BLEU by source length"
    assert "BLEU by source length" in (home / "plot.svg").read_text()
    assert not any(line != line.rstrip() for line in shown.stdout.splitlines())

    said = json.loads(right(home / "run", *given, "--json").stdout)
    references = (home / "reference").read_text().split("\n")[:-1]
    assert said["scores"]["bleu"]["value"] == sacrebleu.BLEU(force=True).corpus_score(outputs, [references]).score
    assert said["search"] == {"beam": 5, "length_penalty": 0.6}
    assert (said["sentences"], said["lines"], said["empty"]) == (5, 5, 1)
    again = json.loads(right("--hypothesis", home / "kept", *given, "--json").stdout)
    assert "perplexity" not in again["scores"]
    assert all(again["scores"][key] == said["scores"][key] for key in again["scores"])
    assert again["lengths"] == said["lengths"]


def test_perplexity_is_that_of_the_pairs(home):
    given = ["--source", home / "source", "--reference", home / "reference", "--metrics", "perplexity", "--json"]
    run = load(home / "run")
    scored = run.score(["1 2 3", "9 8 7 6", "1 2 3", "5"], ["3 2 1", "6 7 8 9", "3 2 1 0", "5"])
    tokens = sum(len(each.tokens) for each in scored)
    assert tokens == 3 + 4 + 4 + 1 + 4  # the END of each
    found = json.loads(right(home / "run", *given).stdout)
    assert list(found["scores"]) == ["perplexity"]
    expected = math.exp(-sum(each.log_prob for each in scored) / tokens)
    assert found["scores"]["perplexity"]["value"] == pytest.approx(expected)
    assert found["scores"]["perplexity"]["signature"] == f"tok:word[{run.tokenizers.target.size}]|tokens:{tokens}"
    beside = json.loads(right(home / "run", *given, "--hypothesis", home / "output").stdout)
    assert beside["scores"] == found["scores"]


def test_several_runs_are_an_ensemble(home):
    given = ["--source", home / "source", "--reference", home / "reference", "--metrics", "bleu,perplexity", "--json"]
    both = json.loads(right(home / "run", home / "second", *given, "--beam", 2).stdout)
    alone = [
        json.loads(right(home / name, *given).stdout)["scores"]["perplexity"]["value"] for name in ("run", "second")
    ]
    assert both["system"] == f"{home / 'run'} + {home / 'second'}"
    assert min(alone) <= both["scores"]["perplexity"]["value"] <= max(alone)


def test_a_language_model_is_measured_by_its_perplexity(home):
    found = json.loads(right(home / "language", "--reference", home / "reference", "--json").stdout)
    assert list(found["scores"]) == ["perplexity"]
    assert found["scores"]["perplexity"]["value"] > 1
    wrong = refused(home / "language", "--reference", home / "reference", "--source", home / "source")
    assert wrong.startswith(f"{home / 'language'}: its task is language-model, expected translate")
    assert refused(home / "run", "--reference", home / "reference").startswith("--source: missing, expected the text ")


def test_a_run_that_writes_lower_case_only(home):
    given = ["--source", home / "source", "--reference", home / "reference", "--metrics", "exact", "--beam", 1]
    start(table(home, training__steps=1, data__lowercase=True), home / "lower")
    hint = f"regard: {home / 'lower'} writes only lower case (data.lowercase); --lowercase compares without case\n"
    assert right(home / "lower", *given).stderr == hint
    assert right(home / "lower", *given, "--lowercase").stderr == ""


def test_alternatives(home, tmp_path):
    given = ["--source", home / "source", "--reference", home / "reference", "--alternatives"]
    said = json.loads(right("--hypothesis", home / "output", *given, "--json").stdout)
    assert (said["sentences"], said["lines"]) == (4, 5)
    assert said["scores"]["exact"]["value"] == 1 / 4
    assert said["scores"]["token_errors"]["value"] == (0 + 1 + 1 + 1) / (3 + 0 + 4 + 1)
    assert "nrefs:var" in said["scores"]["bleu"]["signature"]
    streams = [["3 2 1", "", "6 7 8 9", "5"], ["3 2 1 0", None, None, None]]
    theirs = sacrebleu.BLEU(force=True).corpus_score(["3 2 1", "x", "6 7 8", "Five"], streams).score
    assert said["scores"]["bleu"]["value"] == theirs
    shown = right(home / "run", *given, "--out", tmp_path / "kept", "--metrics", "exact")
    assert shown.stdout.startswith(f"{home / 'run'}, beam 5, length penalty 0.6: 4 sentences from 5 lines, 1 of them")
    kept = (tmp_path / "kept").read_text().splitlines()
    assert len(kept) == 5
    assert kept[0] == kept[3]


def test_options_of_the_scores(tmp_path):
    (tmp_path / "out").write_text("Two Dogs, RUN\n")
    (tmp_path / "ref.gz").write_bytes(gzip.compress(b"two dogs, run\n"))
    given = ["--hypothesis", tmp_path / "out", "--reference", tmp_path / "ref.gz", "--json"]
    said = json.loads(right(*given, "--lowercase", "--tokenize", "char").stdout)["scores"]
    assert list(said) == ["bleu", "chrf", "ter", "exact", "character_errors", "token_errors"]
    assert said["exact"]["value"] == 1
    assert said["bleu"]["signature"].startswith("nrefs:1|case:lc|eff:no|tok:char|")
    assert said["chrf"]["value"] == 100
    assert json.loads(right(*given).stdout)["scores"]["exact"]["value"] == 0


def test_scripts_without_spaces_and_single_words(tmp_path):
    files = ["--hypothesis", tmp_path / "out", "--reference", tmp_path / "reference"]
    (tmp_path / "out").write_text("犬が庭で走っています。\n彼は昨日ピザを買いました。\n")
    (tmp_path / "reference").write_text("犬が庭で走っています。\n彼は昨日ピザを食べました。\n")
    said = json.loads(right(*files, "--json").stdout)["scores"]["bleu"]
    assert 60 < said["value"] < 100
    assert "tok:char|" in said["signature"] or "tok:ja-mecab" in said["signature"]
    for name in ("out", "reference"):
        (tmp_path / name).write_text("Hund\nKatze\n")
    shown = right(*files)
    assert shown.stderr.startswith("regard: BLEU is skipped, because it counts runs of four words")
    assert "BLEU" not in shown.stdout
    assert "BLEU" in right(*files, "--metrics", "bleu").stdout


def test_sources_that_are_too_long_are_cut(home, tmp_path):
    for name in ("source", "reference"):
        (tmp_path / name).write_text("1 2\n" + "7 " * 30 + "\n")
    files = ["--source", tmp_path / "source", "--reference", tmp_path / "reference"]
    shown = right(home / "run", *files, "--out", tmp_path / "kept", "--metrics", "bleu")
    assert shown.stderr == f"regard: 1 of 2 sources were truncated to the 20 tokens of {home / 'run'}\n"
    assert (tmp_path / "kept").read_text().splitlines() == load(home / "run").translate(["1 2", "7 " * 20])


def test_ter_of_long_text_is_left_out_unless_it_is_asked_for(tmp_path):
    (tmp_path / "text").write_text("7 " * 600 + "\n")
    shown = right("--hypothesis", tmp_path / "text", "--reference", tmp_path / "text")
    said = "regard: TER is skipped, because it takes minutes on text as long as this; ask for it with --metrics ter\n"
    assert shown.stderr == said
    assert "TER" not in shown.stdout
    assert right("--hypothesis", tmp_path / "text", "--reference", tmp_path / "text", "--metrics", "ter").stderr == ""


def test_mistakes(home, tmp_path):
    source, reference, output = home / "source", home / "reference", home / "output"
    files = ["--source", source, "--reference", reference]
    (tmp_path / "two").write_text("a\nb\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "binary").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    for arguments, said in (
        ([], "which run? give a run folder, or --hypothesis with a file of outputs to score"),
        (
            [home / "run"],
            "--reference: missing, expected a text file of references; a classifier is measured with --documents or "
            "--images, a captioner with --images and --captions",
        ),
        ([tmp_path, *files], f"{tmp_path}: not a run folder, it has no config.toml; regard runs lists run folders"),
        (
            [home / "run", "--source", source, "--reference", tmp_path / "two"],
            f"{source} has 5 lines and {tmp_path / 'two'} has 2; ",
        ),
        ([*files, "--hypothesis", tmp_path / "two"], f"{tmp_path / 'two'} has 2 lines and {reference} has 5; "),
        ([*files, "--hypothesis", tmp_path / "empty"], f"{tmp_path / 'empty'}: empty, expected one sentence per line"),
        ([*files, "--hypothesis", tmp_path / "binary"], f"{tmp_path / 'binary'}, line 1: byte 1 (0x89) is not UTF-8"),
        ([*files, "--hypothesis", tmp_path / "no"], f"{tmp_path / 'no'}: no such file"),
        (
            [home / "run", *files, "--metrics", "bleu,tre"],
            "--metrics: 'tre' given, no such metric; did you mean 'ter'?",
        ),
        (
            [*files, "--hypothesis", output, "--metrics", "perplexity"],
            "--metrics: perplexity needs a run; give its folder",
        ),
        (
            ["--reference", reference, "--hypothesis", output, "--metrics", "lengths"],
            "--metrics: lengths needs --source; add it",
        ),
        (
            ["--reference", reference, "--hypothesis", output, "--alternatives"],
            "--source: missing, --alternatives needs ",
        ),
        (["--reference", reference, "--hypothesis", output, "--plot", "x.png"], "--source: missing, --plot needs "),
        (
            ["--source", output, "--reference", output, "--hypothesis", output, "--alternatives"],
            f"{output}: none of its 5 lines",
        ),
        ([*files, "--hypothesis", output, "--out", tmp_path / "x"], "--out: --hypothesis translates nothing"),
        (
            [home / "run", *files, "--out", tmp_path / "no" / "x"],
            f"--out: {tmp_path / 'no' / 'x'}: no folder {tmp_path / 'no'} to write it into",
        ),
        (
            [home / "run", *files, "--out", tmp_path],
            f"--out: {tmp_path} is a folder, expected a file to write",
        ),
        (
            [home / "run", *files, "--plot", "x.gif"],
            "--plot: x.gif given, expected a name that ends in .png, .svg, .pdf",
        ),
        (
            [home / "run", *files, "--tokenize", "14a"],
            "--tokenize: '14a' given, no such tokenisation; did you mean '13a'?",
        ),
        ([home / "run", *files, "--beam", 0], "--beam: 0 given, expected at least 1"),
        ([home / "run", *files, "--checkpoint", "worst"], f"{home / 'run' / 'checkpoints'}: no checkpoint worst in it"),
        ([home / "run", *files, "--device", "gpu"], "--device: 'gpu' given, expected auto, cpu, mps, cuda"),
    ):
        assert refused(*arguments).startswith(said), (arguments, said)
    assert not (tmp_path / "x").exists()


def test_from_outside_nothing_heavy_is_loaded_to_score_a_file(home):
    """No torch for a file of outputs; and one process as people start it."""
    code = (
        "import sys; from regard.cli.program import main\n"
        "try:\n    main()\nfinally:\n    print('torch' in sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "eval", "--hypothesis", "output", "--reference", "reference"]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("output: 5 sentences\n\nmetric ")
    assert done.stderr == "False\n"
