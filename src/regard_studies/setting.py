"""The setting that a study is run with. Imports no torch."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from regard.machine import auto_device


@dataclass(frozen=True)
class Setting:
    """Seeds, a device, a folder for what is trained, and one of real corpora."""

    seeds: tuple[int, ...] = (0,)
    quick: bool = False
    device: str = "auto"
    out: Path = Path("studies")
    say: Callable[[str], None] = lambda text: None
    data: Path | None = None  # real corpora, a folder each; without it what is built in is taken
    jobs: int = 1  # systems that are trained at the same time, a process each

    @property
    def where(self) -> str:
        """Return the device itself: a GPU where there is one, unless the setting names another."""
        return self.device if self.device != "auto" else auto_device()

    @property
    def corpora(self) -> Path | None:
        """Return the folder of real corpora, or None for a first look, which does not use them."""
        return None if self.quick else self.data
