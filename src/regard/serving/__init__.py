"""Serving: runs over HTTP, with sentences that join and leave a search while it decodes.

`Service` and `run_server` serve; `ServeSettings` and `parse_runs` hold what the command line says.
"""

from typing import TYPE_CHECKING

from regard.door import door

if TYPE_CHECKING:
    from regard.serving.server import run_server
    from regard.serving.service import Service
    from regard.serving.settings import LOG_FORMAT, ServeSettings, parse_runs

__all__ = [
    "LOG_FORMAT",
    "ServeSettings",
    "Service",
    "parse_runs",
    "run_server",
]

__getattr__, __dir__ = door(__name__)
