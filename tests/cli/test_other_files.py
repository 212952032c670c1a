"""CSV and encodings other than UTF-8 give the same results in commands as TSV in UTF-8."""

import csv
import gzip
import shlex

import pytest
from cli.typing_in import Command
from tiny import write_pictures

from regard.data import CorpusSettings, DataSettings
from regard.io import read_chunks
from regard.run import load

# typer uses other classes than it documents
pytestmark = [pytest.mark.unchecked, pytest.mark.usefixtures("without_report")]
TRAIN, TRANSLATE = Command("train"), Command("translate")
SHORT = ("--steps", "1", "--batch-tokens", "256", "--device", "cpu", "--preset", "tiny", "--anyway")
PAIRS = [(f"Grün {i}, „Haus“ {i % 7}", f'Green {i}; "house" {i % 7}') for i in range(80)]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def write_csv(path, rows, header=None, separator=",", encoding="utf-8"):
    with (
        gzip.open(path, "wt", encoding=encoding, newline="")
        if path.suffix == ".gz"
        else open(path, "w", encoding=encoding, newline="") as file
    ):
        csv.writer(file, delimiter=separator).writerows([*([header] if header else []), *rows])
    return path


def corpus_of(*arguments):
    """Train a run, and return its held-out pairs and its number of training pairs."""
    TRAIN.right(*arguments, *SHORT, "--out", "run")
    prepared = load("run").settings.row.load().prepare(load("run").settings)
    return sorted(prepared.valid_pairs), prepared.counts["pairs"]


@pytest.fixture(scope="module")
def corpus_of_tsv(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    (folder / "a.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        return corpus_of("--pairs", "a.tsv")


@pytest.mark.parametrize(
    ("name", "header", "separator", "encoding", "swap"),
    [
        ("a.csv", None, ",", "utf-8", False),
        ("a.csv.gz", ("source", "target"), ",", "utf-8", False),
        ("a.csv", ("target", "source"), ";", "utf-8-sig", True),
        ("a.csv", ("Source", "Target"), ",", "cp1252", False),
        ("a.csv", ("source", "target"), ";", "utf-16", False),
    ],
)
def test_pairs_in_csv_are_those_of_tsv(corpus_of_tsv, tmp_path, name, header, separator, encoding, swap):
    rows = [row[::-1] for row in PAIRS] if swap else PAIRS
    path = write_csv(tmp_path / name, rows, header, separator, encoding)
    options = () if encoding.startswith("utf-8") else ("--encoding", encoding)
    assert corpus_of("--pairs", path, *options) == corpus_of_tsv


def test_documents_and_captions_in_csv(tmp_path):
    rows = [
        ("good" if i % 2 else "bad", f"A text, {i}\nof two lines, {'fine' if i % 2 else 'poor'}.") for i in range(80)
    ]
    path = write_csv(tmp_path / "reviews.csv", [row[::-1] for row in rows], ("review", "label"))
    held_out, count = corpus_of("--documents", path)
    assert count + len(held_out) == 80
    assert {label for _, label in held_out} <= {"good", "bad"}
    assert all(" of two lines, " in text for text, _ in held_out)
    classified = Command("classify").typed("run", path)
    assert len(classified.stdout.splitlines()) == 80
    assert "reading the documents in column 1" in classified.stderr
    Command("eval").right("run", "--documents", path)
    home = write_pictures(tmp_path / "album")
    captions = next(each for each in home.iterdir() if each.suffix == ".tsv")
    cells = [line.split("\t") for line in captions.read_text(encoding="utf-8").splitlines()]
    table = write_csv(tmp_path / "captions.csv", [row[::-1] for row in cells], ("caption", "image"))
    from regard.data import caption_files

    assert caption_files.read_captions(table) == caption_files.read_captions(captions)


def test_a_header_of_ones_own_is_named_in_the_configuration(tmp_path):
    path = write_csv(tmp_path / "a.csv", PAIRS, ("Frage", "Antwort"))
    corpora = f'data.corpora=[{{file="{path}", source_column="Antwort", target_column="Frage"}}]'
    held_out, count = corpus_of("--set", corpora)
    assert count + len(held_out) == 80
    assert held_out[0][0].startswith("Green")
    wrong = f'data.corpora=[{{file="{path}", source_column="Antwort", target_column="Folge"}}]'
    assert "a.csv, line 1: no column 'Folge'; it has 'Frage', 'Antwort'" in TRAIN.refused("--set", wrong, "--out", "x")


def test_a_mistake_in_a_csv_is_named_with_its_line(tmp_path):
    path = write_csv(tmp_path / "a.csv", PAIRS)
    path.write_text(path.read_text(encoding="utf-8") + '"open,x\ny,z\n', encoding="utf-8")
    assert TRAIN.refused("--pairs", path, "--out", "x").startswith(f"{path}, line 81: a quotation mark that opens")


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-le"])
def test_the_line_to_type_is_named_and_works(tmp_path, encoding):
    files = []
    for side, name in enumerate(("a.de", "a.en")):
        path = tmp_path / name
        path.write_bytes("".join(f"{row[side]}\n" for row in PAIRS).encode(encoding))
        files += [("--source", "--target")[side], str(path)]
    sentence = TRAIN.refused(*files, "--out", "x")
    assert f"add --encoding {encoding}" in sentence
    option = shlex.split(sentence.split("add ")[1].split(" (")[0])
    TRAIN.right(*files, *option, *SHORT, "--out", "run")
    assert load("run").settings.data.encoding == encoding
    resumed = TRAIN.typed("--resume", "run", "--steps", "2")  # the run stores the encoding
    assert resumed.exit_code == 0, resumed.output
    translated = TRANSLATE.typed("run", files[1], *option, "--longest", "4")
    assert len(translated.stdout.splitlines()) == 80
    assert "--encoding" in TRANSLATE.typed("run", files[1], "--longest", "4").stderr
    Command("score").right("run", "--source", files[1], "--target", files[3], *option)
    Command("eval").right("run", "--source", files[1], "--reference", files[3], *option, "--beam", "1")


def test_an_encoding_that_is_none_is_refused(tmp_path):
    sentence = TRAIN.refused("--source", "a", "--target", "b", "--encoding", "latin-11", "--out", "x")
    assert sentence.startswith("--encoding: \"latin-11\" given, no such encoding; did you mean 'latin-1'?")
    path = tmp_path / "text.de"
    path.write_text("a b\n")
    assert TRANSLATE.refused(tmp_path, path, "--encoding", "nothing").startswith("--encoding: ")


def test_the_same_bytes_in_two_encodings_are_two_corpora():
    data = DataSettings(source="a", target="b", encoding="cp1252", valid=(CorpusSettings(file="c.csv"),))
    (corpus,) = data.training
    assert [getattr(path, "encoding", None) for path in (*corpus.files, *data.validation[0].files)] == ["cp1252"] * 3


def test_rows_of_a_csv_come_as_lines(tmp_path):
    path = write_csv(tmp_path / "a.csv", [("a\nb", "c, d")] * 2_000, ("source", "target"))
    rows = [line for chunk in read_chunks(path) for line in chunk]
    assert rows == ["a b\tc, d"] * 2_000
