"""`regard export` from the command line, and `--engine ctranslate2` in translate and eval."""

import json
import re
import shlex
import shutil

import pytest
from cli.typing_in import Command

from regard.interop.formats import FORMATS
from regard_bench.serving import write_run

EXPORT, TRANSLATE, EVAL = Command("export"), Command("translate"), Command("eval")
typed, right, refused = EXPORT.typed, EXPORT.right, EXPORT.refused
ENGINE = ("--engine", "ctranslate2")


@pytest.fixture(scope="module")
def desk(furnish):
    desk = furnish(run="phrasebook", gru="rnnsearch", lm="language-model")
    right(desk / "run", "--to", "ctranslate2", "-o", desk / "out")
    (desk / "in.en").write_text("the man sleeps .\n\nthe woman reads a book .\n")
    (desk / "in.de").write_text("der mann schläft .\n\ndie frau liest ein buch .\n")
    return desk


@pytest.fixture(autouse=True)
def at_desk(desk, monkeypatch, tmp_path):
    monkeypatch.chdir(desk)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


def test_it_prints_what_was_made_and_verified(tmp_path):
    shown = right("run", "--to", "ctranslate2", "--out", tmp_path / "out", "--quantize", "float16", "--check", "in.en")
    first, second = shown.stdout.splitlines()
    assert first.startswith(f"{tmp_path / 'out'}: ctranslate2, 7 files, ")
    assert second == "verified: 2 sentences of the file; 2 outputs equal; BLEU 100.0 and chrF 100.0 between the two"


def test_a_folder_is_verified_again():
    shown = typed("--verify", "out")
    assert shown.stdout.startswith("out verified: ")
    assert "outputs equal" in shown.stdout
    assert typed("run", "--verify", "out", "--check", "in.en").stdout.startswith(
        "out verified: 2 sentences of the file;"
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("", "which run? give a run folder, or --verify with an exported folder"),
        ("run", "--to: missing, as in: --to ctranslate2"),
        ("run --to ctranslate2", "--out: missing, as in: --out exported/"),
        ("run --to onnx --out x", '--to: "onnx" given, no such format'),
        ("run --to ctranslate2 --out out", "--out: out already exists; give another name, or remove it"),
        ("in.en --to ctranslate2 --out x", "in.en: a file that is not a pack of a run"),
        ("run --to ctranslate2 --out x --quantize int4", "--quantize: int4 given, expected"),
        ("run --to ctranslate2 --out x --check absent", "absent"),
        ("gru --to ctranslate2 --out x", "gru: model.kind: rnnsearch given, expected transformer"),
        ("lm --to ctranslate2 --out x", "lm: its task is language-model, expected translate"),
        ("out --to ctranslate2 --out x", "out: an exported folder"),
        ("--verify run", "run: not an exported folder, it has no manifest.json"),
        ("--verify absent", "absent: not an exported folder"),
        ("--verify out --to ctranslate2", "--verify: give only a run and --check with it"),
        ("gru --verify out", "gru: no checkpoint"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(desk, arguments, problem):
    before = sorted(path.name for path in desk.iterdir())
    assert refused(*shlex.split(arguments)).startswith(problem)
    assert sorted(path.name for path in desk.iterdir()) == before


def test_a_file_that_was_changed(desk, tmp_path):
    shutil.copytree("out", tmp_path / "copy")
    path = tmp_path / "copy" / "model.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"\7")
    problem = f"{path}: changed since it was exported; export the run again"
    assert refused("--verify", tmp_path / "copy") == problem
    assert TRANSLATE.refused(tmp_path / "copy", "in.en", *ENGINE) == problem


# ---- other formats

MODEL = {"size": 8, "heads": 2, "layers": 1, "hidden": 8, "norm": "post"}


@pytest.fixture
def marian_desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", MODEL, 20)
    write_run(tmp_path / "rotary", {**MODEL, "positions": "rotary"}, 20)
    return tmp_path


def test_a_folder_for_marian(marian_desk):
    shown = typed("run", "--to", "marian", "--out", "out/marian")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert re.match(r"out/marian: marian, 5 files, 0\.0 MB\n", shown.stdout)
    assert (marian_desk / "out" / "marian" / "config.json").exists()
    verified = right("--verify", "out/marian")
    assert verified.stdout.startswith("out/marian verified: 200 random sentences; log-probabilities differ by ")


def test_a_folder_for_marian_is_checked_with_sentences_of_a_file(marian_desk):
    marian_desk.joinpath("in.txt").write_text("a b\nb a\n", encoding="utf-8")
    shown = right("run", "--to", "marian", "--out", "out", "--check", "in.txt")
    assert "verified: 2 sentences of the file; 2 outputs equal; " in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["rotary", "--to", "marian", "--out", "out"], 'model.positions: "rotary" given, but marian has only "sinuso'),
        (["run", "--to", "marian", "--out", "out", "--checkpoint", "step-3"], "run/checkpoints: no checkpoint step-3"),
        (["run", "--to", "marian", "--out", "out", "--quantize", "int8"], "--quantize: given, but marian has no such"),
    ],
)
def test_mistakes_are_one_sentence_for_marian_too(marian_desk, arguments, problem):
    assert refused(*arguments).startswith(problem)
    assert not (marian_desk / "out").exists()


def test_help_lists_every_format_that_can_be_written():
    shown = typed("--help").stdout
    listed = re.search(r"Format to write: (.*?)\.", " ".join(shown.split()))
    assert listed is not None
    assert set(re.findall(r"[a-z0-9]{3,}", listed[1])) == {row.name for row in FORMATS.values() if row.writer}


# ---- engines


@pytest.mark.parametrize("options", [(), ("--beam", "2", "--nbest", "2", "--scores"), ("--prefix", "der")])
def test_translate_writes_the_same(options):
    right = TRANSLATE.right("run", "in.en", "--alignment", *options)
    for folder in ("run", "out"):
        shown = TRANSLATE.right(folder, "in.en", "--alignment", *options, *ENGINE)
        if "--scores" not in options:
            assert shown.stdout == right.stdout
        else:
            columns = [[line.split("\t") for line in each.stdout.splitlines()] for each in (right, shown)]
            assert [row[0] for row in columns[0]] == [row[0] for row in columns[1]]


def test_eval_measures_the_same():
    files = ("--source", "in.en", "--reference", "in.de", "--metrics", "bleu,chrf,perplexity", "--json")
    right = json.loads(EVAL.typed("run", *files).stdout)
    shown = json.loads(EVAL.typed("out", *files, *ENGINE).stdout)
    for key, score in right["scores"].items():
        assert shown["scores"][key]["value"] == pytest.approx(score["value"], rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("run", "--engine", "onnx"), "--engine: onnx given, expected regard or ctranslate2"),
        (("run", "--quantize", "int8"), "--quantize: int8 given without --engine ctranslate2; add it"),
        (("out",), "out: an exported folder, which another engine opens; add --engine ctranslate2"),
        (("out", *ENGINE, "--sample"), "--sample: given, which the engine ctranslate2 does not serve"),
        (("out", *ENGINE, "--length-penalty", "1.5"), "--length-penalty: 1.5 given, expected at most 1"),
        (("gru", *ENGINE), "gru: model.kind: rnnsearch given"),
    ],
)
def test_engines_say_what_they_do_not_serve(arguments, problem):
    folder, *options = arguments
    message = TRANSLATE.typed(folder, "in.en", *options)
    assert message.exit_code == 2
    assert message.stderr.splitlines()[-1].startswith(f"regard: {problem}")
