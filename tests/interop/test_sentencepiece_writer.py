"""Model files that are written: `sentencepiece` itself cuts texts with them as with those that were read."""

import random

import pytest
from interop.pieces import draw_texts, train

from regard.data import Tokenizers, open_tokenizer, vocabulary_extension
from regard.interop.sentencepiece import convert, read_model, write_model

sentencepiece = pytest.importorskip("sentencepiece")
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


@pytest.fixture
def texts() -> list[str]:
    return draw_texts(random.randrange(2**32), 300)


def read(path, **options):
    """A model as `sentencepiece` opens it, and as a tokenizer of Regard."""
    path.write_bytes(train(**options))
    tokenizer = open_tokenizer(convert(path), path.name)
    return sentencepiece.SentencePieceProcessor(model_file=str(path)), tokenizer


@pytest.mark.parametrize("form", FORMS)
def test_texts_are_cut_and_put_together_as_before(form, tmp_path, texts):
    theirs, tokenizer = read(tmp_path / "theirs.model", **FORMS[form])
    write_model(tokenizer, tmp_path / "ours.model")
    ours = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "ours.model"))
    for text in texts:
        pieces = theirs.encode(text, out_type=str)
        assert ours.encode(text, out_type=str) == pieces, text
        assert ours.decode(pieces) == theirs.decode(pieces)
        assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text))  # with what unknown is written as
    one, other = (read_model(tmp_path / f"{name}.model") for name in ("theirs", "ours"))
    assert {piece for piece in one.pieces if piece[0] != "<pad>"} == {*other.pieces}


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_added_words_are_read_back_and_cut_nothing(kind, tmp_path, texts):
    theirs, tokenizer = read(tmp_path / "theirs.model", model_type=kind)
    words = ["foxhole", "thequick", "dogs"]
    tokenizer = vocabulary_extension.extend_tokenizers(Tokenizers(tokenizer), words).after.source
    write_model(tokenizer, tmp_path / "ours.model", tokenizer.pieces(tokenizer.added.values()))
    ours = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "ours.model"))
    for text in [" ".join(words), "foxholes thequickdogs", *texts]:
        assert ours.encode(text, out_type=str) == theirs.encode(text, out_type=str), text
    assert ours.decode(["▁the", "▁foxhole", "▁dog"]) == "the foxhole dog"
