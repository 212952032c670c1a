"""A run measured on pictures or documents: what `regard eval` does for those that describe, and those that name."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import parse
from regard.data.corpus import pairs
from regard.data.images.batching import read_for
from regard.data.images.caption_files import Captions, named, read_captions, read_labels, read_list, survey
from regard.data.images.corpus import folders, spelt
from regard.decoding.options import Options
from regard.errors import DataError
from regard.evaluation.captions import measure_bleu_n, measure_cider, measure_rouge
from regard.evaluation.labels import Labelling, measure_labels
from regard.evaluation.metric import Score
from regard.evaluation.text import measure_exact
from regard.run import Classified, Run

__all__ = ["Described", "NamedItems", "describe", "name_documents", "name_pictures"]


@dataclass(frozen=True)
class NamedItems:
    """How well labels were said, the labels themselves, and what had to be left out."""

    report: Labelling
    outputs: dict[str, str]  # by place or picture
    lost: list[str]


@dataclass(frozen=True)
class Described:
    """Scores of captions, the captions themselves, and what had to be left out."""

    scores: list[Score]
    outputs: dict[str, str]  # by picture
    lost: list[str] = field(default_factory=list)


def describe(
    run: Run, images: str | Path, captions: str | Path, names: str | Path | None = None, **search: Any
) -> Described:
    """Caption the pictures of a test set and compare with all their captions.

    Which ones: those that the file `names` lists; else the test split of Karpathy's JSON; else all that have captions.
    """
    run.check_task("caption")
    parse(Options, search)
    said: list[str] = []
    read = read_captions(captions, said.append)
    wanted = chosen(read, names)
    pictures, lost = there(run, images, wanted)
    lost = said + lost
    if not pictures:
        raise DataError(f"{images}: none of the pictures of {names or captions} can be read ({'; '.join(lost[:3])})")
    outputs = dict(zip(pictures, run.caption(pictures.values(), **search), strict=True))
    texts, references = list(outputs.values()), [read.captions[picture] for picture in outputs]
    measured = [measure_bleu_n(texts, references, n) for n in (1, 2, 3, 4)]
    measured += [measure_cider(texts, references), measure_rouge(texts, references)]
    measured.append(measure_exact(texts, references))
    return Described([each.score() for each in measured], outputs, lost)


def chosen(captions: Captions, names: str | Path | None) -> list[str]:
    """The pictures to be captioned."""
    if names is not None:
        listed = read_list(names)
        found = [picture for picture in captions.captions if picture in listed]
        if not found:
            raise DataError(f"{names}: none of its {len(listed):,} pictures has a caption")
        return found
    test = [picture for picture in captions.captions if captions.splits.get(picture) == "test"]
    return test or list(captions.captions)


def there(run: Run, images: str | Path, wanted: Sequence[str]) -> tuple[dict[str, np.ndarray], list[str]]:
    """The pixels of pictures by their names, and what is wrong with those that cannot be read."""
    found, lost = {}, list[str]()
    files = survey(images, lost.append)
    for each in wanted:
        file = spelt(each, files)
        try:
            if file is None:
                raise DataError(f"{each}: no such picture in {images}")
            found[each] = read_for(run.settings.data, Path(images) / file)
        except DataError as error:
            lost.append(str(error))
    return found, lost


def name_pictures(run: Run, images: str | Path, labels: str | Path | None = None) -> NamedItems:
    """Classify the pictures of a test set: labels from a file, or from the folders that they are in."""
    run.check_task("classify")
    said: list[str] = []
    wanted = read_labels(labels, said.append) if labels is not None else folders(survey(images))
    known, lost = kept(run, wanted)
    lost = said + lost
    pictures, unread = there(run, images, list(known))
    if not pictures:
        raise DataError(f"{images}: no picture with a known label in it can be read")
    return compared(run, known, dict(zip(pictures, run.classify(pictures.values()), strict=True)), lost + unread)


def name_documents(run: Run, path: str) -> NamedItems:
    """Classify the documents of a file in the form that the run was trained on."""
    run.check_task("classify")
    corpus = run.settings.data.labelled(path)
    said: list[str] = []
    stream = pairs(corpus, labelled=True, say=said.append)
    rows = {f"{path}, line {i:,}": row for i, row in enumerate(stream, 1)}
    unlabelled = [place for place, (text, label) in rows.items() if text and not label]
    if unlabelled:
        said.append(f"{len(unlabelled):,} documents have no label: {named(unlabelled)}")
    known, lost = kept(run, {place: label for place, (_, label) in rows.items() if label})
    lost = said + lost
    found = dict(zip(known, run.classify([rows[place][0] for place in known]), strict=True))
    if empty := [place for place, each in found.items() if each is None]:
        lost.append(f"{len(empty):,} documents have no words: {named(empty)}")
    if len(empty) == len(found):
        raise DataError(f"{path}: no document with words and a known label in it{': ' * bool(said)}{'; '.join(said)}")
    return compared(run, known, found, lost)


def kept(run: Run, wanted: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Those whose label the run knows, and a word about the others."""
    strange = {label for label in wanted.values() if label not in run.labels}
    known = {place: label for place, label in wanted.items() if label not in strange}
    if not strange:
        return known, []
    count = len(wanted) - len(known)
    return known, [f"{count:,} of {len(wanted):,} have a label that training had not: {named(strange)}"]


def compared(run: Run, known: dict[str, str], found: dict[str, Classified | None], lost: list[str]) -> NamedItems:
    """What was said beside what is right."""
    said = {place: each.label for place, each in found.items() if each is not None}
    report = measure_labels(list(said.values()), [known[place] for place in said], run.labels)
    return NamedItems(report, said, lost)
