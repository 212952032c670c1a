"""Derivations: a search for whether and how the grammar says a given English sentence.

The grammar only draws, so a derivation is looked for among its draws: a draw is a tape of numbers from [0, 1), and a
tape is changed here and there for as long as its sentence does not become less like the one that is wanted. What comes
back is a sentence that the grammar did draw.
"""

import functools
import random
import re
from collections.abc import Sequence

from regard_corpora.phrasebook import english, lexicon
from regard_corpora.phrasebook.grammar import Grammar
from regard_corpora.phrasebook.lexicon import Pool
from regard_corpora.phrasebook.meaning import Sentence

__all__ = ["english_forms", "search"]

PATIENCE = 600  # tries from one start
LOOK = 150  # the first of them, of which the best is gone on with
# Words that english.py says beside those of its tables.
LITTLE = ("and", "these", "an", "many", "how", "more", "than", "who", "what", "this", "that", "not", "never", "cannot",
          "did", "be", "to", "'s", ".", ",", "?")  # fmt: skip


class Tape:
    """Numbers from [0, 1): those it was given, then fresh ones, all written down."""

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
    """Count the words to insert, delete or replace to get from one to the other."""
    row = list(range(len(other) + 1))
    for i, word in enumerate(one):
        diagonal, row[0] = row[0], i + 1
        for j, another in enumerate(other):
            diagonal, row[j + 1] = row[j + 1], min(diagonal + (word != another), row[j] + 1, row[j + 1] + 1)
    return row[-1]


@functools.cache
def english_forms(edition: int) -> frozenset[str]:
    """Return every English form that the grammar has."""
    pool, sections = Pool(edition=edition), lexicon.sections(edition)
    forms = {form for rows in sections.values() for row in rows for form in re.findall(r"[A-Za-z']+", row[0])}
    for some in (pool.verbs, pool.giving, pool.going, pool.staying, pool.thinking, pool.trying, pool.weather):
        forms.update(form for verb in some for form in verb.english[:4])
    forms.update(form for nouns in pool.nouns.values() for noun in nouns for form in noun.english)
    forms.update(form for profession in pool.professions for form in profession.english)
    tables = (
        english.SUBJECTS,
        english.OBJECTS,
        english.OWNERS,
        english.DETS,
        english.AM,
        english.WAS,
        english.DO,
        LITTLE,
    )
    forms.update(*tables, english.AUXILIARIES.values(), *(each[:2] for each in english.VERBS.values()))
    return frozenset(forms)


def search(goal: Sequence[str], tries: int, edition: int = 1, *, lower: bool = False) -> Sentence | None:
    """Search for a sentence whose English is `goal`; None where the search does not find it.

    With `lower` capitals do not count: "julia" is Julia.
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
        for _ in range(1 + int(fresh.random() * 3) if numbers else 0):  # a choice made anew, one more, or one less
            place, way = int(fresh.random() * len(numbers)), fresh.random()
            numbers[place : place + (way < 0.85)] = [fresh.random()] * (way < 0.7 or way >= 0.85)
            numbers = numbers or [fresh.random()]
        tape = Tape(numbers, fresh)
        try:
            sentence = Grammar(pool, tape, rich=0.5).sentence()
        except IndexError:  # a choice among none: the pool has no such word
            continue
        words = [fold(word.form) for word in english.speak(sentence)]
        far = distance(words, goal)
        if far == 0:
            return sentence
        if far <= nearest:
            best, nearest = numbers[: tape.read], far
    return None
