"""Words of a sentence under construction, with what they came from and what they depend on."""

from regard.data.builtin.phrasebook.lexicon import Piece

__all__ = ["Word", "finish", "links", "say"]


class Word:
    """A word; `bits` are the parts of the meaning it stands for, `head` the word it depends on."""

    __slots__ = ("bits", "form", "head", "place")

    def __init__(self, form: str, bits: int, head: "Word | None" = None):
        self.form = form
        self.bits = bits
        self.head = head
        self.place = -1


def say(out: list[Word], pieces: tuple[Piece, ...], bits: int, number: str = "") -> Word:
    """Say a fixed phrase, its own links moved to where `bits` (one bit) is; returns its head."""
    if len(pieces) == 1:
        only = Word(pieces[0].form, pieces[0].links * bits)
        out.append(only)
        return only
    start = len(out)
    head = None
    for form, own, leads in pieces:
        word = Word(number if form == "#" else form, own * bits)
        out.append(word)
        if leads:
            head = word
    assert head is not None
    for word in out[start:]:
        if word is not head:
            word.head = head
    return head


def finish(words: list[Word]) -> tuple[str, tuple[int, ...]]:
    """The sentence and each word's head."""
    for place, word in enumerate(words):
        word.place = place
    return (
        " ".join([word.form for word in words]),
        tuple([-1 if word.head is None else word.head.place for word in words]),
    )


def links(source: list[Word], target: list[Word]) -> tuple[tuple[int, int], ...]:
    """Link the words that stand for the same part of the meaning, as (source, target), sorted."""
    bits = [word.bits for word in target]
    return tuple([(i, j) for i, word in enumerate(source) for j, other in enumerate(bits) if word.bits & other])
