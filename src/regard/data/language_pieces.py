"""Languages as pieces: what a multilingual model reads before a source, and what it begins a target with.

A language is a code such as de or deu_Latn; its piece is the code itself (NLLB), __de__ (M2M-100), >>deu<< (OPUS-MT) or
<2de>. The last two stand before the source and name the target's language; the others stand before the text that is in
the language.
"""

from collections.abc import Sequence

from regard.config import show_value, suggestion
from regard.data.tokenizer import END, Tokenizer, Tokenizers
from regard.errors import CommandError

OWN = ("{}", "__{}__")  # of a text in the language
REQUESTS = (">>{}<<", "<2{}>")  # of a source that is to be translated into the language
FLAGS = ("--source-language", "--target-language")  # what a person gives languages with


def choose_languages(
    tokenizers: Tokenizers, source: str | None, target: str | None, flags: Sequence[str] = FLAGS
) -> dict[str, tuple[str, ...]]:
    """Return what stands around texts (tokenizer.before, after and first) when they are of these languages.

    What names no language stays as it is; a CommandError names a language that the vocabulary has no piece for, and the
    flag, or the field, that it was given with.
    """
    reads, writes = tokenizers.source, tokenizers.target
    around = {
        "before": reads.pieces(reads.before),
        "after": reads.pieces(reads.after),
        "first": writes.pieces(writes.before),
    }
    if source is not None:
        piece = find_piece(reads, source, OWN, flags[0])
        around["before"] = replace_language(reads, around["before"], piece, OWN)
    if target is not None:
        piece = find_piece(writes, target, (*OWN, *REQUESTS), flags[1])
        if is_named(piece, REQUESTS):
            around["before"] = replace_language(reads, around["before"], piece, REQUESTS)
        else:
            around["first"] = replace_language(writes, around["first"], piece, OWN)
    return {name: tuple(pieces) for name, pieces in around.items()}


def find_piece(tokenizer: Tokenizer, language: str, forms: Sequence[str], flag: str) -> str:
    """Find the piece of a language; a word of the vocabulary that only looks like a code is none."""
    languages = known_languages(tokenizer)
    for form in forms:
        if (piece := form.format(language)) in languages:
            return piece
    known = sorted({code for piece, code in languages.items() if is_named(piece, forms)})
    if not known:
        raise CommandError(f"{flag}: {show_value(language)} given, but the vocabulary has no pieces for languages")
    hint = suggestion(language, known)
    raise CommandError(f"{flag}: {show_value(language)} given, which the run does not know{hint}")


def spoken_languages(tokenizers: Tokenizers) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the languages of sources and of targets, sorted; of sources none where they are of one language."""
    sources, targets = (known_languages(each) for each in (tokenizers.source, tokenizers.target))
    return tuple(sorted({code for piece, code in sources.items() if is_named(piece, OWN)})), tuple(
        sorted(set(targets.values()))
    )


def known_languages(tokenizer: Tokenizer) -> dict[str, str]:
    """List the pieces of languages with the codes that they stand for."""
    special = {*tokenizer.pieces(sorted(tokenizer.hidden)), *tokenizer.tags.values()}
    starts = tuple(form.partition("{")[0] for form in REQUESTS)  # of few pieces of a large vocabulary
    special |= {piece for piece in tokenizer.names if piece.startswith(starts) and is_named(piece, REQUESTS)}
    special -= set(tokenizer.pieces(range(END + 1)))
    return {piece: code_of(piece) for piece in special if code_of(piece)}


def code_of(piece: str) -> str:
    """Return the code that a piece stands for."""
    for form in (*OWN[1:], *REQUESTS):
        begin, end = form.split("{}")
        if piece.startswith(begin) and piece.endswith(end) and len(piece) > len(begin) + len(end):
            return piece[len(begin) : len(piece) - len(end)]
    return "" if piece.startswith("<") else piece


def form_of(piece: str) -> str | None:
    """Return the form in which a piece names a language, with {} for its code; None for a bare code."""
    return next((form for form in (*OWN[1:], *REQUESTS) if is_named(piece, (form,)) and code_of(piece)), None)


def is_named(piece: str, forms: Sequence[str]) -> bool:
    """Return whether a piece names a language in one of these forms."""
    return any(form.format(code_of(piece)) == piece for form in forms)


def replace_language(tokenizer: Tokenizer, pieces: Sequence[str], piece: str, forms: Sequence[str]) -> list[str]:
    """Put a language's piece in the place of the one before, or first of all."""
    languages = known_languages(tokenizer)
    others = [each for each in pieces if each not in languages or not is_named(each, forms)]
    return [piece, *others]
