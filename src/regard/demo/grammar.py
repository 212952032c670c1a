"""A small synchronous grammar, English to German, that knows which word each word came from.

"I ate pizza yesterday" becomes "ich habe gestern Pizza gegessen": the participle goes to the end, the adverb before the
object, an adverb in front turns subject and verb round, a subordinate clause puts the auxiliary last. Articles and
adjectives take the noun's gender, and the verb decides the auxiliary: "ich habe gegessen", but "ich bin gereist".
"""

import itertools
import random
import typing
from collections.abc import Iterator

__all__ = ["Pair", "draw", "pairs", "sentence", "split"]


class Pair(typing.NamedTuple):
    """A sentence, its translation, and for each target word the source positions it may be said to come from.

    Most words have one. An auxiliary has its verb (which decides between haben and sein), its subject (which decides
    the form) and an English auxiliary where there is one; an article has its own
    and its noun (which decides the gender).
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: tuple[frozenset[int], ...]


Piece = tuple[str, tuple[int, ...]]  # a German word and its source positions

SUBJECTS = {  # English: German, have, be, want
    "I": ("ich", "habe", "bin", "will"),
    "you": ("du", "hast", "bist", "willst"),
    "he": ("er", "hat", "ist", "will"),
    "she": ("sie", "hat", "ist", "will"),
    "we": ("wir", "haben", "sind", "wollen"),
    "Anna": ("Anna", "hat", "ist", "will"),
    "Paul": ("Paul", "hat", "ist", "will"),
    "nobody": ("niemand", "hat", "ist", "will"),
}
GOALS = {
    "home": ("nach", "Hause"),
    "to Berlin": ("nach", "Berlin"),
    "to Paris": ("nach", "Paris"),
    "to the station": ("zum", "Bahnhof"),
    "to the beach": ("zum", "Strand"),
    "to the church": ("zur", "Kirche"),
}
VERBS = {  # infinitive: past, German infinitive, participle, what it is done to or where it leads
    "eat": ("ate", "essen", "gegessen", ("pizza", "bread", "apple", "cake", "soup")),
    "buy": ("bought", "kaufen", "gekauft", ("pizza", "bread", "apple", "cake", "car", "book", "lamp", "newspaper")),
    "read": ("read", "lesen", "gelesen", ("book", "letter", "newspaper")),
    "write": ("wrote", "schreiben", "geschrieben", ("book", "letter")),
    "see": ("saw", "sehen", "gesehen", ("car", "lamp", "house", "letter", "book", "apple")),
    "sell": ("sold", "verkaufen", "verkauft", ("car", "house", "lamp", "book")),
    "find": ("found", "finden", "gefunden", ("letter", "newspaper", "car", "lamp")),
    "go": ("went", "gehen", "gegangen", tuple(GOALS)),
    "drive": ("drove", "fahren", "gefahren", tuple(GOALS)),
    "travel": ("travelled", "reisen", "gereist", tuple(GOALS)),
}
FOODS = {"pizza": "Pizza", "bread": "Brot"}  # without an article
NOUNS = {
    "apple": ("den", "Apfel"),
    "cake": ("den", "Kuchen"),
    "letter": ("den", "Brief"),
    "soup": ("die", "Suppe"),
    "lamp": ("die", "Lampe"),
    "newspaper": ("die", "Zeitung"),
    "car": ("das", "Auto"),
    "book": ("das", "Buch"),
    "house": ("das", "Haus"),
}
ADJECTIVES = {"": "", "red": "rot", "old": "alt", "small": "klein", "good": "gut"}
PAST = {"yesterday": "gestern", "today": "heute", "recently": "neulich"}
FUTURE = {"today": "heute", "tomorrow": "morgen", "soon": "bald"}

FORMS = ("plain", "fronted", "question", "because", "wish")


def pairs() -> Iterator[Pair]:
    """Every sentence of the grammar, each once, always in the same order."""
    for form, subject, verb in itertools.product(FORMS, SUBJECTS, VERBS):
        for thing, when in itertools.product(VERBS[verb][3], FUTURE if form == "wish" else PAST):
            for adjective in ADJECTIVES if thing in NOUNS else [""]:
                yield sentence(form, subject, verb, thing, adjective, when)


def draw(chance: random.Random) -> Pair:
    """One sentence, every choice as likely as its alternatives."""
    form, subject, verb = (chance.choice(list(choices)) for choices in (FORMS, SUBJECTS, VERBS))
    thing, when = chance.choice(VERBS[verb][3]), chance.choice(list(FUTURE if form == "wish" else PAST))
    return sentence(form, subject, verb, thing, chance.choice(list(ADJECTIVES)) if thing in NOUNS else "", when)


def sentence(form: str, subject: str, verb: str, thing: str, adjective: str, when: str) -> Pair:
    """One sentence and its translation."""
    he, have, be, want = SUBJECTS[subject]
    past, infinitive, participle, _ = VERBS[verb]
    before = {"fronted": [when], "question": ["did"], "because": ["because"]}.get(form, [])
    done = {"question": [verb], "wish": ["wants" if have == "hat" else "want", "to", verb]}.get(form, [past])
    what = ["the", adjective, thing] if thing in NOUNS else thing.split()
    source = [*before, subject, *done, *filter(None, what), *([] if form == "fronted" else [when])]

    at_subject = len(before)
    at_verb = at_subject + len(done)
    english = {"question": [0], "wish": [at_subject + 1, at_subject + 2]}.get(form, [])
    have_or_be = be if thing in GOALS else have
    auxiliary: Piece = (want if form == "wish" else have_or_be, (at_subject, *english, *([at_verb] * (form != "wish"))))
    who: Piece = (he, (at_subject,))
    time: Piece = ({**PAST, **FUTURE}[when], (0 if form == "fronted" else len(source) - 1,))
    action: Piece = (infinitive if form == "wish" else participle, (at_verb,))
    rest = [time, *_object(thing, adjective, at_verb + 1), action]
    order: dict[str, list[Piece]] = {
        "fronted": [time, auxiliary, who, *rest[1:]],
        "question": [auxiliary, who, *rest],
        "because": [("weil", (0,)), who, *rest, auxiliary],
    }
    words, links = zip(*order.get(form, [who, auxiliary, *rest]), strict=True)
    return Pair(tuple(source), words, tuple(frozenset(link) for link in links))


def split(train: int, test: int, seed: int, first: Pair | None = None) -> tuple[list[Pair], list[Pair]]:
    """Draw sentences to train on, and others, never trained on, to test with; `first` is always the first of those."""
    chance = random.Random(seed)
    drawn = dict.fromkeys([first] if first else [])  # a set that keeps the order
    while len(drawn) < train + test:
        drawn[draw(chance)] = None
    every = list(drawn)
    return every[test:], every[:test]


def _object(thing: str, adjective: str, at: int) -> list[Piece]:
    """What it is done to, or where it leads: "das rote Auto", "Pizza", "zum Bahnhof"."""
    last = at + len(thing.split()) - 1
    if thing in FOODS:
        return [(FOODS[thing], (at,))]
    if thing in GOALS:
        towards, goal = GOALS[thing]
        return [(towards, tuple(range(at, last + 1))), (goal, (last,))]
    article, noun = NOUNS[thing]
    last = at + 1 + bool(adjective)
    ending = "en" if article == "den" else "e"
    described: list[Piece] = [(ADJECTIVES[adjective] + ending, (at + 1,))] if adjective else []
    return [(article, (at, last)), *described, (noun, (last,))]
