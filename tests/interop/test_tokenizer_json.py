"""A tokenizer.json without vocab.json: it replaces the vocabulary if it is the model's own."""

import json
from pathlib import Path

import pytest
import torch
from interop.test_real_folders import (
    DATA,
    LONGEST,
    SEARCHED,
    SMALL,
    compare_configurations,
    fill,
    lines_of,
    needs_real,
    odd_lines,
)
from pretrained import TEXTS, marian_folder

from regard import export_model, import_model, load
from regard.interop.marian import TOKENIZER, read_foreign_tokenizer, rows_of
from regard.interop.numbering import pieces_by_row

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")


def test_a_tokenizer_json_that_numbers_the_model_stands_for_its_vocabulary(tmp_path):
    """The pieces are a list with scores, as converters to the tokenizers library write them."""
    marian_folder(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "run")
    rows = json.loads((tmp_path / "theirs" / "vocab.json").read_text())
    (tmp_path / "theirs" / "vocab.json").unlink()
    content = {"version": "1.0", "added_tokens": [], "model": {"type": "Unigram", "unk_id": 1}}
    content["model"]["vocab"] = [[piece, -float(row)] for piece, row in rows.items()]
    (tmp_path / "theirs" / "tokenizer.json").write_text(json.dumps(content))
    import_model(tmp_path / "theirs", tmp_path / "other")
    one, other = load(tmp_path / "run"), load(tmp_path / "other")
    assert one.tokenizers.dumps() == other.tokenizers.dumps()
    assert one.translate(TEXTS["source"], longest=6) == other.translate(TEXTS["source"], longest=6)


def check_foreign(folder: Path, tmp_path: Path, lines: list[str]) -> None:
    """A foreign tokenizer.json splits texts as the library does, with a note; the ids stay those of the folder."""
    report = import_model(folder, tmp_path / "run")
    assert "it may be another model's" in report.notes[0]
    run, tokenizer = (
        load(tmp_path / "run"),
        transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / TOKENIZER)),
    )
    rows = rows_of(run.tokenizers.source, read_foreign_tokenizer(folder)[1])
    net = transformers.MarianMTModel.from_pretrained(folder).eval()
    for line, ids, right in zip(
        lines, run.tokenizers.source.encode_batch(lines), tokenizer(lines)["input_ids"], strict=True
    ):
        assert [rows[i] for i in ids] == right, line
    names = {piece: i for i, piece in enumerate(run.tokenizers.target.names)}
    some = lines[:SEARCHED]
    for line, each in zip(some, run.stream(some, beam=1, longest=LONGEST), strict=True):
        inputs = torch.tensor([tokenizer(line)["input_ids"]])
        found = net.generate(inputs, num_beams=1, do_sample=False, max_new_tokens=LONGEST, max_length=None,
            forced_eos_token_id=None, bad_words_ids=[[net.config.pad_token_id]])  # fmt: skip
        special = (net.config.eos_token_id, net.config.pad_token_id)
        assert [rows[names[piece]] for piece in each[0].tokens] == [
            i for i in found[0].tolist()[1:] if i not in special
        ]
    verification = export_model(tmp_path / "run", tmp_path / "again", to="marian").verification
    assert "the same as" in str(verification)
    compare_configurations(folder, tmp_path / "again")


@needs_real
@pytest.mark.slow
def test_a_real_folder_with_a_foreign_tokenizer(tmp_path):
    fill(tmp_path / "opus-mt-ar-fr", DATA / "pretrained" / "opus-mt-ar-fr", **SMALL)
    lines = lines_of("multi30k/train.en.gz")[:1900]
    pieces = pieces_by_row(tmp_path / "opus-mt-ar-fr")
    lines += odd_lines({piece: row for row, piece in enumerate(pieces)}, 200)
    check_foreign(tmp_path / "opus-mt-ar-fr", tmp_path, lines)


def test_a_small_folder_with_a_foreign_tokenizer(tmp_path):
    folder = tmp_path / "theirs"
    marian_folder(folder)
    (folder / "vocab.json").unlink()
    pieces = ["<s>X", "<pad>", "<unk>", "<unk>", "<s>", "</s>", "▁the", "▁", *"abcdeghmnorst"]
    special = [(1, "<pad>"), (3, "<unk>"), (4, "<s>"), (5, "</s>")]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    edge = [{"SpecialToken": {"id": piece, "type_id": 0}} for piece in ("<s>", "</s>")]
    single = [edge[0], {"Sequence": {"id": "A", "type_id": 0}}, edge[1]]
    tokens = {piece: {"id": piece, "ids": [row], "tokens": [piece]} for row, piece in special[2:]}
    content = {
        "version": "1.0",
        "added_tokens": [{"id": row, "special": True, "content": piece, **flags} for row, piece in special],
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": tokens},
        "model": {"type": "Unigram", "unk_id": 2, "vocab": [[piece, -float(row)] for row, piece in enumerate(pieces)]},
    }
    (folder / TOKENIZER).write_text(json.dumps(content))
    check_foreign(folder, tmp_path, TEXTS["source"])
