"""Files of pages and pictures: one, or several with numbers, or a folder of them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from regard.errors import CommandError
from regard.inspection.collect.exhibit import Exhibit, find_view
from regard.inspection.draw.heatmap import save
from regard.inspection.draw.page import page
from regard.inspection.draw.picture import ABLATION, picture
from regard.io import check_link

# Endings of files of other kinds, which are no names of folders.
FILES = ("bmp", "csv", "doc", "docx", "eps", "gif", "htm", "jpeg", "jpg", "json", "md", "pptx", "ps", "tex", "tif",
         "tiff", "tsv", "txt", "webp", "xml")  # fmt: skip


@dataclass(frozen=True)
class OutputPaths:
    """Paths to write pages or pictures to, and their format."""

    out: Path
    format: str
    folder: bool = False

    @classmethod
    def parse(cls, out: Path | None, format: str | None, formats: Sequence[str]) -> Self:
        """Read what a person typed, checked before any work is done; the name of a file says its format.

        A name that ends in none of the formats is that of a folder. Folders that are not there are made.
        """
        if format is not None and format not in formats:
            raise CommandError(f"--format: {format!r} given, expected {', '.join(formats[:-1])} or {formats[-1]}")
        if out is None:
            out = Path(f"look.{format or formats[0]}")
        check_link(out, "--out")
        ending = out.suffix.removeprefix(".")
        expected = f"expected a name that ends in {', '.join(f'.{each}' for each in formats)}, or a folder"
        if ending.lower() in FILES and not out.is_dir():
            raise CommandError(f"--out: {out} given, {expected}")
        if out.is_dir() or (ending not in formats and not out.exists()):
            return cls(out, format or formats[0], True)
        if ending not in formats:
            raise CommandError(f"--out: {out} is a file, {expected}")
        if format is not None and ending != format:
            raise CommandError(f"--out: {out} given with --format {format}, expected a name that ends in .{format}")
        return cls(out, ending)

    def list_paths(self, count: int, inputs: Sequence[str] = ()) -> list[Path]:
        """The paths of `count` files: one as it is named, several with a number. None of them may be an input."""
        folder = self.out if self.folder else self.out.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(f"--out: {folder}: the folder cannot be made: {error.strerror}") from None
        if self.folder:
            paths = [self.out / f"look-{number}.{self.format}" for number in range(1, count + 1)]
        elif count == 1:
            paths = [self.out]
        else:
            paths = [self.out.with_stem(f"{self.out.stem}-{number}") for number in range(1, count + 1)]
        for path in paths:
            if path.is_dir():
                raise CommandError(f"--out: {path} is a folder, expected a file to write")
            there = filter(os.path.exists, inputs if path.is_file() else ())  # a text is no name of a file
            if str(path) in inputs or any(map(path.samefile, there)):
                raise CommandError(f"--out: {path} is an input file, expected another")
        return paths


def graph_path(out: Path | None, format: str | None) -> Path:
    """Return the path of a graph's picture, as a person typed it; SVG is the one format."""
    if format not in (None, "svg"):
        raise CommandError(f"--format: {format!r} given, expected svg for a graph alone; with a text it is on its page")
    if out is not None and out.suffix not in ("", ".svg") and not out.is_dir():
        raise CommandError(f"--out: {out} given, expected a name that ends in .svg; with a text a graph is on its page")
    paths = OutputPaths.parse(Path("graph.svg") if out is None else out, None, ("svg",))
    return paths.out / "graph.svg" if paths.folder else paths.out


def write_exhibit(
    exhibit: Exhibit,
    path: Path,
    *,
    against: Exhibit | None = None,
    view: str | None = None,
    head: int | None = None,
    stretch: bool = False,
) -> Path:
    """Write the page of an exhibit, or the picture of one view, or of its ablation, by the suffix of the path."""
    if path.suffix == ".html":
        return page(exhibit, against=against, stretch=stretch).save(path)
    # As the guide says: the attention that is nearest to an alignment, with all of its heads.
    first = exhibit.aligned if against is None else None
    name = first if view is None else find_view(exhibit.views, view).name
    view_name = ABLATION if exhibit.ablation is not None else name
    return save(picture(exhibit, view=view_name, head=head, against=against, stretch=stretch), path)
