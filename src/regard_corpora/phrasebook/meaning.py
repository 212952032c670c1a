"""Meanings: what a sentence says, before any language says it.

A meaning is a small tree of noun phrases and clauses, drawn by `grammar` and said by `english`, `german` and `french`.
Each of its parts has a bit of its own, and a word carries the bits of the parts it stands for: words of two languages
that share a bit are aligned. So alignments are part of the derivation, not found afterwards.
"""

import enum

from regard_corpora.phrasebook.lexicon import (
    Adjective,
    Idiom,
    Name,
    Noun,
    Number,
    Phrase,
    Place,
    Profession,
    Verb,
)

__all__ = ["Asking", "Clause", "Det", "Kind", "Modal", "NounPhrase", "Polarity", "Sentence", "Tense"]


class Kind(enum.IntEnum):
    """The kind of a noun phrase."""

    PRONOUN = 0
    NAME = 1
    NOUN = 2
    BOTH = 3  # two joined with and
    WHO = 4  # asked for
    WHAT = 5
    GAP = 6  # in a relative clause: what the clause is about
    THIS = 7  # this is …


class Det(enum.IntEnum):
    """A determiner, which stands before a noun. The first six are definite."""

    THE = 0
    MY = 1
    THIS = 2
    NAMED = 3  # Anna's
    EVERY = 4
    WHICH = 5
    A = 6
    BARE = 7
    NUMBER = 8
    MANY = 9
    HOW_MANY = 10


class Tense(enum.IntEnum):
    """A tense; the past is the perfect in German and French, and the progressive their present."""

    PRESENT = 0
    PROGRESSIVE = 1
    PAST = 2


class Polarity(enum.IntEnum):
    YES = 0
    NOT = 1
    NEVER = 2


class Asking(enum.IntEnum):
    """The question that a clause asks."""

    NOTHING = 0
    WHETHER = 1
    ADVERB = 2  # where, when, why
    OBJECT = 3  # what, who, which book
    SUBJECT = 4  # who


class Modal(enum.IntEnum):
    """A modal, which stands between a subject and its verb."""

    WILL = 0
    CAN = 1
    MUST = 2
    SHOULD = 3
    WANT = 4
    LIKE = 5  # gern in German
    COULD = 6
    HAD = 7  # to
    WANTED = 8


class NounPhrase:
    """A noun phrase: I, Anna, the three old houses, my father and my mother, who."""

    __slots__ = (
        "adjective",
        "bits",
        "det",
        "feminine",
        "first",
        "kind",
        "many",
        "name",
        "noun",
        "number",
        "owner",
        "person",
        "relative",
        "second",
    )

    def __init__(self, kind: Kind, bits: int):
        self.kind = kind
        self.bits = bits  # the lowest bit: noun or pronoun; the next: determiner, adjective, number, relative pronoun
        self.person = 2  # of the verb, 0 to 4
        self.many = False
        self.feminine = 0
        self.det = Det.THE
        self.owner = 0  # of MY: which pronoun; of a pronoun: itself
        self.name: Name | None = None  # NAME, and the owner of NAMED
        self.noun: Noun | None = None
        self.adjective: Adjective | None = None
        self.number: Number | None = None
        self.relative: Clause | None = None
        self.first: NounPhrase | None = None
        self.second: NounPhrase | None = None


class Clause:
    """A verb with what belongs to it."""

    __slots__ = (
        "about",
        "adjective",
        "asking",
        "bits",
        "complement",
        "conjunction",
        "degree",
        "front",
        "identity",
        "idiom",
        "manner",
        "modal",
        "number",
        "object",
        "often",
        "place",
        "polarity",
        "profession",
        "recipient",
        "subject",
        "tense",
        "than",
        "time",
        "to",
        "verb",
        "verb2",
        "wh",
    )

    def __init__(self, subject: NounPhrase, bits: int):
        self.subject = subject
        self.bits = bits  # the lowest of them; see the constants below
        self.verb: Verb | None = None  # None: to be, or what the idiom says
        self.verb2: Verb | None = None  # sings and dances
        self.tense = Tense.PRESENT
        self.modal: Modal | None = None
        self.polarity = Polarity.YES
        self.object: NounPhrase | None = None
        self.recipient: NounPhrase | None = None
        self.adjective: Adjective | None = None
        self.degree: Phrase | None = None
        self.than: NounPhrase | None = None
        self.profession: Profession | None = None
        self.idiom: Idiom | None = None
        self.identity: NounPhrase | None = None  # this is my brother
        self.manner: Phrase | None = None
        self.place: Place | None = None
        self.to = False  # the place is where it leads
        self.often: Phrase | None = None
        self.time: Phrase | None = None
        self.number: Number | None = None  # in the phrase of time
        self.front = False  # the time stands first
        self.asking = Asking.NOTHING
        self.wh: Phrase | None = None
        self.conjunction: Phrase | None = None  # between verb and complement; None: to
        self.complement: Clause | None = None
        self.about: NounPhrase | None = None  # in a relative clause: the noun phrase it belongs to

    @property
    def asks_whereabouts(self) -> bool:
        """Return whether the clause only asks where the subject is: where is the station?"""
        if self.verb is not None or self.asking != Asking.ADVERB:
            return False
        return not (self.adjective or self.idiom or self.profession or self.place or self.identity)


# A clause's bits, as multiples of its lowest; three each, for phrases have links of their own.
VERB, MODAL, NOT, TIME, PLACE, MANNER, OFTEN, VERB2, AND, PREDICATE, LINK, TO, DEGREE, PREPOSITION = (
    1 << 3 * i for i in range(14)
)
CLAUSE_BITS = 42
# A noun phrase's.
NOUN, DET, ADJECTIVE, NUMBER, RELATIVE = (1 << i for i in range(5))
NOUN_BITS = 5


SENTENCE_BITS = 5


class Sentence:
    """One clause, or two with a conjunction; `first` says that the subordinate clause stands first."""

    __slots__ = ("bits", "comma", "conjunction", "coordinate", "first", "main", "other")

    def __init__(self, main: Clause, bits: int):
        self.main = main
        self.bits = bits  # the full stop; the next: conjunction (three), comma
        self.other: Clause | None = None
        self.conjunction: Phrase | None = None
        self.first = False
        self.coordinate = False
        self.comma = False  # in English and French too

    @property
    def relations(self) -> tuple[str, str]:
        """Return the conjunction's relation to its clause, and that clause's to the main one."""
        return ("cc", "conj") if self.coordinate else ("mark", "advcl")
