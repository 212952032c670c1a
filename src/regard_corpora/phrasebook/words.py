"""Words of a sentence under construction, with what they came from and what they depend on.

A relation has its name in Universal Dependencies: nsubj, obj, det, … Where the phrasebook's heads differ from theirs (a
modal of two words depends on the content verb, a preposition without its noun on the verb), it has the name of the
nearest thing.
"""

from regard_corpora.phrasebook.lexicon import Piece

__all__ = ["Word", "finish", "links", "say"]


class Word:
    """A word; `bits` are the parts of the meaning it stands for, `head` the word it depends on, by a `relation`."""

    __slots__ = ("bits", "form", "head", "place", "relation")

    def __init__(self, form: str, bits: int, head: "Word | None" = None, relation: str = ""):
        self.form = form
        self.bits = bits
        self.head = head
        self.relation = relation
        self.place = -1

    def relate(self, relation: str) -> "Word":
        """Name the word's relation to its head; returns the word."""
        self.relation = relation
        return self


# Words of fixed phrases, in all languages, by what they are to the phrase's head; others are prepositions.
INSIDE = {
    "det": ("the", "this", "every", "der", "die", "dem", "den", "jede", "jeden", "le", "la", "l'", "ce", "chaque"),
    "amod": ("last", "next", "letzte", "letztes", "nächste", "nächstes", "dernière", "prochaine"),
    "advmod": ("ago", "even", "heute", "gestern", "hier", "même"),
    "fixed": ("parce", "pendant"),
}
DAYS = ("lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche")  # nouns, though they stand alone
NAMES = {form: relation for relation, forms in INSIDE.items() for form in forms}


def say(out: list[Word], pieces: tuple[Piece, ...], bits: int, number: str = "", relation: str = "") -> Word:
    """Say a fixed phrase, its own links moved to where `bits` (one bit) is; returns its head.

    Without a `relation` a phrase of one word is an adverb, a longer one an oblique.
    """
    if len(pieces) == 1:
        form, own, _ = pieces[0]
        only = Word(form, own * bits, None, relation or ("obl" if form in DAYS else "advmod"))
        out.append(only)
        return only
    start = len(out)
    head = None
    for form, own, leads in pieces:
        if form == "#":
            word = Word(number, own * bits, None, "nummod")
        else:
            word = Word(form, own * bits, None, NAMES.get(form, "case"))
        out.append(word)
        if leads:
            head = word.relate(relation or "obl")
    assert head is not None
    for word in out[start:]:
        if word is not head:
            word.head = head
    return head


def finish(words: list[Word]) -> tuple[str, tuple[int, ...], tuple[str, ...]]:
    """Return the sentence, each word's head, and the word's relation to it."""
    for place, word in enumerate(words):
        word.place = place
    return (
        " ".join([word.form for word in words]),
        tuple([-1 if word.head is None else word.head.place for word in words]),
        tuple(["root" if word.head is None else word.relation for word in words]),
    )


def links(source: list[Word], target: list[Word]) -> tuple[tuple[int, int], ...]:
    """Link the words that stand for the same part of the meaning, as (source, target), sorted."""
    bits = [word.bits for word in target]
    return tuple([(i, j) for i, word in enumerate(source) for j, other in enumerate(bits) if word.bits & other])
