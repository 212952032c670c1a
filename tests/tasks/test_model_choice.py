"""What one option of a model leaves of the choices for the others: all of them."""

import dataclasses
import typing

import numpy as np
import pytest

from regard.errors import ConfigError
from regard.models import KINDS
from regard.tasks.defaults import Corpus, data_defaults, model_defaults, training_defaults
from regard.tasks.model_choice import drop_attention_dropout
from regard.tasks.settings import read_settings

CORPORA = {  # how they are described, and the lengths of both sides
    "few": (Corpus(1_500, 20_000, False), (12, 12)),
    "large": (Corpus(200_000, 6_000_000, False), (30, 29)),
    "long": (Corpus(15_000, 3_000_000, False), (200, 200)),
    "spelled": (Corpus(30_000, 400_000, True), (9, 12)),
}
SIDES = {"text": {"source": "a", "target": "b"}, "documents": {"documents": "a.tsv"}}
NUMBERS = (0, 0.25, 1, 2, 3, 6, 7, 16, 64, 100, 320, 512)
# What depends on an option: positions that do not go with it, one vocabulary, the rate of wide models.
POSITIONS = {"join", "sines", "first_position", "heads", "depth", "size", "job"}
BESIDE = {key: {"model.positions"} for key in POSITIONS}
BESIDE["size"] |= {"training.rate"}
BESIDE["tied"] = {"tokenizer.joint"}


def resolved(data, model, corpus, device):
    """The table of everything that is chosen, by dotted keys."""
    described, sides = CORPORA[corpus]
    settings = data_defaults(read_settings({"data": SIDES[data], "model": model}))
    settings = model_defaults(settings, described, device)
    settings = training_defaults(settings, np.full((1_000, 2), sides), 4096, 1, device)
    table = settings.table()
    return {
        f"{part}.{key}": value
        for part in ("data", "tokenizer", "model", "training")
        for key, value in table[part].items()
    }


def resolved_or_refused(*what):
    try:
        return resolved(*what), None
    except ConfigError as error:
        return None, error.key


def values(field):
    """Values that a field may have by its type; those that are not valid are refused when they are read."""
    kinds = typing.get_args(field.type) if typing.get_origin(field.type) is not typing.Literal else (field.type,)
    for kind in kinds or (field.type,):
        if typing.get_origin(kind) is typing.Literal:
            yield from typing.get_args(kind)
        elif kind is bool:
            yield from (False, True)
        elif kind in (int, float):
            yield from NUMBERS


def cases():
    for kind in KINDS.values():
        if kind.reads != "pictures":
            for field in dataclasses.fields(kind.config):
                yield pytest.param(kind.name, field, id=f"{kind.name}-{field.name}")


@pytest.mark.parametrize(("kind", "field"), list(cases()))
def test_one_option_changes_no_other(kind, field):
    """For every key and valid value, nothing changes but the key and what depends on it."""
    hints = typing.get_type_hints(KINDS[kind].config)
    field = dataclasses.make_dataclass("One", [(field.name, hints[field.name])]).__dataclass_fields__[field.name]
    data = "documents" if "translate" not in KINDS[kind].tasks else "text"
    tried = 0
    for value in values(field):
        given = {"kind": kind, field.name: value}
        try:
            read_settings({"data": SIDES[data], "model": given})
        except ConfigError:
            continue  # refused alone, as it always was
        for corpus in CORPORA:
            for device in ("cpu", "cuda"):
                before = resolved(data, {"kind": kind}, corpus, device)
                after, refused = resolved_or_refused(data, given, corpus, device)
                if after is None:
                    assert refused == f"model.{field.name}"
                    assert field.name in ("size", "heads", "depth", "shift")  # what a preset may be too small for
                    continue
                changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
                assert changed <= {f"model.{field.name}"} | BESIDE.get(field.name, set()), (value, corpus, device)
                assert after[f"model.{field.name}"] == value
                tried += 1
    assert tried or field.name in ("job", "reach", "activation")


def test_what_was_seen():
    """200,000 pairs: width 512 and 6 layers, also where only the positions are set."""
    large = resolved("text", {"positions": "sinusoidal"}, "large", "cuda")
    assert [large[f"model.{key}"] for key in ("size", "layers", "heads", "hidden")] == [512, 6, 8, 2048]
    assert (large["model.positions"], large["model.norm"], large["model.attention_dropout"]) == (
        "sinusoidal",
        "pre",
        0.1,
    )


def test_a_size_leaves_the_others_to_the_preset():
    wide = resolved("text", {"size": 1024}, "large", "cuda")
    assert [wide[f"model.{key}"] for key in ("size", "layers", "heads", "hidden")] == [1024, 6, 8, 2048]
    small = resolved("text", {"preset": "small"}, "large", "cuda")
    assert [small[f"model.{key}"] for key in ("size", "layers", "positions")] == [256, 3, "rotary"]
    with pytest.raises(ConfigError, match=r"model\.size: 100 given, .* model\.heads of the preset \"base\""):
        resolved("text", {"size": 100}, "large", "cuda")
    with pytest.raises(ConfigError, match=r"model\.heads: 512 is not divisible by 3"):
        resolved("text", {"heads": 3, "size": 513, "layers": 2, "depth": 2} | {"size": 512}, "large", "cuda")


def test_a_tokenizer_of_some_kind_leaves_the_vocabularies_open():
    for given in ({"kind": "unigram"}, {"size": 4000}, {"dropout": 0.1}):
        settings = data_defaults(read_settings({"data": SIDES["text"], "tokenizer": given}))
        assert settings.tokenizer.joint == "auto"
    assert data_defaults(read_settings({"data": SIDES["text"], "tokenizer": {"joint": False}})).tokenizer.kind == "auto"


# ---- long pairs on a GPU


def pairs(long, of=1_000, side=0, tokens=129):
    lengths = np.full((of, 2), 20)
    lengths[:long, side] = tokens
    return lengths


@pytest.mark.parametrize(
    ("device", "lengths", "expected"),
    [
        ("cuda", pairs(11), 0.0),
        ("cuda", pairs(11, side=1), 0.0),
        ("cuda", pairs(10), 0.1),  # no more than one in a hundred
        ("cuda", pairs(1_000, tokens=128), 0.1),  # not over 128
        ("cpu", pairs(1_000), 0.1),
        ("mps", pairs(1_000), 0.1),
        ("cuda", pairs(0, of=0), 0.1),
    ],
)
@pytest.mark.parametrize("given", [{}, {"attention_dropout": 0.2}, {"attention_dropout": 0.0}, {"layers": 2}])
def test_attention_dropout_of_long_pairs(device, lengths, expected, given):
    bare = read_settings({"data": SIDES["text"], "model": given})
    settings, line = drop_attention_dropout(bare, device, lengths)
    chosen = model_defaults(settings, CORPORA["large"][0], device)
    by_hand = given.get("attention_dropout")
    assert chosen.model.attention_dropout == (expected if by_hand is None else by_hand)
    assert (line is not None) == (expected == 0.0 and by_hand is None)
    if line is not None:
        share = f"{(lengths > 128).any(axis=1).mean():.1%}"
        assert share in line
        assert "--set model.attention_dropout=0.1" in line
    # Nothing else is another choice.
    usual = dataclasses.replace(model_defaults(bare, CORPORA["large"][0], device).model, attention_dropout=0.0)
    assert dataclasses.replace(chosen.model, attention_dropout=0.0) == usual


@pytest.mark.parametrize("model", [{"kind": "luong"}, {"kind": "rnnsearch"}, {"kind": "ntm"}])
def test_kinds_without_attention_dropout_say_nothing(model):
    bare = read_settings({"data": SIDES["text"], "model": model})
    assert drop_attention_dropout(bare, "cuda", pairs(1_000)) == (bare, None)
