"""Errors in LibreTranslate's form: `{"error": "…"}`, with its status codes."""

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException

from regard.serving.answers import error_of
from regard.serving.requests import ApiError

PATHS = frozenset(
    ("/translate", "/translate_file", "/detect", "/suggest", "/languages", "/frontend/settings", "/health", "/spec")
)
OPEN = frozenset(("/languages", "/frontend/settings", "/health", "/spec"))
DOWNLOADS = "/download_file/"
FAULT = "A fault of the server; see its log"


class ProtocolError(ApiError):
    """A request that is not answered, in LibreTranslate's form."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None):
        super().__init__(status, "libretranslate", message, headers=headers)

    @property
    def body(self) -> dict[str, Any]:
        """The answer as JSON."""
        return {"error": str(self)}


def is_open_path(path: str) -> bool:
    """Return whether a path asks for no key: it tells what the server can do, or its name is a secret."""
    return path in OPEN or path.startswith(DOWNLOADS)


def is_protocol_path(path: str) -> bool:
    """Return whether a path is one of LibreTranslate's."""
    return path in PATHS or path.startswith(DOWNLOADS)


def to_protocol(error: Exception) -> ProtocolError:
    """An error in LibreTranslate's form."""
    if isinstance(error, ProtocolError):
        return error
    if isinstance(error, HTTPException):
        return ProtocolError(error.status_code, str(error.detail), error.headers)
    known = error_of(error)
    if known is None or known.status == 500:
        return ProtocolError(500, FAULT)
    if known.code == "unauthorised":
        if "missing" in str(known):
            return ProtocolError(400, "Please send an API key as api_key; the operator of this server has them")
        return ProtocolError(403, "Invalid API key")
    headers = {name: value for name, value in known.headers.items() if name.lower() != "www-authenticate"}
    return ProtocolError(400 if known.status == 422 else known.status, str(known), headers)
