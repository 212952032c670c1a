"""Meanings: what a sentence says, before any language says it.

A meaning is a small tree of noun phrases and clauses, drawn by `grammar` and said by `english`, `german` and `french`.
Each of its parts has a bit of its own, and a word carries the bits of the parts it stands for: words of two languages
that share a bit are aligned. So alignments are part of the derivation, not found afterwards.
"""

import enum
from dataclasses import dataclass

from regard_corpora.phrasebook.lexicon import Adjective, Idiom, Name, Noun, Number, Phrase, Place, Profession, Verb


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


INVERTED = (Asking.WHETHER, Asking.ADVERB, Asking.OBJECT)  # questions in which the verb stands before the subject


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


@dataclass(slots=True, eq=False)
class NounPhrase:
    """A noun phrase: I, Anna, the three old houses, my father and my mother, who."""

    kind: Kind
    bits: int  # the lowest bit: noun or pronoun; the next: determiner, adjective, number, relative pronoun
    person: int = 2  # of the verb, 0 to 4
    many: bool = False
    feminine: int = 0
    det: Det = Det.THE
    owner: int = 0  # of MY: which pronoun; of a pronoun: itself
    name: Name | None = None  # NAME, and the owner of NAMED
    noun: Noun | None = None
    adjective: Adjective | None = None
    number: Number | None = None
    relative: "Clause | None" = None
    first: "NounPhrase | None" = None
    second: "NounPhrase | None" = None


@dataclass(slots=True, eq=False)
class Clause:
    """A verb with what belongs to it."""

    subject: NounPhrase
    bits: int  # the lowest of them; see `Bit`
    verb: Verb | None = None  # None: to be, or what the idiom says
    verb2: Verb | None = None  # sings and dances
    tense: Tense = Tense.PRESENT
    modal: Modal | None = None
    polarity: Polarity = Polarity.YES
    object: NounPhrase | None = None
    recipient: NounPhrase | None = None
    adjective: Adjective | None = None
    degree: Phrase | None = None
    than: NounPhrase | None = None
    profession: Profession | None = None
    idiom: Idiom | None = None
    identity: NounPhrase | None = None  # this is my brother
    manner: Phrase | None = None
    place: Place | None = None
    to: bool = False  # the place is where it leads
    often: Phrase | None = None
    time: Phrase | None = None
    number: Number | None = None  # in the phrase of time
    front: bool = False  # the time stands first
    asking: Asking = Asking.NOTHING
    wh: Phrase | None = None
    conjunction: Phrase | None = None  # between verb and complement; None: to
    complement: "Clause | None" = None
    about: NounPhrase | None = None  # in a relative clause: the noun phrase it belongs to

    @property
    def asks_whereabouts(self) -> bool:
        """Return whether the clause only asks where the subject is: where is the station?"""
        if self.verb is not None or self.asking != Asking.ADVERB:
            return False
        return not (self.adjective or self.idiom or self.profession or self.place or self.identity)


class Bit:
    """The parts of a clause, and of a noun phrase, as multiples of its lowest bit."""

    # Three bits each, for phrases have links of their own.
    VERB, MODAL, NOT, TIME, PLACE, MANNER, OFTEN, VERB2, AND, PREDICATE, LINK, TO, DEGREE, PREPOSITION = (
        1 << 3 * i for i in range(14)
    )
    NOUN, DET, ADJECTIVE, NUMBER, RELATIVE = (1 << i for i in range(5))


CLAUSE_BITS, NOUN_BITS, SENTENCE_BITS = 42, 5, 5


@dataclass(slots=True, eq=False)
class Sentence:
    """One clause, or two with a conjunction; `first` says that the subordinate clause stands first."""

    main: Clause
    bits: int  # the full stop; the next: conjunction (three), comma
    other: Clause | None = None
    conjunction: Phrase | None = None
    first: bool = False
    coordinate: bool = False
    comma: bool = False  # in English and French too

    @property
    def relations(self) -> tuple[str, str]:
        """Return the conjunction's relation to its clause, and that clause's to the main one."""
        return ("cc", "conj") if self.coordinate else ("mark", "advcl")
