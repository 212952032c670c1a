"""The lexicon of the phrasebook, each entry in English, German and French.

The entries are in words.toml, one per line, columns apart by `|`. Every English word has one translation within its
category, so that a sentence has one translation.

- Verbs: English, German and French notations (see `inflection`), the classes of noun that their object may have, and
  traits: `may` the object may be left out; `slow`, `loud`, `well` take such adverbs; `here` may say where; `still` is a
  state (no progressive; a past only with `past`); `kind` speaks of a kind (j'aime le pain); `animal` may have an animal
  as its subject; `to` says so before a pronoun too ("explains it to us").
- Nouns: English (plural where irregular; `-` has none), German article, singular, plural (~n: weak, den Jungen),
  French gender and word, class.
- Adjectives: English (comparative where it is one word), German with comparative (`-` none) and a stem where that
  changes, French (feminine, then the form before a vowel; `<` stands before the noun), classes of noun it goes with.
- Phrases: a word may carry the number of its link (`last:0 week:1`, `la:1 semaine*:1 dernière:0`); a word without one
  links with all of the phrase. `*` marks the head where it is not the last word, `#` is a number from two to twelve.

Entries are compared by identity: they are looked up quickly.
"""

import dataclasses
import functools
import typing

from regard_corpora import tables
from regard_corpora.phrasebook.inflection import (
    EnglishVerb,
    FrenchVerb,
    GermanVerb,
    english_plural,
    english_verb,
    french_adjective,
    french_plural,
    french_verb,
    german_verb,
)

__all__ = ["Adjective", "Idiom", "Name", "Noun", "Number", "Phrase", "Piece", "Place", "Profession", "Verb"]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Verb:
    english: EnglishVerb
    german: GermanVerb
    french: FrenchVerb
    objects: tuple[str, ...]
    traits: frozenset[str]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Noun:
    english: tuple[str, str]  # singular, plural; "" where it has none
    german: tuple[tuple[str, str, str], tuple[str, str, str]]  # (nominative, accusative, dative), singular and plural
    gender: int  # German: 0 der, 1 die, 2 das
    french: tuple[str, str]
    feminine: int  # French: 0 masculine, 1 feminine
    kind: str


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Adjective:
    english: tuple[str, ...]  # tired, or old older; more … than where there is one
    german: str  # as a predicate
    stem: str  # before an ending
    comparative: str
    french: tuple[str, str, str, str]
    before: bool  # French: before the noun
    liaison: str  # masculine before a vowel: bel, vieil, nouvel
    kinds: frozenset[str]


class Piece(typing.NamedTuple):
    """A word of a fixed phrase; `links` is a mask of the phrase's own."""

    form: str
    links: int
    head: bool


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Phrase:
    english: tuple[Piece, ...]
    german: tuple[Piece, ...]
    french: tuple[Piece, ...]
    counted: bool  # has a number in it


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Place:
    at: Phrase
    to: Phrase
    kind: str  # near; town, where people live; far, a city or a country


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Name:
    form: str
    feminine: int


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Number:
    english: str
    german: str
    french: str


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Profession:
    english: tuple[str, str]
    german: tuple[tuple[str, str], tuple[str, str]]  # by gender, then number
    french: tuple[tuple[str, str], tuple[str, str]]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Idiom:
    """A state that languages express with different verbs: to be hungry, Hunger haben, avoir faim."""

    english: str
    german_verb: str  # sein or haben
    german: str
    none: str  # kein in the right gender, or "" for nicht
    french_verb: str  # être, avoir or faire
    french: str


def verb(english: str, german: str, french: str, objects: str, traits: str) -> Verb:
    return Verb(
        english_verb(english),
        german_verb(german),
        french_verb(french),
        tuple(objects.split()),
        frozenset(traits.split()),
    )


def noun(english: str, german: str, french: str, kind: str) -> Noun:
    singular, _, plural = english.partition(" ")
    article, one, *more = german.split()
    gender = ("der", "die", "das").index(article)
    many = more[0] if more else ""
    weak = many == "~n"
    if weak:
        many = one + ("n" if one[-1] in "er" else "en")
    oblique = many if weak else one
    feminine, word, *irregular = french.split()
    return Noun(
        english=(singular, "" if plural == "-" else plural or english_plural(singular)),
        german=((one, oblique, oblique), (many, many, many if not many or many[-1] in "ns" else many + "n")),
        gender=gender,
        french=(word, irregular[0] if irregular else french_plural(word)),
        feminine="mf".index(feminine),
        kind=kind,
    )


def adjective(english: str, german: str, french: str, kinds: str) -> Adjective:
    plain, comparative, *stem = german.split()
    words = [word for word in french.split() if word not in ("<",)]
    forms = french_adjective(*words[:2])
    return Adjective(
        english=tuple(english.split()),
        german=plain,
        stem=stem[0] if stem else plain.removesuffix("e"),
        comparative=comparative,
        french=forms,
        before="<" in french,
        liaison=words[2] if len(words) > 2 else forms[0],
        kinds=frozenset(kinds.split()),
    )


def pieces(text: str) -> tuple[Piece, ...]:
    result = []
    words = text.split()
    starred = any("*" in word for word in words)
    for index, word in enumerate(words):
        form, _, numbers = word.partition(":")
        head = form.endswith("*") if starred else index == len(words) - 1
        links = sum(1 << int(digit) for digit in numbers) if numbers else 0b111
        for part in (parts := form.rstrip("*").split("_")):
            result.append(Piece(part, links, head and part is parts[-1]))
    return tuple(result)


def phrase(english: str, german: str, french: str) -> Phrase:
    return Phrase(pieces(english), pieces(german), pieces(french), "#" in english)


def prepositional(text: str) -> str:
    """Link the words of "in the park", "im Park", "à Paris", "home": preposition 0, article 1, noun 2."""
    words = text.split()
    links = {1: ["012"], 2: ["01", "2"], 3: ["0", "1", "2"]}[len(words)]
    return " ".join(f"{word}:{link}" for word, link in zip(words, links, strict=True))


def place(english: str, german: str, french: str, kind: str) -> Place:
    ways = [list(map(prepositional, column.split(" / "))) for column in (english, german, french)]
    return Place(phrase(*(way[0] for way in ways)), phrase(*(way[-1] for way in ways)), kind)


INCLUDES = {  # a class of objects may take in others
    "thing": ("thing", "dish", "device"),
    "text": ("text", "story"),
    "vehicle": ("vehicle", "vehicle1"),
    "idea": ("idea", "idea1"),
}


@functools.cache
def sections(edition: int) -> dict[str, list[list[str]]]:
    """Read the tables of words.toml, each a list of rows of columns; the second edition adds those of everyday.toml."""
    table: dict[str, list[list[str]]] = {}
    for file in ("words", "everyday")[:edition]:
        for name, text in tables.read(f"phrasebook/{file}.toml").items():
            table.setdefault(name, []).extend(tables.rows(text))
    return table


def profession(english: str, german: str, french: str) -> Profession:
    man, men, woman = german.split()
    he, she = french.split()
    return Profession(
        (english, english_plural(english)),
        ((man, men), (woman, woman + "nen")),
        ((he, french_plural(he)), (she, french_plural(she))),
    )
