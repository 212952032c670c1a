"""The lexicon of the phrasebook, each entry in English, German and French.

The entries are in words.toml, one per line, with `|` between columns. Every English word has one translation within its
category, so that a sentence has one translation.

- Verbs: English, German and French notations (see `inflection`), the classes of nouns that may be objects, and traits:
  `may`: the object is optional; `slow`, `loud`, `well`: such adverbs fit; `here`: a place fits; `still`: a state (no
  progressive; a past only with `past`); `kind`: the object is a kind in general (j'aime le pain); `animal`: the subject
  may be an animal; `to`: "to" precedes pronouns, too ("explains it to us").
- Nouns: English (plural if irregular, `-` if it has none), German article, singular, plural (~n: weak, den Jungen),
  French gender and word, class.
- Adjectives: English (comparative if it is one word), German with comparative (`-` for none) and the stem if that
  changes, French (feminine, then the form before a vowel; `<`: before the noun), classes of nouns that fit.
- Phrases: a word may have the number of its link (`last:0 week:1`, `la:1 semaine*:1 dernière:0`); a word without one is
  linked to the whole phrase. `*` marks the head if it is not the last word; `#` is a number from two to twelve.

Entries are compared by identity, which makes lookups fast.
"""

import dataclasses
import functools
import typing
from collections.abc import Callable, Sequence

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

T = typing.TypeVar("T")


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Verb:
    english: EnglishVerb
    german: GermanVerb
    french: FrenchVerb
    objects: tuple[str, ...]
    traits: frozenset[str]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Noun:
    english: tuple[str, str]  # singular, plural; "" if it has none
    german: tuple[tuple[str, str, str], tuple[str, str, str]]  # (nominative, accusative, dative), singular and plural
    gender: int  # German: 0 der, 1 die, 2 das
    french: tuple[str, str]
    feminine: int  # French: 0 masculine, 1 feminine
    kind: str


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Adjective:
    english: tuple[str, ...]  # old, older; an adjective with a single form takes "more"
    german: str  # as a predicate
    stem: str  # before an ending
    comparative: str
    french: tuple[str, str, str, str]
    before: bool  # French: before the noun
    liaison: str  # masculine before a vowel: bel, vieil, nouvel
    kinds: frozenset[str]


class Piece(typing.NamedTuple):
    """A word of a fixed phrase; `links` is a bit mask of the phrase's own links."""

    form: str
    links: int
    head: bool


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Phrase:
    english: tuple[Piece, ...]
    german: tuple[Piece, ...]
    french: tuple[Piece, ...]
    counted: bool  # whether it contains a number


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Place:
    at: Phrase
    to: Phrase
    kind: str  # "near"; "town": where people live; "far": a city or a country


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
    """A state that the languages express with different verbs: to be hungry, Hunger haben, avoir faim."""

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
    """Number the links of words in "in the park", "im Park", "à Paris", "home": preposition 0, article 1, noun 2."""
    words = text.split()
    links = {1: ["012"], 2: ["01", "2"], 3: ["0", "1", "2"]}[len(words)]
    return " ".join(f"{word}:{link}" for word, link in zip(words, links, strict=True))


def place(english: str, german: str, french: str, kind: str) -> Place:
    ways = [list(map(prepositional, column.split(" / "))) for column in (english, german, french)]
    return Place(phrase(*(way[0] for way in ways)), phrase(*(way[-1] for way in ways)), kind)


INCLUDES = {  # classes of objects that include other classes
    "thing": ("thing", "dish", "device"),
    "text": ("text", "story"),
    "vehicle": ("vehicle", "vehicle1"),
    "idea": ("idea", "idea1"),
}


@functools.cache
def sections(edition: int) -> dict[str, list[list[str]]]:
    """Read the tables of words.toml as lists of rows of columns; the second edition adds those of everyday.toml."""
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


NONE = Phrase((), (), (), False)  # stands for a phrase that the pool does not have


class Pool:
    """A pool of words: all of them, or, with `only`, those that could occur in an English sentence of these forms."""

    def __init__(self, only: frozenset[str] | None = None, edition: int = 1):
        self.only = only
        self.edition = edition
        self.sections = sections(edition)
        self.verbs, self.giving, self.going, self.staying, self.thinking, self.trying, self.weather = map(
            self.chosen_verbs, ("verbs", "giving", "going", "staying", "thinking", "trying", "weather")
        )
        unwilled, passing, absolute = (
            {form for (form,) in self.sections[each]} for each in ("unwilled", "passing", "absolute")
        )
        self.walking = [verb for verb in self.going if verb.objects == ("near",)]  # "where did he go" has no distance
        self.knowing = [verb for verb in self.thinking if verb.english.base == "know"]
        self.lively = [verb for verb in self.verbs if "still" not in verb.traits]
        self.willed = [verb for verb in self.lively if verb.english.base not in unwilled]
        self.liked = {verb for verb in self.lively if not verb.english.particle or verb.english.base == "watch"}

        nouns = [noun(*row) for row in self.sections["nouns"]]
        kinds = list(dict.fromkeys(noun.kind for noun in nouns))
        self.nouns: dict[str, list[Noun]] = {
            kind: [n for n in nouns if n.kind == kind and self.has(*(form for form in n.english if form))]
            for kind in kinds
        }
        self.classes: dict[Verb, tuple[str, ...]] = {  # classes of nouns for each verb's object
            verb: tuple(kind for kind in every if self.nouns[kind] or kind in ("person", "family")) or every
            for verb in (*self.verbs, *self.giving)
            for every in [tuple(each for kind in verb.objects for each in INCLUDES.get(kind, (kind,)))]
        }
        self.unowned = {noun for noun in self.nouns["person"] if noun.english[0] in ("man", "woman", "boy", "girl")}
        self.children = {noun for noun in self.nouns["person"] if noun.english[0] in ("child", "boy", "girl")}
        adjectives, feelings = (
            self.chosen(each, adjective, lambda each: each.english) for each in ("adjectives", "feelings")
        )
        self.adjectives: dict[str, list[Adjective]] = {
            kind: matching for kind in kinds if (matching := [a for a in adjectives if kind in a.kinds])
        }
        self.passing = {a for a in (*adjectives, *feelings) if a.english[0] in passing}
        self.feelings = [a for a in (*adjectives, *feelings) if a in self.passing and "person" in a.kinds]
        self.predicates = {  # without "new": une nouvelle voiture, but elle est neuve
            kind: [a for a in (*adjectives, *feelings) if kind in a.kinds and a.english[0] != "new"] for kind in kinds
        }
        self.comparable = {kind: [a for a in self.predicates[kind] if a.comparative != "-"] for kind in kinds}
        self.kinds = [kind for kind in kinds if self.nouns[kind]]
        self.graded = {a for a in (*adjectives, *feelings) if edition > 1 and a.english[0] not in absolute}
        self.described = [k for k in kinds if k not in ("person", "family") and self.predicates[k] and self.nouns[k]]
        self.rivals = [k for k in self.described if self.comparable[k] and len(self.nouns[k]) > (only is None)]
        self.professions = self.chosen("professions", profession, lambda each: each.english)
        self.idioms, self.skies = (
            self.chosen(each, Idiom, lambda idiom: [idiom.english]) for each in ("idioms", "skies")
        )
        self.places: dict[str, list[Place]] = {"near": [], "town": [], "far": []}
        for each in self.chosen("places", place, lambda place: [place.at.english[-1].form]):
            self.places[each.kind].append(each)
        self.past_times = self.phrases("past times", "days")
        self.future_times = self.phrases("future times", "days")
        self.habits, self.now, self.often, self.degrees = map(self.phrases, ("habits", "now", "often", "degrees"))
        manners = {kind: self.phrases(kind) for kind in ("slow", "loud", "well", "together")}
        self.together, self.slow = manners["together"], manners["slow"]
        self.manners: dict[Verb, list[Phrase]] = {
            verb: fitting
            for verb in self.verbs
            if (fitting := [each for kind in ("slow", "loud", "well") if kind in verb.traits for each in manners[kind]])
        }
        self.because = self.phrases("because")
        self.reasons = self.because * 2 + self.phrases("although")
        self.when, self.then, self.conditions, self.whiles = map(self.phrases, ("when", "then", "if", "while"))
        self.that, self.whether = self.phrases("that"), self.phrases("whether")
        but = self.phrases("but")
        self.joints = self.phrases("and") + but
        self.but = next(iter(but), NONE)
        asking = [self.phrases(f"asked {each}") for each in ("where", "whither", "when", "why")]
        self.wheres, self.whithers, self.whens, self.whys = asking
        self.where, self.whither, self.asked_when, self.why = (next(iter(each), NONE) for each in asking)
        self.names = self.chosen("names", lambda form, sex: Name(form, "mf".index(sex)), lambda name: [name.form])
        self.numbers = self.chosen("numbers", Number, lambda number: [number.english])
        self.subjects = self.chosen_pronouns("I you he she we they")
        self.objects = self.chosen_pronouns("me you him her us them")
        self.owners = self.chosen_pronouns("my your his her our their")
        self.things = [6] * self.has("it") + [5] * self.has("them")

        # Verbs for questions about the object, and verbs for relative clauses.
        self.governors = [v for v in self.verbs if v.objects and not self.oblique(v)]
        direct = [v for v in self.governors if not v.french.link]
        self.governing = {kind: [v for v in direct if kind in self.classes[v]] for kind in kinds}
        plain = [v for v in self.verbs if not (v.objects or v.english.particle or v.german.prefix or v.french.being)]
        self.mates: dict[Verb, list[Verb]] = {  # verbs that may follow "sings and"
            verb: [other for other in plain if other is not verb and other.german.auxiliary == verb.german.auxiliary]
            for verb in plain
        }

    @property
    def every_verb(self) -> list[Verb]:
        """Return all verbs of the pool."""
        kinds = self.verbs, self.giving, self.going, self.staying, self.thinking, self.trying, self.weather
        return [verb for verbs in kinds for verb in verbs]

    @property
    def every_noun(self) -> list[Noun]:
        """Return all nouns of the pool."""
        return [noun for nouns in self.nouns.values() for noun in nouns]

    def has(self, *forms: str) -> bool:
        """Return whether the pool allows at least one of the forms."""
        return self.only is None or not self.only.isdisjoint(forms)

    def oblique(self, verb: Verb) -> bool:
        return bool(verb.german.preposition) or verb.french.link.startswith("+")

    def chosen(self, section: str, make: Callable[..., T], forms: Callable[[T], Sequence[str]]) -> list[T]:
        """Make the entries of a section; keep those with at least one allowed form."""
        return [entry for row in self.sections[section] if self.has(*forms(entry := make(*row)))]

    def chosen_verbs(self, section: str) -> list[Verb]:
        verbs = self.chosen(section, verb, lambda verb: verb.english[:4])
        return [each for each in verbs if not each.english.particle or self.has(each.english.particle)]

    def chosen_pronouns(self, forms: str) -> list[int]:
        return [index for index, form in enumerate(forms.split()) if self.has(form)]

    def phrases(self, *names: str) -> list[Phrase]:
        all_phrases = [phrase(*row) for name in names for row in self.sections[name]]
        return [p for p in all_phrases if all(piece.form == "#" or self.has(piece.form) for piece in p.english)]


@functools.cache
def all_words(edition: int = 1) -> Pool:
    """Return the pool of all words of an edition."""
    return Pool(edition=edition)
