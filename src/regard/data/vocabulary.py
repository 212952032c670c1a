"""Training of tokenizers on a sample of the corpus, and text profiles, which determine kinds of pieces and metrics.

A profile says whether texts consist of words or symbols, are long or short, and have spaces; it knows nothing about
particular languages. Texts are *closed* if about a hundred words are all that ever occur (phonemes, commands, letters
separated by spaces), *short* if a line is a word or a name, and *unspaced* if their script has no spaces.
"""

import functools
import json
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import tokenizers as library
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from regard.data.pre_tokenizer import MARK, describe_parts, mark_words, normalise, unmark_words, words
from regard.data.settings import TokenizerSettings
from regard.data.special_pieces import describe
from regard.data.tokenizer import SPECIAL, UNKNOWN, Tokenizer, Tokenizers, clean_text
from regard.data.tokenizer_checks import PIECE
from regard.errors import ConfigError, DataError

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
MIN_PIECES, MAX_PIECES = 512, 32_768
ALL_WORDS = 8_192
LONGEST_PART = 1_000  # longer parts of words are split for training, as each merge takes time linear in the length
IN_COMMON = 0.5  # minimum share of common letters for a joint vocabulary

Kind = Literal["bpe", "unigram", "word", "character", "auto"]


def automatic_size(words: int, characters: int = 0) -> int:
    """Choose a vocabulary size for a corpus: the power of two nearest to 48 √(different words), from 512 to 32,768.

    500 words: 1,024. 30,000 (29,000 image captions in two languages): 8,192. 150,000 (200,000 sentences of talks):
    16,384. From 235,000: 32,768. Scripts with many characters get at least twice as many pieces as characters, up to
    32,768.
    """
    size = 2 ** round(math.log2(48 * math.sqrt(max(1, words))))
    return min(MAX_PIECES, max(MIN_PIECES, size, 260 + 2 * characters))


def train_both(
    source: Sequence[str], target: Sequence[str], settings: TokenizerSettings, *, lowercase: bool, tags: Sequence[str]
) -> Tokenizers:
    """Train a joint tokenizer, or one for each side, as the settings say; `tags` belong to the source."""
    joint = settings.joint
    if joint == "auto":
        alike = settings.kind != "auto" or suitable_kind(source) == suitable_kind(target)
        joint = alike and letters_in_common(source, target) >= IN_COMMON
    train_side = functools.partial(train, kind=settings.kind, size=settings.size, lowercase=lowercase)
    if joint:
        return Tokenizers(train_side([*source, *target], tags=tags))
    return Tokenizers(train_side(source, tags=tags), train_side(target))


def train(
    texts: Sequence[str],
    kind: Kind = "bpe",
    size: int | Literal["auto"] = "auto",
    *,
    lowercase: bool = False,
    tags: Sequence[str] = (),
) -> Tokenizer:
    """Train a tokenizer on texts; each of `tags` is a separate piece wherever it occurs."""
    kind = suitable_kind(texts) if kind == "auto" else kind
    normaliser = normalise(lowercase)
    if not any(text.strip() for text in texts):
        raise DataError("no text to train a tokenizer on")
    tags = sorted(set(tags) - set(SPECIAL))
    model, before, after = PARTS_OF[kind](texts, normaliser, size, len(tags))
    listed = isinstance(model["vocab"], list)
    here = {row[0]: i for i, row in enumerate(model["vocab"])} if listed else model["vocab"]
    fresh = iter(range(len(here), len(here) + len(tags)))
    added = [describe(i, piece, special=True) for i, piece in enumerate(SPECIAL)]
    added += [describe(here[tag] if tag in here else next(fresh), tag, special=False) for tag in tags]
    parts = describe_parts(normaliser, before, after)
    return Tokenizer({**parts, "added_tokens": sorted(added, key=lambda token: token["id"]), "model": model})


Size = int | Literal["auto"]
Parts = tuple[dict[str, Any], pre_tokenizers.PreTokenizer | None, decoders.Decoder | None]


def bpe(texts: Sequence[str], normaliser: normalizers.Normalizer, size: Size, tags: int) -> Parts:
    """Train byte pair encoding (Sennrich et al. 2016, arXiv:1508.07909), which merges the most frequent neighbours."""
    target_size = size if size != "auto" else automatic_size(different_words(texts), len(set().union(*texts)))
    room = target_size - len(BYTES) - tags
    trainer = trainers.BpeTrainer(
        vocab_size=room,
        min_frequency=2,
        special_tokens=list(SPECIAL),
        limit_alphabet=max(32, (room - len(SPECIAL)) // 2 if size != "auto" else room - len(SPECIAL)),
        show_progress=False,
    )
    model = learn(models.BPE(unk_token=SPECIAL[UNKNOWN]), trainer, texts, normaliser)
    learned = sorted(model["vocab"], key=model["vocab"].__getitem__)[len(SPECIAL) :]
    vocabulary = {piece: i for i, piece in enumerate((*SPECIAL, *BYTES, *learned))}
    return {**model, "byte_fallback": True, "vocab": vocabulary}, mark_words(cut=True), unmark_words(prepended=True)


def unigram(texts: Sequence[str], normaliser: normalizers.Normalizer, size: Size, tags: int) -> Parts:
    """Train a unigram model (Kudo 2018, arXiv:1804.10959), whose pieces maximise the likelihood of the corpus.

    The library adds numbers in no fixed order, so results of this kind, unlike the other three, may vary slightly.
    """
    characters = len(set().union(*texts))
    target_size = size if size != "auto" else automatic_size(different_words(texts), characters)
    needed = len(SPECIAL) + len(BYTES) + tags + characters + 1
    if size != "auto" and target_size < needed:
        raise ConfigError(
            "tokenizer.size", f"{size} given, expected at least {needed} for the characters of the corpus"
        )
    trainer = trainers.UnigramTrainer(
        vocab_size=max(target_size, needed) - len(BYTES) - tags,
        special_tokens=list(SPECIAL),
        unk_token=SPECIAL[UNKNOWN],
        show_progress=False,
    )
    try:
        model = learn(models.Unigram(), trainer, texts, normaliser)
    except Exception as error:  # the library raises only `Exception`
        raise DataError(f"a unigram tokenizer cannot be trained on this corpus: {error}; try another kind") from None
    learned = model["vocab"][len(SPECIAL) :]
    low = min(score for _, score in learned)
    vocabulary = [*([piece, 0.0] for piece in SPECIAL), *([byte, low] for byte in BYTES), *learned]
    model = {**model, "unk_id": UNKNOWN, "byte_fallback": True, "vocab": vocabulary}
    return model, mark_words(cut=True), unmark_words(prepended=True)


def character(texts: Sequence[str], normaliser: normalizers.Normalizer, size: Size, tags: int) -> Parts:
    """Make one piece per character; if there are too many, only for the most frequent ones, the others as bytes."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(normaliser.normalize_str(clean_text(text)))
    counts[MARK] = counts.pop(" ", 0) + sum(counts.values())  # the mark is always the most frequent
    room = max(1, (size if size != "auto" else MAX_PIECES) - len(SPECIAL) - len(BYTES) - tags)
    pieces = (*SPECIAL, *BYTES, *most_frequent(counts, room))
    model = json.loads(library.Tokenizer(models.BPE(unk_token=SPECIAL[UNKNOWN], byte_fallback=True)).to_str())["model"]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    return {**model, "vocab": vocabulary}, mark_words(cut=False), unmark_words(prepended=False)


def word(texts: Sequence[str], normaliser: normalizers.Normalizer, size: Size, tags: int) -> Parts:
    """Make one piece per word, by default for all of up to 8,192 words, or for at most 32,768 that occur twice."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(word for word in normaliser.normalize_str(clean_text(text)).split(" ") if len(word) <= PIECE)
    for piece in ("", *SPECIAL):
        counts.pop(piece, None)
    if size == "auto" and len(counts) > ALL_WORDS:
        counts = Counter({word: count for word, count in counts.items() if count > 1})
    room = max(1, (size if size != "auto" else MAX_PIECES) - len(SPECIAL) - tags)
    vocabulary = {piece: i for i, piece in enumerate((*SPECIAL, *most_frequent(counts, room)))}
    return {"type": "WordLevel", "vocab": vocabulary, "unk_token": SPECIAL[UNKNOWN]}, words(), None


PARTS_OF = {"bpe": bpe, "unigram": unigram, "word": word, "character": character}


def most_frequent(counts: Counter[str], most: int) -> list[str]:
    """Return the `most` most frequent keys; sort ties by characters, so that equal corpora give equal vocabularies."""
    return sorted(counts, key=lambda key: (-counts[key], key))[:most]


def suitable_kind(texts: Sequence[str]) -> Kind:
    """Choose words for closed texts (few words, and no new ones likely), characters for short ones, otherwise BPE."""
    shape = TextProfile.of(texts)
    return "word" if shape.closed else "character" if shape.short else "bpe"


def different_words(texts: Sequence[str]) -> int:
    """Count the different words; in a script without spaces, every character counts as a word."""
    words = {word for text in texts for word in text.split()}
    split = {word for word in words if any(map(is_unspaced, word))}
    return len(words - split) + len({character for word in split for character in word})


def learn(
    model: models.Model, trainer: trainers.Trainer, texts: Sequence[str], normaliser: normalizers.Normalizer
) -> dict[str, Any]:
    """Train a model of the library on the parts of words; return it in the format of tokenizer.json."""
    learner = library.Tokenizer(model)
    learner.pre_tokenizer = pre_tokenizers.CharDelimiterSplit("\n")
    counts = Counter(word for text in texts for word in text.split())
    parts, cut = Counter[str](), mark_words(cut=True)
    for word, count in counts.items():  # split each different word only once, to save time
        for part, _ in cut.pre_tokenize_str(normaliser.normalize_str(clean_text(word))):
            for start in range(0, len(part), LONGEST_PART):
                parts[part[start : start + LONGEST_PART]] += count
    # Pass every part as often as it occurs, one per line, because the library counts them itself.
    lines = (f"{part}\n" * min(1000, count - start) for part, count in parts.items() for start in range(0, count, 1000))
    learner.train_from_iterator(lines, trainer)
    learned: dict[str, Any] = json.loads(learner.to_str())["model"]
    return learned


# ---- a profile of texts


LINES = 20_000  # about how many lines of a text are profiled
CLOSED = 128  # maximum different words of a closed text
ALPHABET = 256  # maximum letters of an alphabet; more, such as Chinese characters separated by spaces, are words
NEW = 0.001  # maximum expected share of new words in a closed text
# Blocks of scripts that are written without spaces between words: Thai and Lao, Tibetan, Burmese, Khmer, kana, Han.
BLOCKS: tuple[tuple[int, int], ...] = (
    (0x0E00, 0x0EFF), (0x0F00, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x20000, 0x3FFFF),
)  # fmt: skip


def is_unspaced(character: str) -> bool:
    """Return whether a character belongs to a script without spaces between words."""
    code = ord(character)
    return code >= BLOCKS[0][0] and any(first <= code <= last for first, last in BLOCKS)


@dataclass(frozen=True)
class TextProfile:
    """A profile of the lines of one side."""

    words: float  # median number of words in a line, separated by spaces
    characters: float  # median number of characters in a line, without spaces
    word_length: float  # mean number of characters in a word
    types: int  # number of different words
    unspaced: bool
    closed: bool

    @classmethod
    def of(cls, texts: Sequence[str]) -> "TextProfile":
        """Profile texts, or a sample of them at even intervals if there are many."""
        rows = [text.split() for text in texts[:: max(1, len(texts) // LINES)]]
        rows = [row for row in rows if row]
        if not rows:
            return cls(0.0, 0.0, 0.0, 0, False, False)
        counts = Counter(word for row in rows for word in row)
        total = sum(counts.values())
        letters = Counter[bool]()
        for word, count in counts.items():
            for character in word:
                if character.isalpha():
                    letters[is_unspaced(character)] += count
        length = sum(len(word) * count for word, count in counts.items()) / total
        # By the Good-Turing estimate, unseen words are as likely in total as the words seen once.
        once = sum(count == 1 for count in counts.values())
        return cls(
            words=statistics.median(map(len, rows)),
            characters=statistics.median(sum(map(len, row)) for row in rows),
            word_length=length,
            types=len(counts),
            # Text that was already split into words has spaces, whatever its script.
            unspaced=letters[True] > letters[False] and length > 4,
            # Texts with numbers are never closed: there are always more numbers.
            closed=len(counts) <= CLOSED
            and total >= 1_000
            and once <= NEW * total
            and not any(len(word) > 1 and word.isdecimal() for word in counts),
        )

    @property
    def short(self) -> bool:
        """Return whether a line is a word, a name or a number."""
        return self.words <= 3 and self.characters <= 30

    @property
    def spelled(self) -> bool:
        """Return whether words are single characters or symbols from a small inventory."""
        return self.closed or (self.word_length <= 1.2 and self.types <= ALPHABET)


def letters_in_common(first: Sequence[str], second: Sequence[str]) -> float:
    """Return the share of a side's letters, by frequency, that the other side has too; the smaller of both shares."""
    sides = [
        Counter(c for text in texts[:: max(1, len(texts) // LINES)] for c in text if c.isalpha())
        for texts in (first, second)
    ]

    def share(own: Counter[str], other: Counter[str]) -> float:
        # Ignore rare letters of the other side, such as a name in a foreign alphabet.
        least = max(1, sum(other.values()) // 10_000)
        return sum(n for c, n in own.items() if other[c] >= least) / max(1, sum(own.values()))

    return min(share(sides[0], sides[1]), share(sides[1], sides[0]))
