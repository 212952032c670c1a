"""The library's errors are the user's, and its panics errors; tests/data/test_tokenizer.py forks."""

import pytest

from regard.data.library_calls import call_library
from regard.errors import DataError


class PanicException(BaseException):
    """What the library raises when it panics: no Exception."""


def failing(error):
    raise error


def test_errors_become_one_sentence():
    assert call_library("a text", "ab".upper) == "AB"
    for error in (ValueError("no\nmore"), PanicException("no\nmore")):
        with pytest.raises(DataError, match="^a text: no$"):
            call_library("a text", failing, error)
    with pytest.raises(KeyboardInterrupt):
        call_library("a text", failing, KeyboardInterrupt())
