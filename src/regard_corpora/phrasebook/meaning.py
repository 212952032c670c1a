"""Meanings: the content of sentences, independent of a language.

A meaning is a small tree of noun phrases and clauses. `grammar` draws it; `english`, `german` and `french` express it.
Each part of a meaning has its own bit, and a word carries the bits of the parts that it expresses: words of two
languages that share a bit are aligned. So alignments are part of the derivation, and need no search.
"""

import enum
from dataclasses import dataclass

from regard_corpora.phrasebook.lexicon import Adjective, Idiom, Name, Noun, Number, Phrase, Place, Profession, Verb


class Kind(enum.IntEnum):
    """The kind of a noun phrase."""

    PRONOUN = 0
    NAME = 1
    NOUN = 2
    BOTH = 3  # two phrases joined with "and"
    WHO = 4  # in a question
    WHAT = 5
    GAP = 6  # in a relative clause: the phrase that the clause modifies
    THIS = 7  # this is …


class Det(enum.IntEnum):
    """The determiner of a noun. The first six are definite."""

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
    """A tense; in German and French, the past becomes the perfect, and the progressive becomes the present."""

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


INVERTED = (Asking.WHETHER, Asking.ADVERB, Asking.OBJECT)  # questions with the verb before the subject


class Modal(enum.IntEnum):
    """A modal verb."""

    WILL = 0
    CAN = 1
    MUST = 2
    SHOULD = 3
    WANT = 4
    LIKE = 5  # gern in German
    COULD = 6
    HAD = 7  # had to
    WANTED = 8


@dataclass(slots=True, eq=False)
class NounPhrase:
    """A noun phrase: I, Anna, the three old houses, my father and my mother, who."""

    kind: Kind
    bits: int  # the lowest bit: noun or pronoun; the next four: determiner, adjective, number, relative pronoun
    person: int = 2  # person of the verb, 0 to 4
    many: bool = False
    feminine: int = 0
    det: Det = Det.THE
    owner: int = 0  # for MY: the owner's pronoun; for a pronoun: the pronoun itself
    name: Name | None = None  # for NAME: the name; for NAMED: the owner's name
    noun: Noun | None = None
    adjective: Adjective | None = None
    number: Number | None = None
    relative: "Clause | None" = None
    first: "NounPhrase | None" = None
    second: "NounPhrase | None" = None


@dataclass(slots=True, eq=False)
class Clause:
    """A verb with its subject, objects and other parts."""

    subject: NounPhrase
    bits: int  # the lowest bit of the clause; see `Bit`
    verb: Verb | None = None  # None: "to be", or the verb of the idiom
    verb2: Verb | None = None  # a second verb: sings and dances
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
    to: bool = False  # whether the place is a destination
    often: Phrase | None = None
    time: Phrase | None = None
    number: Number | None = None  # the number in the phrase of time
    front: bool = False  # whether the time comes first
    asking: Asking = Asking.NOTHING
    wh: Phrase | None = None
    conjunction: Phrase | None = None  # between verb and complement; None for an infinitive
    complement: "Clause | None" = None
    about: NounPhrase | None = None  # for a relative clause: the noun phrase that it modifies

    @property
    def asks_whereabouts(self) -> bool:
        """Return whether the clause only asks where the subject is, as in "where is the station?"."""
        if self.verb is not None or self.asking != Asking.ADVERB:
            return False
        return not (self.adjective or self.idiom or self.profession or self.place or self.identity)


class Bit:
    """The bits of the parts of a clause and of a noun phrase, as multiples of its lowest bit."""

    # Three bits for each part of a clause, because phrases have their own links.
    VERB, MODAL, NOT, TIME, PLACE, MANNER, OFTEN, VERB2, AND, PREDICATE, LINK, TO, DEGREE, PREPOSITION = (
        1 << 3 * i for i in range(14)
    )
    NOUN, DET, ADJECTIVE, NUMBER, RELATIVE = (1 << i for i in range(5))


CLAUSE_BITS, NOUN_BITS, SENTENCE_BITS = 42, 5, 5


@dataclass(slots=True, eq=False)
class Sentence:
    """One clause, or two with a conjunction; with `first`, the subordinate clause comes first."""

    main: Clause
    bits: int  # the lowest bit: full stop; the next: conjunction (three bits), comma
    other: Clause | None = None
    conjunction: Phrase | None = None
    first: bool = False
    coordinate: bool = False
    comma: bool = False  # whether English and French have a comma, too

    @property
    def relations(self) -> tuple[str, str]:
        """Return the relations of the conjunction to its clause, and of that clause to the main one."""
        return ("cc", "conj") if self.coordinate else ("mark", "advcl")
