"""A model's options chosen for a corpus, beside those that a person set: what is set stays, whatever is chosen."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Int

from regard.config import show_value
from regard.errors import ConfigError
from regard.tasks.settings import Settings

WIDTHS = ("size", "heads", "hidden", "layers", "embedding", "depth")  # that a preset sets together, or that divide them
LONG_SIDE = 128  # tokens of a side above which attention dropout is slow on a GPU
LONG_SHARE = 0.01  # of the training pairs that may have a longer one


def choose_model(settings: Settings, chosen: Mapping[str, Any]) -> Settings:
    """Fill in the chosen options that nobody set.

    One that does not go with what was set gives way to its default: positions that cannot be concatenated, where they
    are to be. Sizes do not: they come from the chosen preset, and what was set has to fit them.
    """
    own = {key: value for key, value in settings.overrides.get("model", {}).items() if key not in ("kind", "preset")}
    try:
        return settings.suggest(model=chosen)
    except ConfigError as error:
        first = error
    others = [key for key in chosen if key != "preset" and key not in own]
    for left_out in [*([key] for key in others), others]:
        try:
            return settings.suggest(model={key: value for key, value in chosen.items() if key not in left_out})
        except ConfigError:
            continue
    key = next((key for key in WIDTHS if key in own), next(iter(own), ""))
    if not key or first.key == f"model.{key}":
        raise first
    preset = settings.overrides["model"].get("preset", chosen.get("preset"))
    option = first.key.removeprefix("model.")
    raise ConfigError(
        f"model.{key}",
        f'{show_value(own[key])} given, which does not go with model.{option} of the preset "{preset}" '
        f"({first.problem}); set model.{option}, too, or another model.{key}",
    )


def drop_attention_dropout(
    settings: Settings, device: str, lengths: Int[np.ndarray, "n 2"]
) -> tuple[Settings, str | None]:
    """Choose no attention dropout for long pairs on a GPU, where it is many times slower; and a line that says so.

    `lengths` are the tokens of both sides of the training pairs. A value that somebody set stays.
    """
    usual = settings.model.choose(False, False).get("attention_dropout")
    by_hand = "attention_dropout" in settings.overrides.get("model", {})
    if device != "cuda" or by_hand or not usual or settings.data.reads != "text" or not len(lengths):
        return settings, None
    share = float((lengths.max(axis=1) > LONG_SIDE).mean())
    if share <= LONG_SHARE:
        return settings, None
    return settings.suggest(model={"attention_dropout": 0.0}), (
        f"chosen for long lines: attention dropout 0 rather than {usual:g}, which is slow for them on a GPU: "
        f"{share:.1%} of the training pairs have a side of over {LONG_SIDE} tokens (change it with --set "
        f"model.attention_dropout={usual:g})"
    )
