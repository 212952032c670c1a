"""Options chosen from a corpus: the user's own settings never change, and the metric follows the data."""

import dataclasses
import json
import random
import typing

import numpy as np
import pytest
import torch
from tiny import document_table, table

from regard.config import read
from regard.data import CorpusSettings, DataSettings, Order, TokenizerSettings, prepare
from regard.errors import CheckpointError, ConfigError, DataError
from regard.evaluation import caption_scores, text_scores
from regard.models import KINDS
from regard.run import load
from regard.tasks.caption import caption_metric
from regard.tasks.classify import label_metric
from regard.tasks.plan import (
    SOURCES,
    Corpus,
    changed_files,
    choose_earlier,
    data_defaults,
    describe_choice,
    drop_attention_dropout,
    model_defaults,
    picture_defaults,
    training_defaults,
)
from regard.tasks.run_start import record_sources, start
from regard.tasks.settings import read_settings
from regard.tasks.translate import translation_metric

BATCHES = [(4096, 1), (8192, 1), (4096, 2)]  # tokens, processes
BARE = {"data": {"source": "a", "target": "b"}}
CORPORA = {  # the description, and the lengths of both sides
    "few": (Corpus(1_500, 20_000, False), (12, 12)),
    "large": (Corpus(200_000, 6_000_000, False), (30, 29)),
    "long": (Corpus(15_000, 3_000_000, False), (200, 200)),
    "spelled": (Corpus(30_000, 400_000, True), (9, 12)),
}
SIDES = {"text": {"source": "a", "target": "b"}, "documents": {"documents": "a.tsv"}}
NUMBERS = (0, 0.25, 1, 2, 3, 6, 7, 16, 64, 100, 320, 512)
# Options that depend on others: incompatible positions, one vocabulary, the rate of wide models.
POSITIONS = {"join", "sines", "first_position", "heads", "depth", "size", "job"}
BESIDE = {key: {"model.positions"} for key in POSITIONS}
BESIDE["size"] |= {"training.rate"}
BESIDE["tied"] = {"tokenizer.joint"}
SCORES = {"bleu": text_scores.bleu, "chrf": text_scores.chrf, "exact": text_scores.exact}
DRAW = random.Random(3)


def corpus(source, target, count):
    return np.full((count, 2), (source, target))


def model(given, tokens, examples=30_000, device="cuda", spelled=False):
    return model_defaults(read_settings(given), Corpus(examples, tokens, spelled), device)


def steps(given, *of, **more):
    return training_defaults(read_settings(given), *of, **more).training.steps


def test_what_is_left_open_is_chosen_and_what_is_said_is_kept(tmp_path):
    given = table(tmp_path)
    prepared = prepare(read_settings(given).data, read_settings(given).tokenizer)
    bare = {"data": given["data"]}
    found = Corpus.of(prepared)
    assert found.examples == len(prepared.train)
    assert found.tokens == sum(len(prepared.train.pair(i)[1]) + 1 for i in range(len(prepared.train)))

    def chosen(given):
        with_model = model_defaults(read_settings(given), found, "cpu")
        return training_defaults(with_model, prepared.train.lengths, 4096, 1)

    plain = chosen(bare)
    assert (plain.model.size, plain.model.positions, plain.training.schedule) == (128, "rotary", "cosine")
    assert (plain.training.steps, plain.training.warmup, plain.training.ema) == (1000, 100, 0.999)
    assert "transformer, width 128, 2 layers" in describe_choice(plain)
    one = chosen({**bare, "model": {"layers": 1}})
    assert "1 layer, dropout" in describe_choice(one)
    kept = chosen({**bare, "model": {"size": 32}, "training": {"steps": 77, "warmup": 3, "ema": 0.9}})
    assert (kept.model.size, kept.model.layers, kept.model.positions) == (32, 2, "rotary")  # the rest is chosen
    assert (kept.training.steps, kept.training.warmup, kept.training.ema) == (77, 3, 0.9)
    assert chosen({**bare, "training": {"steps": 1}}).training.warmup == 1


@pytest.mark.parametrize(
    ("tokens", "examples", "device", "size"),
    [
        (20_000, 2_500, "cuda", 128),
        (430_000, 29_000, "cuda", 256),
        (430_000, 29_000, "cpu", 256),
        (100_000, 12_900, "cpu", 128),
        (300_000, 1_500, "cpu", 128),
        (6_000_000, 200_000, "cuda", 512),
        (6_000_000, 200_000, "cpu", 256),
    ],
)
def test_larger_corpora_get_larger_models(tokens, examples, device, size):
    assert model(BARE, tokens, examples, device).model.size == size


def test_long_lines_get_positions_that_source_and_target_share():
    assert model(BARE, 300_000, 1_500).model.positions == "sinusoidal"
    assert model(BARE, 300_000, 15_000).model.positions == "rotary"


def test_symbols_get_less_dropout():
    assert model(BARE, 400_000).model.dropout == 0.3
    assert model(BARE, 400_000, spelled=True).model.dropout == 0.1


def test_every_kind_of_text_takes_its_defaults():
    for kind in ("rnn", "rnnsearch", "luong", "lstmn", "pointer", "ntm", "transformer"):
        given = {**BARE, "model": {"kind": kind}}
        for tokens in (1_000, 400_000):
            chosen = model(given, tokens)
            assert chosen.kind == kind
            assert read_settings(chosen.table()) == chosen
    for data in ({"documents": "a.tsv"}, {"images": "a", "captions": "b"}, {"images": "a", "labels": "b"}):
        for device in ("cpu", "cuda"):
            chosen = model({"data": data}, 1_000, 20_000, device)
            assert read_settings(chosen.table()) == chosen


def test_as_many_passes_whatever_the_batch():
    many = corpus(10, 10, 100_000)
    chosen = [steps(BARE, many, *of) for of in BATCHES]
    assert abs(chosen[0] / chosen[1] - 2) < 0.2
    assert chosen[1] == chosen[2]
    assert steps(BARE, many, 4096, 1, device="cuda") == pytest.approx(2 * chosen[0], rel=0.01)


def test_pictures_are_counted_and_documents_by_what_is_read():
    pictures = {"data": {"images": "a", "captions": "b"}}
    assert steps(pictures, corpus(1, 50, 12_800), 65_536, 1) == 40 * 12_800 // 64
    few = {**pictures, "training": {"batch_rows": 128}}
    assert steps(few, corpus(1, 50, 12_800), 65_536, 1) == 40 * 12_800 // 128
    documents = {"data": {"documents": "a.tsv"}}
    assert abs(steps(documents, corpus(250, 1, 20_000), 8_192, 1) - 8 * 250 * 20_000 / 8_192) < 100


def test_a_run_to_begin_with_is_changed_gently():
    for base, rate in ((False, 1e-3), (True, 3e-4)):
        chosen = training_defaults(read_settings(BARE), corpus(10, 10, 5_000), 4096, 1, base=base)
        assert chosen.training.rate == rate
    for adapter, rate in ((0, 3e-4), (16, 1e-3)):  # with adapters the weights themselves do not change
        wide = read_settings({**BARE, "model": {"kind": "transformer", "size": 512, "adapter": adapter}})
        assert training_defaults(wide, corpus(10, 10, 5_000), 4096, 1, base=True).training.rate == rate


def test_data_is_left_to_the_corpus_and_what_is_said_of_it_kept():
    def chosen(given):
        return data_defaults(read_settings(given)).overrides

    found = chosen(BARE)
    assert found["data"] == {**BARE["data"], "held_out": "auto", "longest": 1000}
    assert found["tokenizer"] == {"kind": "auto", "joint": "auto"}
    said = {"data": {**BARE["data"], "held_out": 0.2, "longest": 50}, "tokenizer": {"kind": "unigram"}}
    assert chosen(said) == {**said, "tokenizer": {"kind": "unigram", "joint": "auto"}}
    assert "joint" not in chosen({**BARE, "model": {"kind": "pointer"}})["tokenizer"]
    assert chosen({**BARE, "tokenizer": {"file": "t.json"}})["tokenizer"] == {"file": "t.json"}
    assert chosen({"data": {"documents": "a.tsv"}})["data"]["held_out"] == "auto"
    assert chosen({"data": {"builtin": "reviews"}})["data"]["held_out"] == 0.05
    assert chosen({"data": {"documents": "a.tsv", "held_out": 0.2}})["data"]["held_out"] == 0.2


def test_pictures_are_mirrored_unless_captions_name_a_side():
    plain, sided = ["a dog runs over the grass"] * 9, ["the ball is left of the box"]
    given = {"data": {"images": "a", "captions": "b"}}
    assert picture_defaults(read_settings(given), [plain]).data.flip is True
    assert picture_defaults(read_settings(given), [plain, sided]).data.flip is False
    assert picture_defaults(read_settings(given), [[*plain, "der Ball liegt rechts"]]).data.flip is False
    leftover = [*plain, "a man is leftover from the bright party"]
    assert picture_defaults(read_settings(given), [leftover]).data.flip is True
    kept = read_settings({"data": {**given["data"], "flip": False}})
    assert picture_defaults(kept, [plain]) == kept
    assert picture_defaults(read_settings(given), []) == read_settings(
        given
    )  # labels: a mirrored letter is another letter


def resolved(data, model, corpus, device):
    """Return all chosen values by dotted key."""
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
    """Yield values of a field's type; the parser refuses invalid ones."""
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
    """For every key and valid value, only the key and options that depend on it change."""
    hints = typing.get_type_hints(KINDS[kind].config)
    field = dataclasses.make_dataclass("One", [(field.name, hints[field.name])]).__dataclass_fields__[field.name]
    data = "documents" if "translate" not in KINDS[kind].tasks else "text"
    tried = 0
    for value in values(field):
        given = {"kind": kind, field.name: value}
        try:
            read_settings({"data": SIDES[data], "model": given})
        except ConfigError:
            continue  # refused on its own, without a choice
        for corpus in CORPORA:
            for device in ("cpu", "cuda"):
                before = resolved(data, {"kind": kind}, corpus, device)
                after, refused = resolved_or_refused(data, given, corpus, device)
                if after is None:
                    assert refused == f"model.{field.name}"
                    assert field.name in ("size", "heads", "depth", "shift")  # a preset may be too small for it
                    continue
                changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
                assert changed <= {f"model.{field.name}"} | BESIDE.get(field.name, set()), (value, corpus, device)
                assert after[f"model.{field.name}"] == value
                tried += 1
    assert tried or field.name in ("job", "reach", "activation")


def test_what_was_seen():
    """200,000 pairs give width 512 and 6 layers, even if only the positions are set."""
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
        ("cuda", pairs(10), 0.1),  # at most one in a hundred
        ("cuda", pairs(1_000, tokens=128), 0.1),  # no pair has more than 128
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
    # No other choice differs.
    usual = dataclasses.replace(model_defaults(bare, CORPORA["large"][0], device).model, attention_dropout=0.0)
    assert dataclasses.replace(chosen.model, attention_dropout=0.0) == usual


@pytest.mark.parametrize("model", [{"kind": "luong"}, {"kind": "rnnsearch"}, {"kind": "ntm"}])
def test_kinds_without_attention_dropout_say_nothing(model):
    bare = read_settings({"data": SIDES["text"], "model": model})
    assert drop_attention_dropout(bare, "cuda", pairs(1_000)) == (bare, None)


def words(letters, count, low, high, length=(3, 9)):
    return [
        " ".join("".join(DRAW.choices(letters, k=DRAW.randint(*length))) for _ in range(DRAW.randint(low, high)))
        for _ in range(count)
    ]


LATIN, HAN, THAI, ARABIC = (
    "abcdefghijklmnop",
    "的一是不了人我在有他这中大来上国",
    "กขคงจฉชซญดตถทธนบป",
    "ابتثجحخدذرزسشصضط",
)
METRIC_CORPORA = {
    "names": (words(LATIN, 300, 1, 1), "exact"),
    "arabic names": (words(ARABIC, 300, 1, 2), "exact"),
    "sentences": (words(LATIN, 300, 6, 20), "bleu"),
    "letters apart": (words(LATIN, 300, 3, 9, (1, 1)), "exact"),
    "long lines of letters": (words(LATIN, 100, 60, 90, (1, 1)), "chrf"),
    "chinese": (words(HAN, 300, 1, 1, (8, 30)), "chrf"),
    "thai phrases": (words(THAI, 300, 4, 7, (8, 20)), "chrf"),
    "chinese cut into words": (words(HAN, 300, 6, 20, (1, 2)), "bleu"),
    "one answer": (["yes"] * 50, "exact"),
    "one reference": (["so it is"], "exact"),
}


@pytest.mark.parametrize("name", METRIC_CORPORA)
def test_what_suits_the_references_can_move(name):
    references, metric = METRIC_CORPORA[name]
    assert translation_metric(references) == metric
    score = SCORES[metric]
    half = [text if i % 2 else "x" for i, text in enumerate(references)]
    assert score(["x"] * len(references), references) <= score(half, references) < score(references, references)
    if len(references) > 1:
        assert score(half, references) > 0


def test_nothing_held_out_leaves_the_loss():
    assert translation_metric([]) == caption_metric([]) == label_metric([]) == "loss"
    assert translation_metric(["", " "]) == "loss"


def test_captions_short_and_long_and_few():
    long = [words(LATIN, 5, 6, 10) for _ in range(60)]
    assert caption_metric(long) == "cider"
    assert caption_metric(long[:10]) == "chrf"
    assert caption_metric([["red dog", "a dog"]] * 60) == "exact"
    assert caption_metric([words(HAN, 5, 1, 1, (8, 20)) for _ in range(60)]) == "chrf"
    outputs = [each[0] for each in long]
    assert caption_scores(outputs, long)["cider"] > caption_scores(["x"] * 60, long)["cider"] == 0


def test_labels_that_are_alike_rare_or_missing():
    assert label_metric([0, 1] * 20) == "accuracy"
    assert label_metric([0] * 95 + [1] * 5) == "f1"  # calling all of them 0 is 95 % right
    assert label_metric([1] * 40) == "loss"


# ---- changed files are named, and the share of earlier pairs is as configured


WORDS = TokenizerSettings(kind="word")


@pytest.mark.parametrize("known", [True, False])
def test_data_that_changed_are_named(tmp_path, known):
    """The message names the file if the run has a hash of each; a run of an earlier version has one hash of all."""
    given = table(tmp_path, training__steps=1)
    start(given, tmp_path / "run")
    if not known:
        (tmp_path / "run/sources.json").unlink()
    target = tmp_path / "pairs/target.txt"
    before = target.read_text()
    target.write_text("1 2 3\n" + before.partition("\n")[2])
    named = r"^\S+pairs/target\.txt: has changed since \S+run was trained; put the old one back"
    more = {**given, "training": {**given["training"], "steps": 2}}
    with pytest.raises(CheckpointError, match=named if known else 'made with data "[0-9a-f]+", but this run has'):
        start(more, tmp_path / "run", resume=True)
    target.write_text(before)
    assert start(more, tmp_path / "run", resume=True).result.step == 2


def test_every_file_of_the_data_is_known(tmp_path):
    start(document_table(tmp_path), tmp_path / "run")
    assert [*json.loads((tmp_path / "run" / SOURCES).read_text())] == [
        read(tmp_path / "run/config.toml")["data"]["documents"]
    ]
    for name in ("a.tsv", "b.src", "b.trg", "c.tsv"):
        (tmp_path / name).write_text("x\ty\n")
    data = read_settings(
        {
            "data": {
                "corpora": [
                    {"file": str(tmp_path / "a.tsv")},
                    {"source": str(tmp_path / "b.src"), "target": str(tmp_path / "b.trg")},
                ],
                "valid": [{"file": str(tmp_path / "c.tsv")}],
            }
        }
    ).data
    run = tmp_path / "run"
    record_sources(run, data)
    assert changed_files(run, data) == []
    for name in ("b.trg", "c.tsv"):
        (tmp_path / name).write_text("x\tz\n")
    assert changed_files(run, data) == [str(tmp_path / "b.trg"), str(tmp_path / "c.tsv")]
    (run / SOURCES).write_text("{")  # damaged: treated as missing, so no change is claimed
    assert changed_files(run, data) == []


def write(folder, name, count):
    """Write distinct pairs whose words begin with the corpus' name."""
    lines = [" ".join(f"{name}{(7 * i + j) % 13}" for j in range(1 + i % 5)) + f" {name}{i}" for i in range(count)]
    paths = [folder / f"{name}.{side}" for side in ("src", "tgt")]
    for path in paths:
        path.write_text("".join(f"{line}\n" for line in lines))
    return {"source": str(paths[0]), "target": str(paths[1])}


@pytest.mark.parametrize("share", [0.05, 0.25, 0.8])
def test_an_epoch_has_the_share(tmp_path, share):
    new, old = write(tmp_path, "new", 300), write(tmp_path, "old", 2000)
    other = write(tmp_path, "other", 500)
    earlier = (CorpusSettings(**old), CorpusSettings(**other, weight=2.0))
    data = DataSettings(**new, rehearsal=share, earlier=earlier, held_out=0.1, cache=str(tmp_path / "cache"))
    prepared = prepare(data, WORDS)
    first_old = prepared.train.starts[1]
    order = Order(prepared.train.lengths, 200, starts=prepared.train.starts, weights=prepared.weights, window=10_000)
    drawn = np.concatenate([batch for number in range(8) for batch in order.epoch(number)])
    assert (drawn < first_old).sum() == 8 * first_old  # each new pair once an epoch
    assert (drawn >= first_old).mean() == pytest.approx(share, abs=0.02)
    assert prepared.counts["valid"] == 30
    assert prepared.weights[2] == pytest.approx(2 * prepared.weights[1])
    assert prepared.counts["earlier"] == 2500


def test_nothing_earlier_is_held_out_and_nothing_held_out_is_rehearsed(tmp_path):
    new = write(tmp_path, "new", 200)
    old = write(tmp_path, "old", 50)
    for side in ("source", "target"):  # the earlier corpus contains every new pair
        with open(old[side], "a") as file, open(new[side]) as more:
            file.write(more.read())
    data = DataSettings(**new, rehearsal=0.5, earlier=(CorpusSettings(**old),), held_out=0.1, cache=str(tmp_path / "c"))
    prepared = prepare(data, TokenizerSettings(kind="character"))
    held_out = {source for source, _ in prepared.valid_pairs}
    texts = prepared.tokenizers.source.decode_batch(
        [prepared.train.pair(i)[0].tolist() for i in range(len(prepared.train))]
    )
    assert len(held_out) == 20
    assert all(text.startswith("new") for text in held_out)
    assert not held_out & set(texts)
    assert sum(text.startswith("old") for text in texts) == 50


def test_the_share_alone_needs_no_new_cache_and_no_share_reads_nothing(tmp_path):
    new, old = write(tmp_path, "new", 40), write(tmp_path, "old", 40)
    common = {**new, "earlier": (CorpusSettings(**old),), "cache": str(tmp_path / "cache")}
    assert (
        prepare(DataSettings(rehearsal=0.2, **common), WORDS).hash
        == prepare(DataSettings(rehearsal=0.3, **common), WORDS).hash
    )
    without = prepare(DataSettings(**common), WORDS)
    assert without.hash == prepare(DataSettings(**new, cache=str(tmp_path / "cache")), WORDS).hash
    assert without.weights == (1.0,)


def test_earlier_corpora_are_those_of_the_base_run(tmp_path):
    base = table(tmp_path, training__steps=2)
    start(base, tmp_path / "base")
    new = write(tmp_path, "new", 60)
    tuned = table(tmp_path, training__steps=4, training__validate_every=2, data__rehearsal=0.25)
    tuned["data"] = {**tuned["data"], **new}
    start(tuned, tmp_path / "tuned", base=tmp_path / "base", anyway=True)  # each target equals its source
    data = load(tmp_path / "tuned").settings.data
    assert data.earlier == (CorpusSettings(base["data"]["source"], base["data"]["target"]),)
    # A resumed run sees the same pairs, and a run that starts from it rehearses both corpora.
    tuned["training"]["steps"] = 2
    start(tuned, tmp_path / "halves", base=tmp_path / "base", anyway=True)
    resumed = read_config(tmp_path / "halves", steps=4, cache=base["data"]["cache"])
    start(resumed, tmp_path / "halves", resume=True)
    one, other = (load(tmp_path / name, checkpoint="last").model.state_dict() for name in ("tuned", "halves"))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    again = choose_earlier(read_settings({"data": {**new, "rehearsal": 0.1}}), tmp_path / "tuned")
    assert [corpus.source for corpus in again.data.earlier] == [new["source"], base["data"]["source"]]


def read_config(run, *, steps, cache):
    from regard.config import read

    config = read(run / "config.toml")
    return {**config, "training": {**config["training"], "steps": steps}, "data": {**config["data"], "cache": cache}}


def test_mistakes(tmp_path):
    new = write(tmp_path, "new", 10)
    with pytest.raises(ConfigError, match=r"^data\.rehearsal: 0\.2 given, but nothing to rehearse; start from a run"):
        choose_earlier(read_settings({"data": {**new, "rehearsal": 0.2}}), None)
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.toml").write_text('[data]\nbuiltin = "reverse"\n')
    with pytest.raises(ConfigError, match="trained on the built-in corpus reverse; write it into files"):
        choose_earlier(read_settings({"data": {**new, "rehearsal": 0.2}}), tmp_path / "base")
    (tmp_path / "base" / "config.toml").write_text('task = "translate"\n')
    with pytest.raises(ConfigError, match=r"names no training pairs; set data\.earlier"):
        choose_earlier(read_settings({"data": {**new, "rehearsal": 0.2}}), tmp_path / "base")
    with pytest.raises(ConfigError, match="with data that is documents, expected pairs of texts"):
        choose_earlier(read_settings({"data": {"documents": "a.tsv", "rehearsal": 0.2}}), tmp_path / "base")
    for side in ("src", "tgt"):
        (tmp_path / f"blank.{side}").write_text("\n\n")
    blank = CorpusSettings(str(tmp_path / "blank.src"), str(tmp_path / "blank.tgt"))
    data = DataSettings(**new, rehearsal=0.5, earlier=(blank,), cache=str(tmp_path / "c"))
    with pytest.raises(DataError, match="no pair is left to rehearse:"):
        prepare(data, WORDS)
