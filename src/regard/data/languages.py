"""The languages of a run: as its configuration names them, or else as its data do."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from regard.config import show_value, suggestion
from regard.data.builtin import has_pair
from regard.data.settings import LANGUAGES, DataSettings
from regard.errors import CommandError

PACKED = (".gz", ".txt", ".tok", ".lc")  # endings that say nothing of the language


def languages_of(data: DataSettings, given: str | None = None) -> tuple[str, tuple[str, ...]] | None:
    """Return the source language and the target languages; None where nothing says them.

    `given` is what a person says, such as en-de. Next comes `data.languages`, then the pair of a built-in corpus, then
    the endings of the files (train.en, train.de). A tag of a corpus, such as <2de>, is a target language.
    """
    tags = tuple(dict.fromkeys(language for corpus in data.corpora if (language := tag_language(corpus.tag))))
    built_in = data.pair if data.builtin is not None and has_pair(data.builtin) else None
    for text in (given, data.languages, built_in):
        if text is not None:
            source, _, target = text.partition("-")  # a language may have parts of its own, as in pt_BR-en
            return source, tags or (target,)
    files = [(data.source, data.target), *((corpus.source, corpus.target) for corpus in data.corpora)]
    for source_file, target_file in files:
        ends = file_language(source_file), file_language(target_file)
        if ends[0] and (ends[1] or tags) and ends[0] != ends[1]:
            return ends[0], tags or (ends[1] or "",)
    return None


def parse_given(texts: Iterable[str], names: Sequence[str]) -> dict[str, str]:
    """Read what a person says of models, such as demo=en-de: the pair of each."""
    pairs = {}
    for text in texts:
        name, _, pair = text.partition("=")
        if not LANGUAGES.fullmatch(pair):
            raise CommandError(
                f"--languages: {show_value(text)} given, expected a model and its languages, such as demo=en-de"
            )
        if name not in names:
            raise CommandError(f"--languages: {name} is not served{suggestion(name, names)}")
        pairs[name] = pair
    return pairs


def file_language(path: str | None) -> str | None:
    """Return the language that a file's name ends in: two or three letters, as in train.en, or more as in x.pt_BR."""
    if path is None:
        return None
    name = Path(path)
    while name.suffix in PACKED:
        name = name.with_suffix("")
    ending = name.suffix[1:]
    letters = ending.partition("_")[0]
    return ending if 2 <= len(letters) <= 3 and letters.isascii() and letters.islower() and letters.isalpha() else None


def tag_language(tag: str | None) -> str | None:
    """Return the language that a tag such as <2de> or >>deu<< names."""
    if tag is None:
        return None
    letters = tag.strip("<>").removeprefix("2")
    return letters or None
