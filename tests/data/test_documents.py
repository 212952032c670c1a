"""Labelled documents: sentences, labels, dropped and cut documents, and when the cache is used."""

import gzip
import json
import os

import pytest

from regard.data.documents import encode_documents, prepare_documents, splitter_of, without_breaks
from regard.data.settings import DataSettings, TokenizerSettings
from regard.data.tokenizer import END
from regard.data.vocabulary import train
from regard.errors import ArgumentError, DataError

WORD = TokenizerSettings(kind="word")


def rows(count, labels=("bad", "good"), start=0):
    return [(labels[i % len(labels)], f"It was number {i} . Then came {i % 7} .") for i in range(start, start + count)]


@pytest.fixture
def corpus(tmp_path):
    """Return a function that writes labelled documents and returns settings for them."""

    def write(lines, name="train", **more):
        path = tmp_path / f"{name}.tsv"
        path.write_text("".join(f"{label}\t{text}\n" for label, text in lines), encoding="utf-8")
        given = {"documents": str(path), "cache": str(tmp_path / "cache"), "held_out": 0.0}
        return DataSettings(**{**given, **more})

    return write


def decoded(prepared, encoded):
    """Return documents as lists of sentences, with their labels."""
    found = []
    for i in range(len(encoded)):
        source, target = encoded.pair(i)
        assert source[-1] == END
        sentences, last = [], 0
        for end in [place for place, token in enumerate(source) if token == END]:
            sentences.append(prepared.tokenizers.source.decode(source[last:end]))
            last = end + 1
        found.append((prepared.labels[int(target[0])], sentences))
        assert len(target) == 1
    return found


def test_sentences_and_labels(corpus):
    lines = [
        ("good", "I came. I saw Mr. Smith! What for?"),
        ("bad", "One sentence"),
        ("good", 'He said "Stop." <br /><br />then<BR>3.14 is it...'),
        ("so-so", "これは文です。これも！"),
    ]
    said = []
    prepared = prepare_documents(corpus(lines), say=said.append)
    assert prepared.labels == ("bad", "good", "so-so")
    assert decoded(prepared, prepared.train) == [
        ("good", ["I came.", "I saw Mr. Smith!", "What for?"]),
        ("bad", ["One sentence"]),
        ("good", ['He said "Stop."', "then", "3.14 is it..."]),
        ("so-so", ["これは文です。", "これも！"]),
    ]
    assert said == ["4 documents, 3 labels (bad, good, so-so); none for validation"]
    assert "<br" not in prepared.tokenizers.dumps().lower()


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "character"])
def test_held_out_by_hash(corpus, kind):
    lines, said = rows(300), []
    prepared = prepare_documents(corpus(lines, held_out=0.1), TokenizerSettings(kind=kind), say=said.append)
    assert (len(prepared.train), len(prepared.valid)) == (270, 30)
    choose = "(by hash; give --valid-documents to choose them)"
    assert said == [f"270 documents, 2 labels (bad, good); 30 held out for validation {choose}"]
    held = [(label, text) for text, label in prepared.valid_pairs]
    assert set(held) < set(lines)
    if kind != "word":
        kept = [row for row in lines if row not in held]
        assert [(label, " ".join(each)) for label, each in decoded(prepared, prepared.train)] == kept
    again = prepare_documents(corpus(lines[::-1], held_out=0.1), TokenizerSettings(kind=kind))
    assert set(again.valid_pairs) == set(prepared.valid_pairs)


def test_what_is_dropped_and_cut_is_counted_and_said(corpus):
    lines = [*rows(40), ("good", ""), ("good", "<br />  <br/>"), ("", "no label"), (" ", "")]
    lines += [("bad", "w " * 31), ("bad", "w " * 12 + ". V " + "v " * 30)]
    valid = [*rows(6), ("new", "Other ."), ("new", "Third ."), ("strange", "Fourth ."), ("bad", " ")]
    valid += [("bad", "w " * 50)]
    given, said = corpus(valid, "valid"), []
    data = corpus(lines, valid_documents=given.documents, longest=10, document_tokens=30)
    prepared = prepare_documents(data, WORD, say=said.append)
    assert said == [
        "42 documents, 2 labels (bad, good; not in training: new, strange); 3 truncated to 30 tokens; "
        "dropped 2 without words, 2 without a label; "
        "7 for validation (dropped 1 without words, 3 with a label not in training)"
    ]
    assert len(prepared.valid) == 7
    assert [label for _, label in prepared.valid_pairs] == ["bad", "good"] * 3 + ["bad"]
    last = [len(each.split()) for each in decoded(prepared, prepared.train)[-1][1]]
    assert last == [10, 3, 10, 7]  # twelve and the full stop, then the rest of thirty
    assert [len(each.split()) for each in decoded(prepared, prepared.train)[-2][1]] == [10, 10, 10]


def test_a_label_that_is_only_held_out_is_not_one_of_training(corpus, monkeypatch):
    lines = rows(60)
    for rare in range(40):  # until the only document of a label is held out
        said = []
        data = corpus([*lines, (f"rare{rare}", "It is the only one .")], held_out=0.2)
        prepared = prepare_documents(data, WORD, say=said.append)
        if len(prepared.labels) == 2:
            assert f"dropped 1 with a label not in training; {len(prepared.valid)} held out" in said[0]
            assert f"not in training: rare{rare}" in said[0]
            return
        assert len(prepared.labels) == 3
    raise AssertionError("never held out")


def test_given_labels_keep_their_places(corpus):
    lines = [*rows(20), ("mixed", "Both .")]
    said = []
    prepared = prepare_documents(corpus(lines), WORD, labels=("good", "bad"), say=said.append)
    assert prepared.labels == ("good", "bad")
    assert [int(prepared.train.pair(i)[1][0]) for i in range(4)] == [1, 0, 1, 0]
    assert "dropped 1 with a label not in training" in said[0]


def test_a_run_that_goes_on_finds_the_same(corpus):
    data, said = corpus(rows(30), held_out=0.1), []
    first = prepare_documents(data, WORD)
    again = prepare_documents(data, WORD, tokenizers=first.tokenizers, labels=first.labels, say=said.append)
    assert again.hash == first.hash
    assert said[0].endswith(", from the cache")
    assert prepare_documents(data, WORD, tokenizers=first.tokenizers).hash == first.hash
    assert prepare_documents(data, WORD, say=said.append).hash == first.hash
    assert said[1].endswith(", from the cache")


def test_the_key_is_of_what_matters(corpus, tmp_path):
    lines = rows(30)
    plain = prepare_documents(corpus(lines), WORD).hash
    others = [
        prepare_documents(corpus(lines, document_tokens=5), WORD).hash,
        prepare_documents(corpus(lines, longest=3), WORD).hash,
        prepare_documents(corpus(lines, sentence_mark="|"), WORD).hash,
        prepare_documents(corpus(lines), WORD, splitter=str.splitlines).hash,
        prepare_documents(corpus(lines), WORD, splitter=lambda text: text.split(" . ")).hash,
        prepare_documents(corpus(lines[:-1]), WORD).hash,
        prepare_documents(corpus(lines, label_column=2, text_column=1), WORD).hash,
    ]
    assert len({plain, *others}) == len(others) + 1
    assert prepare_documents(corpus(lines), WORD, splitter=lambda text: text.splitlines()).hash == others[3]


def test_columns_and_json(tmp_path):
    (tmp_path / "a.tsv").write_text("x\tGood one .\t1\nx\tBad one .\t0\n")
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        for label, text in ((1, "Good one ."), (0, "Bad one ."), (None, "None ."), (True, "True .")):
            file.write(json.dumps({"y": label, "review": {"text": text}}) + "\n")
    common = {"cache": str(tmp_path / "cache"), "held_out": 0.0}
    table = DataSettings(documents=str(tmp_path / "a.tsv"), label_column=3, text_column=2, **common)
    made = prepare_documents(table, WORD)
    assert decoded(made, made.train) == [("1", ["Good one ."]), ("0", ["Bad one ."])]
    lines = DataSettings(documents=str(tmp_path / "b.jsonl.gz"), label_column="y", text_column="review.text", **common)
    said = []
    assert prepare_documents(lines, WORD, say=said.append).labels == ("0", "1", "true")
    assert "dropped 1 without a label" in said[0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "train.tsv: no documents to train on$"),
        ([("", ""), ("a", "")], "train.tsv: no documents to train on: all 2 are blank"),
        ([("a", "x"), ("a", "y")], "train.tsv: only the label 'a' to train on, expected at least two"),
        (
            [(f"l{i}", "x") for i in range(10_001)],
            "more than 10,000 different labels, the last 'l10000'; is data.label_",
        ),
        ([("a", "<br />"), ("b", "<br />")], "no text to train a tokenizer on"),
        ([("a",), ("b",)], "line 1: 1 column, expected at least 2"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(corpus, tmp_path, lines, message):
    if lines and len(lines[0]) == 1:
        (tmp_path / "train.tsv").write_text("a\nb\n")
        data = DataSettings(documents=str(tmp_path / "train.tsv"), held_out=0.0, cache=str(tmp_path / "cache"))
    else:
        data = corpus(lines)
    with pytest.raises(DataError, match=message):
        prepare_documents(data, WORD)
    assert [each for each in os.listdir(tmp_path / "cache") if not each.startswith(".")] == []


def test_validation_without_documents_is_refused(corpus):
    empty = corpus([("other", "Text .")], "valid")
    with pytest.raises(DataError, match=r"valid.tsv: no document is left to validate on: 9 documents, .*other"):
        prepare_documents(corpus(rows(9), valid_documents=empty.documents), WORD)
    with pytest.raises(
        DataError, match="one document is too few to train on and to hold out .*; give --valid-documents"
    ):
        prepare_documents(corpus(rows(1), held_out=0.1), WORD)


def test_the_built_in_corpus(tmp_path):
    data = DataSettings(builtin="reviews", count=60, held_out=0.1, cache=str(tmp_path))
    said = []
    prepared = prepare_documents(data, WORD, say=said.append)
    assert prepared.labels == ("negative", "positive")
    assert said == ["60 documents, 2 labels (negative, positive); 6 for validation"]
    split = prepare_documents(data, WORD, splitter=lambda text: [text])
    assert all(len(each) == 1 for _, each in decoded(split, split.train))


# ---- how texts are split


@pytest.mark.parametrize(
    ("mark", "text", "expected"),
    [
        (None, "One . Two .", ["One .", "Two ."]),
        ("|", "One . Two | three||", ["One . Two ", " three"]),
        ("<s>", "One.<s>Two.<br>Three.", ["One.", "Two.", "Three."]),
        (None, " <br />\u3000<br> ", []),
    ],
)
def test_splitting(mark, text, expected):
    assert list(splitter_of(DataSettings(sentence_mark=mark))(text)) == expected


def test_breaks_become_spaces():
    assert without_breaks("One.<br /><br />Two <i>three</i>.<BR> ") == "One. Two <i>three</i>."


def test_a_splitter_of_ones_own():
    data, tokenizer = DataSettings(sentence_mark="|"), train(["a b c d e"], "word")
    split = splitter_of(data, lambda text: text.split("/"))
    found, cut = encode_documents(["a b/c", "a|b", "", "/"], tokenizer, data, split)
    a, b, c = tokenizer.encode("a b c")
    assert found == [[a, b, END, c, END], [*tokenizer.encode("a|b"), END], [], []]
    assert cut == [False] * 4
    for wrong in (lambda text: text, lambda text: [1, 2]):
        with pytest.raises(ArgumentError, match="splitter: .* returned, expected a list of sentences"):
            splitter_of(data, wrong)("a b")


def test_long_sentences_and_long_documents():
    tokenizer = train(["a"], "word")
    (a,) = tokenizer.encode("a")

    def encoded(text, longest, most):
        found, cut = encode_documents([text], tokenizer, DataSettings(longest=longest, document_tokens=most))
        return [len(part) for part in "".join("a" if i == a else "|" for i in found[0]).split("|")[:-1]], cut[0]

    text = "a a a a a a a"
    assert encoded(text, 3, 100) == ([3, 3, 1], False)
    assert encoded(text, 7, 7) == ([7], False)
    assert encoded(text, 3, 6) == ([3, 3], True)
    assert encoded(text, 3, 5) == ([3, 2], True)
    assert encoded(text, 3, 1) == ([1], True)
    assert encoded("a a<br>a a a<br>a", 2, 4) == ([2, 2], True)
    assert encoded("a a<br>a a a<br>a", 2, 6) == ([2, 2, 1, 1], False)
