"""Texts of requests in the log, where a person asked for them: never the keys that came with them."""

import json
import logging
import re
from typing import Any

LONGEST = 100_000  # characters of a line
SECRET = re.compile(r"key|token|secret|password|authori[sz]ation|credential", re.IGNORECASE)
HIDDEN = "(not logged)"
log = logging.getLogger("regard.serving")


def log_texts(path: str, table: dict[str, Any]) -> None:
    """Write the fields of a request into the log, without what may be a key, however deep it is."""
    try:
        line = json.dumps(hide_keys(table), ensure_ascii=True, default=str)
    except RecursionError:
        line = "(nested too deeply to be logged)"
    log.info("%s %s", path, line[:LONGEST])


def hide_keys(value: Any) -> Any:
    """A value without what stands under the name of a key."""
    if isinstance(value, dict):
        return {name: HIDDEN if is_secret(name) else hide_keys(each) for name, each in value.items()}
    return [hide_keys(each) for each in value] if isinstance(value, list | tuple) else value


def is_secret(name: str) -> bool:
    """Return whether a field of this name may hold a key; options of the search do not."""
    return SECRET.search(name) is not None and name not in ("output_tokens", "tokens")
