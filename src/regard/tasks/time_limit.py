"""What a time limit (training.minutes) leaves to the measured pace: what nobody set of a schedule. Imports no torch."""

from collections.abc import Collection, Mapping
from typing import Any

from regard.tasks.settings import Settings
from regard.training import FITTED


def leave_open(settings: Settings) -> Settings:
    """Return the settings of a new run with the keys that follow from its time limit, where it has one.

    A number of steps that was set stays the most that are taken.
    """
    own = settings.overrides.get("training", {})
    if settings.training.minutes is None or "steps" in own or "fit" in own:
        return settings
    return settings.decide(training={"fit": tuple(name for name in FITTED if name not in own)})


def set_by_hand(table: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the tables of a run to resume, of which these keys of [training] are set now and fitted no more."""
    training = table.get("training", {})
    if not isinstance(training, Mapping) or not isinstance(training.get("fit"), list):
        return dict(table)
    fit = [name for name in training["fit"] if name not in names and "steps" not in names]
    return {**table, "training": {**training, "fit": fit}}
