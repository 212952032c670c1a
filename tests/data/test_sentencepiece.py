"""SentencePiece models: ids and texts equal the package's, sections written by hand, and invalid files."""

import base64
import itertools
import json
import random
import sys

import pytest
from interop.pieces import WORDS, draw_texts, field, train, write

from regard.data import (
    END,
    PAD,
    START,
    UNKNOWN,
    Tokenizer,
    Tokenizers,
    open_tokenizer,
    special_pieces,
    vocabulary_extension,
)
from regard.data.bpe_dropout import Cutter
from regard.data.sentencepiece import SentencePiece, convert, read_model
from regard.errors import ArgumentError, DataError, MissingExtraError

package = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed: pip install 'regard[test]'")

SPECIAL = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("<pad>", 0.0, 3)]  # pieces, their scores and types
FIXED = {"user_defined_symbols": "<USR>,ab<sep>,αβ,bab,333", "control_symbols": "CLS"}
USUAL = [
    {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc"},
    {"model_type": "unigram", "normalization_rule_name": "identity", "byte_fallback": True, **FIXED},
    {"model_type": "unigram", "normalization_rule_name": "nfkc_cf", "add_dummy_prefix": False, **FIXED},
    {"model_type": "bpe", "normalization_rule_name": "nmt_nfkc", **FIXED},
    {"model_type": "bpe", "normalization_rule_name": "nmt_nfkc", "byte_fallback": True},
    {"model_type": "bpe", "normalization_rule_name": "identity", "remove_extra_whitespaces": False},
]
KINDS = ("unigram", "bpe")
RULES = ("nmt_nfkc", "identity", "nfkc_cf")
OTHERS = [{f"{name}": False} for name in ("remove_extra_whitespaces", "add_dummy_prefix", "split_by_whitespace")]
OTHERS += [{"treat_whitespace_as_suffix": True}]
ALL = [
    {"model_type": kind, "byte_fallback": fallback, "normalization_rule_name": rule, **fixed}
    for kind, fallback, rule, fixed in itertools.product(KINDS, (False, True), RULES, ({}, FIXED))
]
ALL += [{"model_type": kind, **other, **FIXED} for kind, other in itertools.product(KINDS, OTHERS)]
FORMS = {
    "unigram": {},
    "bpe": {"model_type": "bpe"},
    "bytes": {"byte_fallback": True, "vocab_size": 900},
    "bpe bytes": {"byte_fallback": True, "vocab_size": 900, "model_type": "bpe"},
    "symbols": {"user_defined_symbols": ["<sep>", "<USR>"], "control_symbols": ["CLS"]},
    "spaces": {"remove_extra_whitespaces": False},
    "no prefix": {"add_dummy_prefix": False},
    "identity": {"normalization_rule_name": "identity"},
    "suffix": {"treat_whitespace_as_suffix": True},
    "surface": {"unk_surface": "?"},
}


def opened(folder, data, ids=None, **options):
    """Return the package's processor, and the tokenizer read back from a file."""
    (folder / "a.model").write_bytes(data)
    content = convert(folder / "a.model", ids, **options)
    Tokenizers(Tokenizer(content)).save(folder / "tokenizer.json")
    loaded = Tokenizers.load(folder / "tokenizer.json")
    assert loaded.source.content == content
    assert loaded.hash == Tokenizers(Tokenizer(content)).hash
    return package.SentencePieceProcessor(model_proto=data), loaded.source


def compare(processor, tokenizer, texts):
    """Compare ids, alone and in batches, and the texts decoded from them."""
    here = [tokenizer.content["model"]["vocab"][processor.id_to_piece(i)] for i in range(len(processor))]
    back = {own: i for i, own in enumerate(here)}
    assert len(back) == len(processor) == tokenizer.size
    expected = [[here[i] for i in row] for row in processor.encode(texts)]
    for _ in range(2):  # the second time, words come from the cache
        for text, ids, right in zip(texts, tokenizer.encode_batch(texts), expected, strict=True):
            assert ids == right, text
    for text, ids in zip(texts, expected, strict=True):
        assert tokenizer.encode(text) == ids, text
        decoded = tokenizer.decode(ids)
        assert decoded == processor.decode([back[i] for i in ids]), text
        assert UNKNOWN in ids or tokenizer.normalise(text) == decoded, text
        assert tokenizer.decode([START, *ids, END, PAD]) == decoded
    rows = [random.choices(range(UNKNOWN, tokenizer.size), k=random.randrange(9)) for _ in range(200)]
    for row, text in zip(rows, tokenizer.decode_batch(rows), strict=True):
        assert text == processor.decode([back[i] for i in row])


@pytest.mark.parametrize("options", USUAL, ids=lambda options: "-".join(map(str, options.values())))
def test_ids_are_those_of_sentencepiece(tmp_path, options):
    compare(*opened(tmp_path, train(**options)), draw_texts(random.randrange(2**32), 250))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("options", ALL, ids=lambda options: "-".join(map(str, options.values())))
def test_ids_are_those_of_sentencepiece_for_ten_thousand_texts(tmp_path, options):
    compare(*opened(tmp_path, train(**options)), draw_texts(random.randrange(2**32), 10_000))


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_rules_across_spaces(tmp_path, kind):
    """Rules that join a space with the text before or after it: words then cannot be encoded separately."""
    rules = {"o w": "Q", " \u0308": "\u00a8", "x ": "y", "q": "", "z": " ", "m": "a  b", "\u00b7": "\u2581", "aa": "c"}
    lines = ["\t".join(" ".join(f"{ord(c):X}" for c in text) for text in rule) for rule in rules.items()]
    (tmp_path / "rules.tsv").write_text("".join(f"{line}\n" for line in lines))
    data = train(model_type=kind, normalization_rule_tsv=str(tmp_path / "rules.tsv"))
    signs = ["o w", "o", " ", "w", " \u0308", "x", "x ", "q", "z", "m", "the", "\u00b7", "▁", "aa", "a"]
    texts = ["".join(random.choices(signs, k=random.randrange(12))) for _ in range(400)]
    processor, tokenizer = opened(tmp_path, data)
    assert "Q" in processor.normalize("hello world")
    back = [tokenizer.content["model"]["vocab"][processor.id_to_piece(i)] for i in range(len(processor))]
    for text in texts:
        assert tokenizer.encode(text) == [back[i] for i in processor.encode(text)], text


def test_equal_sums_are_ranked_in_single_precision(tmp_path):
    """Words of two letters have many segmentations with equal sums; the preceding text decides by rounding."""
    letters = {"a": -2.1, "b": -2.3, "aa": -3.7, "bb": -3.9, "aab": -5.1, "▁": -1.3, "▁a": -2.9, "▁bb": -4.3}
    letters["abab"] = -6.7
    data = write([*SPECIAL, *((piece, score, 1) for piece, score in letters.items())])
    processor, tokenizer = opened(tmp_path, data)
    texts = ["".join(random.choices("aabb ", k=random.randrange(150))) for _ in range(300)]
    compare(processor, tokenizer, texts)


@pytest.mark.parametrize("kind", [1, 2])
def test_pieces_that_are_not_used(tmp_path, kind):
    letters = [*SPECIAL, ("▁", -1.5, 1), *((sign, -2.0 - i, 1) for i, sign in enumerate("abc"))]
    letters += [("ab", -1.0, 5), ("abc", -1.2, 1), ("aba", -0.5, 5), ("bc", -3.0, 1), ("d", -3.0, 5), ("cc", -1.1, 4)]
    processor, tokenizer = opened(tmp_path, write(letters, kind=kind))
    texts = ["".join(random.choices("abcd ", k=random.randrange(20))) for _ in range(300)]
    compare(processor, tokenizer, texts)


@pytest.mark.parametrize("flags", [*itertools.product((0, 1), repeat=3)], ids=str)
def test_spaces_that_are_not_escaped(tmp_path, flags):
    """Combine prefix, squeeze and escape in all ways, with pieces that contain spaces or marks."""
    signs = [" a", "▁a", "b", " ", "▁", "a", "b a", "b▁a", "  ", "▁▁"]
    pieces = [*SPECIAL, *((piece, -1.0 - i, 1) for i, piece in enumerate(signs))]
    normalisation = b"".join(field(number, flag) for number, flag in zip((3, 4, 5), flags, strict=True))
    processor, tokenizer = opened(tmp_path, write(pieces, normalisation=normalisation))
    texts = ["".join(random.choices("aab  ", k=random.randrange(12))) for _ in range(200)]
    compare(processor, tokenizer, texts)


# ---- numbers


NUMBERED = [">>deu<<", "▁the", "▁a", "a", "▁", "x▁y", "Quelle"]
IDS = {piece: i for i, piece in enumerate([*special_pieces.SPECIAL, *NUMBERED])}


@pytest.fixture(scope="module")
def model():
    return train(model_type="unigram", byte_fallback=False)


def test_a_numbering_of_its_own(tmp_path, model):
    """A piece without a number is unknown, each alone; one with only a number is never chosen but can be decoded."""
    processor, tokenizer = opened(tmp_path, model, IDS, tags=[">>deu<<"])
    pieces = processor.encode("the quick Quelle", out_type=str)
    assert "▁the" in pieces
    assert "Quelle" not in pieces
    expected, unknown_run = [], False
    for piece in pieces:
        unknown = processor.is_unknown(processor.piece_to_id(piece))
        if not (unknown and unknown_run):
            expected.append(IDS.get(piece, UNKNOWN) if not unknown else UNKNOWN)
        unknown_run = unknown
    assert tokenizer.encode("the quick Quelle") == expected
    assert expected.count(UNKNOWN) > 1
    assert tokenizer.size == len(IDS)
    assert tokenizer.decode([IDS["▁the"], IDS["Quelle"], IDS["x▁y"]]) == "theQuellex y"
    assert tokenizer.pieces([IDS["Quelle"], 3]) == ["Quelle", "<unk>"]


def test_two_segmentations_of_one_numbering(tmp_path, model):
    (tmp_path / "source.spm").write_bytes(model)
    (tmp_path / "target.spm").write_bytes(train(model_type="bpe"))
    pieces = sorted(
        {piece for side in ("source", "target") for piece, _, _ in read_model(tmp_path / f"{side}.spm").pieces}
    )
    ids = {piece: i for i, piece in enumerate((*IDS, *(piece for piece in pieces if piece not in IDS)))}
    sides = [Tokenizer(convert(tmp_path / f"{side}.spm", ids)) for side in ("source", "target")]
    both = Tokenizers(*sides)
    both.save(tmp_path / "tokenizer.json")
    loaded = Tokenizers.load(tmp_path / "tokenizer.json")
    assert loaded.hash == both.hash
    assert (loaded.joint, loaded.same_ids) == (False, True)
    assert (loaded.source.kind, loaded.target.kind) == ("unigram", "bpe")
    text = "the quick brown foxes jumped"
    assert loaded.source.encode(text) != loaded.target.encode(text)
    for ids in (loaded.source.encode(text), loaded.target.encode(text)):
        assert loaded.source.decode(ids) == loaded.target.decode(ids) == text
    assert not Tokenizers(sides[0], Tokenizer(convert(tmp_path / "target.spm"))).same_ids


def test_a_code_stands_at_the_beginning_alone(tmp_path, model):
    _, tokenizer = opened(tmp_path, model, IDS, tags=[">>deu<<"])
    rest = tokenizer.encode("a the")
    assert tokenizer.encode(">>deu<<a the") == tokenizer.encode(">>deu<<  a the") == [IDS[">>deu<<"], *rest]
    assert tokenizer.encode(">>xyz<< a the") == [UNKNOWN, *rest]
    assert IDS[">>deu<<"] not in tokenizer.encode("a >>deu<< the")
    assert tokenizer.encode_batch([">>deu<<", ">>deu"])[0] == [IDS[">>deu<<"]]
    assert tokenizer.normalise(">>deu<<a  the") == ">>deu<< a the" == tokenizer.decode([IDS[">>deu<<"], *rest])
    assert tokenizer.words([IDS[">>deu<<"], *rest])[:2] == [0, 1]


@pytest.mark.parametrize("tags", [["__de__"], ["__de__", ">>deu<<"]])
def test_other_tags_stand_anywhere(tmp_path, model, tags):
    ids = {**IDS, "__de__": len(IDS)}
    _, tokenizer = opened(tmp_path, model, ids, tags=tags)
    text = [*tokenizer.encode("the"), ids["__de__"], *tokenizer.encode("a")]
    assert tokenizer.encode("the __de__a") == tokenizer.encode("the__de__ a") == text
    assert tokenizer.decode(text) == "the __de__ a" == tokenizer.normalise("the__de__  a")
    code = [ids[">>deu<<"], ids["__de__"], *tokenizer.encode("a")]
    assert (tokenizer.encode(">>deu<<__de__ a") == code) == (len(tags) == 2)
    assert ids[">>deu<<"] not in tokenizer.encode("a >>deu<<")


def test_special_pieces_cannot_be_spelled(tmp_path):
    _, tokenizer = opened(tmp_path, train(control_symbols="CLS", byte_fallback=True))
    ids = tokenizer.encode("<pad><s></s><unk>CLS<0x41>")
    assert all(i > UNKNOWN for i in ids)
    assert tokenizer.content["model"]["vocab"]["CLS"] not in ids
    assert tokenizer.decode([tokenizer.content["model"]["vocab"]["CLS"]]) == ""


def test_words_are_those_of_the_text(tmp_path, model):
    """Each piece belongs to the word that it is read in; an unknown character is a word of its own."""
    _, tokenizer = opened(tmp_path, model)
    begins, marks, alone, _ = tokenizer.beginnings()
    for text in draw_texts(random.randrange(2**32), 150):
        ids = tokenizer.encode(text)
        words = [word for word in tokenizer.words(ids) if word is not None]
        assert len({*words}) == len([*filter(None, tokenizer.decode(ids).split(" "))]), text
        assert words == sorted(words)
    assert alone[UNKNOWN]
    assert begins[tokenizer.encode("the")[0]]
    assert marks.sum() == 1


# ---- invalid files


def special(*left_out):
    return [piece for piece in [*SPECIAL, ("a", -1.0, 1)] if piece[0] not in left_out]


BROKEN = {
    "no pieces": b"",
    "cut short|begins no|another type|not UTF-8|no settings|no pieces": b"a text of some length that is no model",
    "unk is not defined": write(special("<unk>")),
    "no <pad> among": write(special("<pad>")),
    "no </s> among": write(special("</s>")),
    "its kind is word": write(special(), kind=3),
    "its kind is another kind": write(special(), kind=9),
    "a is already defined": write([*special(), ("a", 0.0, 1)]),
    "piece 5 \\(\\) has no text": write([*special(), ("", 0.0, 1)]),
    "a long one": write([*special(), ("b" * 1001, 0.0, 1)]),
    "no finite score": write([*special(), ("b", float("nan"), 1)]),
    "an unknown type": write([*special(), ("b", 0.0, 7)]),
    "there are not 256 byte pieces": write(special(), training=field(35, 1)),
    "Trie data size": write(special(), normalisation=field(2, b"\x03\0\0\0abcd")),
    "changes texts after decoding": write(special()) + field(5, field(2, b"1234")),
    "no settings behind its pieces": write(special())[: -len(field(3, b""))],
}


@pytest.mark.parametrize(("problem", "data"), BROKEN.items(), ids=range(len(BROKEN)))
def test_a_file_that_is_no_model_is_refused(tmp_path, problem, data):
    (tmp_path / "a.spm").write_bytes(data)
    with pytest.raises(DataError, match=problem) as caught:
        convert(tmp_path / "a.spm")
    assert str(caught.value).startswith(f"{tmp_path / 'a.spm'}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"b\.spm: cannot be read: No such file"):
        convert(tmp_path / "b.spm")
    with pytest.raises(DataError, match=f"{tmp_path}: cannot be read|not a SentencePiece model"):
        convert(tmp_path)


def attempt(path):
    """Return the content of a file's tokenizer, or the message that refuses it."""
    try:
        return convert(path)
    except DataError as error:
        return str(error)


def test_every_truncation_is_refused(tmp_path, model):
    """A truncation after everything that is read changes nothing."""
    path = tmp_path / "a.spm"
    path.write_bytes(model)
    whole = convert(path)
    for length in [*range(40), *(random.randrange(len(model)) for _ in range(60)), len(model) - 1]:
        path.write_bytes(model[:length])
        result = attempt(path)
        assert result.startswith(f"{path}: ") if isinstance(result, str) else result == whole


def test_flipped_bytes_never_crash(tmp_path, model):
    path = tmp_path / "a.spm"
    for _ in range(30):
        data = bytearray(model)
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        path.write_bytes(data)
        result = attempt(path)
        if isinstance(result, str):
            assert result.startswith(f"{path}: ")
            continue
        tokenizer = open_tokenizer(result, str(path))
        for text in (" ".join(WORDS), "e\u0301\u200d▁ \x00"):
            tokenizer.decode(tokenizer.encode(text))


@pytest.mark.parametrize(
    ("ids", "problem"),
    [
        ({}, "special pieces <pad>, <s>, </s>, <unk> have other ids"),
        ({**IDS, "<pad>": 1, "<s>": 0}, "special pieces"),
        ({**IDS, "b": 99}, "has the id 99"),
        ({**IDS, "b": 4}, "as another piece does"),
    ],
)
def test_numbers_that_cannot_be(tmp_path, model, ids, problem):
    (tmp_path / "a.spm").write_bytes(model)
    with pytest.raises(DataError, match=problem):
        convert(tmp_path / "a.spm", ids)


DAMAGED = (b"\x04", b"\x03\0\0\0abcd", b"\x08\0\0\0abcdef", b"\0\0\0\0abcd", b"\xff" * 8)  # tables of characters


def test_a_changed_file_is_refused_by_its_key(tmp_path, model):
    (tmp_path / "a.spm").write_bytes(model)
    content = convert(tmp_path / "a.spm")
    section = content["regard"]["sentencepiece"]
    for changes, problem in [
        ({"kind": "word"}, "regard.sentencepiece.kind is 'word', expected unigram or bpe"),
        ({"bytes": 1}, "regard.sentencepiece.bytes is 1, expected true or false"),
        ({"pieces": {"a": "b"}}, "regard.sentencepiece.pieces is"),
        ({"pieces": {"": 1.0}}, "regard.sentencepiece.pieces is"),
        ({"pieces": {"a" * 1001: 1.0}}, "regard.sentencepiece.pieces is"),
        ({"pieces": {"a": float("nan")}}, "regard.sentencepiece.pieces is"),
        ({"fixed": {"\ud800": 0.0}}, "regard.sentencepiece.fixed is"),
        ({"fixed": []}, "regard.sentencepiece.fixed is"),
        ({"control": [1]}, "regard.sentencepiece.control is"),
        ({"unknown": None}, "regard.sentencepiece.unknown is None"),
        ({"charsmap": "?"}, "regard.sentencepiece.charsmap is not base64"),
        *(({"charsmap": base64.b64encode(table).decode()}, "table of characters is damaged") for table in DAMAGED),
        ({"charsmap": 7}, "regard.sentencepiece.charsmap is not base64"),
        ({"extra": 7}, "regard.sentencepiece.extra is unknown"),
    ]:
        changed = {**content, "regard": {"sentencepiece": {**section, **changes}}}
        with pytest.raises(DataError, match=problem) as caught:
            open_tokenizer(json.loads(json.dumps(changed)), "here")
        assert str(caught.value).startswith("here: ")
    rest = {key: value for key, value in section.items() if key != "squeeze"}
    for changed, problem in [
        ({**content, "regard": {"sentencepiece": rest}}, "regard.sentencepiece.squeeze is missing"),
        ({**content, "regard": []}, "its key regard is"),
        *(
            ({**content, "regard": {"sentencepiece": section, "rows": rows}}, "its regard.rows is")
            for rows in ([], {"<s>": 1}, {"<pad>": -1}, {"</s>": "1"}, {"<unk>": 2**40})
        ),
        ({**content, "normalizer": {"type": "NFC"}}, "parts beside regard.sentencepiece"),
    ]:
        with pytest.raises(DataError, match=problem):
            open_tokenizer(changed, "here")
    bare = open_tokenizer({**content, "added_tokens": []}, "here")
    assert bare.encode("the quick fox") == Tokenizer(content).encode("the quick fox")


def test_any_table_of_characters_is_refused_or_read(tmp_path, model):
    """Whatever the table contains, encoding reaches the end of the text."""
    (tmp_path / "a.spm").write_bytes(model)
    content = convert(tmp_path / "a.spm")
    section = content["regard"]["sentencepiece"]
    whole = base64.b64decode(section["charsmap"])
    for _ in range(40):
        table = bytearray(whole)
        for _ in range(random.choice([1, 10, 1000])):
            table[random.randrange(4, len(table))] = random.randrange(256)
        changed = {**section, "charsmap": base64.b64encode(table).decode()}
        try:
            tokenizer = open_tokenizer({**content, "regard": {"sentencepiece": changed}}, "here")
        except DataError:
            continue
        for text in ("the quick e\u0301 \u6f22\u5b57 \x00", " ", "a", "".join(map(chr, range(32, 0xD000, 7)))):
            tokenizer.decode(tokenizer.encode(text))
            tokenizer.normalise(text)


def test_without_the_package_a_sentence_names_its_extra(tmp_path, model, monkeypatch):
    (tmp_path / "a.spm").write_bytes(model)
    content = convert(tmp_path / "a.spm")
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    for attempt in (lambda: convert(tmp_path / "a.spm"), lambda: open_tokenizer(content, "here")):
        with pytest.raises(MissingExtraError, match=r"sentencepiece is not installed; .*regard\[import\]"):
            attempt()


# ---- writing models


@pytest.fixture
def texts() -> list[str]:
    return draw_texts(random.randrange(2**32), 300)


def read(path, **options):
    """Return a model as `sentencepiece` opens it, and as a tokenizer of Regard."""
    path.write_bytes(train(**options))
    tokenizer = open_tokenizer(convert(path), path.name)
    return package.SentencePieceProcessor(model_file=str(path)), tokenizer


@pytest.mark.parametrize("form", FORMS)
def test_texts_are_cut_and_put_together_as_before(form, tmp_path, texts):
    theirs, tokenizer = read(tmp_path / "theirs.model", **FORMS[form])
    (tmp_path / "ours.model").write_bytes(tokenizer.model_file())
    ours = package.SentencePieceProcessor(model_file=str(tmp_path / "ours.model"))
    for text in texts:
        pieces = theirs.encode(text, out_type=str)
        assert ours.encode(text, out_type=str) == pieces, text
        assert ours.decode(pieces) == theirs.decode(pieces)
        assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text))  # with the text for unknown pieces
    one, other = (read_model(tmp_path / f"{name}.model") for name in ("theirs", "ours"))
    assert {piece for piece in one.pieces if piece[0] != "<pad>"} == {*other.pieces}


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_added_words_are_read_back_and_cut_nothing(kind, tmp_path, texts):
    theirs, tokenizer = read(tmp_path / "theirs.model", model_type=kind)
    words = ["foxhole", "thequick", "dogs"]
    tokenizer = vocabulary_extension.extend_tokenizers(Tokenizers(tokenizer), words).after.source
    (tmp_path / "ours.model").write_bytes(tokenizer.model_file())
    ours = package.SentencePieceProcessor(model_file=str(tmp_path / "ours.model"))
    for text in [" ".join(words), "foxholes thequickdogs", *texts]:
        assert ours.encode(text, out_type=str) == theirs.encode(text, out_type=str), text
    assert ours.decode(["▁the", "▁foxhole", "▁dog"]) == "the foxhole dog"


# ---- sections written by hand


PIECES = {"▁": -2.0, "▁a": -1.0, "b": -2.5, "c": -3.0, "bc": -4.0, "▁▁": -9.0}
BY_HAND = {
    **{"kind": "unigram", "unknown": " ⁇ ", "control": ["<ctl>"], "charsmap": ""},
    **{"prefix": True, "squeeze": True, "escape": True, "bytes": False, "suffix": False, "leading": False},
    **{"pieces": PIECES, "fixed": {}, "unused": {}},
}
# Pieces with a number that the segmentation lacks.
UNSPELLED = ("<ctl>", "á", "í", "xá", *(f"<0x{byte:02X}>" for byte in range(256)))
NUMBERS = {piece: i for i, piece in enumerate([*special_pieces.SPECIAL, *PIECES, *UNSPELLED])}


def segment(**changes):
    return SentencePiece({**BY_HAND, **changes}, NUMBERS, {})


def names(ids):
    back = {i: piece for piece, i in NUMBERS.items()}
    return [back[i] for i in ids]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("  ", []),
        ("abc", ["▁a", "bc"]),
        (" a  b ", ["▁a", "▁", "b"]),
        ("xyz", ["▁", "<unk>"]),
        ("xbyz", ["▁", "<unk>", "b", "<unk>"]),
        ("\x00", ["▁", "<unk>"]),
    ],
)
def test_pieces(kind, text, pieces):
    segmentation = segment(kind=kind, pieces={**PIECES, "a": -5.0})
    assert names(segmentation.encode(text)) == pieces


def test_runs_of_unknown_signs_join_over_words_without_a_piece_for_the_mark():
    segmentation = segment(pieces={"b": -1.0})
    assert names(segmentation.encode("x y b")) == ["<unk>", "b"]


def test_what_no_piece_spells_is_looked_up_by_its_text():
    """The numbering may contain characters that this segmentation lacks; a run of them is one piece."""
    segmentation = segment(pieces={"▁": -2.0, "b": -1.0})
    assert names(segmentation.encode("bábíxb")) == ["▁", "b", "á", "b", "<unk>", "b"]
    assert names(segmentation.encode("á xá áí b")) == ["▁", "á", "▁", "xá", "▁", "<unk>", "▁", "b"]


def test_characters_without_a_piece_are_bytes():
    segmentation = segment(bytes=True)
    assert names(segmentation.encode("aé")) == ["▁a", "<0xC3>", "<0xA9>"]
    assert segmentation.decode(segmentation.encode("a é😀")) == "a é😀"


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["<0xE2>", "b"], "\ufffdb"),
        (["<0xE2>", "<0x96>", "<0x81>", "▁"], "▁ "),
        (["<0xF0>", "<0x9F>", "<0x98>"], "\ufffd\ufffd\ufffd"),
        (["<0x41>", "▁a"], "A a"),
        (["<ctl>", "▁a"], "a"),
        (["▁", "▁a"], "a"),
        (["<unk>", "▁a"], " ⁇  a"),
        ([], ""),
    ],
)
def test_reading_back(pieces, text):
    assert segment(bytes=True).decode([NUMBERS[piece] for piece in pieces]) == text


def test_marks_at_the_beginning_are_spaces_where_none_are_squeezed():
    segmentation = segment(squeeze=False)
    assert segmentation.decode([NUMBERS["▁"], NUMBERS["▁a"]]) == " a"
    for text in ("a", " a", "  a b  ", "   "):
        assert segmentation.decode(segmentation.encode(text)) == text == segmentation.normalise(text)
    plain = segment(squeeze=False, prefix=False)
    assert plain.decode(plain.encode(" a")) == " a"


def test_a_mark_behind_words():
    segmentation = segment(suffix=True, pieces={"a▁": -1.0, "b▁": -1.0, "b": -2.0, "▁": -3.0})
    assert not segmentation.separable
    assert segmentation.encode("a b") == [3, 3]  # chosen, but without a number


def test_bpe_dropout_refuses_it():
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    model = {"type": "WordLevel", "vocab": NUMBERS, "unk_token": "<unk>"}
    content = {"version": "1.0", **parts, "added_tokens": [], "model": model}
    tokenizer = Tokenizer({**content, "regard": {"sentencepiece": {**BY_HAND, "kind": "bpe"}}})
    assert tokenizer.kind == "bpe"
    with pytest.raises(ArgumentError, match="bpe of SentencePiece"):
        Cutter(tokenizer)
