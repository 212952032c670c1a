"""Draw many sentences of the phrasebook; another process can call these functions by name."""

import itertools
import random
from collections.abc import Sequence

from regard.data import Example, generate
from regard_corpora import phrasebook
from regard_corpora.phrasebook import PAIRS, all_words, analysis, english, example, find_example, french, german
from regard_corpora.phrasebook.grammar import Grammar


def sample(pair: str, count: int, longest: int, edition: int, seed: int) -> list[Example]:
    """Return sentences of the corpus."""
    return list(generate("phrasebook", count, pair=pair, seed=seed, longest=longest, edition=edition))


def plain(pair: str, count: int) -> list[Example]:
    """Return the second edition's sentences, before they are rewritten in natural style."""
    grammar = Grammar(all_words(2), random.Random(6).random, rich=0.3)
    sentences = (grammar.sentence() for _ in range(count))
    return [example(sentence, english.speak(sentence), PAIRS[pair]) for sentence in sentences]


def derive(asked: Sequence[tuple[str, bool]]) -> list[list[str] | None]:
    """Translate English sentences to German and French; the search for those expected to fail is shorter."""
    found = [analysis.search(source.split(), 200_000 if wanted else 5_000) for source, wanted in asked]
    return [sentence and [say(german, sentence), say(french, sentence)] for sentence in found]


def say(language, sentence) -> str:
    return " ".join(word.form for word in language.speak(sentence))


def find() -> list[bool | None]:
    """Return whether each example is found as generated; None if no example is found."""
    examples = generate("phrasebook", 40, split="test", seed=9, longest=10)
    return [None if (found := find_example(each.source)) is None else found == each for each in examples]


def count(pair: str) -> tuple[int, int]:
    """Return the number of distinct sentences, and of repeated draws whose translation differs."""
    different = len({hash(example.source) for example in generate("phrasebook", 300_000, pair=pair)})
    found, wrong = {}, 0
    drawn = phrasebook.draw(random.Random(4).random, lambda source: len(source) < 40, phrasebook.Options(pair))
    for each in filter(None, itertools.islice(drawn, 100_000)):
        wrong += found.setdefault(each.source, each.target) != each.target
    return different, wrong
