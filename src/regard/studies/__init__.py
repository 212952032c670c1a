"""Claims from the literature, each run and set beside its numbers. One file a claim; `STUDIES` is the table of them.

A study is `run(seed=0, quick=False) -> Page`; one that trains its systems is `run(Setting) -> Page`. Nothing heavy is
imported until one is run.
"""

import difflib
import importlib
import typing

from regard.errors import CommandError
from regard.studies.setting import Setting

if typing.TYPE_CHECKING:
    from regard.studies.page import Page

__all__ = ["STUDIES", "Study", "run"]


class Study(typing.NamedTuple):
    """What a study is about, and the module that runs it."""

    claim: str
    module: str
    trained: bool = False


STUDIES = {
    "scaling": Study("dot products are divided by √d to keep the softmax where its gradient lives", "scaling"),
    "gradient": Study("gradients fade with distance in a recurrent network and do not in attention", "gradient"),
    "positions": Study("attention does not see order: what is blind to it, and what breaks that", "positions"),
    "fixed-context": Study(
        "a fixed context forgets long sentences, and attention does not", "fixed_context", trained=True
    ),
    "parallel": Study("self-attention takes one step, and one layer from the first word to the last", "parallel"),
}


def run(name: str, *, seed: int = 0, quick: bool = False, setting: Setting | None = None) -> "Page":
    """Run the study called `name`; one that trains takes seeds, device and folder from the setting."""
    if name not in STUDIES:
        near = difflib.get_close_matches(name, STUDIES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise CommandError(f"there is no study {name!r}{hint} (there are {', '.join(STUDIES)})")
    module = importlib.import_module(f"regard.studies.{STUDIES[name].module}")
    if STUDIES[name].trained:
        return module.run(setting or Setting(seeds=(seed,), quick=quick))
    return module.run(seed=seed, quick=quick)
