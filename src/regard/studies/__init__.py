"""Claims from the literature, each run and set beside its numbers. A folder a claim; `STUDIES` is the table.

A study is `run(seed=0, quick=False) -> Page`; one that trains its systems is `run(Setting) -> Page`. One that does
both has a second module for what it trains, `training.run(Setting) -> Part`, which its page is joined with. Nothing
heavy is imported until one is run.
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
    """What a study is about, and the folder of what runs it."""

    claim: str
    module: str
    trained: bool = False
    training: bool = False  # whether its folder has a part that is trained, too


STUDIES = {
    "fixed-context": Study(
        "a fixed context forgets long sentences, and attention does not", "fixed_context", trained=True
    ),
    "luong-table": Study("global and local attention with every score, side by side", "luong_table", trained=True),
    "soft-hard": Study("captions by soft, hard and straight-through attention", "soft_hard", trained=True),
    "scaling": Study(
        "dot products are divided by √d to keep the softmax where its gradient lives",
        "scaling",
        training=True,
    ),
    "gradient": Study("gradients fade with distance in a recurrent network and do not in attention", "gradient"),
    "positions": Study(
        "attention does not see order: what is blind to it, what breaks that, and what that buys",
        "positions",
        training=True,
    ),
    "heads": Study("several heads are better than one, and too many are not", "heads", trained=True),
    "parallel": Study(
        "self-attention takes one step, and one layer from the first word to the last",
        "parallel",
        training=True,
    ),
    "intra": Study("an LSTM that looks back at all its states predicts better than an LSTM", "intra", trained=True),
    "documents": Study("words and sentences that are weighed tell more than their mean", "documents", trained=True),
    "convnet": Study("self-attention in a ConvNet relates places that are far apart", "convnet", trained=True),
    "alignment": Study("attention aligns words: by mechanism, by head, by training step", "alignment", trained=True),
    "relations": Study("self-attention finds a word's head without being told", "relations", trained=True),
}


def run(name: str, *, seed: int = 0, quick: bool = False, setting: Setting | None = None) -> "Page":
    """Run the study called `name`; what it trains takes seeds, device and folder from the setting.

    Without a setting a study that measures without training, too, does only that.
    """
    if name not in STUDIES:
        near = difflib.get_close_matches(name, STUDIES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise CommandError(f"there is no study {name!r}{hint} (there are {', '.join(STUDIES)})")
    study = STUDIES[name]
    module = importlib.import_module(f"regard.studies.{study.module}.claim")
    if study.trained:
        return module.run(setting or Setting(seeds=(seed,), quick=quick))
    page: Page = module.run(seed=seed, quick=quick)
    if not study.training or setting is None:
        return page
    return page.joined(importlib.import_module(f"regard.studies.{study.module}.training").run(setting))
