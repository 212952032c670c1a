"""Errors of a server: the answers to requests that fail, in the form of `/v1` or of LibreTranslate's protocol.

LibreTranslate's form is `{"error": "…"}`, with its own status codes. This module also lists the paths of that protocol.
"""

from collections.abc import Mapping
from typing import Any

import torch
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from regard.errors import RegardError

OUT_OF_MEMORY = (MemoryError, torch.OutOfMemoryError)
FAULT = "a fault of the server; see its log"
PROTOCOL_PATHS = frozenset(
    ("/translate", "/translate_file", "/detect", "/suggest", "/languages", "/frontend/settings", "/health", "/spec")
)
DOWNLOADS = "/download_file/"
REFUSAL = "refusal"  # key in a request's state: why the rest of its body is not read


class ApiError(RegardError):
    """A failed request: the status, a code for programs, and a sentence for people."""

    def __init__(
        self, status: int, code: str, message: str, field: str | None = None, headers: Mapping[str, str] | None = None
    ):
        super().__init__(message)
        self.status, self.code, self.field, self.headers = status, code, field, dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """The answer as JSON."""
        return {"error": {"code": self.code, "message": str(self), "field": self.field}}


class InvalidValueError(ApiError):
    """A field has an invalid value."""

    def __init__(self, message: str, field: str | None = None):
        super().__init__(422, "invalid_value", message, field)


class TooLargeError(ApiError):
    """A request, or one of its fields, is larger than the server allows."""

    def __init__(self, message: str, field: str | None = None):
        super().__init__(413, "too_large", message, field)


class WorkerError(RegardError):
    """The thread or the process that computes with a model has stopped."""


def error_of(error: Exception) -> ApiError | None:
    """Return the answer to an error of the library, in the command line's words; None for a fault of the server."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, WorkerError):
        return ApiError(503, "worker_stopped", str(error))
    if isinstance(error, RegardError):
        name = str(error).partition(":")[0]
        return InvalidValueError(str(error), name if name.replace("_", "").isalnum() else None)
    if isinstance(error, OUT_OF_MEMORY):
        return ApiError(
            503, "out_of_memory", "out of memory; send less at once, or try again", headers={"Retry-After": "5"}
        )
    return None


# ---- LibreTranslate's form


class ProtocolError(ApiError):
    """A failed request, in LibreTranslate's form."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None):
        super().__init__(status, "libretranslate", message, headers=headers)

    @property
    def body(self) -> dict[str, Any]:
        """The answer as JSON."""
        return {"error": str(self)}


def is_protocol_path(path: str) -> bool:
    """Return whether a path is one of LibreTranslate's."""
    return path in PROTOCOL_PATHS or path.startswith(DOWNLOADS)


def adapt(path: str, error: Exception) -> ApiError:
    """Return the answer to an error, in the form of the path's protocol."""
    if not is_protocol_path(path):
        return error_of(error) or ApiError(500, "internal", FAULT)
    if isinstance(error, HTTPException):
        return ProtocolError(error.status_code, str(error.detail), error.headers)
    known = error_of(error)
    if known is None or known.status == 500:
        return ProtocolError(500, FAULT.capitalize())
    if known.code == "unauthorised":
        if "missing" in str(known):
            return ProtocolError(400, "Please send an API key as api_key; the operator of this server has them")
        return ProtocolError(403, "Invalid API key")
    return ProtocolError(400 if known.status == 422 else known.status, str(known), known.headers)


def respond(path: str, error: Exception) -> JSONResponse:
    """Build the response to an error, in the form of the path's protocol."""
    answer = adapt(path, error)
    return JSONResponse(answer.body, answer.status, headers=answer.headers)
