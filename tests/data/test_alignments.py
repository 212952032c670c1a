"""Word links beside pairs: preparation keeps them in step and locates errors.

Links between pieces follow the words that the pieces belong to.
"""

import itertools
import json

import numpy as np
import pytest
import torch
from data.cases import KINDS, TEXTS, sentences
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.data.alignments import Linking, Words
from regard.data.batching import load
from regard.data.bpe_dropout import BpeDropout
from regard.data.builtin import generate
from regard.data.cache import Encoded, Writer
from regard.data.preparation import prepare
from regard.data.settings import CorpusSettings, DataSettings, TokenizerSettings
from regard.data.tokenizer import Tokenizers
from regard.data.vocabulary import train
from regard.errors import DataError

TAGS = ["<2de>"]
TOKENIZERS = {kind: train(TEXTS, kind, "auto", tags=TAGS) for kind in KINDS}
SENTENCES = [
    ("<2de> The house is small.", "Das Haus ist klein."),
    ("A man rides a horse.", "Ein Mann reitet Pferde: 12 + 30!"),
    ("a", "<unk> x"),
    ("tags and <pad> are  text", "sehr klein"),
]
# Word links of these, from 0, including the tag; one pair has none, and one target word has two.
LINKS = [[(1, 0), (2, 1), (3, 2), (4, 3)], [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3)], [], [(0, 1), (4, 1)]]
WORD = TokenizerSettings(kind="word")


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
    """Return a batch's links as word links, collected piece by piece, and the weights of each target piece."""
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
    linked = [{target for _, target in links} for links in LINKS]
    assert len(weights) == sum(
        word in linked[i] for i in range(4) for word in tokenizers.target.words(encoded.pair(i)[1])
    )


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
    # The pieces equal those of a batch without links.
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


def links_of(source, target):
    """Return links that identify their sentence."""
    m, n = len(source.split()), len(target.split())
    return sorted({(hash(source) % m, j) for j in range(n)} | {(i, hash(target) % n) for i in range(m)})


def write_links(path, rows):
    full = [row if all(map(str.strip, row)) else None for row in rows]
    lines = ([f"{i}{'-?p'[(i + j) % 3]}{j}" for i, j in links_of(*row)] if row else [] for row in full)
    path.write_text("".join(f"{' '.join(line)}\n" for line in lines))
    return str(path)


def kept(prepared, encoded):
    """Return texts and links of all pairs."""
    found = []
    for i in range(len(encoded)):
        source, target = encoded.pair(i)
        texts = prepared.tokenizers.source.decode(source), prepared.tokenizers.target.decode(target)
        found.append((*texts, list(map(tuple, encoded.links[encoded.linked[i] : encoded.linked[i + 1]].tolist()))))
    return found


@pytest.mark.parametrize("kind", ["bpe", "character"])
def test_links_stay_with_their_pairs(files, tmp_path, kind):
    """Preparation removes blank, long, held-out and repeated pairs in between."""
    rows = sentences(120)
    rows[5:5] = [("", "leer"), ("long " * 90, "lang")]
    rows += [*rows[:40], ("empty", " ")]
    said = []
    given = files(rows, held_out=0.2, longest=200, alignment=write_links(tmp_path / "align", rows))
    prepared = prepare(given, TokenizerSettings(kind=kind), say=said.append)
    assert said[0].startswith(
        f"{len(prepared.train)} pairs, {len(prepared.train)} of them with word links; dropped 3 blank, 1 l"
    )
    for encoded in (prepared.train, prepared.valid):
        assert len(encoded) > 20
        assert all(links == links_of(source, target) for source, target, links in kept(prepared, encoded))
    again = prepare(given, TokenizerSettings(kind=kind))
    assert kept(again, again.train) == kept(prepared, prepared.train)


def test_corpora_of_all_forms_with_a_tag(tmp_path):
    rows, text = sentences(30), lambda row: " ".join(f"{i}-{j}" for i, j in links_of(*row))
    (tmp_path / "a.tsv").write_text("".join(f"{text(row)}\t{row[0]}\t{row[1]}\n" for row in rows))
    with open(tmp_path / "b.jsonl", "w") as file:
        file.writelines(json.dumps({"source": s, "target": t, "links": text((s, t))}) + "\n" for s, t in rows)
    (tmp_path / "c.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in rows))
    beside = write_links(tmp_path / "c.align", rows)
    columns = {"source_column": 2, "target_column": 3, "alignment_column": 1}
    corpora = (
        CorpusSettings(file=str(tmp_path / "a.tsv"), tag="<2de>", **columns),
        CorpusSettings(file=str(tmp_path / "b.jsonl"), alignment_column="links"),
        CorpusSettings(file=str(tmp_path / "c.tsv"), alignment=beside),
        CorpusSettings(file=str(tmp_path / "c.tsv")),
    )
    prepared = prepare(DataSettings(corpora=corpora, held_out=0.0, cache=str(tmp_path / "cache")))
    expected = [(f"<2de> {s}", t, [(i + 1, j) for i, j in links_of(s, t)]) for s, t in rows]
    expected += [(s, t, links_of(s, t)) for s, t in rows] * 2 + [(s, t, []) for s, t in rows]
    assert kept(prepared, prepared.train) == expected
    assert prepared.counts["linked"] == 90


def test_gold_links_of_a_built_in_corpus(tmp_path):
    data = DataSettings(builtin="phrasebook", count=200, alignment="gold", held_out=0.1, cache=str(tmp_path))
    prepared = prepare(data)
    for encoded, split in ((prepared.train, "train"), (prepared.valid, "valid")):
        examples = generate("phrasebook", len(encoded), split=split)
        assert kept(prepared, encoded) == [(e.source, e.target, list(e.alignment)) for e in examples]
    without = prepare(DataSettings(builtin="phrasebook", count=200, held_out=0.1, cache=str(tmp_path)))
    assert without.train.links is None
    assert without.hash != prepared.hash
    assert without.tokenizers.hash == prepared.tokenizers.hash


def test_lowercase_and_odd_white_space(files, tmp_path):
    rows = [("The\u00a0MAN  ▁ İ sees", "Der  Mann\u3000Ä"), ("a b", "c")] * 9
    alignment = write_links(tmp_path / "align", rows)
    prepared = prepare(files(rows, held_out=0.0, lowercase=True, alignment=alignment))
    assert prepared.counts["linked"] == 18
    assert [links for *_, links in kept(prepared, prepared.train)] == [links_of(*row) for row in rows]


def test_other_words_than_white_space_tells_apart(files, tmp_path):
    """Python splits at U+001F but the tokenizer does not: such a pair loses its links and is counted."""
    rows = [("a b", "c d"), ("a\x1fb", "c d"), ("b", "d")] * 5
    said = []
    prepare(files(rows, held_out=0.0, alignment=write_links(tmp_path / "align", rows)), say=said.append)
    lost = "5 lost theirs, because the tokenizer separates words differently from white space"
    assert said == [f"15 pairs, 10 of them with word links ({lost}); none for validation"]


def test_links_are_part_of_what_the_cache_hangs_on(files, tmp_path):
    rows = sentences(20)
    given = files(rows, held_out=0.0, alignment=write_links(tmp_path / "align", rows))
    first = prepare(given, WORD)
    (tmp_path / "align").write_text("0-0\n" * 20)
    second = prepare(given, WORD)
    assert first.hash != second.hash
    assert second.train.links.tolist() == [[0, 0]] * 20
    assert isinstance(second.tokenizers, Tokenizers)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0-0\n0_0\n0=0\n", "align, line 2: '0_0' given, expected source-target, such as 3-4"),
        ("\n\n0-0 1-\n", "align, line 3: '1-' given"),
        ("0-0\n2-0\n0-9\n", "align, line 2: the link 2-0 given, but the source has 2 words, counted from 0"),
        ("3-3\n0-0\n1?1\n", "align, line 1: the link 3-3 given, but the source has 2 words"),
        ("0-0\n0-0\n", "train.source has 3 lines and .*align has 2; expected the same number"),
        ("0-0\n0-0\n0-0\n0-0\n", "train.source has 3 lines and .*align has 4; expected the same number"),
        (b"0-0\n\xff\n", "align, line 2: byte 1 .* is not UTF-8"),
        (None, "align: no such file"),
    ],
)
def test_wrong_links_are_named(files, tmp_path, text, said):
    given = files([("a b", "c d"), ("a b", "c"), ("a b", "c")], held_out=0.0, alignment=str(tmp_path / "align"))
    if text is not None:
        (tmp_path / "align").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=said) as caught:
        prepare(given, WORD)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ("0_0", "'0_0' given, expected source-target, such as 3-4, or 3?4 for a possible link"),
        ("0-0 1-", "'1-' given, expected source-target, such as 3-4, or 3?4 for a possible link"),
        ("2-0", "the link 2-0 given, but the source has 2 words, counted from 0"),
        (f"0-{'9' * 5_000}", f"'0-{'9' * 28}…' given, expected source-target, such as 3-4, or 3?4 for a possible link"),
    ],
)
def test_a_slip_costs_one_pair_its_links(files, tmp_path, odd, why):
    """One bad line is a slip; two in three would mean the links of another text."""
    (tmp_path / "align").write_text(f"0-0\n{odd}\n1-0\n")
    given = files([("a b", "c"), ("a b", "d"), ("a c", "c")], held_out=0.0, alignment=str(tmp_path / "align"))
    for cached in (False, True):
        said = []
        prepared = prepare(given, WORD, say=said.append)
        assert [links for *_, links in kept(prepared, prepared.train)] == [[(0, 0)], [], [(1, 0)]]
        assert said[0] == f"{tmp_path / 'align'}, line 2: {why}; the pair is trained on without its links"
        assert said[1].startswith("3 pairs, 2 of them with word links")
        assert said[1].endswith("from the cache") == cached
