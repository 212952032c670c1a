"""Whether a peer can take part: it is installed, and what the benchmarks use of it can be imported."""

import importlib.util
import os
import subprocess
import sys
from functools import cache

__all__ = ["obstacle"]

USES = {  # what the benchmarks import of a package, where that is not the package itself
    "joeynmt": "import joeynmt.batch, joeynmt.model, joeynmt.search, joeynmt.vocabulary",
    "transformers": "from transformers import MarianConfig, MarianMTModel",
}


def obstacle(package: str) -> str | None:
    """Return what keeps a package from taking part, to be set behind its name, or None if nothing does."""
    if importlib.util.find_spec(package) is None:
        return "is not installed"
    error = import_error(package)
    return None if error is None else f"is installed by half ({error})"


@cache
def import_error(package: str) -> str | None:
    """Import in a process of its own, whose memory and modules are not those that are measured: its error, if any."""
    command = [sys.executable, "-W", "ignore", "-c", USES.get(package, f"import {package}")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", env=environment, check=False
    )
    lines = done.stderr.strip().splitlines()
    return None if done.returncode == 0 else lines[-1] if lines else f"its import ends with {done.returncode}"
