"""Reading truncates long lines, so that any file, packed or not, takes bounded memory.

Training and translation read the same lines from the same bytes, and refuse the same files. Outputs have as many lines
as inputs.
"""

import gzip
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from child import forked, regard
from tiny import table

from regard.data import DataSettings, TokenizerSettings, prepare
from regard.data.corpus import lines as training_lines
from regard.errors import DataError
from regard.evaluation import read_texts
from regard.io import MAX_LINE_CHARACTERS, read_chunks
from regard.tasks import start

pytestmark = pytest.mark.unchecked  # typer uses other classes than it documents
WORD = TokenizerSettings(kind="word")
ROOM = 400 << 20  # bytes beyond those of a process with torch: far less than the files hold


def translating_lines(path: Path) -> list[str]:
    return [line for chunk in read_chunks(path) for line in chunk]


READERS = {
    "training": lambda path: list(training_lines(path)),
    "translating": translating_lines,
    "evaluating": read_texts,
}


def huge(path: Path, size: int, packed: bool) -> Path:
    """Write a word of `size` bytes on one line, then a line with one word."""
    block = b"x" * (1 << 20)
    with gzip.open(path, "wb", compresslevel=1) if packed else open(path, "wb") as file:
        for _ in range(size >> 20):
            file.write(block)
        file.write(b"\nnext\n")
    return path


linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is measured as Linux tells it")


@linux
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("who", READERS)
def test_every_reader_takes_a_bounded_memory(tmp_path, who, packed):
    """A line is longer than the available memory; the reader keeps 1 MB of it."""
    path = huge(tmp_path / "file", 200 << 20, packed)
    shown = forked(lambda: print([len(line) for line in READERS[who](path)]), room=60 << 20)
    assert shown == (0, f"[{MAX_LINE_CHARACTERS}, 4]\n", "")


@pytest.mark.slow
@linux
def test_a_line_of_four_gigabytes_is_unpacked_in_parts(tmp_path):
    path = huge(tmp_path / "file", 4 << 30, packed=True)
    shown = forked(lambda: print([len(line) for line in translating_lines(path)]), room=60 << 20)
    assert shown == (0, f"[{MAX_LINE_CHARACTERS}, 4]\n", "")


@linux
@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "character"])
def test_a_huge_word_takes_a_bounded_memory_in_training(tmp_path, kind):
    """Every tokenizer trains and encodes beside a word of 50 MB; its pair is dropped, and counted as too long."""
    source, target = tmp_path / "source", tmp_path / "target"
    huge(source, 50 << 20, packed=False)
    with open(source, "a") as file:
        file.write("".join(f"word{i} and {i}\n" for i in range(300)))
    target.write_text("".join(f"line {i}\n" for i in range(302)))
    data = DataSettings(source=str(source), target=str(target), cache=str(tmp_path / "cache"))
    shown = forked(lambda: prepare(data, TokenizerSettings(kind=kind, size=400), say=print), room=ROOM)
    assert shown.status == 0, shown.stderr
    remark, summary = shown.stdout.splitlines()
    assert remark == f"{source}: line 1 has more than {MAX_LINE_CHARACTERS:,} characters and was truncated"
    assert "dropped 1 longer than 200 tokens" in summary


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Train a small run with a BPE tokenizer that writes unknown characters as bytes."""
    folder, threads = tmp_path_factory.mktemp("run"), torch.get_num_threads()
    start(table(folder, training__steps=2, tokenizer={"kind": "bpe", "size": 300}), folder / "run")
    torch.set_num_threads(threads)
    return folder / "run"


@linux
def test_translating_a_huge_word_takes_a_bounded_memory(run, tmp_path):
    path = huge(tmp_path / "file", 100 << 20, packed=True)
    shown = regard("translate", run, path, "--beam", 1, "--longest", 5, "--device", "cpu", room=ROOM)
    assert shown.status == 0, shown.stderr
    assert shown.stdout.count("\n") == 2
    assert f"{path}: line 1 has more than {MAX_LINE_CHARACTERS:,} characters and was truncated\n" in shown.stderr


# The bytes of a file, and its lines or the message that refuses it.
FILES = {
    "one line without its end": (b"a b", ["a b"]),
    "nothing": (b"", []),
    "windows": (b"a\r\nb\r\n", ["a", "b"]),
    "a lone carriage return": (b"a\rb\nc\r", ["a\rb", "c"]),
    "other separators": (
        "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\nh\n".encode(),
        ["a\u2028b\u2029c\x85d\x0be\x0cf\x1cg", "h"],
    ),
    "a mark of UTF-8": (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
    "blank lines": (b"\n \n\na\n\n", ["", " ", "", "a", ""]),
    "NUL": (b"a\nb\0c\nd\n", "line 2: byte 2 is NUL, as in binary files; expected UTF-8 text"),
    "NUL in a line without end": (b"a\nbc\0\0\0", "line 2: byte 3 is NUL"),
    "no UTF-8": (b"a\nb\xffc\n", "line 2: byte 2 (0xff) is not UTF-8; convert the file to UTF-8"),
    "latin-1": ("gr\xfcn\n".encode("latin-1"), "line 1: byte 3 (0xfc) is not UTF-8"),
    "UTF-16": ("a\n".encode("utf-16"), "line 1: looks like UTF-16; convert the file to UTF-8"),
    "UTF-16 without a mark": ("ab\n".encode("utf-16-le"), "line 1: byte 2 is NUL"),
    "half a character at the end": (b"a\nb\xe2\x82", "line 2: byte 2 (0xe2) is not UTF-8"),
    "broken gzip": (gzip.compress(b"a\nb\n")[:-4], "broken gzip after line 2: it ends too early"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_training_translating_and_evaluating_read_the_same(tmp_path, name, packed):
    data, expected = FILES[name]
    (tmp_path / "file").write_bytes(gzip.compress(data) if packed and name != "broken gzip" else data)
    for who, read in READERS.items():
        if not expected and who == "evaluating":
            with pytest.raises(DataError, match="empty, expected one sentence per line"):
                read(tmp_path / "file")
        elif isinstance(expected, list):
            assert read(tmp_path / "file") == expected, who
        else:
            with pytest.raises(DataError) as error:
                read(tmp_path / "file")
            assert expected in str(error.value), who


@pytest.mark.parametrize("character", ["x", "é", "語", "😀"])
@pytest.mark.parametrize("beyond", [-1, 0, 1, 5 * MAX_LINE_CHARACTERS])
def test_where_a_line_is_cut(tmp_path, character, beyond):
    """The limit counts characters, not bytes; no character is cut in half or lost before the limit."""
    data = f"first\n{character * (MAX_LINE_CHARACTERS + beyond)}\nlast".encode()
    (tmp_path / "file").write_bytes(data)
    expected = ["first", character * min(MAX_LINE_CHARACTERS, MAX_LINE_CHARACTERS + beyond), "last"]
    for who, read in READERS.items():
        assert read(tmp_path / "file") == expected, who


def test_a_line_that_is_cut_is_said_once(tmp_path):
    (tmp_path / "file").write_bytes(b"a\n" + (b"x" * (MAX_LINE_CHARACTERS + 1) + b"\n") * 3)
    said = []
    assert [len(line) for line in training_lines(tmp_path / "file", said.append)] == [1, *[MAX_LINE_CHARACTERS] * 3]
    path = tmp_path / "file"
    assert said == [f"{path}: 3 lines have more than 1,000,000 characters and were truncated; the first is line 2"]


@pytest.mark.parametrize("place", ["source", "target", "valid_source"])
def test_what_would_never_end_is_refused_in_training(tmp_path, place):
    """Training refuses a pipe and a device, both at first and when everything is in the cache already."""
    files = {name: tmp_path / name for name in ("source", "target", "valid_source", "valid_target")}
    for path in files.values():
        path.write_text("a b\nc d\n")

    def prepared(**changes: str):
        given = {name: str(path) for name, path in files.items()}
        return prepare(DataSettings(**{**given, **changes, "cache": str(tmp_path / "cache")}), WORD)

    prepared()
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(DataError, match=f"{path}: a pipe or a device given, expected a file"):
            prepared(**{place: path})
    shutil.move(files[place], tmp_path / "away")
    os.mkfifo(files[place])  # under the name from which the cache was made
    with pytest.raises(DataError, match=f"{place}: a pipe or a device given"):
        prepared()


def test_a_device_of_zeros_ends_at_once(run):
    shown = regard("translate", run, "/dev/zero", "--device", "cpu")
    expected = "regard: /dev/zero, line 1: byte 1 is NUL, as in binary files; expected UTF-8 text\n"
    assert shown == (2, "", expected)


def test_outputs_have_as_many_lines_as_inputs(run, tmp_path):
    """Read very odd lines from a file, a gzip file, standard input and a named pipe."""
    odd = ["1 2", "", " ", "\r", "3\r4", "\u2028", "5\x856", "7\x0b8\x0c9", "\ufeff1", "x" * 5000, "語" * 300, "\t\t"]
    data = "\n".join([*odd, "1 2 3"]).encode()
    options = ("--beam", 1, "--longest", 5, "--device", "cpu")
    (tmp_path / "plain").write_bytes(data)
    (tmp_path / "packed").write_bytes(gzip.compress(data))
    os.mkfifo(tmp_path / "pipe")
    feeder = os.fork()
    if feeder == 0:
        (tmp_path / "pipe").write_bytes(data)
        os._exit(0)
    outputs = [
        regard("translate", run, tmp_path / "plain", *options),
        regard("translate", run, tmp_path / "packed", *options),
        regard("translate", run, tmp_path / "pipe", *options),
        regard("translate", run, *options, stdin=data),
    ]
    os.waitpid(feeder, 0)
    for shown in outputs:
        assert shown.status == 0, shown.stderr
        assert shown.stdout.count("\n") == len(odd) + 1
        assert shown.stdout == outputs[0].stdout
        assert "\r" not in shown.stdout


def test_a_file_that_shrinks_is_no_result(run, tmp_path):
    """The lines read are compared with the lines counted; a failure leaves no output file."""
    from regard.io import SourceLines

    path = tmp_path / "file"
    path.write_text("1 2\n" * 10)
    given = SourceLines(str(path))
    path.write_text("1 2\n" * 7)
    with pytest.raises(DataError, match="file: changed while it was read: it had 10 lines, and then 7"):
        list(given.blocks())


@pytest.mark.parametrize("which", ["source", "target"])
def test_a_corpus_that_changes_while_it_is_read_is_not_cached(tmp_path, monkeypatch, which):
    """Otherwise the encoded pairs would be found again under the hash of another text."""
    from regard.data import preparation as preparing

    for name in ("source", "target"):
        (tmp_path / name).write_text("".join(f"word {i}\n" for i in range(50)))
    build = preparing.build

    def change(*arguments):
        found = build(*arguments)
        (tmp_path / which).write_text("".join(f"other {i}\n" for i in range(50)))
        return found

    data = DataSettings(source=str(tmp_path / "source"), target=str(tmp_path / "target"), cache=str(tmp_path / "cache"))
    with monkeypatch.context() as patched:
        patched.setattr(preparing, "build", change)
        with pytest.raises(DataError, match="changed while they were read"):
            prepare(data, WORD)
    assert [path for path in (tmp_path / "cache").iterdir() if not path.name.startswith(".")] == []
    said: list[str] = []
    prepare(data, WORD, say=said.append)
    assert re.match(r"49 pairs", said[0])


def test_a_long_text_is_encoded_in_the_time_of_its_length():
    """A word is read up to a hundred thousand characters, both in training and in translation."""
    from regard.data import train
    from regard.data.tokenizer import LONGEST_WORD

    for kind in ("bpe", "unigram", "character", "word"):
        tokenizer = train(["some text", "other words"] * 20, kind, 400)
        word = "sometext" * LONGEST_WORD
        assert tokenizer.encode(word) == tokenizer.encode(word[:LONGEST_WORD])
        assert tokenizer.encode_batch([word, "text"]) == [tokenizer.encode(word), tokenizer.encode("text")]
        assert len(tokenizer.cache) < 10
        assert max(map(len, tokenizer.cache), default=0) < LONGEST_WORD


@linux
def test_memory_is_what_the_test_measures():
    """A process that exceeds its memory limit fails, so the tests above can fail."""
    # More than earlier tests can have left free in this process, because freed memory is used first.
    shown = forked(lambda: [bytearray(100 << 20) for _ in range(20)], room=60 << 20)
    assert shown.status == 1
    assert "MemoryError" in shown.stderr
