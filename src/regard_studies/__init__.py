"""Studies: claims from the literature, each tested by an experiment.

The table `STUDIES` has a `Study` per row and is filled as by a plugin; `run` runs a study in a `Setting`. A study is a
file with `run(seed=0, quick=False) -> Page` or, if it trains all its systems, `run(Setting) -> Page`. A study that
measures without training and also trains systems has a second file with `run(Setting) -> Part`; the part is joined to
its page. Heavy imports happen only when a study runs.

Pages consist of `Page`, `Part`, `Table`, `Plot`, `Verdict`, `signed` and `signed_training`. `train_all` and
`group_by_name` train systems, and `over_seeds` computes means and deviations. `write_index` lists a folder's pages.
"""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from regard import plugins
from regard.door import door
from regard.errors import CommandError
from regard.machine import auto_device
from regard.messages import did_you_mean

if TYPE_CHECKING:
    from regard_studies.page import Page, Part, Plot, Table, Verdict, signed, signed_training, write_index
    from regard_studies.seed_statistics import over_seeds
    from regard_studies.systems import group_by_name, train_all

__all__ = [
    "Page",
    "Part",
    "Plot",
    "STUDIES",
    "Setting",
    "Study",
    "Table",
    "Verdict",
    "group_by_name",
    "over_seeds",
    "run",
    "signed",
    "signed_training",
    "train_all",
    "write_index",
]

__getattr__, __dir__ = door(__name__)


@dataclass(frozen=True)
class Setting:
    """The setting of a study: seeds, device, output folder, folder of real corpora, and number of processes."""

    seeds: tuple[int, ...] = (0,)
    quick: bool = False
    device: str = "auto"
    out: Path = Path("studies")
    say: Callable[[str], None] = lambda text: None
    data: Path | None = None  # folder with a subfolder per real corpus; without it studies use built-in corpora
    jobs: int = 1  # number of systems that are trained at the same time, each in its own process

    @property
    def where(self) -> str:
        """Return the device that is used: for "auto", a GPU if there is one."""
        return self.device if self.device != "auto" else auto_device()

    @property
    def corpora(self) -> Path | None:
        """Return the folder of real corpora; None for a quick run, which does not use them."""
        return None if self.quick else self.data


class Study(NamedTuple):
    """A row of `STUDIES`: a study's claim and the functions that run it.

    A function is given directly, or by its dotted name, which is imported when the study runs.
    """

    claim: str
    run: "Callable[..., Page] | str"
    trained: bool = False  # whether it trains everything that it measures, so that `run` takes a Setting
    training: "Callable[[Setting], Part] | str | None" = None  # runs the trained part of a study with both parts


STUDIES: MutableMapping[str, Study] = plugins.table("study")
for row_name, row in {
    "fixed-context": Study(
        "a fixed context forgets long sentences, and attention does not",
        "regard_studies.fixed_context.run",
        trained=True,
    ),
    "luong-table": Study(
        "global and local attention with every score, side by side",
        "regard_studies.luong_table.run",
        trained=True,
    ),
    "soft-hard": Study(
        "captions by soft, hard and straight-through attention", "regard_studies.soft_hard.run", trained=True
    ),
    "scaling": Study(
        "dot products are divided by √d to keep the softmax where its gradient lives",
        "regard_studies.scaling.run",
        training="regard_studies.scaling_training.run",
    ),
    "gradient": Study(
        "gradients fade with distance in a recurrent network and do not in attention",
        "regard_studies.gradient.run",
    ),
    "positions": Study(
        "attention does not see order: what is blind to it, what breaks that, and what that buys",
        "regard_studies.positions.run",
        training="regard_studies.positions_training.run",
    ),
    "ending": Study(
        "the end grows likelier with every word, for a model that knows where it stands",
        "regard_studies.ending.run",
        trained=True,
    ),
    "heads": Study("several heads are better than one, and too many are not", "regard_studies.heads.run", trained=True),
    "parallel": Study(
        "self-attention takes one step, and one layer from the first word to the last",
        "regard_studies.parallel.run",
        training="regard_studies.parallel_training.run",
    ),
    "intra": Study(
        "an LSTM that looks back at all its states predicts better than an LSTM",
        "regard_studies.intra.run",
        trained=True,
    ),
    "documents": Study(
        "words and sentences that are weighed tell more than their mean",
        "regard_studies.documents.run",
        trained=True,
    ),
    "convnet": Study(
        "self-attention in a ConvNet relates places that are far apart",
        "regard_studies.convnet.run",
        trained=True,
    ),
    "alignment": Study(
        "attention aligns words: by mechanism, by head, by training step",
        "regard_studies.alignment.run",
        trained=True,
    ),
    "relations": Study(
        "self-attention finds a word's head without being told", "regard_studies.relations.run", trained=True
    ),
}.items():
    plugins.register(row_name, study=row)


def run(name: str, *, seed: int = 0, quick: bool = False, setting: Setting | None = None) -> "Page":
    """Run the study called `name`; training uses the seeds, device and folder of the setting.

    Without a setting, a study with a trained and an untrained part runs only the untrained one.
    """
    if name not in STUDIES:
        raise CommandError(f"there is no study {name!r}{did_you_mean(name, STUDIES)} (there are {', '.join(STUDIES)})")
    study = STUDIES[name]
    if study.trained:
        page: Page = plugins.resolve(study.run)(setting or Setting(seeds=(seed,), quick=quick))
        return page
    page = plugins.resolve(study.run)(seed=seed, quick=quick)
    if study.training is None or setting is None:
        return page
    return page.joined(plugins.resolve(study.training)(setting))
