"""Errors that refuse requests, in the form of each protocol."""

import pytest
from starlette.exceptions import HTTPException

from regard.errors import ArgumentError
from regard.serving.errors import ApiError, ProtocolError, adapt, error_of, is_protocol_path


def test_an_unknown_error_is_a_fault_of_the_server():
    assert error_of(ZeroDivisionError()) is None
    assert error_of(MemoryError()).status == 503
    known = ApiError(404, "x", "y")
    assert error_of(known) is known


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (ProtocolError(403, "no"), 403, "no"),
        (ApiError(422, "invalid_value", "bad"), 400, "bad"),
        (ApiError(413, "too_large", "large"), 413, "large"),
        (ApiError(429, "overloaded", "wait"), 429, "wait"),
        (ApiError(401, "unauthorised", "the API key is missing; …"), 400, "API key"),
        (ApiError(401, "unauthorised", "the API key is not known here; …"), 403, "Invalid API key"),
        (ArgumentError("texts: odd"), 400, "texts: odd"),
        (HTTPException(405, "Method Not Allowed"), 405, "Method Not Allowed"),
        (MemoryError(), 503, "out of memory"),
    ],
)
def test_statuses(error, status, words):
    known = adapt("/translate", error)
    assert known.status == status
    assert list(known.body) == ["error"]
    assert words in known.body["error"]


@pytest.mark.parametrize("error", [ZeroDivisionError(), ApiError(500, "internal", "a fault of the server")])
def test_a_fault_says_no_more_than_that(error):
    known = adapt("/translate", error)
    assert (known.status, str(known)) == (500, "A fault of the server; see its log")


def test_headers_say_when_to_try_again():
    known = adapt("/translate", ApiError(429, "overloaded", "wait", headers={"Retry-After": "3"}))
    assert known.headers == {"Retry-After": "3"}
    assert adapt("/translate", ApiError(401, "unauthorised", "x", headers={"WWW-Authenticate": "Bearer"})).headers == {}


def test_paths():
    assert is_protocol_path("/translate")
    assert is_protocol_path("/download_file/x")
    assert not is_protocol_path("/v1/translate")
    assert not is_protocol_path("/translate/")
    assert not is_protocol_path("/")
