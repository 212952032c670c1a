"""Numberings of three families: the ids of Transformers' tokenizers, in folders made here."""

import json
import warnings

import pytest
from interop.pieces import draw_texts, train

from regard.data import UNKNOWN, Tokenizers, open_tokenizer, special_pieces
from regard.data import train as train_vocabulary
from regard.data.sentencepiece import read_model
from regard.errors import DataError
from regard.interop.numbering import (
    LANGUAGES,
    m2m100_rows,
    m2m100_tokenizers,
    marian_ids,
    marian_rows,
    marian_tokenizers,
    renumber,
    round_up,
)

TEXTS = [text for text in draw_texts(11, 60) if not any(piece in text for piece in (*special_pieces.SPECIAL, "<mask>"))]
PLAIN = ["the quick brown fox jumps over a lazy dog", "hello world, 22 tests!!", "", "Ärger über Straße", "dog fox"]


def transformers():
    return pytest.importorskip("transformers", reason="transformers is not installed: pip install 'regard[peers]'")


def write_json(path, table):
    path.write_text(json.dumps(table, ensure_ascii=False), encoding="utf-8")


def pieces_of(path):
    return [piece for piece, _, kind in read_model(path).pieces if kind in (1, 4)]


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    """Create a folder like OPUS-MT's: two models, a vocabulary without some pieces and <s>, and padding at its end."""
    folder = tmp_path_factory.mktemp("marian")
    (folder / "source.spm").write_bytes(train(vocab_size=300, pad_id=-1))
    (folder / "target.spm").write_bytes(train(vocab_size=250, pad_id=-1, model_type="bpe"))
    both = dict.fromkeys(pieces_of(folder / "source.spm")[::-1] + pieces_of(folder / "target.spm"))
    pieces = [piece for piece in both if piece not in ("▁fox", "▁hello")]
    order = ["</s>", "<unk>", *pieces, ">>deu<<", ">>fra<<", "<pad>"]
    write_json(folder / "vocab.json", {piece: i for i, piece in enumerate(order)})
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "MarianTokenizer"})
    return folder


def test_marian(marian):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tokenizer recommends a package
        theirs = transformers().MarianTokenizer.from_pretrained(marian)
    ids, rows = marian_ids(marian), marian_rows(marian)
    assert [*ids] == [*special_pieces.SPECIAL, *(piece for piece in rows if piece not in special_pieces.SPECIAL)]
    assert len(ids) == len(rows) + 1 == len(theirs.encoder) + 1
    ours = marian_tokenizers(marian)
    assert (ours.joint, ours.same_ids, ours.source.size) == (False, True, len(ids))
    here = {theirs.encoder[piece]: i for piece, i in ids.items() if piece != "<s>"}
    texts = [
        *TEXTS,
        ">>deu<< the quick dog",
        ">>deu<<",
        ">>xyz<<dog",
        "a >>fra<< dog",
        ">>deu",
        "<<>>",
        "▁fox fox hello",
    ]
    texts = [text for text in texts if text == text.strip()]  # Transformers strips texts before it splits them
    for text in texts:
        source = theirs(text, add_special_tokens=False).input_ids
        target = theirs(text_target=text, add_special_tokens=False).input_ids
        assert ours.source.encode(text) == [here[i] for i in source], text
        assert ours.target.encode(text) == [here[i] for i in target], text
    assert UNKNOWN in ours.source.encode("a fox")
    row = [*ours.target.encode("the lazy dog"), ids["▁quick"], ids["▁aaa"]]
    back = {own: i for i, own in here.items()}
    assert ours.source.decode(row) == ours.target.decode(row) == theirs.decode([back[i] for i in row])


def test_marian_with_two_vocabularies(marian, tmp_path):
    for name in ("source.spm", "target.spm"):
        (tmp_path / name).write_bytes((marian / name).read_bytes())
    for file, side in (("vocab.json", "source.spm"), ("target_vocab.json", "target.spm")):
        order = ["</s>", "<unk>", *pieces_of(tmp_path / side), "<pad>"]
        write_json(tmp_path / file, {piece: i for i, piece in enumerate(order)})
    ours = marian_tokenizers(tmp_path)
    assert not ours.same_ids
    assert ours.target.size == len(marian_ids(tmp_path, "target_vocab.json")) != ours.source.size
    assert ours.target.decode(ours.target.encode("the lazy dog")) == "the lazy dog"


def test_equal_models_are_one_tokenizer(marian, tmp_path):
    for name in ("source.spm", "target.spm"):
        (tmp_path / name).write_bytes((marian / "source.spm").read_bytes())
    (tmp_path / "vocab.json").write_bytes((marian / "vocab.json").read_bytes())
    assert marian_tokenizers(tmp_path).joint


@pytest.fixture(scope="module")
def m2m100(tmp_path_factory):
    folder = tmp_path_factory.mktemp("m2m100")
    (folder / "sentencepiece.bpe.model").write_bytes(train(vocab_size=300, model_type="bpe"))
    pieces = [piece for piece in pieces_of(folder / "sentencepiece.bpe.model")[::-1] if piece != "▁fox"]
    order = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    write_json(folder / "vocab.json", {piece: i for i, piece in enumerate(order)})
    languages = [f"__{code}__" for code in LANGUAGES["m2m100"]]
    table = {"tokenizer_class": "M2M100Tokenizer", "additional_special_tokens": languages}
    write_json(folder / "tokenizer_config.json", table)
    return folder


def test_m2m100(m2m100):
    theirs = transformers().M2M100Tokenizer.from_pretrained(m2m100)
    ids, rows = renumber(m2m100_rows(m2m100), ""), m2m100_rows(m2m100)
    for code in LANGUAGES["m2m100"]:
        assert rows[f"__{code}__"] == theirs.get_lang_id(code)
    assert len(rows) == theirs.encoder_size + 100 + 8
    here = {row: ids[piece] for piece, row in rows.items()}
    ours = m2m100_tokenizers(m2m100)
    assert ours.joint
    assert ours.source.size == len(rows)
    for text in [*PLAIN, *TEXTS, "__de__ the dog", "the__fr__dog", "__xx__"]:
        if text == text.strip():
            expected = theirs(text, add_special_tokens=False).input_ids
            assert ours.source.encode(text) == [here[i] for i in expected], text


def test_sizes_and_languages_of_the_folder(m2m100, tmp_path):
    """A matrix with more rows than pieces has names for all rows."""
    (tmp_path / "vocab.json").write_bytes((m2m100 / "vocab.json").read_bytes())
    write_json(tmp_path / "tokenizer_config.json", {"language_codes": "wmt21"})
    size = len(m2m100_rows(tmp_path))
    assert size == len(json.loads((tmp_path / "vocab.json").read_text())) + len(LANGUAGES["wmt21"]) + 8
    write_json(tmp_path / "config.json", {"vocab_size": size + 5})
    rows = m2m100_rows(tmp_path)
    assert len(rows) == size + 5
    assert sorted(rows.values()) == list(range(size + 5))


@pytest.fixture(scope="module")
def nllb(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nllb")
    data = train(vocab_size=300, model_type="bpe", pad_id=-1)
    (folder / "sentencepiece.bpe.model").write_bytes(data)
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "NllbTokenizer"})
    return folder


def test_nllb(nllb):
    """Without a tokenizer.json the rows are SentencePiece's ids plus one, then the languages, then <mask>."""
    package = pytest.importorskip("sentencepiece")
    processor = package.SentencePieceProcessor(model_file=str(nllb / "sentencepiece.bpe.model"))
    rows, ids = m2m100_rows(nllb), renumber(m2m100_rows(nllb), "")
    assert [rows[piece] for piece in ("<s>", "<pad>", "</s>", "<unk>")] == [0, 1, 2, 3]
    assert all(rows[processor.id_to_piece(i)] == i + 1 for i in range(3, len(processor)))
    languages = LANGUAGES["nllb"]
    assert len(languages) == 202
    assert [rows[code] for code in languages] == list(range(len(processor) + 1, len(processor) + 203))
    assert rows["<mask>"] == len(processor) + 203 == len(rows) - 1
    ours = m2m100_tokenizers(nllb).source
    theirs = transformers().NllbTokenizer.from_pretrained(nllb)
    for text in PLAIN:  # texts for which both normalisers agree
        expected = [i + 1 if i != processor.unk_id() else UNKNOWN for i in processor.encode(text)]
        assert ours.encode(text) == expected == theirs(text, add_special_tokens=False).input_ids
    assert ours.encode("deu_Latn dog") == [ids["deu_Latn"], *ours.encode("dog")]
    assert ours.decode([ids["deu_Latn"], *ours.encode("the dog")]) == "deu_Latn the dog"


def test_nllb_as_transformers_saves_it(nllb, tmp_path):
    """The saved tokenizer.json says which rows the pieces have."""
    write_json(nllb / "tokenizer_config.json", {"extra_special_tokens": LANGUAGES["nllb"]})
    theirs = transformers().NllbTokenizer.from_pretrained(nllb)
    theirs.save_pretrained(tmp_path)
    assert m2m100_rows(tmp_path) == theirs.get_vocab()
    without = m2m100_tokenizers(tmp_path)
    (tmp_path / "sentencepiece.bpe.model").write_bytes((nllb / "sentencepiece.bpe.model").read_bytes())
    ours = m2m100_tokenizers(tmp_path).source
    ids, rows = renumber(m2m100_rows(tmp_path), ""), m2m100_rows(tmp_path)
    here = {row: ids[piece] for piece, row in rows.items()}
    for text in [*PLAIN, "deu_Latn the dog"]:
        expected = [here[i] for i in theirs(text, add_special_tokens=False).input_ids]
        assert ours.encode(text) == expected
        if "deu" not in text:  # Transformers treats it as special; here it is text
            names = without.source.pieces(without.source.encode(text))
            assert names == ours.pieces(expected)
    assert isinstance(without, Tokenizers)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "vocab.json: cannot be read"),
        ("[]", "vocab.json: expected a JSON object"),
        ('{"<pad>": 0, "</s>": 1}', "vocab.json: no <unk> in its vocabulary"),
        ('{"<pad>": 0, "</s>": 1, "<unk>": 3}', "has the id 3, expected 0 to 2"),
        ('{"<pad>": 0, "</s>": 1, "<unk>": "x"}', "has the id 'x'"),
    ],
)
def test_a_vocabulary_that_is_none_is_refused(tmp_path, content, problem):
    (tmp_path / "vocab.json").write_text(content)
    with pytest.raises(DataError, match=problem) as caught:
        marian_ids(tmp_path)
    assert str(caught.value).startswith(str(tmp_path))


def test_missing_files_are_named(marian, tmp_path):
    with pytest.raises(DataError, match=r"vocab\.json: cannot be read"):
        marian_tokenizers(tmp_path)
    (tmp_path / "vocab.json").write_bytes((marian / "vocab.json").read_bytes())
    with pytest.raises(DataError, match=r"source\.spm: cannot be read"):
        marian_tokenizers(tmp_path)
    (tmp_path / "vocab.json").unlink()  # NLLB's folders have none
    with pytest.raises(DataError, match=r"sentencepiece\.bpe\.model: cannot be read"):
        m2m100_tokenizers(tmp_path)


@pytest.mark.parametrize("size", [13, 16, 23])
def test_pieces_that_stand_for_nothing_fill_up_to_a_multiple_of_eight(size):
    content = json.loads(train_vocabulary([" ".join(f"w{i}" for i in range(size - 4))], "word", size).dumps())
    before = Tokenizers(open_tokenizer(content, "here"))
    after = round_up(before, "here")
    assert (before.source.size, after.source.size % 8, after.source.size - size < 8) == (size, 0, True)
    assert after.joint
    assert after.source.names[:size] == before.source.names
    fillers = after.source.names[size:]
    assert all(map(special_pieces.is_filler, fillers))
    assert not any(map(special_pieces.is_filler, before.source.names))
    text = "w1 w2 " + " ".join(fillers)
    assert after.source.encode("w1 w2") == before.source.encode("w1 w2")
    assert all(i < size for i in after.source.encode(text))  # no text is split into them
