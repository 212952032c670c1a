"""Links between pieces: those of the words they belong to, whatever the pieces are."""

import itertools

import numpy as np
import pytest
import torch
from data.cases import KINDS, TEXTS
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.data.alignments.links import Linking, Words
from regard.data.batching import load
from regard.data.bpe_dropout import BpeDropout
from regard.data.cache import Encoded, Writer
from regard.data.tokenizer import Tokenizers
from regard.data.vocabulary import train

TAGS = ["<2de>"]
TOKENIZERS = {kind: train(TEXTS, kind, "auto", tags=TAGS) for kind in KINDS}
SENTENCES = [
    ("<2de> The house is small.", "Das Haus ist klein."),
    ("A man rides a horse.", "Ein Mann reitet Pferde: 12 + 30!"),
    ("a", "<unk> x"),
    ("tags and <pad> are  text", "sehr klein"),
]
# Words of those, from 0, the tag among them; one pair has none, and one target word has two.
LINKS = [[(1, 0), (2, 1), (3, 2), (4, 3)], [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3)], [], [(0, 1), (4, 1)]]


@settings(max_examples=80)
@given(st.sampled_from(KINDS), st.data())
def test_words_of_many_rows_are_those_of_each(kind, data):
    tokenizer = TOKENIZERS[kind]
    ids = st.integers(3, tokenizer.size - 1) | st.sampled_from(tokenizer.encode("▁ a") + tokenizer.encode("<2de> b c"))
    rows = data.draw(st.lists(st.lists(ids, max_size=7), min_size=1, max_size=5))
    flat = np.array([i for row in rows for i in row], np.int64)
    cut = Words(tokenizer).cut(flat, np.array([len(row) for row in rows]))
    found = zip(cut.starts.tolist(), cut.sizes.tolist(), strict=True)
    for row, count in zip(rows, cut.counts.tolist(), strict=True):
        words = [None] * len(row)
        for word, (start, size) in enumerate(itertools.islice(found, count)):
            words[start : start + size] = [word] * size
        assert words == tokenizer.words(row)


def written(folder, tokenizers, sentences=SENTENCES, links=LINKS):
    writer = Writer(folder, links=True)
    writer.write(
        [tokenizers.source.encode(source) for source, _ in sentences],
        [tokenizers.target.encode(target) for _, target in sentences],
        links,
    )
    writer.close()
    return Encoded(folder)


def of_words(batch, tokenizers):
    """The links of a batch as links of words, found piece by piece, and how much each target piece's weigh."""
    found, weights = [set() for _ in range(len(batch))], {}
    for row, target, source, weight in zip(*(part.tolist() for part in vars(batch.links).values()), strict=True):
        words = [
            tokenizers.source.words(batch.source[row][: batch.source_lengths[row]]),
            tokenizers.target.words(batch.target[row, 1 : batch.target_lengths[row]]),
        ]
        found[row].add((words[0][source], words[1][target]))
        weights.setdefault((row, target), []).append(weight)
    return found, weights


@pytest.mark.parametrize("kind", KINDS)
def test_links_of_pieces_are_those_of_their_words(tmp_path, kind):
    tokenizers = Tokenizers(TOKENIZERS[kind])
    encoded = written(tmp_path / "pairs", tokenizers)
    batch = load(encoded, [3, 0, 2, 1], linking=Linking(tokenizers))
    found, weights = of_words(batch, tokenizers)
    assert found == [set(LINKS[i]) for i in (3, 0, 2, 1)]
    for (row, target), each in weights.items():
        assert len(set(each)) == 1
        assert sum(each) == pytest.approx(1)
        word = tokenizers.target.words(batch.target[row, 1 : batch.target_lengths[row]])[target]
        linked = {source for source, other in LINKS[(3, 0, 2, 1)[row]] if other == word}
        words = tokenizers.source.words(batch.source[row][: batch.source_lengths[row]])
        assert len(each) == sum(word in linked for word in words)  # all pieces of all linked words
    # Every piece of a linked target word has its links.
    pieces = sum(
        word in {target for _, target in LINKS[i]}
        for i in range(4)
        for word in tokenizers.target.words(encoded.pair(i)[1])
    )
    assert len(weights) == pieces


@settings(max_examples=25, deadline=None)
@example(5e-324, 1)  # the smallest number there is
@given(st.floats(0, 1), st.integers(0, 99))
def test_bpe_dropout_cuts_words_anew_and_links_follow(tmp_path_factory, probability, epoch):
    tokenizers = Tokenizers(TOKENIZERS["bpe"], train([text.lower() for text in TEXTS], "bpe", 350))
    encoded = written(tmp_path_factory.mktemp("pairs") / "x", tokenizers)
    dropout = BpeDropout(tokenizers, probability, seed=epoch)
    batch = load(encoded, [0, 1, 2, 3], dropout, epoch, linking=Linking(tokenizers))
    found, weights = of_words(batch, tokenizers)
    assert found == [set(each) for each in LINKS]
    assert all(sum(each) == pytest.approx(1) for each in weights.values())
    again = load(encoded, [0, 1, 2, 3], dropout, epoch, linking=Linking(tokenizers))
    assert all(torch.equal(a, b) for a, b in zip(vars(batch.links).values(), vars(again.links).values(), strict=True))
    # The pieces are those of a batch without links.
    assert torch.equal(batch.source, load(encoded, [0, 1, 2, 3], dropout, epoch).source)


def test_parts_and_moves_keep_links(tmp_path):
    tokenizers = Tokenizers(TOKENIZERS["bpe"])
    encoded, linking = written(tmp_path / "pairs", tokenizers), Linking(tokenizers)
    batch = load(encoded, [0, 1, 3], linking=linking)
    halves = batch.halves()
    for half, indices in zip(halves, ([0, 1], [3]), strict=True):
        alone = load(encoded, indices, linking=linking)
        assert all(torch.equal(getattr(half.links, name), part) for name, part in vars(alone.links).items())
    assert len(halves[0].links) + len(halves[1].links) == len(batch.links)
    moved = batch.to("cpu")
    assert torch.equal(moved.links.weight, batch.links.weight)
    assert batch.to("meta").links.row.is_meta
    assert len(load(encoded, [2], linking=linking).links) == 0
    assert load(encoded, [0]).links is None
