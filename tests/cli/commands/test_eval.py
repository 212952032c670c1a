"""`regard eval` from the command line, on a tiny run and on files, with mistakes."""

import gzip
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu
from cli.typing_in import Command
from tiny import table

from regard.evaluation import measure_bleu_n, measure_cider
from regard.run import load
from regard.tasks import start

COMMAND = Command("eval")
right, said, refused = COMMAND.right, COMMAND.said, COMMAND.refused


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Create runs that have learned almost nothing, and a test set with an empty line and a repeated source."""
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
    # This run's best checkpoint is the one with the least loss.
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
    assert tokens == 3 + 4 + 4 + 1 + 4  # including the END of each
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


FILES = "--source source --reference reference"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "which run? give a run folder, or --hypothesis with a file of outputs to score"),
        (
            "run",
            "--reference: missing, expected a text file of references; a classifier is measured with --documents or "
            "--images, a captioner with --images and --captions",
        ),
        (f"pairs {FILES}", "pairs: not a run folder, it has no config.toml; regard runs lists run folders"),
        ("run --source source --reference two", "source has 5 lines and two has 2; "),
        (f"{FILES} --hypothesis two", "two has 2 lines and reference has 5; "),
        (f"{FILES} --hypothesis empty", "empty: empty, expected one sentence per line"),
        (f"{FILES} --hypothesis binary", "binary, line 1: byte 1 (0x89) is not UTF-8"),
        (f"{FILES} --hypothesis no", "no: no such file"),
        (f"run {FILES} --metrics bleu,tre", "--metrics: 'tre' given, no such metric; did you mean 'ter'?"),
        (f"{FILES} --hypothesis output --metrics perplexity", "--metrics: perplexity needs a run; give its folder"),
        ("--reference reference --hypothesis output --metrics lengths", "--metrics: lengths needs --source; add it"),
        ("--reference reference --hypothesis output --alternatives", "--source: missing, --alternatives needs "),
        ("--reference reference --hypothesis output --plot x.png", "--source: missing, --plot needs "),
        ("--source output --reference output --hypothesis output --alternatives", "output: none of its 5 lines"),
        (f"{FILES} --hypothesis output --out x", "--out: --hypothesis translates nothing"),
        (f"run {FILES} --out no/x", "--out: no/x: no folder no to write it into"),
        (f"run {FILES} --out pairs", "--out: pairs is a folder, expected a file to write"),
        (f"run {FILES} --plot x.gif", "--plot: x.gif given, expected a name that ends in .png, .svg, .pdf"),
        (f"run {FILES} --tokenize 14a", "--tokenize: '14a' given, no such tokenisation; did you mean '13a'?"),
    ],
)
def test_mistakes_are_one_sentence(home, monkeypatch, arguments, said):
    monkeypatch.chdir(home)
    Path("two").write_text("a\nb\n")
    Path("empty").write_text("")
    Path("binary").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    assert refused(*arguments.split()).startswith(said)
    assert not Path("x").exists()


def test_from_outside_nothing_heavy_is_loaded_to_score_a_file(home):
    """Scoring a file of outputs does not import torch; the command runs in a process of its own."""
    code = (
        "import sys; from regard.cli.program import main\n"
        "try:\n    main()\nfinally:\n    print('torch' in sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "eval", "--hypothesis", "output", "--reference", "reference"]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("output: 5 sentences\n\nmetric ")
    assert done.stderr == "False\n"


# ---- pictures and documents


@pytest.fixture(scope="module")
def items(furnish):
    return furnish(captions="captioner", questions="convnet", han="han")


def test_captions(items):
    pictures, captions = items / "data" / "captioned" / "pictures", items / "data" / "captioned" / "captions.tsv"
    test = items / "test.tsv"
    lines = captions.read_text().splitlines()[:6]
    test.write_text(
        "\n".join([*lines, f"{lines[0].split(chr(9))[0]}\tsomething else", "gone.png\ta red circle"]) + "\n"
    )
    shown = right(items / "captions", "--images", pictures, "--captions", test, "--beam", 2, "--out", items / "kept")
    assert "gone.png: no such picture in" in shown.stderr
    names = [line.split("\t")[0] for line in lines]
    outputs = load(items / "captions").caption([pictures / name for name in names], beam=2)
    assert (items / "kept").read_text() == "".join(f"{n}\t{o}\n" for n, o in zip(names, outputs, strict=True))
    first, _, head, *rows = shown.stdout.splitlines()
    assert first == f"{items / 'captions'}, beam 2, length penalty 0.6: 6 pictures"
    assert head.split() == ["metric", "score", "signature"]
    assert [row.split()[0] for row in rows] == ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr-D", "ROUGE-L", "exact"]
    said = json.loads(right(items / "captions", "--images", pictures, "--captions", test, "--beam", 2, "--json").stdout)
    references = [[line.split("\t")[1]] for line in lines]
    references[0].append("something else")
    assert said["scores"]["BLEU-1"]["value"] == pytest.approx(measure_bleu_n(outputs, references, 1).score().value)
    assert said["scores"]["CIDEr-D"]["value"] == pytest.approx(measure_cider(outputs, references).score().value)

    (items / "names").write_text(names[2] + "\n" + names[4] + "\n")
    few = right(items / "captions", "--images", pictures, "--captions", test, "--names", items / "names", "--json")
    assert json.loads(few.stdout)["pictures"] == 2


def test_documents(items):
    test = items / "test.documents.tsv"
    rows = [line.split("\t") for line in (items / "data" / "documents" / "reviews.tsv").read_text().splitlines()[:9]]
    wrong = ["mixed\tNeither good nor bad.", "positive\t", "\tNo label."]
    test.write_text("\n".join(["\t".join(row) for row in rows] + wrong) + "\n")
    shown = right(items / "han", "--documents", test)
    assert "have a label that did not occur in training: mixed" in shown.stderr
    assert "1 documents have no words" in shown.stderr
    found = load(items / "han").classify([text for _, text in rows])
    hits = sum(each.label == label for each, (label, _) in zip(found, rows, strict=True))
    said = json.loads(right(items / "han", "--documents", test, "--json").stdout)
    assert said["documents"] == 9
    assert said["accuracy"] == pytest.approx(hits / 9)
    assert sum(map(sum, said["confusion"])) == 9
    assert f"accuracy {hits / 9:.2%}" in shown.stdout
    assert "predicted label (across) for each true label (down)" in shown.stdout


def test_pictures_with_labels(items):
    shown = right(
        items / "questions",
        "--images",
        items / "data" / "questions" / "pictures",
        "--labels",
        items / "data" / "questions" / "labels.tsv",
    )
    assert shown.stdout.splitlines()[0] == f"{items / 'questions'}: 24 pictures"


def test_mistakes_of_items(items, tmp_path):
    pictures, captions = items / "data" / "captioned" / "pictures", items / "data" / "captioned" / "captions.tsv"
    assert "give exactly one run folder" in refused("--documents", captions)
    assert "--images: missing" in refused(items / "captions", "--captions", captions)
    assert "its task is caption, expected classify" in refused(items / "captions", "--documents", captions)
    assert "its task is classify, expected caption" in refused(
        items / "han", "--images", pictures, "--captions", captions
    )
    (tmp_path / "empty").mkdir()
    said = refused(items / "captions", "--images", tmp_path / "empty", "--captions", captions)
    assert "can be read" in said
    assert "beam: 0 given" in refused(items / "captions", "--images", pictures, "--captions", captions, "--beam", 0)
    (tmp_path / "strange.tsv").write_text("mixed\tx\n")
    assert "no document with words and a known label" in refused(items / "han", "--documents", tmp_path / "strange.tsv")
