"""Built-in corpora as files, the way people keep parallel corpora.

DIR/train.en  DIR/train.de            one sentence a line (.source and .target where there are no languages)
DIR/train.align                       gold links in Pharaoh format, "0-0 1-2", source first
DIR/train.en.heads  DIR/train.de.heads    the index of each word's head, -1 for the root

Documents (reviews) are one file, DIR/train.tsv, of label and text; a link leads from an informative word to the label.
"""

import contextlib
import itertools
import os
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.data.builtin import Example, Split, generate
from regard.data.pharaoh import pharaoh
from regard.errors import ArgumentError

__all__ = ["write"]

DOCUMENTS = ("reviews",)  # corpora whose target is a label


def write(
    name: str,
    folder: Path,
    counts: Mapping[Split, int],
    *,
    seed: int = 0,
    pair: str = "en-de",
    force: bool = False,
    **options: Any,
) -> Iterator[tuple[Path, int]]:
    """Write a corpus, split by split; gives each file and its number of lines as it is done.

    A file gets its name when it is complete, and none is overwritten without `force`. Splits without examples
    are left out.
    """
    streams = {
        split: generate(name, n, seed=seed, split=split, pair=pair, **options) for split, n in counts.items() if n
    }
    sides = tuple(pair.split("-")) if name == "phrasebook" else ("source", "target")
    ends = [*sides, "align", *(f"{side}.heads" for side in sides if name == "phrasebook")]
    if name in DOCUMENTS:
        ends = ["tsv", "align"]
    if not force:
        for split, end in itertools.product(streams, ends):
            if (path := folder / f"{split}.{end}").exists():
                raise ArgumentError(f"{path} is there already; --force overwrites it")
    folder.mkdir(parents=True, exist_ok=True)
    return _write(folder, streams, ends, labelled if name in DOCUMENTS else lines)


def _write(
    folder: Path,
    streams: Mapping[Split, Iterator[Example]],
    ends: list[str],
    written: Callable[[Example], tuple[str, ...]],
) -> Iterator[tuple[Path, int]]:
    for split, examples in streams.items():
        paths = [folder / f"{split}.{end}" for end in ends]
        drafts = [path.with_name(f".{path.name}.{os.getpid()}") for path in paths]
        count = 0
        try:
            with contextlib.ExitStack() as stack:
                files: list[typing.TextIO] = [
                    stack.enter_context(draft.open("w", encoding="utf-8", newline="\n")) for draft in drafts
                ]
                for example in examples:
                    for file, line in zip(files, written(example), strict=False):
                        file.write(line + "\n")
                    count += 1
            for draft, path in zip(drafts, paths, strict=True):
                draft.replace(path)
        finally:
            for draft in drafts:
                draft.unlink(missing_ok=True)
        for path in paths:
            yield path, count


def lines(example: Example) -> tuple[str, str, str, str, str]:
    """An example's line in each file."""
    above, below = (" ".join(map(str, side)) for side in (example.source_heads, example.target_heads))
    return example.source, example.target, pharaoh(example.alignment), above, below


def labelled(example: Example) -> tuple[str, str]:
    """A document's line in each file."""
    return f"{example.target}\t{example.source}", pharaoh(example.alignment)
