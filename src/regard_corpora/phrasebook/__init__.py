"""Phrasebook: sentences of everyday life, English to German and English to French.

A hand-written synchronous grammar draws a sentence as a meaning (`meaning`, `grammar`) over a lexicon of several
hundred words (`lexicon`, `inflection`), and each language expresses it in its own way (`english`, `german`, `french`):
German with cases, adjective endings, verb-last clauses and separable verbs, French with agreement, elision, clitics and
adjectives after the noun. Word alignments and dependency heads with named relations follow from the derivation: words
that express the same part of the meaning are linked.

The second edition is text as people write it (`natural`): "I don't like Anna's dog.", with or without a final stop,
and partly in lower case in English, as people type it. It has more words (everyday.toml) and more kinds of typical
sentences: "Where is the station?", "This is my brother.", "This pizza is not too bad." In the first edition, words are
separated by single spaces, and punctuation marks and the parts of words with an apostrophe are words: "l' homme",
"j' ai", "Anna 's dog"; sentences start in lower case unless their first word always has a capital. A sentence has
exactly one translation: "you" is du and tu, "they" is ils, speakers are masculine, "the teacher" is der Lehrer.

Options: `longest` and `shortest`, in English words as in the first edition, including the full stop. The greater
`longest`, the more relative clauses occur.
"""

import dataclasses
from collections.abc import Callable, Iterator

from regard.data import Example, builtin
from regard_corpora.phrasebook import english, french, german
from regard_corpora.phrasebook.analysis import search
from regard_corpora.phrasebook.grammar import Grammar
from regard_corpora.phrasebook.lexicon import all_words
from regard_corpora.phrasebook.meaning import Sentence
from regard_corpora.phrasebook.natural import STYLES, Style, choose_style, contract, join_words, spell_out
from regard_corpora.phrasebook.words import Word, finish, links

__all__ = ["PAIRS", "SEARCH", "Options", "derive", "draw", "every", "find_example"]

SEARCH = 30_000  # tries, which take one or two seconds and find most short sentences of the grammar
LONG = 25  # maximum words of a text that `find_example` searches for: longer sentences are rare, and the search is slow
PAIRS: dict[str, Callable[[Sentence], list[Word]]] = {"en-de": german.speak, "en-fr": french.speak}


@dataclasses.dataclass(frozen=True)
class Options:
    pair: str = "en-de"
    longest: int = 14
    shortest: int = 3
    edition: int = 2

    def __post_init__(self) -> None:
        builtin.check_name("pair", self.pair, PAIRS)
        builtin.check_whole("shortest", self.shortest, 1, builtin.MAX_WORDS)
        builtin.check_whole("longest", self.longest, max(3, self.shortest), builtin.MAX_WORDS)


def draw(random: Callable[[], float], accept: builtin.SourceFilter, options: Options) -> Iterator[Example | None]:
    """Draw sentences endlessly; yield None for one of the wrong length, or that `accept` refuses."""
    grammar = Grammar(all_words(options.edition), random, rich=min(1.0, max(0.0, (options.longest - 9) / 16)))
    speak = PAIRS[options.pair]
    while True:
        sentence = grammar.sentence()
        source = english.speak(sentence)
        fits = options.shortest <= len(source) <= options.longest
        new = fits and accept(" ".join([word.form for word in source]))
        if not new:
            yield None
        elif options.edition == 1:
            yield example(sentence, source, speak)
        else:
            yield natural_example(sentence, source, options.pair, choose_style(random))


def example(sentence: Sentence, source: list[Word], speak: Callable[[Sentence], list[Word]]) -> Example:
    target = speak(sentence)
    return finish_pair(source, target)


def natural_example(sentence: Sentence, source: list[Word], pair: str, style: Style) -> Example:
    """Make an example of a sentence and its translation as natural text."""
    english_words = join_words(contract(source, style), style)
    target = join_words(PAIRS[pair](sentence), style, french=pair == "en-fr", target=True)
    return finish_pair(english_words, target)


def finish_pair(source: list[Word], target: list[Word]) -> Example:
    """Make an example from the words of both sides."""
    text, heads, relations = finish(source)
    translation, target_heads, target_relations = finish(target)
    return Example(text, translation, links(source, target), heads, target_heads, relations, target_relations)


def every(accept: builtin.SourceFilter, options: Options) -> None:
    """Return None: there are too many sentences to list."""
    return


def derive(source: str, pair: str = "en-de", tries: int = 200_000, edition: int = 2) -> Example | None:
    """Return an example for an English sentence ("I ate pizza yesterday."), or None if the search does not find it."""
    options = Options(pair, edition=edition)
    words = spell_out(source) if edition > 1 else source.split()
    sentence = search(words, tries, edition, lower=edition > 1 and source == source.lower())
    if sentence is None:
        return None
    if edition == 1:
        return example(sentence, english.speak(sentence), PAIRS[options.pair])
    examples = [natural_example(sentence, english.speak(sentence), pair, style) for style in STYLES]
    return next((each for each in examples if each.source == source), examples[0])


def find_example(text: str, pair: str = "en-de", edition: int = 2, tries: int = SEARCH) -> Example | None:
    """Return the example whose source is exactly this text, or None if a short search does not find one."""
    plain = " ".join(text.replace("’", "'").split())
    if plain.count(" ") >= LONG:
        return None
    example = derive(plain, pair, tries, edition)
    return example if example is not None and example.source == plain else None
