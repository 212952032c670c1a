"""Where pages and pictures go: one file, or several with numbers, or a folder of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from regard.errors import CommandError
from regard.io.output import check_link

__all__ = ["OutputPaths"]


@dataclass(frozen=True)
class OutputPaths:
    """A place to write to, and the format."""

    out: Path
    format: str
    folder: bool = False

    @classmethod
    def of(cls, out: Path | None, format: str | None, formats: Sequence[str]) -> Self:
        """As a command was given it, checked before any work is done; the name of a file says its format.

        A name that ends in none of the formats is that of a folder, which is made.
        """
        if format is not None and format not in formats:
            raise CommandError(f"--format: {format!r} given, expected {', '.join(formats[:-1])} or {formats[-1]}")
        if out is None:
            out = Path(f"look.{format or formats[0]}")
        check_link(out, "--out")
        ending = out.suffix.removeprefix(".")
        if out.is_dir() or (ending not in formats and not out.exists()):
            return cls(out, format or formats[0], True)
        if ending not in formats:
            expected = ", ".join(f".{each}" for each in formats)
            raise CommandError(f"--out: {out} is a file, expected a name that ends in {expected}, or a folder")
        if format is not None and ending != format:
            raise CommandError(f"--out: {out} given with --format {format}, expected a name that ends in .{format}")
        if not out.absolute().parent.is_dir():
            raise CommandError(f"--out: {out}: no folder {out.parent} to write it into")
        return cls(out, ending)

    def paths(self, count: int, read: Sequence[str] = ()) -> list[Path]:
        """A file each: one as it is named, several with a number. None of them is one that is read."""
        if self.folder:
            try:
                self.out.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CommandError(f"--out: {self.out}: the folder cannot be made: {error.strerror}") from None
            found = [self.out / f"look-{number}.{self.format}" for number in range(1, count + 1)]
        elif count == 1:
            found = [self.out]
        else:
            found = [self.out.with_stem(f"{self.out.stem}-{number}") for number in range(1, count + 1)]
        for path in found:
            if path.is_dir():
                raise CommandError(f"--out: {path} is a folder, expected a file to write")
            if str(path) in read or any(is_same_file(path, each) for each in read):
                raise CommandError(f"--out: {path} is a file that is read, expected another")
        return found


def is_same_file(path: Path, read: str) -> bool:
    """Whether both are the same file."""
    try:
        return path.is_file() and path.samefile(read)
    except (OSError, ValueError):  # a text, and no name of a file
        return False
