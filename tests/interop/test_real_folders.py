"""Compare real OPUS-MT folders (../shared/data/pretrained) with random weights, and small ones, with Transformers.

The real folders have everything but the weights; if they are missing, small folders of the same form replace them.
"""

import gzip
import json
import random
import shutil
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from documented import ROOT
from pretrained import TEXTS, marian_folder

from regard import export_model, import_model, load
from regard.data import PAD, START
from regard.errors import DataError
from regard.interop.marian import rows_of
from regard.interop.numbering import THEIR_START, marian_files, marian_rows
from regard.run import Run

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
DATA = ROOT.parent / "shared" / "data"
REAL = ("opus-mt-en-mg", "opus-mt-tc-big-en-pt")
SMALL = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "num_hidden_layers": 2, "init_std": 0.3}
SMALL |= {
    f"{side}_{key}": size for side in ("encoder", "decoder") for key, size in (("ffn_dim", 48), ("attention_heads", 4))
}
LINES, SEARCHED, LONGEST = 2000, 24, 12
needs_real = pytest.mark.skipif(not (DATA / "pretrained").is_dir(), reason="no ../shared/data/pretrained")


def fill(folder: Path, source: Path, **sizes: Any) -> None:
    """Copy a real folder and give it small random weights; only these sizes of its configuration change."""
    config = {**json.loads((source / "config.json").read_text()), **sizes}
    torch.manual_seed(0)
    model = transformers.MarianMTModel(transformers.MarianConfig(**config))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("bias", "norm.weight")):
                parameter += 0.1 * torch.randn_like(parameter)
        model.final_logits_bias.normal_()
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    for path in source.iterdir():
        shutil.copyfile(path, folder / path.name)
    (folder / "config.json").write_text(json.dumps(config))


def lines_of(*names: str) -> list[str]:
    """Read lines of real texts."""
    lines = []
    for name in names:
        with gzip.open(DATA / name, "rt", encoding="utf-8") as file:
            lines += [line.strip() for line in islice(file, LINES // len(names))]
    return [line for line in lines if line]


def odd_lines(rows: dict[str, int], count: int) -> list[str]:
    """Spell lines from random pieces, including rare ones, and from signs outside every vocabulary."""
    draw, pieces = random.Random(0), [piece for piece in rows if not piece.startswith((">>", "<"))]
    single = [piece for piece in pieces if len(piece) == 1]
    lines = []
    for _ in range(count):
        words = [*draw.choices(pieces, k=8), *draw.choices(single, k=4), draw.choice("日ก😀\u0301~")]
        draw.shuffle(words)
        lines.append("".join(words).replace("▁", " "))
    return lines


class Both(NamedTuple):
    """A model of Transformers, its tokenizer, and the run that was imported from its folder."""

    net: Any
    tokenizer: Any
    run: Run
    source: list[int | None]
    target: list[int | None]

    @classmethod
    def open(cls, folder: Path, run: Path) -> "Both":
        """Open a folder and its run."""
        opened = load(run)
        sides = zip((opened.tokenizers.source, opened.tokenizers.target), marian_files(folder), strict=True)
        both = [rows_of(side, marian_rows(folder, file)) for side, file in sides]
        net = transformers.MarianMTModel.from_pretrained(folder, attn_implementation="eager").eval()
        return cls(net, transformers.MarianTokenizer.from_pretrained(folder), opened, *both)

    def compare_ids(self, lines: list[str]) -> None:
        """Check that both tokenizers give each line the same rows, on either side."""
        for side, key in (("source", "text"), ("target", "text_target")):
            rows, tokenizer = getattr(self, side), getattr(self.run.tokenizers, side)
            theirs = self.tokenizer(**{key: lines})["input_ids"]
            for line, ids, right in zip(lines, tokenizer.encode_batch(lines), theirs, strict=True):
                own = [rows[i] for i in ids]
                assert own == (right if side == "source" and ids else right[:-1]), (side, line)

    @torch.no_grad()
    def compare_outputs(self, lines: list[str], beam: int, longest: int = LONGEST) -> None:
        """Check that greedy and beam search find the same rows, or rows that Transformers itself scores higher."""
        ids = {piece: i for i, piece in enumerate(self.run.tokenizers.target.names)}
        outputs = self.run.stream(lines, beam=beam, length_penalty=0.0, longest=longest)
        own = [[self.target[ids[piece]] for piece in each[0].tokens] for each in outputs]
        config = self.net.config
        special = (config.eos_token_id, config.pad_token_id)
        options = {"length_penalty": 0.0, "early_stopping": False} if beam > 1 else {}
        found = self.net.generate(
            **self.tokenizer(lines, padding=True, return_tensors="pt"), num_beams=beam, do_sample=False,
            max_new_tokens=longest, max_length=None, forced_eos_token_id=None, **options,
        )  # fmt: skip
        for line, one, row in zip(lines, own, found.tolist(), strict=True):
            other = [i for i in row[1:] if i not in special]
            if one != other:
                assert beam > 1, (line, one, other)
                assert self.total(line, one) >= self.total(line, other) - 1e-4, (line, one, other)

    def total(self, line: str, rows: list[Any]) -> float:
        """Return Transformers' log-probability of an output and its end."""
        read = torch.tensor([[self.net.config.decoder_start_token_id, *rows]])
        inputs = self.tokenizer([line], return_tensors="pt")
        likely = self.net(**inputs, decoder_input_ids=read).logits[0].log_softmax(-1)
        labels = torch.tensor([*rows, self.net.config.eos_token_id])
        return float(likely.gather(-1, labels[:, None]).sum())


def compare_configurations(folder: Path, again: Path) -> None:
    """Check that the export has the folder's configuration, and that Transformers reads both alike."""
    for name in ("config.json", "generation_config.json"):
        if (folder / name).exists():
            theirs, ours = (json.loads((each / name).read_text()) for each in (folder, again))
            ignored = ("transformers_version", "torch_dtype", "dtype", "architectures")
            for key, value in theirs.items():
                assert key.startswith("_") or key in ignored or ours.get(key) == value, key
    one, other = (transformers.MarianMTModel.from_pretrained(each) for each in (folder, again))
    for key in (
        "bad_words_ids",
        "decoder_start_token_id",
        "eos_token_id",
        "forced_eos_token_id",
        "num_beams",
        "pad_token_id",
    ):
        assert getattr(one.generation_config, key) == getattr(other.generation_config, key), key
    weights = one.state_dict()
    for name, tensor in other.state_dict().items():
        assert torch.equal(tensor, weights[name]), name


def compare_all(folder: Path, tmp_path: Path, lines: list[str], searched: list[str]) -> None:
    """Import and export a folder: compare ids, outputs and configurations, and verify the export with the folder."""
    import_model(folder, tmp_path / "run")
    report = export_model(tmp_path / "run", tmp_path / "again", to="marian")
    assert f"the same as {folder.name}, which it was imported from" in str(report.verification)
    compare_configurations(folder, tmp_path / "again")
    for each in (folder, tmp_path / "again"):
        both = Both.open(each, tmp_path / "run")
        both.compare_ids(lines)
        for beam in (1, 4):
            both.compare_outputs(searched, beam)


@needs_real
@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_a_real_folder_is_as_transformers_has_it(name, tmp_path):
    fill(tmp_path / name, DATA / "pretrained" / name, **SMALL)
    lines = lines_of("multi30k/train.en.gz", "europarl/train.en.gz")
    lines += odd_lines(marian_rows(tmp_path / name), 200)
    compare_all(tmp_path / name, tmp_path, lines, lines[: SEARCHED // 2] + lines[-SEARCHED // 2 :])


# ---- small folders of the same form, in any clone


FORMS = {  # the order of the special pieces in vocab.json
    "opus": ["</s>", "<unk>", *"-", "<pad>"],
    "tc-big": [*"-", "</s>", "<s>", *"-", "<unk>", *"-", "<pad>"],
    "pad inside": ["</s>", *"-", "<pad>", *"-", "<unk>"],
    "<s> first": ["<s>", "<unk>", "</s>", *"-", "<pad>"],
}


def reorder(folder: Path, form: list[str]) -> None:
    """Rewrite a folder with its special pieces in the order of `form`, where each - is a share of the others."""
    rows = json.loads((folder / "vocab.json").read_text())
    others = [piece for piece in rows if piece not in ("</s>", "<unk>", "<pad>")]
    shares, names = form.count("-"), list[str]()
    size = -(-len(others) // shares)
    for piece in form:
        names += [piece] if piece != "-" else others[:size]
        others = others if piece != "-" else others[size:]
    net = transformers.MarianMTModel.from_pretrained(folder)
    table = {piece: row for row, piece in enumerate(names)}
    numbers = {"pad_token_id": table["<pad>"], "eos_token_id": table["</s>"], "bos_token_id": 0}
    numbers |= {"decoder_start_token_id": table["<pad>"], "forced_eos_token_id": table["</s>"]}
    numbers |= {"vocab_size": len(names), "decoder_vocab_size": len(names), "num_beams": 4, "max_length": 64}
    config = {**net.config.to_dict(), **numbers, "bad_words_ids": [[table["<pad>"]]]}
    torch.manual_seed(1)
    model = transformers.MarianMTModel(transformers.MarianConfig(**{**config, "bad_words_ids": None})).eval()
    with torch.no_grad():
        model.final_logits_bias.normal_()
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.json").write_text(json.dumps(table, ensure_ascii=False))


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("forms")


@pytest.fixture(scope="module", params=FORMS)
def folder(request, desk) -> Path:
    place = desk / request.param.replace(" ", "-").strip("<>")
    marian_folder(place)
    reorder(place, FORMS[request.param])
    return place


def test_a_small_folder_of_the_same_form_is_as_transformers_has_it(folder, tmp_path):
    lines = [*TEXTS["source"], *TEXTS["target"], *odd_lines(marian_rows(folder), 40)]
    compare_all(folder, tmp_path, lines, lines[:SEARCHED])
    both = Both.open(folder, tmp_path / "run")
    assert both.target[START] == both.net.config.decoder_start_token_id
    assert both.target[PAD] is None
    names = both.run.tokenizers.target.names
    assert (THEIR_START in names) == ("<s>" in marian_rows(folder))
    if THEIR_START in names:
        assert both.target[names.index(THEIR_START)] == marian_rows(folder)["<s>"]
        assert "<" not in both.run.tokenizers.target.decode([names.index(THEIR_START)])


# ---- added pieces


def test_pieces_that_were_added_come_in(tmp_path):
    """Import a folder as add_tokens and resize_token_embeddings leave it."""
    marian_folder(tmp_path / "old")
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "old")
    net = transformers.MarianMTModel.from_pretrained(tmp_path / "old")
    tokenizer.add_tokens(["<foo>", "dog-cat", "Übel"])
    net.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    net.save_pretrained(tmp_path / "theirs")
    tokenizer.save_pretrained(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "run")
    both = Both.open(tmp_path / "theirs", tmp_path / "run")
    lines = ["the dog-cat sees <foo>bar Übel a man", "<foo>", "dog -cat Übel<foo> <foo>", *TEXTS["source"]]
    both.compare_ids(lines)
    for beam in (1, 4):
        both.compare_outputs(lines, beam)
    assert "the same as theirs" in str(export_model(tmp_path / "run", tmp_path / "again", to="marian").verification)
    table = json.loads((tmp_path / "again" / "config.json").read_text())
    assert (table["pad_token_id"], table["vocab_size"]) == (net.config.pad_token_id, net.config.vocab_size)


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        ({"<foo>": 3}, 'the added piece "<foo>" has row 3, which is that of'),
        ({"<foo>": 10**7}, "has row 10,000,000, which no row leads up to"),
        ({"<foo>": -1}, 'added_tokens.json: "<foo>" has no row'),
        ({"<foo>": "4"}, 'added_tokens.json: "<foo>" has no row'),
    ],
)
def test_added_pieces_in_wrong_rows_are_named(added, problem, tmp_path):
    marian_folder(tmp_path / "theirs")
    (tmp_path / "theirs" / "added_tokens.json").write_text(json.dumps(added))
    with pytest.raises(DataError, match=problem):
        import_model(tmp_path / "theirs", tmp_path / "run")
