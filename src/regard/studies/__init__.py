"""Claims from the literature, each run and set beside its numbers. One file a claim; `STUDIES` is the table of them.

A study is `run(seed=0, quick=False) -> Page`. Nothing heavy is imported until one is run.
"""

import difflib
import importlib
import typing

from regard.errors import CommandError

if typing.TYPE_CHECKING:
    from regard.studies.page import Page

__all__ = ["STUDIES", "Study", "run"]


class Study(typing.NamedTuple):
    """What a study is about, and the module that runs it."""

    claim: str
    module: str


STUDIES = {
    "scaling": Study("dot products are divided by √d to keep the softmax where its gradient lives", "scaling"),
    "gradient": Study("gradients fade with distance in a recurrent network and do not in attention", "gradient"),
    "positions": Study("attention does not see order: what is blind to it, and what breaks that", "positions"),
    "parallel": Study("self-attention takes one step, and one layer from the first word to the last", "parallel"),
}


def run(name: str, *, seed: int = 0, quick: bool = False) -> "Page":
    """Run the study called `name`."""
    if name not in STUDIES:
        near = difflib.get_close_matches(name, STUDIES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise CommandError(f"there is no study {name!r}{hint} (there are {', '.join(STUDIES)})")
    return importlib.import_module(f"regard.studies.{STUDIES[name].module}").run(seed=seed, quick=quick)
