"""Small files within limits: every bad one gives one sentence, in time and memory that its size bounds."""

import contextlib
import json
import os
import random
import time

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import CheckpointError
from regard.io.reading import (
    CONFIG,
    DEPTH,
    PARTS,
    SMALL,
    TABLES,
    Unreadable,
    parse_json,
    parse_toml,
    read_bytes,
    read_json,
    read_toml,
)

M = 2**20
BAD_JSON = {
    "deep lists": "[" * 10_000,
    "deep and closed": "[" * 10_000 + "]" * 10_000,
    "deep tables": '{"a":' * 10_000 + "1" + "}" * 10_000,
    "a little too deep": "[" * (DEPTH + 1) + "]" * (DEPTH + 1),
    "digits": "1" * 5000,
    "negative digits": "[-" + "9" * 400 + "]",
    "values": "[" + "0," * 4_000_001 + "0]",
    "lists": "[" + "[[]]," * 4_000_000 + "0]",
    "half": '{"a": ',
    "nothing": "",
    "two": "1 2",
    "no text": '"' + "a" * 100,
}
BAD_TOML = {
    "dotted": "a." * 20_000 + "a = 1",
    "dotted table": "[" + "a." * 20_000 + "a]",
    "dotted, quoted": '"a" . ' * 20_000 + "a = 1",
    "dotted, inside": "x = {" + "a." * 20_000 + "a = 1}",
    "a little too long": ".".join(["a"] * (PARTS + 1)) + " = 1",
    "lists": "a = " + "[" * 20_000,
    "tables": "a = " + "{a = " * 20_000,
    "a little too deep": "a = " + "[" * (TABLES + 1) + "]" * (TABLES + 1),
    "digits": "a = " + "1" * 5000,
    "hexadecimal": "a = 0x" + "f" * 100_000,
    "a quote that never ends": 'a = """' + '""x' * (M // 4),
    "words": "a " * (M // 4),
    "the same twice": "a = 1\na = 2",
}


@pytest.mark.parametrize(
    ("parse", "name"), [(parse_json, name) for name in BAD_JSON] + [(parse_toml, name) for name in BAD_TOML]
)
def test_what_is_refused(parse, name):
    start = time.perf_counter()
    with pytest.raises(Unreadable) as caught:
        parse((BAD_JSON if parse is parse_json else BAD_TOML)[name])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200
    assert time.perf_counter() - start < 5


TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('[]{}",.\\#=\n'), max_size=12)
LEAVES = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXTS


def nested(leaves):
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=10
    )


@given(nested(LEAVES | st.none()), st.booleans())
def test_json_within_the_limits_is_what_json_says(value, plain):
    text = json.dumps(value, ensure_ascii=plain)
    assert parse_json(text) == parse_json(text.encode()) == json.loads(text)


@given(st.dictionaries(TEXTS, nested(LEAVES), max_size=4))
def test_toml_within_the_limits_is_what_was_written(table):
    for several in (False, True):
        assert parse_toml(tomli_w.dumps(table, multiline_strings=several)) == table


def test_signs_in_texts_are_no_depth():
    signs = "[" * 1000 + '\\"' + "{." * 1000
    assert parse_json(json.dumps({"a": signs, "b": "\\"})) == {"a": signs, "b": "\\"}
    for quote in ('"', '"""', "'", "'''"):
        inside = signs.replace("\\", "").replace('"', "")
        assert parse_toml(f"a = {quote}{inside}{quote}  # {signs}") == {"a": inside}
    depth = "[" * DEPTH + "]" * DEPTH
    assert parse_json(depth) == json.loads(depth)


@given(st.lists(st.sampled_from(['"', "'", '"""', "'''", "#", "\n", "[", "]", "{", "}", ".", "=", "a", "\\", ","])))
def test_any_signs_are_read_or_refused(signs):
    for parse in (parse_json, parse_toml):
        with contextlib.suppress(Unreadable):
            parse("".join(signs))


def test_bytes_that_are_no_text():
    for _ in range(200):
        content = random.randbytes(random.randrange(1, 60))
        with contextlib.suppress(Unreadable):
            parse_json(content)


def test_a_file_that_is_too_large(tmp_path):
    path = tmp_path / "large.json"
    with open(path, "wb") as file:
        file.truncate(2**40)  # a terabyte that takes no room on the disk, nor may it in memory
    with pytest.raises(CheckpointError, match=r"large.json: 1,099,511,627,776 bytes given, expected at most 8,388,608"):
        read_json(path, CheckpointError)
    path.write_bytes(b" " * SMALL)
    assert len(read_bytes(path)) == SMALL
    with pytest.raises(Unreadable, match=f"expected at most {CONFIG:,}"):
        read_toml(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # without a writer, a reader would wait
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(CheckpointError, match="not a file, but a pipe or a device"):
            read_json(path, CheckpointError)
    with pytest.raises(Unreadable, match="more than 1,048,576 bytes given"):
        read_toml("/dev/zero", pipe=True)
    with pytest.raises(CheckpointError, match="none.json: cannot be read: No such file"):
        read_json(tmp_path / "none.json", CheckpointError)
    with pytest.raises(CheckpointError, match="cannot be read: Is a directory"):
        read_json(tmp_path, CheckpointError)
