"""Settings of alignment: which attention of a model reads as one, which of its heads, of which step, and how.

The choice is kept in RUN/alignment.json; `selection` makes it on a development set.
"""

import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from regard.config import read, show_value
from regard.errors import ArgumentError, DataError
from regard.io import disk, packs, reading
from regard.models import Model

FILE = "alignment.json"
GUIDED = 0.2  # the threshold of a run that was guided: links of a word share its weight, with four each has a quarter
JOINS = ("intersection", "union", "grow-diag")
LAYER = re.compile(r"(?:^|\.)(?:blocks|layers)\.(\d+)\.")
ROUNDS = 1000  # of balancing, at most: it is done after a few


@dataclass(frozen=True)
class AlignmentSettings:
    """The attention that is read as an alignment.

    `offset` 0: a step's row belongs to the word that is written; 1: to the word that is read, which the step before
    wrote. `threshold`: a target word is linked with every source word that has at least this share of its weight; None:
    with the one that has the most. `join`: each source word is linked as well, with the target word that looked at it
    most, and both are made one, as in `symmetry`; None: the target's words alone. `balance`: so many times before, what
    each source word got, and then what each target word gave, is brought to one in all (Sinkhorn 1967). A noun that its
    article looks at more than at "the" gets more than its share, and balanced weights show it.
    """

    view: str  # as `watch` knows it: decoder.blocks.3.cross
    head: int | None = None  # from 0, and from 1 where people read it; None: the mean of all
    offset: Literal[0, 1] = 0
    aer: float | None = None  # what it reached where it was chosen
    by: str = ""  # how it was chosen
    threshold: float | None = None
    join: Literal["intersection", "union", "grow-diag"] | None = None
    balance: int = 0

    @classmethod
    def of(cls, folder: str | Path, model: Model) -> "AlignmentSettings":
        """Return a run's settings: from its alignment.json, else what it was guided in, else the one nearest to an
        alignment.
        """
        path, cross_attentions = Path(folder) / FILE, model.cross_attentions
        if not cross_attentions:
            raise ArgumentError(f"{folder}: the model has no attention to its source")
        if packs.is_file(path):
            return cls.read(path, cross_attentions)
        config = Path(folder) / "config.toml"
        training = read(config).get("training", {}) if packs.is_file(config) else {}
        if training.get("guided", 0) > 0:
            layer = training.get("guided_layer")
            view = (
                model.alignment_attention if layer is None else cross_attentions[min(layer, len(cross_attentions) - 1)]
            )
            return cls(view, training.get("guided_head", 0), threshold=GUIDED, by="guided in training")
        return cls(model.alignment_attention)

    @classmethod
    def read(cls, path: str | Path, views: list[str] | None = None) -> "AlignmentSettings":
        """Read settings from a file; of `views` it must name one."""
        table = reading.read_json(path, DataError)
        if not isinstance(table, dict) or not isinstance(table.get("view"), str):
            raise DataError(f"{path}: no view in it, expected the name of an attention")
        if views is not None and table["view"] not in views:
            raise DataError(f"{path}: view {show_value(table['view'])}, expected one of {', '.join(views)}")
        given: dict[str, Any] = {each.name: table[each.name] for each in fields(cls) if each.name in table}
        for key, right, expected in (
            (
                "head",
                lambda each: each is None or (type(each) is int and each >= 0),
                "a head from 0, or null: the mean",
            ),
            ("offset", lambda each: type(each) is int and each in (0, 1), "0 or 1"),
            (
                "threshold",
                lambda each: each is None or (type(each) in (int, float) and 0 < each <= 1),
                "a share up to 1, or null",
            ),
            ("aer", lambda each: each is None or type(each) in (int, float), "a number or null"),
            ("by", lambda each: isinstance(each, str), "words"),
            ("balance", lambda each: type(each) is int and 0 <= each <= ROUNDS, f"a number of rounds, 0 to {ROUNDS}"),
            ("join", lambda each: each is None or each in JOINS, f"{', '.join(JOINS)} or null"),
        ):
            if key in given and not right(given[key]):
                raise DataError(f"{path}: {key} {show_value(given[key])}, expected {expected}")
        return cls(**given)

    def write(self, folder: str | Path) -> Path:
        """Keep it with the run, whole or not at all."""
        if packs.is_pack(folder):
            raise DataError(f"{folder}: a pack is not changed; make a folder of it first: unzip {folder} -d NEW")
        return disk.write_whole(Path(folder) / FILE, json.dumps(asdict(self), indent=2) + "\n")

    def __str__(self) -> str:
        head = "mean of the heads" if self.head is None else f"head {self.head + 1}"
        place = f"{name_view(self.view)}, {head}"
        row = "the word that is written" if self.offset == 0 else "the word that is read"
        linked = "the largest weight" if self.threshold is None else f"weights from {self.threshold:g}"
        both = "" if self.join is None else f", joined with those of source words by {self.join}"
        evened = f", balanced in {self.balance} rounds" if self.balance else ""
        return f"{place}, of {row} (offset {self.offset}){evened}, {linked}{both}"


def name_view(view: str) -> str:
    """Name an attention to the source as people do: by its layer, counted from 1, where it has one."""
    layer = LAYER.search(view)
    if layer is None:
        return "the attention to the source" if view == "attention" else view
    return f"layer {int(layer[1]) + 1}"
