"""The pool: the words that a grammar may draw from, sorted by what they can do."""

import functools

from regard.data.builtin.phrasebook import lexicon
from regard.data.builtin.phrasebook.lexicon import (
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

__all__ = ["Pool"]

UNWILLED = ("arrive", "wake", "cry", "dream", "think")
PASSING = ("tired", "angry", "ill", "sad", "happy", "dirty", "cold", "hot")  # one can be so today and not tomorrow
DEGREES = "very | sehr | très\ntoo | zu | trop"


class Pool:
    """Every word, or with `only` those that an English sentence of these words could use."""

    def __init__(self, only: frozenset[str] | None = None):
        self.only = only
        self.verbs = self.chosen_verbs(lexicon.VERBS)
        self.giving = self.chosen_verbs(lexicon.GIVING)
        self.going = self.chosen_verbs(lexicon.GOING)
        self.walking = [verb for verb in self.going if "near" in verb.objects]  # "where did he go" says not how far
        self.staying = self.chosen_verbs(lexicon.STAYING)
        self.thinking = self.chosen_verbs(lexicon.THINKING)
        self.knowing = [verb for verb in self.thinking if verb.english.base == "know"]
        self.trying = self.chosen_verbs(lexicon.TRYING)
        self.weather = self.chosen_verbs(lexicon.WEATHER)
        self.lively = [verb for verb in self.verbs if "still" not in verb.traits]
        self.willed = [verb for verb in self.lively if verb.english.base not in UNWILLED]
        self.liked = {verb for verb in self.lively if not verb.english.particle or verb.english.base == "watch"}

        nouns = [lexicon.noun(*row) for row in lexicon.rows(lexicon.NOUNS)]
        kinds = list(dict.fromkeys(noun.kind for noun in nouns))
        self.nouns: dict[str, list[Noun]] = {
            kind: [n for n in nouns if n.kind == kind and self.has(*(form for form in n.english if form))]
            for kind in kinds
        }
        self.unowned = {noun for noun in self.nouns["person"] if noun.english[0] in ("man", "woman")}
        adjectives = self.chosen_adjectives(lexicon.ADJECTIVES)
        feelings = self.chosen_adjectives(lexicon.FEELINGS)
        self.adjectives: dict[str, list[Adjective]] = {
            kind: found for kind in kinds if (found := [a for a in adjectives if kind in a.kinds])
        }
        self.passing = {a for a in (*adjectives, *feelings) if a.english[0] in PASSING}
        self.predicates = {kind: [a for a in (*adjectives, *feelings) if kind in a.kinds] for kind in kinds}
        self.comparable = {kind: [a for a in self.predicates[kind] if a.comparative != "-"] for kind in kinds}
        self.described = [k for k in kinds if k not in ("person", "family") and self.predicates[k] and self.nouns[k]]
        self.rivals = [k for k in self.described if self.comparable[k] and len(self.nouns[k]) > (only is None)]
        self.professions: list[Profession] = [
            each for row in lexicon.rows(lexicon.PROFESSIONS) if self.has(*(each := lexicon.profession(*row)).english)
        ]
        self.idioms = self.chosen_idioms(lexicon.IDIOMS)
        self.skies = self.chosen_idioms(lexicon.SKIES)
        self.places: dict[str, list[Place]] = {"near": [], "town": [], "far": []}
        for row in lexicon.rows(lexicon.PLACES):
            place = lexicon.place(*row)
            if self.has(place.at.english[-1].form):
                self.places[place.kind].append(place)
        self.past_times = self.phrases(lexicon.PAST_TIMES + lexicon.DAYS.lstrip())
        self.future_times = self.phrases(lexicon.FUTURE_TIMES + lexicon.DAYS.lstrip())
        self.habits = self.phrases(lexicon.HABITS)
        self.now = self.phrases(lexicon.NOW)
        self.often = self.phrases(lexicon.OFTEN)
        self.degrees = self.phrases(DEGREES)
        manners = {kind: self.phrases(text) for kind, text in lexicon.MANNERS.items()}
        self.together = manners["together"]
        self.judging = manners["well"]
        self.manners: dict[str, list[Phrase]] = {
            verb.english.base + verb.english.particle: [m for k in ("slow", "loud", "well") if k in verb.traits for m in manners[k]]
            for verb in self.verbs
        }
        joints = {name: self.phrases(text) for name, text in lexicon.CONJUNCTIONS.items()}
        self.reasons = joints["because"] * 2 + joints["although"]
        self.when, self.then, self.conditions, self.whiles = (joints[k] for k in ("when", "then", "if", "while"))
        self.that, self.whether = joints["that"], joints["whether"]
        self.joints = joints["and"] + joints["but"]
        self.but = joints["but"][0] if joints["but"] else None
        asking = {name: self.phrases(text) for name, text in lexicon.ASKING.items()}
        self.wheres, self.whithers, self.whens, self.whys = asking.values()
        self.where, self.whither, self.asked_when, self.why = (a[0] if a else None for a in asking.values())
        self.names: list[Name] = [name for name in lexicon.NAMES if self.has(name.form)]
        self.numbers: list[Number] = [number for number in lexicon.NUMBERS if self.has(number.english)]
        self.subjects = self.chosen_pronouns("I you he she we they")
        self.objects = self.chosen_pronouns("me you him her us them")
        self.owners = self.chosen_pronouns("my your his her our their")
        self.things = [6] * self.has("it") + [5] * self.has("them")

        # Verbs whose object a question may ask for, and those that a relative clause may be built around.
        self.governors = [v for v in self.verbs if v.objects and not self.oblique(v)]
        direct = [v for v in self.governors if not v.french.link]
        self.governing = {kind: [v for v in direct if kind in self.classes(v)] for kind in kinds}
        plain = [v for v in self.verbs if not v.objects and not (v.english.particle or v.french.reflexive)]
        self.mates: dict[str, list[Verb]] = {
            verb.english.base: [
                other for other in plain if other is not verb and other.german.auxiliary == verb.german.auxiliary
            ]
            for verb in plain
        }

    def has(self, *forms: str) -> bool:
        """Whether one of the forms may be used."""
        return self.only is None or not self.only.isdisjoint(forms)

    def oblique(self, verb: Verb) -> bool:
        return bool(verb.german.preposition) or verb.french.link.startswith("+")

    def chosen_verbs(self, table: str) -> list[Verb]:
        found = lexicon.verbs(table)
        return [v for v in found if self.has(*v.english[:4]) and (not v.english.particle or self.has(v.english.particle))]

    def chosen_adjectives(self, table: str) -> list[Adjective]:
        return [a for row in lexicon.rows(table) if self.has(*(a := lexicon.adjective(*row)).english)]

    def chosen_idioms(self, table: str) -> list[Idiom]:
        return [idiom for row in lexicon.rows(table) if self.has((idiom := Idiom(*row)).english)]

    def chosen_pronouns(self, forms: str) -> list[int]:
        return [index for index, form in enumerate(forms.split()) if self.has(form)]

    def phrases(self, table: str) -> list[Phrase]:
        found = lexicon.phrases(table)
        return [p for p in found if all(piece.form == "#" or self.has(piece.form) for piece in p.english)]

    @functools.cache  # noqa: B019  one pool lives as long as the program
    def classes(self, verb: Verb) -> tuple[str, ...]:
        """The classes of noun that a verb's object may have."""
        return tuple(each for kind in verb.objects for each in lexicon.INCLUDES.get(kind, (kind,)))
