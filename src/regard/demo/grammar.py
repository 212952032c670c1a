"""A small synchronous grammar, English to German, that knows which word each word came from.

"I ate pizza yesterday" becomes "ich habe gestern Pizza gegessen": the participle goes to the end, the adverb before the
object, an adverb in front turns subject and verb round, a subordinate clause puts the auxiliary last. Adjectives and
articles take the noun's gender.
"""

import random
import typing
from collections.abc import Iterator

__all__ = ["Pair", "pairs", "split"]


class Pair(typing.NamedTuple):
    """A sentence, its translation, and for each target word the source positions it may be said to come from.

    Most words have one. An auxiliary has two, its verb (why it is there) and its subject (the form it takes), and so has
    an article, its own and its noun (which decides the gender).
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: tuple[frozenset[int], ...]


Piece = tuple[str, tuple[int, ...]]  # a German word and its source positions

SUBJECTS = {  # English: German, have, want
    "I": ("ich", "habe", "will"),
    "you": ("du", "hast", "willst"),
    "he": ("er", "hat", "will"),
    "she": ("sie", "hat", "will"),
    "we": ("wir", "haben", "wollen"),
    "Anna": ("Anna", "hat", "will"),
    "Paul": ("Paul", "hat", "will"),
    "nobody": ("niemand", "hat", "will"),
}
VERBS = {  # infinitive: past, German infinitive, participle, what it is done to
    "eat": ("ate", "essen", "gegessen", ("pizza", "bread", "apple", "cake", "soup")),
    "buy": ("bought", "kaufen", "gekauft", ("pizza", "bread", "apple", "cake", "car", "book", "lamp", "newspaper")),
    "read": ("read", "lesen", "gelesen", ("book", "letter", "newspaper")),
    "write": ("wrote", "schreiben", "geschrieben", ("book", "letter")),
    "see": ("saw", "sehen", "gesehen", ("car", "lamp", "house", "letter", "book", "apple")),
    "sell": ("sold", "verkaufen", "verkauft", ("car", "house", "lamp", "book")),
    "find": ("found", "finden", "gefunden", ("letter", "newspaper", "car", "lamp")),
}
THINGS = {"pizza": "Pizza", "bread": "Brot"}  # eaten by the piece, without an article
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
ADJECTIVES = {"red": "rot", "old": "alt", "small": "klein", "good": "gut"}
PAST = {"yesterday": "gestern", "today": "heute", "recently": "neulich"}
FUTURE = {"today": "heute", "tomorrow": "morgen", "soon": "bald"}

FORMS = ("plain", "fronted", "question", "because", "wish")


def pairs() -> Iterator[Pair]:
    """Every sentence of the grammar, each once, always in the same order."""
    for form in FORMS:
        for subject in SUBJECTS:
            for verb in VERBS:
                for thing in VERBS[verb][3]:
                    for adjective in [None] if thing in THINGS else [None, *ADJECTIVES]:
                        for when in FUTURE if form == "wish" else PAST:
                            yield sentence(form, subject, verb, thing, adjective, when)


def sentence(form: str, subject: str, verb: str, thing: str, adjective: str | None, when: str) -> Pair:
    """One sentence and its translation."""
    he, have, want = SUBJECTS[subject]
    past, infinitive, participle, _ = VERBS[verb]
    before = [when] if form == "fronted" else ["did"] if form == "question" else ["because"] if form == "because" else []
    done = {"question": [verb], "wish": ["wants" if have == "hat" else "want", "to", verb]}.get(form, [past])
    after = [] if form == "fronted" else [when]
    object_ = [thing] if thing in THINGS else ["the", *([adjective] if adjective else []), thing]
    source = [*before, subject, *done, *object_, *after]

    at_subject = len(before)
    at_verb = at_subject + len(done)
    at_object = at_verb + 1
    at_when = 0 if form == "fronted" else len(source) - 1
    why = {"question": 0, "wish": at_subject + 1}.get(form, at_verb)  # what the auxiliary stands for
    auxiliary: Piece = (want if form == "wish" else have, (why, at_subject))
    who: Piece = (he, (at_subject,))
    time: Piece = ((FUTURE if form == "wish" else PAST)[when], (at_when,))
    action: Piece = (infinitive if form == "wish" else participle, (at_verb,))
    what = _object(thing, adjective, at_object)
    order: dict[str, list[Piece]] = {
        "plain": [who, auxiliary, time, *what, action],
        "fronted": [time, auxiliary, who, *what, action],
        "question": [auxiliary, who, time, *what, action],
        "because": [("weil", (0,)), who, time, *what, action, auxiliary],
        "wish": [who, auxiliary, time, *what, action],
    }
    words, links = zip(*order[form], strict=True)
    return Pair(tuple(source), words, tuple(frozenset(link) for link in links))


def split(train: int, test: int, seed: int, always: tuple[str, ...] = ()) -> tuple[list[Pair], list[Pair]]:
    """Draw sentences to train on, and others, never trained on, to test with; `always` names one that is tested."""
    every = list(pairs())
    random.Random(seed).shuffle(every)
    every.sort(key=lambda pair: pair.source != always)  # stable: only that one moves, to the front
    return every[test : test + train], every[:test]


def _object(thing: str, adjective: str | None, at: int) -> list[Piece]:
    if thing in THINGS:
        return [(THINGS[thing], (at,))]
    article, noun = NOUNS[thing]
    last = at + 1 + (adjective is not None)
    pieces: list[Piece] = [(article, (at, last)), (noun, (last,))]
    if adjective is not None:
        pieces.insert(1, (ADJECTIVES[adjective] + ("en" if article == "den" else "e"), (at + 1,)))
    return pieces
