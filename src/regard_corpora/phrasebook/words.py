"""Words of a sentence under construction, with their meaning and head, and functions common to all languages.

Relations have their names in Universal Dependencies: nsubj, obj, det, … If the phrasebook's heads differ from those (a
modal of two words depends on the content verb, a preposition without its noun on the verb), a relation has the nearest
name.
"""

from collections.abc import Callable

from regard_corpora.phrasebook.inflection import forms_of
from regard_corpora.phrasebook.lexicon import Piece
from regard_corpora.phrasebook.meaning import Bit, Clause, NounPhrase, Sentence

FIRST, SECOND, LAST = range(3)  # the position of the finite verb in a clause, for languages where it varies


class Word:
    """A word; `bits` are the parts of the meaning that it expresses, `head` is the word on which it depends."""

    __slots__ = ("bits", "form", "head", "place", "relation")

    def __init__(self, form: str, bits: int, head: "Word | None" = None, relation: str = ""):
        self.form = form
        self.bits = bits
        self.head = head
        self.relation = relation
        self.place = -1

    def relate(self, relation: str) -> "Word":
        """Set the word's relation to its head; return the word."""
        self.relation = relation
        return self


def put(out: list[Word], form: str, bits: int, head: Word | None = None, relation: str = "") -> Word:
    """Append a new word to `out`; return it."""
    word = Word(form, bits, head, relation)
    out.append(word)
    return word


def add(out: list[Word], below: list[Word], form: str, bits: int, relation: str) -> None:
    """Append a new word that depends on the head of the clause to `out` and to `below`."""
    word = Word(form, bits, None, relation)
    out.append(word)
    below.append(word)


def join(out: list[Word], phrase: NounPhrase, joint: str, say_phrase: Callable[[NounPhrase], Word]) -> Word:
    """Say two noun phrases with a conjunction between them; return the head of the first."""
    assert phrase.first is not None
    assert phrase.second is not None
    head = say_phrase(phrase.first)
    conjunction = put(out, joint, phrase.bits, None, "cc")
    second = say_phrase(phrase.second).relate("conj")
    conjunction.head, second.head = second, head
    return head


# The relation of each word of a fixed phrase to the phrase's head, in all languages; other words are prepositions.
NAMES = {form: relation for relation, forms in forms_of("phrases").items() for form in forms}
DAYS = forms_of("french")["days"]  # nouns that occur alone as adverbials


def say(out: list[Word], pieces: tuple[Piece, ...], bits: int, number: str = "", relation: str = "") -> Word:
    """Say a fixed phrase, with its link bits multiplied by `bits` (one bit); return its head.

    Without a `relation`, a phrase of one word is an adverb, and a longer one an oblique.
    """
    if len(pieces) == 1:
        form, own, _ = pieces[0]
        return put(out, form, own * bits, None, relation or ("obl" if form in DAYS else "advmod"))
    start = len(out)
    head = None
    for form, own, leads in pieces:
        numeral = form == "#"
        word = put(out, number if numeral else form, own * bits, None, "nummod" if numeral else NAMES.get(form, "case"))
        if leads:
            head = word.relate(relation or "obl")
    assert head is not None
    for word in out[start:]:
        if word is not head:
            word.head = head
    return head


def say_time(out: list[Word], clause: Clause, language: str) -> Word:
    """Say the phrase of time of a clause; return its head."""
    number = getattr(clause.number, language) if clause.number is not None else ""
    return say(out, getattr(clause.time, language), clause.bits * Bit.TIME, number)


def say_sentence(
    sentence: Sentence,
    language: str,
    say_clause: Callable[[list[Word], Clause, int, Word | None], Word],
    comma: int | None,
) -> list[Word]:
    """Say one clause, or two with their conjunction; `comma` has the bits of the comma between them, or is None.

    `say_clause` takes the position of the finite verb and the conjunction before the clause, and returns its head.
    """
    out: list[Word] = []
    main, other, bits = sentence.main, sentence.other, sentence.bits
    if other is None:
        head = say_clause(out, main, SECOND, None)
    else:
        conjunction, (lead, role) = getattr(sentence.conjunction, language), sentence.relations
        if sentence.first:
            below = say_clause(out, other, LAST, say(out, conjunction, bits * 2, relation=lead))
            put(out, ",", bits * 16, below, "punct")
            head = say_clause(out, main, FIRST, None)
        else:
            head = say_clause(out, main, SECOND, None)
            between = None if comma is None else put(out, ",", comma, None, "punct")
            order = SECOND if sentence.coordinate else LAST
            below = say_clause(out, other, order, say(out, conjunction, bits * 2, relation=lead))
            if between is not None:
                between.head = below
        below.head, below.relation = head, role
    put(out, "?" if main.asking else ".", bits, head, "punct")
    return out


def finish(words: list[Word]) -> tuple[str, tuple[int, ...], tuple[str, ...]]:
    """Return the text of a sentence, the index of each word's head, and each word's relation to it."""
    for place, word in enumerate(words):
        word.place = place
    return (
        " ".join([word.form for word in words]),
        tuple([-1 if word.head is None else word.head.place for word in words]),
        tuple(["root" if word.head is None else word.relation for word in words]),
    )


def links(source: list[Word], target: list[Word]) -> tuple[tuple[int, int], ...]:
    """Return sorted links (source, target) between words that express the same part of the meaning."""
    bits = [word.bits for word in target]
    return tuple([(i, j) for i, word in enumerate(source) for j, other in enumerate(bits) if word.bits & other])
