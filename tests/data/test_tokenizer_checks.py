"""Tokenizer files that panic, abort or explode: each gives one sentence in bounded time; Regard's own load directly."""

import copy
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import tokenizers as library
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from regard.data import tokenizer_checks
from regard.data.tokenizer import UNKNOWN, Tokenizers
from regard.data.tokenizer_checks import MAX_BYTES, PIECE, check_form, check_vocabulary, is_written_here
from regard.data.vocabulary import train
from regard.errors import DataError

TEXTS = ["hello world, it is 7 o'clock", "a b c d e f g", "Ärger mit <tag> 漢字"] * 5
KINDS = ("bpe", "unigram", "word", "character")
OWN = {
    (kind, lowercase): train(TEXTS, kind, "auto", lowercase=lowercase, tags=["<2de>"]).content
    for kind in KINDS
    for lowercase in (False, True)
}
BASE, UNIGRAM, WORD = OWN["bpe", False], OWN["unigram", False], OWN["word", False]
COUNT = len(BASE["model"]["vocab"])


def changed(content: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the content with changed parts; model__vocab is its model's vocabulary."""
    content = copy.deepcopy(content)
    for key, value in changes.items():
        part, _, name = key.partition("__")
        if name:
            content[part][name] = value
        else:
            content[part] = value
    return content


def added(i: Any, piece: Any) -> list[dict[str, Any]]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return [*BASE["added_tokens"], {"id": i, "content": piece, **flags}]


def replace(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern or {"String": "a"}, "content": content}


def several(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(parts)}


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def wordpiece(**given: Any) -> dict[str, Any]:
    model = {"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", **given}
    return {**WORD, "model": {"max_input_chars_per_word": 100, **model, "vocab": WORD["model"]["vocab"]}}


VOCABULARY, PIECES = BASE["model"]["vocab"], UNIGRAM["model"]["vocab"]
NASTY: dict[str, Any] = {
    "an id far out": changed(BASE, model__vocab={**VOCABULARY, "zz": 10**9}),
    "an id of 64 bits": changed(BASE, model__vocab={**VOCABULARY, "zz": 2**40}),
    "a negative id": changed(BASE, model__vocab={**VOCABULARY, "zz": -1}),
    "an id that is a fraction": changed(BASE, model__vocab={**VOCABULARY, "zz": 1.5}),
    "an id that is true": changed(BASE, model__vocab={**VOCABULARY, "zz": True}),
    "an id twice": changed(BASE, model__vocab={**VOCABULARY, "zz": 5}),
    "an endless piece": changed(BASE, model__vocab={**VOCABULARY, "z" * (PIECE + 1): COUNT}),
    "an added id far out": changed(BASE, added_tokens=added(10**9, "<far>")),
    "an added id twice": changed(BASE, added_tokens=added(5, "<far>")),
    "an added token with another id": changed(BASE, added_tokens=added(9, "a")),
    "an added token of nothing": changed(BASE, added_tokens=added(COUNT + 1, "")),
    "an added token of a number": changed(BASE, added_tokens=added(COUNT + 1, 3)),
    "an added token without an id": changed(BASE, added_tokens=added(None, "<far>")),
    "added tokens that are a table": changed(BASE, added_tokens={"a": 1}),
    "too many added tokens": changed(BASE, added_tokens=added(COUNT + 1, "<far>") * 1_700),
    "a merge out of the vocabulary": changed(BASE, model__merges=[["q", "zzz"]]),
    "a merge of one": changed(BASE, model__merges=[["a"]]),
    "merges that are a number": changed(BASE, model__merges=3),
    "no vocabulary": changed(BASE, model__vocab=None),
    "a vocabulary of nothing": changed(BASE, model__vocab={}),
    "no model": changed(BASE, model=None),
    "a model of another type": changed(BASE, model__type="Odd"),
    "dropout of 2": changed(BASE, model__dropout=2.0),
    "a prefix that is longer than pieces": changed(BASE, model__continuing_subword_prefix="xxxxxxxxxxxxxxxxxxxx"),
    "an endless suffix": changed(BASE, model__end_of_word_suffix="x" * 10**6),
    "no unknown piece": changed(BASE, model__unk_token="nope", model__byte_fallback=False),
    "a normaliser that is a list": changed(BASE, normalizer=[1]),
    "a replacement that explodes": changed(BASE, normalizer=replace("b" * 10**6)),
    "a prefix that explodes": changed(BASE, normalizer={"type": "Prepend", "prepend": "y" * 10**6}),
    "replacements that explode together": changed(BASE, normalizer=several(*[replace("a" * 40)] * 8)),
    "a replacement of nothing": changed(BASE, normalizer=several(*[replace("xx", Regex="")] * 20)),
    "bytes of bytes of bytes": changed(BASE, normalizer=several(*[{"type": "ByteLevel"}] * 40)),
    "ten thousand parts": changed(BASE, normalizer=several(*[{"type": "NFC"}] * 10_000)),
    "a table of characters that is none": changed(
        BASE, normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    ),
    "a table of characters that is no text": changed(
        BASE, normalizer={"type": "Precompiled", "precompiled_charsmap": 3}
    ),
    "a catastrophic pattern": changed(BASE, pre_tokenizer=split("(a+)+$")),
    "another catastrophic pattern": changed(BASE, pre_tokenizer=split(r"(x+x+)+y")),
    "a pattern that does not close": changed(BASE, pre_tokenizer=split("(")),
    "an endless pattern": changed(BASE, pre_tokenizer=split("a" * 10**6)),
    "parts of length zero": changed(BASE, pre_tokenizer={"type": "FixedLength", "length": 0}),
    "a decoder that explodes": changed(BASE, decoder=replace("b" * 10**6)),
    "scores that are no numbers": changed(UNIGRAM, model__vocab=[[piece, float("nan")] for piece, _ in PIECES]),
    "scores that are infinite": changed(UNIGRAM, model__vocab=[[piece, float("inf")] for piece, _ in PIECES]),
    "scores that are texts": changed(UNIGRAM, model__vocab=[[piece, "1"] for piece, _ in PIECES]),
    "pieces without scores": changed(UNIGRAM, model__vocab=[piece for piece, _ in PIECES]),
    "a piece twice": changed(UNIGRAM, model__vocab=[*PIECES, ["a", 0.0]]),
    "an unknown piece out of the vocabulary": changed(UNIGRAM, model__unk_id=10**6),
    "no piece for what is unknown": changed(UNIGRAM, model__unk_id=None, model__byte_fallback=False),
    "words without an unknown": changed(WORD, model__unk_token="nope"),
    "words compared without an end": wordpiece(max_input_chars_per_word=10**18),
    "word pieces without an unknown": wordpiece(unk_token="nope"),
}


@pytest.mark.parametrize("name", NASTY)
def test_each_is_one_sentence(tmp_path, name):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(NASTY[name]))
    start = time.perf_counter()
    for load in (lambda: Tokenizers.load(path), lambda: Tokenizers.pair(path, path)):
        with pytest.raises(DataError) as caught:
            load()
        said = str(caught.value)
        assert said.startswith(f"{path}: ")
        assert "\n" not in said
        assert len(said) < 400 + len(str(path))
    assert time.perf_counter() - start < 20
    both = tmp_path / "both.json"
    both.write_text(json.dumps({"source": BASE, "target": NASTY[name]}))
    with pytest.raises(DataError, match="both.json, target: "):
        Tokenizers.load(both)


def test_files_that_are_no_json(tmp_path):
    path = tmp_path / "tokenizer.json"
    deep = '{"model":' + json.dumps(BASE["model"]) + ',"normalizer":' + '{"type":"Sequence","normalizers":[' * 10_000
    bad = {"deep": deep + "]}" * 10_000 + "}", "digits": '{"model": {"vocab": {"a": ' + "1" * 5000 + "}}}"}
    for text in bad.values():
        path.write_text(text)
        with pytest.raises(DataError, match="tokenizer.json: not a tokenizer.json: (brackets|a whole number)"):
            Tokenizers.load(path)
    os.truncate(path, MAX_BYTES + 1)
    with pytest.raises(DataError, match="bytes given, expected at most"):
        Tokenizers.load(path)
    for content in ([], 3, None, {"source": 3, "target": []}, {"source": None, "target": None}, {"model": []}):
        path.write_text(json.dumps(content))
        with pytest.raises(DataError, match="not a tokenizer.json"):
            Tokenizers.load(path)


@pytest.mark.slow
def test_ten_million_pieces(tmp_path):
    path = tmp_path / "tokenizer.json"
    with open(path, "w") as file:
        file.write('{"model":{"type":"WordLevel","vocab":{')
        file.write(",".join(f'"{i:x}":{i}' for i in range(10**7)))
        file.write("}}}")
    start = time.perf_counter()
    with pytest.raises(DataError, match="bytes given, expected at most"):
        Tokenizers.load(path)
    assert time.perf_counter() - start < 2


# ---- accepted files


@pytest.mark.parametrize("kind", OWN, ids=str)
def test_regards_own_load_at_once(tmp_path, kind, monkeypatch):
    """Loading Regard's own tokenizers starts no process."""

    def refuse(tokenizer: str) -> str:
        raise AssertionError("tried out")

    monkeypatch.setattr(tokenizer_checks, "trial", refuse)
    assert is_written_here(OWN[kind])
    (tmp_path / "t.json").write_text(json.dumps(OWN[kind]))
    tokenizers = Tokenizers.load(tmp_path / "t.json")
    text = "hello <2de> a"
    assert tokenizers.source.decode(tokenizers.source.encode(text)) == text


@pytest.mark.parametrize("key", ["normalizer", "pre_tokenizer", "decoder", "truncation", "padding", "post_processor"])
def test_any_other_part_is_not_of_that_form(key):
    for other in ({"type": "NFC"}, {}, [], 3, "x"):
        assert not is_written_here({**BASE, key: other})
    assert not is_written_here({**BASE, "more": 1})


def test_a_file_without_added_tokens():
    for none in (None, []):
        assert is_written_here({**BASE, "added_tokens": none})


def test_any_other_option_is_not_of_that_form():
    for content in OWN.values():
        for key in content["model"]:
            if key not in ("vocab", "merges"):
                assert not is_written_here({**content, "model": {**content["model"], key: "other"}})
        assert not is_written_here({**content, "model": {**content["model"], "more": 1}})
        for key in ("single_word", "lstrip", "rstrip", "normalized"):
            tokens = [{**token, key: True} for token in content["added_tokens"]]
            assert not is_written_here({**content, "added_tokens": tokens})
    for merges in (3, [["a"]], ["a b"], [["a", 1]]):
        assert not is_written_here({**BASE, "model": {**BASE["model"], "merges": merges}})


def made_elsewhere() -> dict[str, library.Tokenizer]:
    """Return tokenizers trained with other programs' usual settings."""
    special, others = ["<pad>", "<s>", "</s>", "<unk>"], ["[UNK]", "[PAD]", "[CLS]", "[SEP]"]
    bytes_ = library.Tokenizer(models.BPE())
    bytes_.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bytes_.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    bytes_.train_from_iterator(TEXTS, trainer)
    bert = library.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    bert.normalizer, bert.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    bert.decoder = decoders.WordPiece()
    bert.train_from_iterator(TEXTS, trainers.WordPieceTrainer(special_tokens=others, show_progress=False))
    piece = library.Tokenizer(models.Unigram())
    piece.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(library.Regex(" {2,}"), " ")])
    piece.pre_tokenizer, piece.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(special_tokens=others, unk_token="[UNK]", show_progress=False)
    piece.train_from_iterator(TEXTS, trainer)
    llama = library.Tokenizer.from_str(bytes_.to_str())
    pattern = r"(?i:'s|'t|'ll)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+"
    cut = pre_tokenizers.Split(library.Regex(pattern), "isolated")
    llama.pre_tokenizer = pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(False, use_regex=False)])
    return {"byte level": bytes_, "word pieces": bert, "sentence pieces": piece, "with a pattern": llama}


ELSEWHERE = made_elsewhere()


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_others_make_is_taken(tmp_path, name):
    path: Path = tmp_path / "tokenizer.json"
    tokenizer = ELSEWHERE[name]
    tokenizer.enable_padding(length=10**6)  # not used here, and dropped
    tokenizer.enable_truncation(2)
    tokenizer.save(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    content = json.loads(path.read_text())
    assert not is_written_here(content)
    found = Tokenizers.load(path).source
    ids = found.encode("hello world")
    assert found.pieces(ids) == tokenizer.encode("hello world", add_special_tokens=False).tokens != []
    assert found.decode(ids).strip() == "hello world"
    assert [*dict.fromkeys(found.words(ids))] == [0, 1]
    if name in ("word pieces", "sentence pieces"):
        assert found.kind == {"word pieces": "wordpiece", "sentence pieces": "unigram"}[name]
        assert found.pieces(range(4)) == ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
        assert UNKNOWN in found.encode("\u4e00")
    assert found.encode_batch(["hello world"] * 2) == [ids, ids]
    start = time.perf_counter()
    check_vocabulary(content, "t")
    check_form(found.content, "t")  # tried before, and not again
    assert time.perf_counter() - start < 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_trained_here_can_be_loaded_again(tmp_path, kind):
    """Very long words give no very long pieces."""
    Tokenizers(train(["a" * (2 * PIECE), "a" * (2 * PIECE), *TEXTS], kind)).save(tmp_path / "t.json")
    assert Tokenizers.load(tmp_path / "t.json").source.encode("a b")


def test_a_text_that_the_tokenizer_cannot_take():
    """A pattern that is too hard for some texts gives no library traceback."""
    from regard.data.tokenizer import Tokenizer

    tokenizer = Tokenizer(changed(BASE, pre_tokenizer=split("(a+)+$")))  # as if it had passed the checks
    for encode in (tokenizer.encode, lambda text: tokenizer.encode_batch([text])):
        with pytest.raises(DataError, match="a text that the tokenizer cannot encode: "):
            encode("a" * 100 + "!")
