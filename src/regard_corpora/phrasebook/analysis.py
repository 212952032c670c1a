"""Analysis of a given English sentence: its derivation by the grammar, and its words' relations to their heads.

The grammar can only draw sentences, so the search for a derivation is random. A draw is a tape of numbers from [0, 1);
the search changes the tape in a few places, and keeps the change unless the sentence becomes less similar to the goal.
The result is a sentence that the grammar has drawn.

Rules over words and their order name the relations, independently of the grammar, which gives only the heads. The rules
are for English; a target word has the relation of the English word that it is linked to, if their heads are linked as
well. A relation without a rule has no name.
"""

import functools
import random
import re
from collections.abc import Sequence

from regard.data import Example
from regard_corpora.phrasebook.english import AM, AUXILIARIES, DETS, DO, OBJECTS, OWNERS, SUBJECTS, VERBS, WAS, speak
from regard_corpora.phrasebook.grammar import Grammar
from regard_corpora.phrasebook.lexicon import Pool, all_words
from regard_corpora.phrasebook.meaning import Sentence

PATIENCE = 600  # tries before a restart
LOOK = 150  # initial tries with independent draws; the search continues from the best of them
# Words that english.py uses besides those of its tables.
LITTLE = ("and", "these", "an", "many", "how", "more", "than", "who", "what", "this", "that", "not", "never", "cannot",
          "did", "be", "to", "'s", ".", ",", "?")  # fmt: skip


class Tape:
    """A tape of numbers from [0, 1): first the given ones, then random ones, which it records."""

    def __init__(self, numbers: list[float], fresh: random.Random):
        self.numbers = numbers
        self.fresh = fresh
        self.read = 0

    def __call__(self) -> float:
        if self.read == len(self.numbers):
            self.numbers.append(self.fresh.random())
        self.read += 1
        return self.numbers[self.read - 1]


def distance(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the edit distance of two sentences, in words to insert, delete or replace."""
    row = list(range(len(other) + 1))
    for i, word in enumerate(one):
        diagonal, row[0] = row[0], i + 1
        for j, another in enumerate(other):
            diagonal, row[j + 1] = row[j + 1], min(diagonal + (word != another), row[j] + 1, row[j + 1] + 1)
    return row[-1]


@functools.cache
def english_forms(edition: int) -> frozenset[str]:
    """Return all English forms of the grammar."""
    pool = all_words(edition)
    forms = {form for rows in pool.sections.values() for row in rows for form in re.findall(r"[A-Za-z']+", row[0])}
    forms.update(*(verb.english[:4] for verb in pool.every_verb), *(noun.english for noun in pool.every_noun))
    forms.update(*(profession.english for profession in pool.professions))
    forms.update(SUBJECTS, OBJECTS, OWNERS, DETS, AM, WAS, DO, LITTLE, AUXILIARIES.values(), *VERBS.values())
    return frozenset(forms)


def search(goal: Sequence[str], tries: int, edition: int = 1, *, lower: bool = False) -> Sentence | None:
    """Search for a sentence whose English is `goal`; return None if the search does not find it.

    With `lower`, ignore capitals: "julia" is Julia.
    """
    fold = str.lower if lower else str
    capitals = [form for form in english_forms(edition) if form.lower() in goal] if lower else []
    goal, pool = [fold(word) for word in goal], Pool(frozenset([*goal, *capitals]), edition)
    if not {fold(form) for form in english_forms(edition)}.issuperset(goal):
        return None
    fresh = random.Random(0)
    best: list[float] = []
    nearest = len(goal) + 1000
    for attempt in range(tries):
        if attempt % PATIENCE == 0:
            best, nearest = [], len(goal) + 1000
        numbers = list(best) if attempt % PATIENCE > LOOK else []
        for _ in range(1 + int(fresh.random() * 3) if numbers else 0):  # replace, insert or delete a number
            place, way = int(fresh.random() * len(numbers)), fresh.random()
            numbers[place : place + (way < 0.85)] = [fresh.random()] * (way < 0.7 or way >= 0.85)
            numbers = numbers or [fresh.random()]
        tape = Tape(numbers, fresh)
        try:
            sentence = Grammar(pool, tape, rich=0.5).sentence()
        except IndexError:  # an empty choice: the pool has no such word
            continue
        words = [fold(word.form) for word in speak(sentence)]
        far = distance(words, goal)
        if far == 0:
            return sentence
        if far <= nearest:
            best, nearest = numbers[: tape.read], far
    return None


RELATIONS = (
    "determiner",
    "adjective",
    "preposition",
    "auxiliary",
    "negation",
    "subject",
    "object",
    "relative pronoun",
    "relative clause",
    "conjunction",
    "punctuation",
)
POSSESSIVE = "'s"
CONJUNCTIONS = ("because", "although", "when", "if", "while", "that", "whether", "but", "and", "then")


@functools.cache
def parts_of_speech() -> dict[str, frozenset[str]]:
    """Return the English forms by part of speech."""
    words = all_words()
    nouns = [form for noun in words.every_noun for form in noun.english if form]
    nouns += [form for profession in words.professions for form in profession.english]
    verbs = [verb.english for verb in words.every_verb]
    determiners = [*DETS, *OWNERS, "these", "an", "many", *(number.english for number in words.numbers)]
    prepositions = [verb.preposition for verb in verbs if verb.preposition]
    ways = [way.english for places in words.places.values() for place in places for way in (place.at, place.to)]
    prepositions += [way[0].form for way in ways if len(way) > 1]
    return {
        "noun": frozenset(nouns),
        "nominal": frozenset([*nouns, *SUBJECTS, *OBJECTS, *(name.form for name in words.names)]),
        "adjective": frozenset(each.english[0] for some in words.adjectives.values() for each in some),
        "verb": frozenset(form for verb in verbs for form in verb[:4]),
        "determiner": frozenset(form for form in determiners if form),
        "auxiliary": frozenset([*AM, *WAS, *DO, "did", "cannot", *AUXILIARIES.values()]),
        "preposition": frozenset([*prepositions, "to", "than", "on"]),
    }


@functools.lru_cache(maxsize=8192)  # called again for every model
def name_relations(example: Example) -> tuple[list[str | None], list[str | None]]:
    """Return the names of the relations of all source and target words; None for relations without a name."""
    words, heads = example.source.split(), example.source_heads
    source = [name_relation(words, heads, place) for place in range(len(words))]
    links: dict[int, list[int]] = {}
    for i, j in example.alignment:
        links.setdefault(j, []).append(i)
    target: list[str | None] = []
    for place, head in enumerate(example.target_heads):
        fitting = {source[i] for i in links.get(place, ()) if head >= 0 and heads[i] in links.get(head, ())}
        target.append(fitting.pop() if len(fitting) == 1 else None)
    return source, target


def name_relation(words: Sequence[str], heads: Sequence[int], place: int) -> str | None:
    """Return the name of an English word's relation to its head, or None."""
    word, head, kinds = words[place], heads[place], parts_of_speech()
    if head < 0:
        return None
    above, before = words[head], place < head
    if word in (".", "?", ","):
        return "punctuation"
    if word in kinds["determiner"] and before and above in kinds["noun"]:
        return "determiner"
    if word in kinds["adjective"] and before and above in kinds["noun"]:
        return "adjective"
    if word in kinds["auxiliary"]:
        return "auxiliary"
    if word in ("not", "never"):
        return "negation"
    if word in ("who", "that") and before and place and words[place - 1] in kinds["noun"]:
        return "relative pronoun"
    if word in CONJUNCTIONS and before:
        return "conjunction"
    if word in kinds["preposition"] and before and above not in kinds["verb"]:
        return "preposition"
    if word in kinds["nominal"]:
        return nominal(words, heads, place)
    if word in kinds["verb"] and not before and above in kinds["noun"]:
        return "relative clause"
    return None


def nominal(words: Sequence[str], heads: Sequence[int], place: int) -> str | None:
    """Name the relation of a noun, name or pronoun: the last one before its head is the subject; others are objects."""
    head, kinds = heads[place], parts_of_speech()
    below = [words[other] for other, above in enumerate(heads) if above == place]
    if POSSESSIVE in below or any(word in kinds["preposition"] or word == "and" for word in below):
        return None
    if place > head:
        return "object" if words[head] in kinds["verb"] else None
    between = [words[other] for other in range(place + 1, head) if heads[other] == head]
    if not any(word in kinds["nominal"] for word in between):
        return "subject"
    return "object" if words[head] in kinds["verb"] else None
