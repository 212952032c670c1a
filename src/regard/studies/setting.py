"""What a study is run with. Imports no torch."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Setting"]


@dataclass(frozen=True)
class Setting:
    """Seeds, a device, and a folder for what is trained."""

    seeds: tuple[int, ...] = (0,)
    quick: bool = False
    device: str = "auto"
    out: Path = Path("studies")
    say: Callable[[str], None] = lambda text: None
