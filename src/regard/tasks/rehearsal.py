"""Rehearsal: fine-tuning sees a share of the earlier corpora again, so that it forgets less of them.

Robins 1995, "Catastrophic forgetting, rehearsal and pseudorehearsal"; in translation it is called mixed fine-tuning
(Chu et al. 2017, arXiv:1701.03214).
"""

from pathlib import Path

from regard.config import parse, read
from regard.data import DataSettings
from regard.errors import ConfigError
from regard.tasks.settings import Settings, complete_run_table

KEY = "data.rehearsal"


def choose_earlier(settings: Settings, base: Path | None) -> Settings:
    """Return the settings with the corpora to rehearse: those that were given, or those of the base run."""
    data = settings.data
    if not data.rehearsal:
        return settings
    given = f"{data.rehearsal:g} given"
    if data.reads != "text":
        raise ConfigError(KEY, f"{given} with data that is {data.reads}, expected pairs of texts")
    if data.earlier:
        return settings
    if base is None:
        raise ConfigError(KEY, f"{given}, but nothing to rehearse; start from a run with --from, or set data.earlier")
    theirs = parse(DataSettings, complete_run_table(read(base / "config.toml")).get("data", {}), "data")
    if theirs.builtin:
        raise ConfigError(
            KEY,
            f"{given}, but {base} was trained on the built-in corpus {theirs.builtin}; write it into files with "
            "regard data, and name them in data.earlier",
        )
    if not theirs.training:
        raise ConfigError(KEY, f"{given}, but {base} names no training pairs; set data.earlier")
    return settings.decide(data={"earlier": (*theirs.training, *theirs.rehearsed)})
