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


NONE = Phrase((), (), (), False)  # of a word that the pool has not


class Pool:
    """A pool of words: all of them, or with `only` those that an English sentence of these words could use."""

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
        self.walking = [verb for verb in self.going if verb.objects == ("near",)]  # "where did he go" says not how far
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
        self.classes: dict[Verb, tuple[str, ...]] = {  # of noun that a verb's object may have
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
        self.predicates = {  # une nouvelle voiture, but elle est neuve: new stands only before nouns
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

        # Verbs whose object a question may ask for, and those that a relative clause may be built around.
        self.governors = [v for v in self.verbs if v.objects and not self.oblique(v)]
        direct = [v for v in self.governors if not v.french.link]
        self.governing = {kind: [v for v in direct if kind in self.classes[v]] for kind in kinds}
        plain = [v for v in self.verbs if not (v.objects or v.english.particle or v.german.prefix or v.french.being)]
        self.mates: dict[Verb, list[Verb]] = {  # what "sings and" may go on with
            verb: [other for other in plain if other is not verb and other.german.auxiliary == verb.german.auxiliary]
            for verb in plain
        }

    @property
    def every_verb(self) -> list[Verb]:
        """Return the verbs of all kinds."""
        kinds = self.verbs, self.giving, self.going, self.staying, self.thinking, self.trying, self.weather
        return [verb for verbs in kinds for verb in verbs]

    @property
    def every_noun(self) -> list[Noun]:
        """Return the nouns of all kinds."""
        return [noun for nouns in self.nouns.values() for noun in nouns]

    def has(self, *forms: str) -> bool:
        """Return whether one of the forms may be used."""
        return self.only is None or not self.only.isdisjoint(forms)

    def oblique(self, verb: Verb) -> bool:
        return bool(verb.german.preposition) or verb.french.link.startswith("+")

    def chosen(self, section: str, make: Callable[..., T], forms: Callable[[T], Sequence[str]]) -> list[T]:
        """Make the entries of a section; keep those of which a form may be used."""
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
    """Return every word of an edition."""
    return Pool(edition=edition)
