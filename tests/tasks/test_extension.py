"""A vocabulary that grows when a run starts from another: old scores stay, new rows are means, and the run resumes."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny import MODELS, same_tensors, table, write_documents

from regard import load
from regard.config import read
from regard.data import Tokenizers
from regard.decoding import tokens_of
from regard.errors import CommandError, ConfigError
from regard.tasks.plan import describe_extension, extend_rows, extend_run, plan_run
from regard.tasks.run_start import open_group, start
from regard.tasks.settings import base_table, read_settings
from regard.training import Progress

WORDS = {"dog": "Hund", "man": "Mann", "house": "Haus", "sees": "sieht", "old": "alte"}
OLD = ["the dog sees, yes", "the old house", "Grüezimitenand (Grüezi)"]  # none contains a new word


def settings(folder: Path, rows: list[tuple[str, str]], name: str = "base", **changes):
    files = [folder / f"{name}.{side}" for side in ("en", "de")]
    for file, texts in zip(files, zip(*rows, strict=True), strict=True):
        file.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    whole = table(folder, **{"tokenizer": {"kind": "bpe", "size": 320}, **changes})
    whole["data"] = {"source": str(files[0]), "target": str(files[1]), "held_out": 0.1, "cache": str(folder / "cache")}
    return whole


def base_pairs() -> list[tuple[str, str]]:
    names = [*WORDS.items()]
    return [(f"the {a} {b}, yes", f"der {x} {y}, ja") for a, x in names for b, y in names for _ in range(4)]


def new_pairs() -> list[tuple[str, str]]:
    return [(f"Grüezi, the {word}", f"Grüezi, der {other}") for word, other in WORDS.items()] * 8


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("extension")
    start(settings(folder, base_pairs(), training__steps=4), folder / "base")
    return folder


def based(folder: Path, base: str, tokenizer, **changes):
    """Return the settings of a run that starts from another."""
    whole = settings(folder, new_pairs(), "new", **changes)
    del whole["model"], whole["tokenizer"]
    whole |= base_table(read(folder / base / "config.toml"), {}, base)
    return read_settings({**whole, "tokenizer": {**whole["tokenizer"], **tokenizer}})


def plan(folder: Path, tokenizer, base: str = "base", **changes):
    chosen = based(folder, base, tokenizer, **changes)
    with open_group(chosen.training) as group:
        return plan_run(chosen, group, Progress(), base=folder / base)


@torch.no_grad()
def logits(model, tokenizers, source: str, target: str):
    model.eval()
    first = tokens_of([[1, *tokenizers.target.encode_bare([target])[0]]])
    return model(tokens_of([tokenizers.source.encode_bare([source])[0]]), first)[0]


@pytest.mark.parametrize("kind", [*MODELS])
@pytest.mark.parametrize("joint", [True, False])
def test_old_scores_stay_and_new_rows_are_means(tmp_path, kind, joint):
    changes = {"kind": kind, "training__steps": 1, "tokenizer": {"kind": "bpe", "size": 320, "joint": joint}}
    start(settings(tmp_path, base_pairs(), **changes), tmp_path / "base")
    extension = {"extend": ["Grüezi", "gsw_Latn"], "first": ["gsw_Latn"]}
    planned = plan(tmp_path, extension, kind=kind)
    before, model, tokenizers = load(tmp_path / "base"), planned.task.model, planned.task.prepared.tokenizers
    assert planned.settings.tokenizer.extend == ()
    assert tokenizers.joint == joint
    sizes = [side.size for side in (before.tokenizers.source, before.tokenizers.target)]
    for text in OLD:
        for one, other in (
            (before.tokenizers.source, tokenizers.source),
            (before.tokenizers.target, tokenizers.target),
        ):
            assert one.encode_bare([text]) == other.encode_bare([text])
        old = logits(before.model, before.tokenizers, text, text)
        assert torch.equal(logits(model, tokenizers, text, text)[:, : sizes[1]], old)
    # By the table names of these kinds, which the code does not know.
    own, theirs = model.state_dict(), before.model.state_dict()
    embedding = "{}.tokens.weight" if kind == "transformer" else "{}.weight"
    tables = {embedding.format("source"): 0, embedding.format("target"): 1, "readout.weight": 1, "readout.bias": 1}
    for name, tensor in own.items():
        if name not in tables:
            assert torch.equal(tensor, theirs[name])
            continue
        side = (tokenizers.source, tokenizers.target)[tables[name]]
        earlier = (before.tokenizers.source, before.tokenizers.target)[tables[name]]
        assert torch.equal(tensor[: len(theirs[name])], theirs[name])
        new = {"▁Grüezi": "Grüezi", **({"gsw_Latn": "gsw_Latn"} if joint or tables[name] else {})}
        assert set(side.names) - set(earlier.names) - set(new) == {n for n in side.names if n.startswith("<no piece")}
        for piece, text in new.items():
            ids = earlier.library.encode(text, add_special_tokens=False).ids
            mean = sum(theirs[name][i].double() for i in ids) / len(ids)
            assert torch.allclose(tensor[side.names.index(piece)].double(), mean, rtol=0, atol=1e-7)
    if kind == "transformer":
        assert model.readout.weight is model.target.tokens.weight


def test_a_run_with_new_pieces_learns_resumes_and_is_begun_with(desk):
    extension = {"extend": ["Grüezi", "gsw_Latn"], "first": ["gsw_Latn"]}
    lasting = {"training__rate": 0.02, "training__validate_every": 20, "training__schedule": "constant"}
    for name, steps in (("whole", 60), ("halves", 20)):
        start(based(desk, "base", extension, training__steps=steps, **lasting), desk / name, base=desk / "base")
    again = {**read(desk / "halves" / "config.toml")}
    again["training"] = {**again["training"], "steps": 60}
    assert "extend" not in again["tokenizer"] or not again["tokenizer"]["extend"]
    start(again, desk / "halves", resume=True)
    one, other = (load(desk / name, checkpoint="last") for name in ("whole", "halves"))
    assert same_tensors(one.model.state_dict(), other.model.state_dict())
    assert one.tokenizers.hash == Tokenizers.load(desk / "whole" / "tokenizer.json").hash
    # The run reads the word as one piece, has learned to write it, and knows its language.
    assert one.tokenizers.source.pieces(one.tokenizers.source.encode("Grüezi, the dog"))[:2] == ["▁Grüezi", ","]
    (found,) = one.stream(["Grüezi, the dog"], beam=1)
    assert found[0].tokens[0] == "▁Grüezi"
    assert found[0].text.startswith("Grüezi, der")
    one.set_languages(None, "gsw_Latn")
    assert one.tokenizers.target.pieces(one.tokenizers.target.before) == ["gsw_Latn"]
    with pytest.raises(CommandError, match='--target-language: "gsw_Latm" given.*gsw_Latn'):
        one.set_languages(None, "gsw_Latm")
    # A third run starts from this one, and adds a word.
    start(based(desk, "whole", {"extend": ["Zmorge"]}, training__steps=1), desk / "third", base=desk / "whole")
    third = load(desk / "third")
    assert third.settings.tokenizer.first == ("gsw_Latn",)
    assert third.tokenizers.source.pieces(third.tokenizers.source.encode("Grüezi Zmorge,")) == [
        "▁Grüezi",
        "▁Zmorge",
        ",",
    ]
    with pytest.raises(
        ConfigError, match='tokenizer.extend: "Grüezi" given, which is a piece of the vocabulary already'
    ):
        plan(desk, {"extend": ["Grüezi"]}, base="whole")


def test_frequent_words_are_those_that_were_split(desk):
    planned = plan(desk, {"extend_words": 2, "extend": ["gsw_Latn"]})
    new = [name for name in planned.task.prepared.tokenizers.source.names if not name.startswith("<no piece")]
    old = Tokenizers.load(desk / "base" / "tokenizer.json").source.names
    assert [name for name in new if name not in old][:2] == ["▁gsw_Latn", "▁Grüezi"]  # 40 times; the rest are whole


def test_a_new_tag_of_a_corpus_is_one_piece(desk):
    chosen = based(desk, "base", {"extend": ["<2gsw>"]}, training__steps=1)
    corpus = {"source": chosen.data.source, "target": chosen.data.target, "tag": "<2gsw>"}
    whole = chosen.table()
    whole["data"] = {"corpora": [corpus], "held_out": 0.1, "cache": chosen.data.cache}
    start(whole, desk / "tagged", base=desk / "base")
    side = load(desk / "tagged").tokenizers.source
    assert side.pieces(side.encode("<2gsw> the dog"))[:2] == ["<2gsw>", "▁the"]


def test_mistakes(desk, tmp_path):
    for tokenizer, message in (
        ({"extend": ["the"]}, 'tokenizer.extend: "the" given, which is a piece of the vocabulary already'),
        ({"extend": ["two words"]}, 'tokenizer.extend: "two words" given, expected words of at most 100'),
        ({"extend": ["a1", "a1"]}, 'tokenizer.extend: "a1" given, expected words of at most 100 characters, each once'),
        ({"extend": ["▁"]}, 'tokenizer.extend: "▁" given'),
        ({"extend_words": 9000}, "tokenizer.extend_words: 9000 given, expected at most 8192"),
        ({"extend": ["gsw"], "first": ["gws"]}, 'tokenizer.first: "gws" given, which is no piece of the vocabulary'),
    ):
        with pytest.raises(ConfigError) as refusal:
            plan(desk, tokenizer)
        assert message in str(refusal.value)
    for key, value in (("extend", ["Grüezi"]), ("extend_words", 3)):
        with pytest.raises(ConfigError, match=f"tokenizer.{key}: given without --from"):
            start({**settings(desk, base_pairs()), "tokenizer": {key: value}}, desk / "none")
        assert not (desk / "none" / "config.toml").exists()
    for part, key, value in (("model", "adapter", 4), ("training", "freeze", ["embeddings"])):
        table = settings(desk, base_pairs())
        table = {**table, "tokenizer": {"extend": ["Grüezi"]}, part: {**table[part], key: value}}
        with pytest.raises(ConfigError, match=f"{part}.{key}: given with tokenizer.extend, whose new rows would not"):
            extend_run(read_settings(table), None, based=True)
    documents = write_documents(tmp_path)
    settled = {"task": "classify", "data": {"documents": str(documents)}, "tokenizer": {"extend_words": 3}}
    with pytest.raises(ConfigError, match='tokenizer.extend_words: given with task = "classify"'):
        extend_run(read_settings(settled), None, based=True)
    settled = {"task": "classify", "data": {"images": str(tmp_path)}, "tokenizer": {"extend": ["a"]}}
    with pytest.raises(ConfigError, match='tokenizer.extend: given with task = "classify", which has no vocabulary'):
        extend_run(read_settings(settled), None, based=True)


def test_the_line_about_it(desk):
    chosen = based(desk, "base", {"extend": [f"wort{i}" for i in range(12)]})
    extension = extend_run(chosen, Tokenizers.load(desk / "base" / "tokenizer.json"), based=True)
    assert describe_extension(extension) == (
        "Added 12 pieces to the vocabulary: " + ", ".join(f"▁wort{i}" for i in range(10)) + " and 2 more"
    )


# ---- rows


def test_every_table_and_nothing_else():
    torch.manual_seed(0)
    table, bias, other = torch.randn(6, 3), torch.randn(6), torch.randn(6, 3)
    side = SimpleNamespace(after=SimpleNamespace(size=8), pieces={5: [4], 6: [1, 4, 4]}, fillers=[7])
    new = extend_rows({"a": table, "b": bias, "c": other}, {"a": side, "b": side})
    assert new["c"] is other
    for name, old in (("a", table), ("b", bias)):
        assert torch.equal(new[name][:5], old[:5])  # the sixth was a filler
        assert torch.equal(new[name][5], old[4])
        assert torch.allclose(new[name][6], (old[1] + 2 * old[4]) / 3, atol=1e-7)
    assert torch.equal(new["a"][7], table[0])
    assert new["b"][7] == -1e4


def test_half_precision_is_added_in_full():
    table = torch.full((4, 1), 60_000.0, dtype=torch.float16)
    side = SimpleNamespace(after=SimpleNamespace(size=5), pieces={4: [0, 1, 2, 3]}, fillers=[])
    assert extend_rows({"a": table}, {"a": side})["a"][4] == table[0]
