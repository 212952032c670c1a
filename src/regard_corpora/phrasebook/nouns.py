"""Random noun phrases for the grammar."""

import enum
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from regard_corpora import tables
from regard_corpora.phrasebook.lexicon import Name, Noun, Pool, Verb
from regard_corpora.phrasebook.meaning import NOUN_BITS, Det, Kind, NounPhrase

T = TypeVar("T")


def choices(table: str, kind: type[enum.IntEnum] | None = None) -> tuple[Any, ...]:
    """Read a table of weights; repeat each choice as often as its weight says, so that a draw is a single lookup."""
    weights = tables.read("phrasebook/weights.toml")[table].items()
    return tuple(name if kind is None else kind[name.upper()] for name, weight in weights for _ in range(weight))


SUBJECT_DETS, FAMILY_DETS, SINGLE_DETS, MASS_DETS, PLURAL_DETS, DEFINITE_DETS = (
    choices(f"{each}-dets", Det) for each in ("subject", "family", "single", "mass", "plural", "definite")
)
PERSONS = (0, 1, 2, 2, 3, 4, 2)  # the persons of I, you, he, she, we, they, it
PEOPLE = ("person", "family")
SAME = ((0, 4), (1,), (), (), (0, 4), ())  # for each subject, objects that would be (almost) reflexive: I and me or us


class Nouns:
    """A generator of noun phrases, the base class of the grammar."""

    def __init__(self, pool: Pool, random: Callable[[], float], rich: float = 0.3):
        self.pool = pool
        self.random = random
        self.rich = rich
        self.bit = 1

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.random() * len(choices))]

    def noun_bits(self) -> int:
        bit = self.bit
        self.bit = bit << NOUN_BITS
        return bit

    def pronoun(self, owner: int) -> NounPhrase:
        phrase = NounPhrase(Kind.PRONOUN, self.noun_bits())
        phrase.owner = owner
        phrase.person = PERSONS[owner]
        phrase.many = owner == 4 or owner == 5
        phrase.feminine = owner == 3
        return phrase

    def name(self, name: Name) -> NounPhrase:
        phrase = NounPhrase(Kind.NAME, self.noun_bits())
        phrase.name = name
        phrase.feminine = name.feminine
        return phrase

    def both(self, first: NounPhrase, second: NounPhrase) -> NounPhrase:
        phrase = NounPhrase(Kind.BOTH, self.noun_bits())
        phrase.first, phrase.second = first, second
        phrase.person, phrase.many = 4, True
        phrase.feminine = first.feminine & second.feminine
        return phrase

    def noun(self, noun: Noun, det: Det, many: bool) -> NounPhrase:
        phrase = NounPhrase(Kind.NOUN, self.noun_bits())
        phrase.noun, phrase.det, phrase.many = noun, det, many
        phrase.person = 4 if many else 2
        phrase.feminine = noun.feminine
        if noun in self.pool.unowned and (det == Det.MY or det == Det.NAMED):
            phrase.det = det = Det.THE  # "meine Frau" is a wife, "sa fille" a daughter
        if det == Det.MY:
            phrase.owner = self.pick(self.pool.owners)
        elif det == Det.NAMED:
            phrase.name = self.pick(self.pool.names)
        elif det == Det.NUMBER:
            phrase.number = self.pick(self.pool.numbers)
        if noun.kind in self.pool.adjectives and self.random() < (0.14 if noun.kind in PEOPLE else 0.36):
            adjective = self.pick(self.pool.adjectives[noun.kind])
            if adjective.english[0] != "old" or noun not in self.pool.children:  # "une vieille fille" means an old maid
                phrase.adjective = adjective
        return phrase

    def people(self, family: bool) -> NounPhrase:
        """Draw a noun phrase for one or several people."""
        noun = self.pick(self.pool.nouns["family" if family else "person"])
        det = self.pick(FAMILY_DETS if family else SUBJECT_DETS)
        many = det == Det.NUMBER or (det != Det.EVERY and det != Det.A and self.random() < 0.25)
        return self.noun(noun, det, many and bool(noun.english[1]))

    def subject(self, animal: bool = False, relative: bool = False) -> NounPhrase:
        chance = self.random()
        if animal and chance < 0.1:
            det = self.pick(DEFINITE_DETS)
            return self.noun(self.pick(self.pool.nouns["animal"]), det, self.random() < 0.3)
        if chance < 0.55:
            return self.pronoun(self.pick(self.pool.subjects))
        if chance < 0.67:
            return self.name(self.pick(self.pool.names))
        if chance < 0.71:
            if chance < 0.69:
                first, second = self.pick(self.pool.names), self.pick(self.pool.names)
                if first is not second:
                    return self.both(self.name(first), self.name(second))
            else:
                one, two = self.pick(self.pool.nouns["family"]), self.pick(self.pool.nouns["family"])
                if one is not two:
                    owner = self.pick(self.pool.owners)
                    pair = self.noun(one, Det.THE, False), self.noun(two, Det.THE, False)
                    for phrase in pair:
                        phrase.det, phrase.owner, phrase.adjective = Det.MY, owner, None
                    return self.both(*pair)
        phrase = self.people(chance < 0.83)
        if relative and phrase.det == Det.THE and self.random() < 0.1 + 0.3 * self.rich:
            self.add_relative(phrase)
        return phrase

    def thing(self, verb: Verb, subject: NounPhrase, denied: bool, relative: bool) -> NounPhrase:
        """Draw an object that fits a verb."""
        random = self.random
        kind = self.pick(self.pool.classes[verb])
        chance = random()
        oblique = bool(verb.german.preposition) or verb.french.link.startswith("+")
        if kind in PEOPLE:
            if chance < 0.4:
                mine = SAME[subject.owner] if subject.kind == Kind.PRONOUN and subject.owner < 6 else ()
                owner = self.pick(self.pool.objects)
                if owner not in mine:
                    return self.pronoun(owner)
            elif chance < 0.53:
                return self.name(self.pick(self.pool.names))
        elif chance < 0.1 and not oblique and "kind" not in verb.traits:
            return self.pronoun(self.pick(self.pool.things))
        elif chance < 0.17 and kind in ("food", "drink") and not denied:
            one, two = self.pick(self.pool.nouns[kind]), self.pick(self.pool.nouns[kind])
            if one is not two:
                pair = self.noun(one, Det.BARE, False), self.noun(two, Det.BARE, False)
                pair[0].adjective = pair[1].adjective = None
                return self.both(*pair)
        noun = self.pick(self.pool.nouns[kind])
        if kind == "family":
            det, many = self.pick(FAMILY_DETS), bool(noun.english[1]) and random() < 0.15
        elif not noun.english[1]:
            det, many = self.pick(MASS_DETS), False
        elif random() < 0.3:
            det, many = self.pick(PLURAL_DETS), True
        else:
            det, many = self.pick(SINGLE_DETS), False
        if (denied and det >= Det.NUMBER) or (oblique and (denied or det != Det.A)) or "kind" in verb.traits:
            if det > Det.EVERY and not ("kind" in verb.traits and det == Det.BARE):
                det = self.pick(DEFINITE_DETS)
        elif denied and det >= Det.A and (verb.german.case == 2 or verb.french.link):
            det = self.pick(DEFINITE_DETS)
        phrase = self.noun(noun, det, many)
        if relative and (det == Det.THE or (det == Det.A and not denied)) and random() < 0.06 + 0.24 * self.rich:
            self.add_relative(phrase)
        return phrase

    def add_relative(self, phrase: NounPhrase) -> None:
        """Add a relative clause to a noun phrase."""
        raise NotImplementedError
