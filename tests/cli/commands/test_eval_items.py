"""`regard eval` of runs that describe pictures or name documents, with mistakes."""

import json

import pytest
from cli.typing_in import Command

from regard.evaluation import measure_bleu_n, measure_cider
from regard.run import load

pytestmark = pytest.mark.unchecked
COMMAND = Command("eval")
typed, refused = COMMAND.typed, COMMAND.refused


def right(*arguments):
    shown = typed(*arguments)
    assert shown.exit_code == 0, shown.output
    return shown


@pytest.fixture(scope="module")
def home(furnish):
    return furnish(captions="captioner", questions="convnet", han="han")


def test_captions(home):
    pictures, captions = home / "data" / "captioned" / "pictures", home / "data" / "captioned" / "captions.tsv"
    test = home / "test.tsv"
    lines = captions.read_text().splitlines()[:6]
    test.write_text(
        "\n".join([*lines, f"{lines[0].split(chr(9))[0]}\tsomething else", "gone.png\ta red circle"]) + "\n"
    )
    shown = right(home / "captions", "--images", pictures, "--captions", test, "--beam", 2, "--out", home / "kept")
    assert "gone.png: no such picture in" in shown.stderr
    names = [line.split("\t")[0] for line in lines]
    outputs = load(home / "captions").caption([pictures / name for name in names], beam=2)
    assert (home / "kept").read_text() == "".join(f"{n}\t{o}\n" for n, o in zip(names, outputs, strict=True))
    first, _, head, *rows = shown.stdout.splitlines()
    assert first == f"{home / 'captions'}, beam 2, length penalty 0.6: 6 pictures"
    assert head.split() == ["metric", "score", "signature"]
    assert [row.split()[0] for row in rows] == ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr-D", "ROUGE-L", "exact"]
    said = json.loads(right(home / "captions", "--images", pictures, "--captions", test, "--beam", 2, "--json").stdout)
    references = [[line.split("\t")[1]] for line in lines]
    references[0].append("something else")
    assert said["scores"]["BLEU-1"]["value"] == pytest.approx(measure_bleu_n(outputs, references, 1).score().value)
    assert said["scores"]["CIDEr-D"]["value"] == pytest.approx(measure_cider(outputs, references).score().value)

    (home / "names").write_text(names[2] + "\n" + names[4] + "\n")
    few = right(home / "captions", "--images", pictures, "--captions", test, "--names", home / "names", "--json")
    assert json.loads(few.stdout)["pictures"] == 2


def test_documents(home):
    test = home / "test.documents.tsv"
    rows = [line.split("\t") for line in (home / "data" / "documents" / "reviews.tsv").read_text().splitlines()[:9]]
    wrong = ["mixed\tNeither good nor bad.", "positive\t", "\tNo label."]
    test.write_text("\n".join(["\t".join(row) for row in rows] + wrong) + "\n")
    shown = right(home / "han", "--documents", test)
    assert "have a label that did not occur in training: mixed" in shown.stderr
    assert "1 documents have no words" in shown.stderr
    found = load(home / "han").classify([text for _, text in rows])
    hits = sum(each.label == label for each, (label, _) in zip(found, rows, strict=True))
    said = json.loads(right(home / "han", "--documents", test, "--json").stdout)
    assert said["documents"] == 9
    assert said["accuracy"] == pytest.approx(hits / 9)
    assert sum(map(sum, said["confusion"])) == 9
    assert f"accuracy {hits / 9:.2%}" in shown.stdout
    assert "predicted label (across) for each true label (down)" in shown.stdout


def test_pictures_with_labels(home):
    shown = right(
        home / "questions",
        "--images",
        home / "data" / "questions" / "pictures",
        "--labels",
        home / "data" / "questions" / "labels.tsv",
    )
    assert shown.stdout.splitlines()[0] == f"{home / 'questions'}: 24 pictures"


def test_mistakes(home, tmp_path):
    pictures, captions = home / "data" / "captioned" / "pictures", home / "data" / "captioned" / "captions.tsv"
    assert "give exactly one run folder" in refused("--documents", captions)
    assert "--images: missing" in refused(home / "captions", "--captions", captions)
    assert "its task is caption, expected classify" in refused(home / "captions", "--documents", captions)
    assert "its task is classify, expected caption" in refused(
        home / "han", "--images", pictures, "--captions", captions
    )
    (tmp_path / "empty").mkdir()
    said = refused(home / "captions", "--images", tmp_path / "empty", "--captions", captions)
    assert "can be read" in said
    assert "beam: 0 given" in refused(home / "captions", "--images", pictures, "--captions", captions, "--beam", 0)
    (tmp_path / "strange.tsv").write_text("mixed\tx\n")
    assert "no document with words and a known label" in refused(home / "han", "--documents", tmp_path / "strange.tsv")
