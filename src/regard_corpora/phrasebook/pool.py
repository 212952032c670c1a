"""The pool: the words that a grammar may draw from, sorted by what they can do."""

import functools

from regard_corpora.phrasebook import lexicon
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

__all__ = ["Pool", "all_words"]

UNWILLED = ("arrive", "wake", "cry", "dream", "think")
PASSING = ("tired", "angry", "ill", "sad", "happy", "dirty", "cold", "hot")  # one can be so today and not tomorrow
ABSOLUTE = ("red", "blue", "green", "black", "white", "German", "French", "Italian", "new")  # that nothing is very
NONE = Phrase((), (), (), False)  # of a word that the pool has not


class Pool:
    """A pool of words: all of them, or with `only` those that an English sentence of these words could use."""

    def __init__(self, only: frozenset[str] | None = None, edition: int = 1):
        self.only = only
        self.edition = edition
        words = lexicon.sections(self.edition)
        self.verbs = self.chosen_verbs("verbs")
        self.giving = self.chosen_verbs("giving")
        self.going = self.chosen_verbs("going")
        self.walking = [verb for verb in self.going if verb.objects == ("near",)]  # "where did he go" says not how far
        self.staying = self.chosen_verbs("staying")
        self.thinking = self.chosen_verbs("thinking")
        self.knowing = [verb for verb in self.thinking if verb.english.base == "know"]
        self.trying = self.chosen_verbs("trying")
        self.weather = self.chosen_verbs("weather")
        self.lively = [verb for verb in self.verbs if "still" not in verb.traits]
        self.willed = [verb for verb in self.lively if verb.english.base not in UNWILLED]
        self.liked = {verb for verb in self.lively if not verb.english.particle or verb.english.base == "watch"}

        nouns = [lexicon.noun(*row) for row in words["nouns"]]
        kinds = list(dict.fromkeys(noun.kind for noun in nouns))
        self.nouns: dict[str, list[Noun]] = {
            kind: [n for n in nouns if n.kind == kind and self.has(*(form for form in n.english if form))]
            for kind in kinds
        }
        self.classes: dict[Verb, tuple[str, ...]] = {  # of noun that a verb's object may have
            verb: tuple(kind for kind in every if self.nouns[kind] or kind in ("person", "family")) or every
            for verb in (*self.verbs, *self.giving)
            for every in [tuple(each for kind in verb.objects for each in lexicon.INCLUDES.get(kind, (kind,)))]
        }
        self.unowned = {noun for noun in self.nouns["person"] if noun.english[0] in ("man", "woman", "boy", "girl")}
        self.children = {noun for noun in self.nouns["person"] if noun.english[0] in ("child", "boy", "girl")}
        adjectives = self.chosen_adjectives("adjectives")
        feelings = self.chosen_adjectives("feelings")
        self.adjectives: dict[str, list[Adjective]] = {
            kind: matching for kind in kinds if (matching := [a for a in adjectives if kind in a.kinds])
        }
        self.passing = {a for a in (*adjectives, *feelings) if a.english[0] in PASSING}
        self.feelings = [a for a in (*adjectives, *feelings) if a in self.passing and "person" in a.kinds]
        self.predicates = {  # une nouvelle voiture, but elle est neuve: new stands only before nouns
            kind: [a for a in (*adjectives, *feelings) if kind in a.kinds and a.english[0] != "new"] for kind in kinds
        }
        self.comparable = {kind: [a for a in self.predicates[kind] if a.comparative != "-"] for kind in kinds}
        self.kinds = [kind for kind in kinds if self.nouns[kind]]
        self.graded = {a for a in (*adjectives, *feelings) if edition > 1 and a.english[0] not in ABSOLUTE}
        self.described = [k for k in kinds if k not in ("person", "family") and self.predicates[k] and self.nouns[k]]
        self.rivals = [k for k in self.described if self.comparable[k] and len(self.nouns[k]) > (only is None)]
        self.professions: list[Profession] = [
            each for row in words["professions"] if self.has(*(each := lexicon.profession(*row)).english)
        ]
        self.idioms = self.chosen_idioms("idioms")
        self.skies = self.chosen_idioms("skies")
        self.places: dict[str, list[Place]] = {"near": [], "town": [], "far": []}
        for row in words["places"]:
            place = lexicon.place(*row)
            if self.has(place.at.english[-1].form):
                self.places[place.kind].append(place)
        self.past_times = self.phrases("past times", "days")
        self.future_times = self.phrases("future times", "days")
        self.habits = self.phrases("habits")
        self.now = self.phrases("now")
        self.often = self.phrases("often")
        self.degrees = self.phrases("degrees")
        manners = {kind: self.phrases(kind) for kind in ("slow", "loud", "well", "together")}
        self.together = manners["together"]
        self.slow = manners["slow"]
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
        self.names: list[Name] = [Name(form, "mf".index(sex)) for form, sex in words["names"] if self.has(form)]
        self.numbers: list[Number] = [Number(*row) for row in words["numbers"] if self.has(row[0])]
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

    def has(self, *forms: str) -> bool:
        """Return whether one of the forms may be used."""
        return self.only is None or not self.only.isdisjoint(forms)

    def oblique(self, verb: Verb) -> bool:
        return bool(verb.german.preposition) or verb.french.link.startswith("+")

    def chosen_verbs(self, section: str) -> list[Verb]:
        verbs = [lexicon.verb(*row) for row in lexicon.sections(self.edition)[section]]
        return [
            v for v in verbs if self.has(*v.english[:4]) and (not v.english.particle or self.has(v.english.particle))
        ]

    def chosen_adjectives(self, section: str) -> list[Adjective]:
        return [
            a for row in lexicon.sections(self.edition)[section] if self.has(*(a := lexicon.adjective(*row)).english)
        ]

    def chosen_idioms(self, section: str) -> list[Idiom]:
        return [idiom for row in lexicon.sections(self.edition)[section] if self.has((idiom := Idiom(*row)).english)]

    def chosen_pronouns(self, forms: str) -> list[int]:
        return [index for index, form in enumerate(forms.split()) if self.has(form)]

    def phrases(self, *sections: str) -> list[Phrase]:
        all_phrases = [lexicon.phrase(*row) for section in sections for row in lexicon.sections(self.edition)[section]]
        return [p for p in all_phrases if all(piece.form == "#" or self.has(piece.form) for piece in p.english)]


@functools.cache
def all_words(edition: int = 1) -> Pool:
    """Return every word of an edition."""
    return Pool(edition=edition)
