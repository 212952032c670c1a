"""Extension of a run's vocabulary by pieces for whole words and for languages.

The tokenizer finds an added word wherever it stands alone in a text (`regard.data.pre_tokenizer`), and splits texts
without it as before. A language code, or another piece around a text (tokenizer.before, after and first), becomes a
special piece, which no text contains, unless the run already has tags of the same form, such as >>deu<<. The word that
a corpus puts before its sources (its `tag`) becomes a tag, as in a tokenizer that was trained with it.

If source and target have separate vocabularies, a word is added to both, pieces around a source to the source's, and
pieces at the start of a target to the target's. New pieces first replace the fillers of an imported vocabulary. If the
vocabulary size was a multiple of eight, new fillers pad it to the next one.
"""

import copy
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from regard.config import show_value
from regard.data.languages import split_piece
from regard.data.pre_tokenizer import MARK, leading_word
from regard.data.special_pieces import FILLER, MULTIPLE, UNKNOWN, describe, is_filler
from regard.data.tokenizer import Tokenizer, Tokenizers, open_tokenizer
from regard.data.tokenizer_checks import ADDED
from regard.data.vocabulary import most_frequent
from regard.errors import ConfigError

KEY, WORDS = "tokenizer.extend", "tokenizer.extend_words"
WORD_CHARACTERS = 100  # maximum characters of an added word
Form = Literal["word", "special", "tag"]


@dataclass(frozen=True)
class ExtendedSide:
    """The tokenizer of one side before and after its extension, with the old pieces of each new piece."""

    before: Tokenizer
    after: Tokenizer
    pieces: Mapping[int, Sequence[int]] = field(default_factory=dict)  # for each new id, the ids of its text before
    fillers: Sequence[int] = ()  # ids of new fillers

    @property
    def names(self) -> list[str]:
        """Return the new pieces."""
        return self.after.pieces(self.pieces)


@dataclass(frozen=True)
class Extension:
    """The tokenizers of a run before and after their extension."""

    before: Tokenizers
    after: Tokenizers
    source: ExtendedSide
    target: ExtendedSide

    @property
    def names(self) -> list[str]:
        """Return the new pieces of both sides, each once."""
        return list(dict.fromkeys([*self.source.names, *self.target.names]))


def extend_tokenizers(
    tokenizers: Tokenizers,
    pieces: Sequence[str],
    *,
    around: Mapping[str, Collection[str]] | None = None,
    tags: Collection[str] = (),
    words: Sequence[Collection[str]] = ((), ()),
) -> Extension:
    """Add pieces to the vocabularies of a run; a ConfigError names a piece that exists already, or is invalid.

    `around` are the pieces around texts, by setting, and `tags` the words that corpora put before their sources.
    `words` are the words of each side that `frequent_words` found.
    """
    given = around or {}
    of_source = {*given.get("before", ()), *given.get("after", ())}
    own = [of_source, {*given.get("first", ())}]
    special, sides = own[0] | own[1], (tokenizers.source, tokenizers.target)
    wanted: list[dict[str, Form]] = [{}, {}]
    for piece in pieces:
        places = [i for i, each in enumerate(own) if piece in each] or ([0] if piece in tags else [0, 1])
        places = [0, 1] if tokenizers.same_ids else places
        missing = [i for i in places if not is_known(sides[i], piece)]
        if not missing:
            known = "which is a piece of the vocabulary already; leave it out"
            raise ConfigError(KEY, f"{show_value(piece)} given, {known}")
        form, code = split_piece(piece)
        for i in missing:
            # A piece around texts is a tag, too, if other pieces of its form are tags.
            forms = {split_piece(tag)[0] for tag in sides[i].tags.values()} - {""}
            tagged = piece in tags or (piece in special and code != piece and form in forms)
            wanted[i][piece] = "tag" if tagged else "special" if piece in special else "word"
    if tokenizers.same_ids:
        wanted, words = [wanted[0] | wanted[1]] * 2, [[*words[0], *words[1]]] * 2
    wanted = [
        {**each, **{word: "word" for word in new if word not in each}} for each, new in zip(wanted, words, strict=True)
    ]
    source = extend_side(sides[0], wanted[0])
    target = source if tokenizers.joint else extend_side(sides[1], wanted[1])
    after = Tokenizers(source.after) if tokenizers.joint else Tokenizers(source.after, target.after)
    return Extension(tokenizers, after, source, target)


def is_known(tokenizer: Tokenizer, piece: str) -> bool:
    """Return whether a vocabulary has a piece of this name, or encodes the text as a single piece."""
    if piece in tokenizer.names or (MARK + piece in tokenizer.names and tokenizer.kind != "word"):
        return True
    ids = tokenizer.encode_bare([piece])[0]
    return len(ids) == 1 and ids[0] != UNKNOWN


def extend_side(tokenizer: Tokenizer, wanted: Mapping[str, Form]) -> ExtendedSide:
    """Add pieces to one vocabulary: in place of fillers, then after all other pieces."""
    if not wanted:
        return ExtendedSide(tokenizer, tokenizer)
    content = copy.deepcopy(tokenizer.content)
    added: list[dict[str, Any]] = content.setdefault("added_tokens", [])
    places = {token["id"]: place for place, token in enumerate(added) if is_filler(token["content"])}
    free, size = sorted(places), tokenizer.size
    words: list[str] = []
    pieces: dict[int, list[int]] = {}
    ordinary = [i for i in range(UNKNOWN + 1, size) if i not in tokenizer.hidden]  # pieces that occur in texts
    for piece, form in wanted.items():
        name = piece
        if form == "word":
            check_words(tokenizer, f"{show_value(piece)} given")
            text = tokenizer.normalise(piece)
            if text.split(" ") != [text] or not text or MARK in text:
                expected = "expected one word, which the tokenizer reads as it is"
                raise ConfigError(KEY, f"{show_value(piece)} given, {expected}")
            name = text if tokenizer.kind == "word" else MARK + text
        if name in words:  # two words with the same normalised form
            continue
        i = free.pop(0) if free else size
        token = describe(i, name, special=form != "tag", single_word=form == "word")
        if i in places:
            added[places[i]] = token
        else:
            added.append(token)
            size += 1
        if form == "word":
            words.append(name)
        pieces[i] = [each for each in tokenizer.encode_bare([piece])[0] if each > UNKNOWN] or ordinary
    rounded = -(-size // MULTIPLE) * MULTIPLE if not tokenizer.size % MULTIPLE else size
    added += [describe(i, FILLER.format(i), special=True) for i in range(size, rounded)]
    if len(added) > ADDED:
        raise ConfigError(
            KEY, f"{len(wanted):,} pieces given, expected fewer: with those that were added before, at most {ADDED:,}"
        )
    return ExtendedSide(tokenizer, open_tokenizer(content, KEY), pieces, [*range(size, rounded)])


def check_words(tokenizer: Tokenizer, given: str, key: str = KEY) -> None:
    """Raise a ConfigError if the tokenizer cannot find added words in texts."""
    if tokenizer.kind == "character":
        raise ConfigError(key, f'{given} with a tokenizer of kind "character", which has no words')
    model = tokenizer.sentencepiece
    if not (tokenizer.separable if model is None else model.separable):
        raise ConfigError(
            key,
            f"{given} with a tokenizer made elsewhere that does not cut word by word, expected only pieces of "
            "tokenizer.before, after or first",
        )


def frequent_words(
    tokenizers: Tokenizers, sources: Iterable[str], targets: Iterable[str], most: int
) -> tuple[list[str], list[str]]:
    """Return the `most` most frequent words of each side that its tokenizer splits or does not know.

    If both sides share a vocabulary, the first list holds the words of both, and the second is empty.
    """
    counts = [count_split(tokenizers.source, sources), count_split(tokenizers.target, targets)]
    if tokenizers.same_ids:
        return most_frequent(counts[0] + counts[1], most), []
    return most_frequent(counts[0], most), most_frequent(counts[1], most)


def count_split(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    """Count the words for which a tokenizer has no piece of their own, without the punctuation after them."""
    check_words(tokenizer, "given", WORDS)
    split = Counter(word for text in texts for word in text.split())
    counts: Counter[str] = Counter()
    for text, count in split.items():
        word = tokenizer.normalise(text)
        word = word if tokenizer.kind == "word" else leading_word(word)
        if word and len(word) <= WORD_CHARACTERS and " " not in word and MARK not in word:
            counts[word] += count
    known, words = set(tokenizer.names), list(counts)
    rows = tokenizer.encode_bare(words)
    split_up = (word for word, ids in zip(words, rows, strict=True) if len(ids) > 1 or ids == [UNKNOWN])
    return Counter({word: counts[word] for word in split_up if known.isdisjoint((word, MARK + word))})
