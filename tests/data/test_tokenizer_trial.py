"""A tokenizer is tried in a process of its own, which ends silently if the tokenizer is valid."""

import json
import subprocess
import sys

import pytest

from regard.data import tokenizer_trial
from regard.data.tokenizer import Tokenizers
from regard.data.vocabulary import train


@pytest.fixture(scope="module")
def good():
    tokenizers = Tokenizers(train(["hello world"] * 3, "word"))
    return tokenizers.source.library.to_str()


def run(tokenizer, texts):
    request = json.dumps({"tokenizer": tokenizer, "texts": texts}).encode() + b"\n"
    return subprocess.run([sys.executable, tokenizer_trial.__file__], input=request, capture_output=True, timeout=60)


def test_one_that_takes_every_text_ends_silently(good):
    ended = run(good, ["hello", "", "\u2028 漢字 😀", "x" * 300])
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_one_that_cannot_be_loaded_names_the_reason_last():
    ended = run("{}", [])
    assert ended.returncode != 0
    assert b"Exception" in ended.stderr.splitlines()[-1]
