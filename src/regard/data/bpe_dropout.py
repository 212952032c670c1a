"""BPE dropout: words are split differently in every epoch, but the same way whenever an epoch is repeated.

Provilkov et al. 2020 (arXiv:1910.13267), algorithm 1: at each step, drop every possible merge with probability p and
apply the best of the rest; stop if none is left. p = 0 is plain BPE, p = 1 gives single characters. The `tokenizers`
library has BPE dropout too, but without a seed, so that a run could not be resumed exactly.
"""

import itertools
import math
import random
from collections.abc import Iterable, Sequence

from regard.data.pre_tokenizer import MARK
from regard.data.tokenizer import UNKNOWN, Tokenizer, Tokenizers
from regard.errors import ArgumentError

KEPT = 50_000  # words whose plain BPE merges are cached

Symbols = tuple[int, ...]
Merge = tuple[int, int, int]  # rank, resulting piece, index of the left symbol


class BpeDropout:
    """BPE dropout for pairs of encoded texts: a deterministic function of (seed, epoch, index)."""

    def __init__(self, tokenizers: Tokenizers, probability: float, *, seed: int = 0):
        if not 0 <= probability <= 1:
            raise ArgumentError(f"probability: {probability} given, expected 0 to 1")
        self.probability, self.seed = probability, seed
        self.source = Cutter(tokenizers.source)
        self.target = self.source if tokenizers.source is tokenizers.target else Cutter(tokenizers.target)

    def pair(
        self, source: Iterable[int], target: Iterable[int], *, epoch: int, index: int
    ) -> tuple[list[int], list[int]]:
        """Return both texts, re-split into pieces."""
        draws = Draws(self.probability, random.Random(f"{self.seed} {epoch} {index}"))
        return self.source.resplit(source, draws), self.target.resplit(target, draws)


class Draws:
    """Random draws of merges to drop; drawing the gaps between dropped merges makes most decisions free."""

    def __init__(self, probability: float, generator: random.Random):
        self.generator = generator
        self.scale = -math.inf if probability == 0 else 0.0 if probability == 1 else 1 / math.log1p(-probability)
        self.before_drop = self.gap()  # number of merges to keep before the next dropped one

    def gap(self) -> float:
        """Draw the number of merges to keep before the next dropped one, from a geometric distribution."""
        if self.scale == -math.inf:
            return math.inf
        count = math.log(1 - self.generator.random()) * self.scale
        return math.floor(count) if count < math.inf else count  # infinite if the probability is tiny

    def keep(self, most: int) -> int:
        """Count how many of the next `most` merges are kept before one is dropped; do not consume the dropped one."""
        count = int(min(most, self.before_drop))
        self.before_drop -= count
        return count

    def drop(self) -> bool:
        """Return whether to drop the next merge."""
        if self.keep(1):
            return False
        self.before_drop = self.gap()
        return True


class Cutter:
    """The merges of a BPE tokenizer, and the splitting of texts with them."""

    def __init__(self, tokenizer: Tokenizer):
        model = tokenizer.content["model"]
        odd = [name for name in ("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges") if model.get(name)]
        if tokenizer.kind not in ("bpe", "character") or odd or tokenizer.sentencepiece is not None:
            kind = tokenizer.kind if tokenizer.sentencepiece is None else f"{tokenizer.kind} of SentencePiece"
            what = f"kind {kind!r}" if not odd else f"BPE with {', '.join(odd)}"
            raise ArgumentError(f"a tokenizer of {what} given, BPE dropout expects plain BPE")
        self.tokenizer = tokenizer
        self.vocabulary: dict[str, int] = model["vocab"]
        self.bytes = bool(model.get("byte_fallback")) and all(f"<0x{b:02X}>" in self.vocabulary for b in range(256))
        self.merges: dict[tuple[int, int], tuple[int, int]] = {}
        for rank, merge in enumerate(model["merges"]):
            left, right = merge.split(" ") if isinstance(merge, str) else merge
            pair = self.vocabulary[left], self.vocabulary[right]
            self.merges.setdefault(pair, (rank, self.vocabulary[left + right]))
        self.added = frozenset(tokenizer.added.values())
        self.paths: dict[str, list[Symbols]] = {}
        self.ranked_merges: dict[Symbols, list[Merge]] = {}

    def resplit(self, ids: Iterable[int], draws: Draws) -> list[int]:
        """Re-split the text of ids; tags, added words and other special pieces stay unchanged."""
        cut: list[int] = []
        run: list[int] = []
        inside = False  # whether the run follows an added word, and so may continue it
        numbers = [*ids]
        for i, visible in zip(numbers, self.tokenizer.are_visible(numbers), strict=True):
            if not visible or i <= UNKNOWN or i in self.tokenizer.tags or i in self.added:
                cut += [*self.text(run, draws, inside), int(i)]
                run, inside = [], i in self.added
            else:
                run.append(i)
        return cut + self.text(run, draws, inside)

    def text(self, ids: Sequence[int], draws: Draws, inside: bool = False) -> list[int]:
        """Split a text between special pieces; with `inside`, its first piece may continue a word."""
        if not ids:
            return []
        text, before = self.tokenizer.decode(ids), self.tokenizer.library.pre_tokenizer
        words = [word for word, _ in before.pre_tokenize_str(text)] if before is not None else [text]
        if inside and not self.tokenizer.pieces(ids[:1])[0].startswith(MARK):
            words[0] = words[0].removeprefix(MARK)
        return [piece for word in words for piece in self.word(word, draws)]

    def word(self, word: str, draws: Draws) -> Symbols:
        """Split a word into pieces."""
        path = self.paths.get(word)
        if path is None:
            if len(self.paths) >= KEPT:
                self.paths.clear()
            path = [self.symbols(word)]  # after 0, 1, 2, … merges of plain BPE
            while possible := self.possible(path[-1]):
                path.append(merge_symbols(path[-1], possible[0]))
            self.paths[word] = path
        # Before the first dropped merge, the path is that of plain BPE, which takes one draw per merge.
        depth = draws.keep(len(path) - 1)
        return path[depth] if depth == len(path) - 1 else self.merge(path[depth], draws)

    def symbols(self, word: str) -> Symbols:
        """Return a word's initial symbols: for each character its piece, its bytes or the unknown piece."""
        ids: list[int] = []
        for character in word:
            i = self.vocabulary.get(character)
            if i is not None:
                ids.append(i)
            elif self.bytes:
                ids += [self.vocabulary[f"<0x{byte:02X}>"] for byte in character.encode()]
            else:
                ids.append(UNKNOWN)
        return tuple(ids)

    def merge(self, symbols: Symbols, draws: Draws) -> Symbols:
        """Merge neighbours, best first, until all possible merges are dropped.

        Drawing in order of rank until a merge is kept is equivalent to drawing for all and taking the best.
        """
        while (pair := next((each for each in self.possible(symbols) if not draws.drop()), None)) is not None:
            symbols = merge_symbols(symbols, pair)
        return symbols

    def possible(self, symbols: Symbols) -> list[Merge]:
        """List the possible merges, best first."""
        ranked = self.ranked_merges.get(symbols)
        if ranked is None:
            merges = ((self.merges.get(pair), place) for place, pair in enumerate(itertools.pairwise(symbols)))
            ranked = sorted((*merge, place) for merge, place in merges if merge is not None)
            if len(self.ranked_merges) >= 4 * KEPT:
                self.ranked_merges.clear()
            self.ranked_merges[symbols] = ranked
        return ranked


def merge_symbols(symbols: Symbols, merge: Merge) -> Symbols:
    """Apply a merge and return the new symbols."""
    _, piece, place = merge
    return (*symbols[:place], piece, *symbols[place + 2 :])
