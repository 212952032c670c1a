"""Dependency relations: the phrasebook gives heads, and its lexicon and the order of words say what a word is to its
head.

Of English words by rule; a German word is to its head what the English word that it is linked with is to its own, where
the two heads are linked as well. What no rule names has no name.
"""

import functools
from collections.abc import Sequence

from regard.data import Example
from regard_corpora.phrasebook.english import AM, AUXILIARIES, DETS, DO, OBJECTS, OWNERS, SUBJECTS, WAS
from regard_corpora.phrasebook.lexicon import all_words

__all__ = ["RELATIONS", "name_relations"]

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
def lexicon() -> dict[str, frozenset[str]]:
    """Return the English forms by part of speech."""
    words = all_words()
    nouns = [form for some in words.nouns.values() for noun in some for form in noun.english if form]
    nouns += [form for profession in words.professions for form in profession.english]
    verbs = [verb.english for some in (words.verbs, words.giving, words.going, words.staying) for verb in some]
    verbs += [verb.english for some in (words.thinking, words.trying, words.weather) for verb in some]
    forms = [form for verb in verbs for form in (verb.base, verb.third, verb.past, verb.progressive)]
    determiners = [*DETS, *OWNERS, "these", "an", "many", *(number.english for number in words.numbers)]
    return {
        "noun": frozenset(nouns),
        "nominal": frozenset([*nouns, *SUBJECTS, *OBJECTS, *(name.form for name in words.names)]),
        "adjective": frozenset(each.english[0] for some in words.adjectives.values() for each in some),
        "verb": frozenset(forms),
        "determiner": frozenset(form for form in determiners if form),
        "auxiliary": frozenset([*AM, *WAS, *DO, "did", "cannot", *AUXILIARIES.values()]),
        "preposition": frozenset(
            [
                *(verb.preposition for verb in verbs if verb.preposition),
                *(
                    place.at.english[0].form
                    for some in words.places.values()
                    for place in some
                    if len(place.at.english) > 1
                ),
                *(
                    place.to.english[0].form
                    for some in words.places.values()
                    for place in some
                    if len(place.to.english) > 1
                ),
                "to",
                "than",
                "on",
            ]
        ),
    }


@functools.lru_cache(maxsize=8192)  # asked again for every model
def name_relations(example: Example) -> tuple[list[str | None], list[str | None]]:
    """Name the relations of all words, of source and target."""
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
    """Name what an English word is to its head."""
    word, head, kinds = words[place], heads[place], lexicon()
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
    """Name the relation of a noun, name or pronoun: the last before its head is the subject, one after it an object."""
    head, kinds = heads[place], lexicon()
    below = [words[other] for other, above in enumerate(heads) if above == place]
    if POSSESSIVE in below or any(word in kinds["preposition"] or word == "and" for word in below):
        return None
    if place > head:
        return "object" if words[head] in kinds["verb"] else None
    between = [words[other] for other in range(place + 1, head) if heads[other] == head]
    if not any(word in kinds["nominal"] for word in between):
        return "subject"
    return "object" if words[head] in kinds["verb"] else None
