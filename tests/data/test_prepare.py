"""Word links beside pairs: in step with them through everything that preparation does, and named where wrong."""

import json

import pytest
from data.cases import sentences

from regard.data.builtin import generate
from regard.data.preparation import prepare
from regard.data.settings import CorpusSettings, DataSettings, TokenizerSettings
from regard.data.tokenizer import Tokenizers
from regard.errors import ConfigError, DataError

WORD = TokenizerSettings(kind="word")


def links_of(source, target):
    """Links that say which sentence they are of."""
    m, n = len(source.split()), len(target.split())
    return sorted({(hash(source) % m, j) for j in range(n)} | {(i, hash(target) % n) for i in range(m)})


def write_links(path, rows):
    lines = (
        " ".join(f"{i}{'-?p'[(i + j) % 3]}{j}" for i, j in links_of(*row)) if all(map(str.strip, row)) else ""
        for row in rows
    )
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def kept(prepared, encoded):
    """Texts and links of all pairs."""
    found = []
    for i in range(len(encoded)):
        source, target = encoded.pair(i)
        texts = prepared.tokenizers.source.decode(source), prepared.tokenizers.target.decode(target)
        found.append((*texts, list(map(tuple, encoded.links[encoded.linked[i] : encoded.linked[i + 1]].tolist()))))
    return found


@pytest.mark.parametrize("kind", ["bpe", "character"])
def test_links_stay_with_their_pairs(files, tmp_path, kind):
    """Blank, long, held-out and repeated pairs are taken out between them."""
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
    """Python splits at U+001F, and the tokenizer does not: such a pair has no links, and is counted."""
    rows = [("a b", "c d"), ("a\x1fb", "c d"), ("b", "d")] * 5
    said = []
    prepare(files(rows, held_out=0.0, alignment=write_links(tmp_path / "align", rows)), say=said.append)
    assert said == [
        "15 pairs, 10 of them with word links (5 lost theirs, because the tokenizer separates words differently "
        "from white space); none for validation"
    ]


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
    """One line is a slip; two in three would be of another text."""
    (tmp_path / "align").write_text(f"0-0\n{odd}\n1-0\n")
    given = files([("a b", "c"), ("a b", "d"), ("a c", "c")], held_out=0.0, alignment=str(tmp_path / "align"))
    for cached in (False, True):
        said = []
        prepared = prepare(given, WORD, say=said.append)
        assert [links for *_, links in kept(prepared, prepared.train)] == [[(0, 0)], [], [(1, 0)]]
        assert said[0] == f"{tmp_path / 'align'}, line 2: {why}; the pair is trained on without its links"
        assert said[1].startswith("3 pairs, 2 of them with word links")
        assert said[1].endswith("from the cache") == cached


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"alignment": "a"}, "alignment: given without source and target"),
        ({"source": "a", "target": "b", "alignment": "gold"}, 'alignment: "gold" given with files, expected a file'),
        ({"builtin": "copy", "alignment": "a"}, 'alignment: "a" given with a built-in corpus, expected "gold"'),
        ({"builtin": "scenes", "alignment": "gold"}, "alignment: given without source and target"),
        ({"documents": "a.tsv", "alignment": "a"}, "alignment: given without source and target"),
        ({"corpora": (CorpusSettings("a", "b"),), "alignment": "a"}, "alignment: given together with corpora"),
    ],
)
def test_impossible_settings_are_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        DataSettings(**given)
    with pytest.raises(ConfigError, match="alignment_column: given without file"):
        CorpusSettings("a", "b", alignment_column=3)
    with pytest.raises(ConfigError, match='alignment_column: "c" given, expected a column number'):
        CorpusSettings(file="a.tsv", alignment_column="c")
    with pytest.raises(ConfigError, match="alignment: given together with alignment_column"):
        CorpusSettings(file="a.tsv", alignment_column=3, alignment="b")
