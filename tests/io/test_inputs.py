"""Input of commands: sources with their prefixes, pairs, documents; files are counted in advance, pipes are not."""

import os
import threading
from types import SimpleNamespace

import pytest

from regard.errors import CommandError, DataError
from regard.io.inputs import DocumentLines, LinePairs, SourceLines, check_lengths, one_input, text_or_file
from regard.io.lines import CHUNK, GivenText


def file(folder, name, *lines):
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def test_sources_come_in_blocks_with_the_number_of_the_first(tmp_path):
    source = file(tmp_path, "source", *range(CHUNK + 3))
    lines = SourceLines(source)
    assert lines.total == CHUNK + 3
    blocks = list(lines.blocks())
    found = [(block.first, len(block.lines), block.prefixes) for block in blocks]
    assert found == [(1, CHUNK, None), (CHUNK + 1, 3, None)]
    assert [line for block in blocks for line in block.lines] == [str(i) for i in range(CHUNK + 3)]


def test_each_process_has_work_even_where_lines_are_few(tmp_path):
    lines = SourceLines(file(tmp_path, "source", *range(80)), processes=4)
    assert [len(block.lines) for block in lines.blocks()] == [5] * 16


def test_prefixes_go_with_their_lines(tmp_path):
    source, prefixes = file(tmp_path, "source", "a", "b"), file(tmp_path, "prefixes", "x", "")
    assert next(SourceLines(source, prefixes=prefixes).blocks()).prefixes == ["x", ""]
    assert next(SourceLines(source, prefix="y").blocks()).prefixes == ["y", "y"]
    with pytest.raises(CommandError, match="--prefix: given together with --prefixes"):
        SourceLines(source, "y", prefixes)


@pytest.mark.parametrize("count", [1, 3])
def test_as_many_prefixes_as_lines(tmp_path, count):
    source, prefixes = file(tmp_path, "source", "a", "b"), file(tmp_path, "prefixes", *"xyz"[:count])
    with pytest.raises(DataError, match=f"has {count} lines? and .*source has 2; expected the same number"):
        SourceLines(source, prefixes=prefixes)


def test_a_pipe_is_not_counted_and_not_shared(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(CommandError, match="cannot be shared among 2 processes"):
        SourceLines(str(pipe), processes=2)
    lines = SourceLines(str(pipe))
    assert lines.total is None
    writer = threading.Thread(target=pipe.write_text, args=("one\ntwo\n",))
    writer.start()
    assert [line for block in lines.blocks() for line in block.lines] == ["one", "two"]
    writer.join()


def test_pairs_are_line_by_line(tmp_path):
    source, target = file(tmp_path, "source", "a", "b"), file(tmp_path, "target", "x", "y")
    pairs = LinePairs(source, target)
    assert pairs.total == 2
    assert list(pairs.chunks()) == [(["a", "b"], ["x", "y"])]
    assert list(LinePairs(None, target).chunks()) == [(None, ["x", "y"])]


def test_pairs_that_are_none(tmp_path):
    source, target = file(tmp_path, "source", "a", "b"), file(tmp_path, "target", "x")
    with pytest.raises(DataError, match="source has 2 lines and .*target has 1; expected the same number"):
        LinePairs(source, target)
    with pytest.raises(CommandError, match="--target: missing"):
        LinePairs(source, None)
    with pytest.raises(CommandError, match="standard input is the source already"):
        LinePairs("-", "-")


def test_a_line_of_more_tokens_than_the_model_has_positions_is_named():
    check_lengths("given", [[1, 2, 3]], None, 0)
    check_lengths("given", [[1, 2, 3]], 3, 0)
    with pytest.raises(DataError, match="given, line 12: 4 tokens, expected at most 3"):
        check_lengths("given", [[1], [1, 2, 3, 4]], 3, 10)


def label(texts):
    outputs = [SimpleNamespace(label=text, probability=0.75, probabilities={text: 0.75}) for text in texts]
    return [output if output.label else None for output in outputs]


def test_documents_without_words_have_an_empty_line_and_are_named_and_counted(tmp_path):
    warnings = []
    lines = DocumentLines(file(tmp_path, "documents", "good", "", *[""] * 11), warnings.append)
    assert lines.total == 13
    assert list(lines.labelled(label, True, False)) == [(13, "good\t0.7500\n" + "\n" * 12)]
    assert len(warnings) == 11  # ten are named, and all are counted
    assert "documents, line 2: a document without words" in warnings[0]
    assert warnings[-1] == "12 of 13 documents have no words and get no label"


def test_one_file_of_documents_whose_texts_are_made_of_lines(tmp_path):
    with pytest.raises(CommandError, match="two: a second argument given, expected one text"):
        one_input(["one", "two"])
    assert (one_input(["one"]), one_input([])) == ("one", "-")
    path = file(tmp_path, "documents", "a", "b", "")
    lines = DocumentLines(path, lambda text: None, lambda each: [text * 2 for text in each])
    assert list(lines.labelled(label, False, False)) == [(3, "aa\nbb\n\n")]


def test_what_may_not_be_looked_at_is_a_file(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("regard.io.inputs.Path.exists", refuse)  # like a locked folder; root may read everywhere
    assert text_or_file("locked/in.txt") == "locked/in.txt"
    assert not isinstance(text_or_file("locked/in.txt"), GivenText)


@pytest.mark.parametrize("text", ["", " ", "A man rides a horse.", "see notes.txt here", "a b\n" * 3000])
def test_what_has_white_space_is_a_text(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    given = text_or_file(text)
    assert isinstance(given, GivenText)
    assert SourceLines(given).total == max(1, text.count("\n"))
    lines = [line for block in SourceLines(given).blocks() for line in block.lines]
    assert lines == text.removesuffix("\n").split("\n")


def test_what_is_there_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two words").write_text("x\n")
    for name in ("two words", ".", "-"):
        assert not isinstance(text_or_file(name), GivenText)
        assert isinstance(text_or_file(name, as_text=True), GivenText)


@pytest.mark.parametrize("word", ["tset.en", "./none", "Hund", "x" * 5000, "a\0b"])
def test_a_mistyped_name_is_no_text(tmp_path, monkeypatch, word):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError, match="no such file; if it is a text, add --text$"):
        text_or_file(word)


def test_odd_bytes_of_sources_are_read_as_a_mark_and_counted(tmp_path):
    messages = []
    lines = SourceLines(GivenText("a \udcff"), say=messages.append)
    assert next(lines.blocks()).lines == ["a �"]
    path = tmp_path / "odd"
    path.write_bytes(b"one\ncaf\xe9 au lait\n\xff\xff two\nthree\n")
    lines = SourceLines(str(path), say=messages.append)
    assert lines.total == 4
    assert next(lines.blocks()).lines == ["one", "caf� au lait", "�� two", "three"]
    assert list(lines.blocks())
    what = "2 lines have bytes that are not UTF-8 and were read as �: the first is line 2, byte 4 (0xe9)"
    assert messages[-1] == f"{path}: {what}; convert it to UTF-8"
    (tmp_path / "half").write_bytes(b"one\ntwo\xe2\x82")
    assert next(SourceLines(str(tmp_path / "half")).blocks()).lines == ["one", "two�"]
    (tmp_path / "nul").write_bytes(b"one\n\xff\0\n")
    with pytest.raises(DataError, match="line 2: byte 2 is NUL"):
        SourceLines(str(tmp_path / "nul"))


def test_several_inputs_are_read_one_after_the_other(tmp_path, monkeypatch):
    paths = [file(tmp_path, "one", "a", "b"), file(tmp_path, "none"), file(tmp_path, "two", "c")]
    messages = []
    lines = SourceLines(paths, prefixes=file(tmp_path, "prefixes", *"xyz"), say=messages.append)
    lines.texts[2] = lambda own: [text.upper() for text in own]
    assert [tuple(block) for block in lines.blocks()] == [
        (1, ["a", "b"], ["x", "y"], paths[0], 1),
        (3, ["C"], ["z"], paths[2], 1),
    ]
    assert messages == [f"{paths[1]}: empty, nothing to translate"]
    assert lines.total == 3
    monkeypatch.setattr("regard.io.inputs.CHUNK", 1)
    found = [(block.first, block.place) for block in SourceLines([paths[2], paths[0]]).blocks()]
    assert found == [(1, 1), (2, 1), (3, 2)]
    with pytest.raises(DataError, match="has 1 line and .*one, .*none and .*two have 3; expected the same number"):
        SourceLines(paths, prefixes=file(tmp_path, "few", "x"))
