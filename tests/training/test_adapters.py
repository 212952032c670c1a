"""Adapters start as their base, only they learn, and they load as an equivalent plain model.

Frozen parts stay bit by bit as they are, the rest learns, and an error names an unknown part.
"""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import document_table, same_tensors, table
from torch import nn

from regard.attention import fused_stack
from regard.data import PackedBatch
from regard.decoding import to_bfloat16
from regard.errors import CheckpointError, ConfigError
from regard.interop import export_model, pack
from regard.kernels import mixed_precision
from regard.models import Tokens, TransformerConfig, kinds
from regard.run import load
from regard.tasks import base_table, read_settings, start, summarise
from regard.tasks.plan import plan_run
from regard.training.adapters import (
    Adapter,
    adapters_of,
    add_adapters,
    describe_adapters,
    fold_adapters,
    freeze_parts,
    has_adapters,
    mean_adapters,
    merge_adapters,
    merge_weights,
    plain_weights,
    trained_weights,
)
from regard.training.checkpoint import Checkpoints, read_checkpoint, read_manifest
from regard.training.distributed import Group
from regard.training.progress import Progress
from regard.training.task import Position
from regard.training.weights import weights_of

RATE = {"training__rate": 0.05, "training__schedule": "constant"}  # so large that a few steps have an effect
PROJECTIONS = {"attention.projection", "attention.output", "cross.projection", "cross.output", "feed.0", "feed.2"}


def adapted(folder, rank=3, kind="transformer", **changes):
    whole = table(folder, kind, **{"training__steps": 4, "training__validate_every": 2, **RATE, **changes})
    whole["model"]["adapter"] = rank
    return whole


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Train a run, and a second one with adapters on it."""
    folder = tmp_path_factory.mktemp("adapters")
    start(table(folder, training__steps=4), folder / "base")
    start(adapted(folder), folder / "adapted", base=folder / "base")
    return folder


def plan(home, config, **how):
    return plan_run(read_settings(config), Group("cpu"), Progress(), **how)


def first_batch(task):
    position, chosen = next(task.stream(Position(0, 0)))
    return task.batch(chosen, position)


def draw_adapters(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for each in model.modules():
            if isinstance(each, Adapter):
                each.up.copy_(torch.randn(each.up.shape, generator=generator) * 0.3)


def build(**options):
    torch.manual_seed(1)
    return kinds.build("transformer", TransformerConfig(size=8, heads=2, layers=2, hidden=12, **options), 20, 20)


def merged_by_hand(run, which):
    """Compute W + B A from the two files, by another formula than the code."""
    folder = Checkpoints(run).find(which)
    weights, trained = load_file(run / "base.safetensors"), load_file(folder / "model.safetensors")
    for name in [name for name in trained if name.endswith(".up")]:
        layer = name.removesuffix(".parametrizations.weight.0.up")
        product = torch.einsum("dr,re->de", trained[name].double(), trained[name.removesuffix("up") + "down"].double())
        weights[f"{layer}.weight"] = (weights[f"{layer}.weight"].double() + product).float()
    return {name.removeprefix("model."): tensor for name, tensor in weights.items()}


# ---- in training


@pytest.mark.parametrize("form", [None, "packed"])
def test_the_first_loss_is_the_bases_to_the_last_bit(home, form):
    losses = []
    for rank in (0, 3):
        task = plan(home, adapted(home, rank), base=home / "base").task
        assert has_adapters(task.model) == (rank > 0)
        task.form = form
        batch = first_batch(task)
        assert isinstance(batch, PackedBatch) == (form == "packed")
        torch.manual_seed(7)
        losses.append(task.objective.train()(batch).total)
    assert torch.equal(*losses)


def test_packed_and_padded_batches_have_the_same_gradients(home):
    found = []
    for form in (None, "packed"):
        config = adapted(home)
        config["model"]["dropout"] = 0.0
        config["model"]["adapter"] = 0
        task = plan(home, config).task
        add_adapters(task.model, 3, seed=1)
        draw_adapters(task.model)
        task.form = form
        task.objective(first_batch(task)).total.backward()
        found.append({name: p.grad for name, p in task.model.named_parameters() if p.requires_grad})
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        torch.testing.assert_close(gradient, found[1][name], atol=1e-4, rtol=1e-4)


def test_gradients_are_those_of_the_product():
    """dL/dB = dL/dW Aᵀ and dL/dA = Bᵀ dL/dW, with dL/dW from a plain model whose weights are W + B A."""
    plain, model = build(dropout=0.0).double(), build(dropout=0.0).double()
    add_adapters(model, 3)
    draw_adapters(model)
    layers = {name: module for name, module in model.named_modules() if hasattr(module, "parametrizations")}
    assert {name.split(".", 3)[-1] for name in layers} == PROJECTIONS
    with torch.no_grad():
        for name, layer in layers.items():
            adapter = layer.parametrizations.weight[0]
            plain.get_submodule(name).weight.add_(adapter.up @ adapter.down)
    ids = torch.randint(4, 20, (3, 7), generator=torch.Generator().manual_seed(2))
    results = []
    for each in (plain, model):
        tokens = Tokens.of(ids, torch.tensor([7, 5, 6]))
        hidden, _ = each.decode(each.encode(tokens), tokens)
        results.append(each.output(hidden).square().sum())
        results[-1].backward()
    torch.testing.assert_close(results[0], results[1], rtol=1e-10, atol=0)
    for name, layer in layers.items():
        adapter, gradient = layer.parametrizations.weight[0], plain.get_submodule(name).weight.grad
        torch.testing.assert_close(adapter.up.grad, gradient @ adapter.down.T, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(adapter.down.grad, adapter.up.T @ gradient, rtol=1e-8, atol=1e-8)
        assert layer.parametrizations.weight.original.grad is None


def test_products_in_half_precision_reach_the_adapter():
    layer = nn.Linear(6, 4, bias=False).requires_grad_(False)
    nn.utils.parametrize.register_parametrization(layer, "weight", Adapter(layer.weight, 2), unsafe=True)
    x = torch.randn(5, 6, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer.weight.dtype == torch.float32, "a small change would be lost beside the weight"
        result = mixed_precision.half_linear(x, layer.weight)
    result.float().sum().backward()
    adapter = layer.parametrizations.weight[0]
    expected = x.float().sum(0).expand(4, -1) @ adapter.down.detach().T
    torch.testing.assert_close(adapter.up.grad, expected, rtol=1e-2, atol=1e-2)
    assert adapter.up.grad.dtype == torch.float32


def test_fused_stacks_still_know_their_parts():
    model = build()
    known = [[*fused_stack.block_features(block)] for block in model.decoder.blocks]
    add_adapters(model, 2)
    assert [[*fused_stack.block_features(block)] for block in model.decoder.blocks] == known
    assert fused_stack.is_linear(model.encoder.blocks[0].attention.projection)


def test_weights_merged_for_a_validation_come_back_to_the_last_bit():
    model = build().eval()
    add_adapters(model, 3)
    draw_adapters(model)
    before = {name: tensor.clone() for name, tensor in weights_of(model).items()}
    layer = model.encoder.blocks[0].feed[0]
    computed = layer.weight.detach().clone()
    assert not torch.equal(computed, layer.parametrizations.weight.original)
    with merge_adapters(model), torch.no_grad():
        assert layer.weight is layer.parametrizations.weight.original
        assert torch.equal(layer.weight, computed)
        half = to_bfloat16(model)
    assert torch.equal(half.encoder.blocks[0].feed[0].weight, computed.to(torch.bfloat16))
    assert same_tensors(before, weights_of(model))
    assert torch.equal(layer.weight, computed)
    fold_adapters(model)
    assert not has_adapters(model)
    assert torch.equal(layer.weight, computed)
    assert weights_of(model).keys() == weights_of(build()).keys()


def test_a_frozen_part_gets_none_and_the_rest_is_counted():
    model = build()
    whole = sum(parameter.numel() for parameter in model.parameters())
    model.encoder.requires_grad_(False)
    count = add_adapters(model, 2)
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert trained
    assert all(name.startswith("decoder.") and name.endswith((".up", ".down")) for name in trained)
    assert count == 2 * (2 * (8 + 24) + 2 * (8 + 8) + 2 * (8 + 12)) * 2
    assert describe_adapters(model) == [("adapter", f"{count:,} weights of rank 2 ({100 * count / whole:.2g} %)")]
    assert len(adapters_of(model)) == 12
    assert trained_weights(model).keys() == set(trained)
    assert same_tensors(plain_weights(model), weights_of(build()))


# ---- a run


def test_only_adapters_change_and_a_checkpoint_holds_them_alone(home):
    base, run = load(home / "base").model.state_dict(), load(home / "adapted", checkpoint="last").model.state_dict()
    changed = {name for name, tensor in base.items() if not torch.equal(tensor, run[name])}
    assert changed
    assert changed == {
        name
        for name in base
        if name.removesuffix(".weight").split(".", 3)[-1] in PROJECTIONS and name.endswith(".weight")
    }
    folder = Checkpoints(home / "adapted").find("last")
    names = load_file(folder / "model.safetensors")
    assert all(name.endswith((".parametrizations.weight.0.up", ".parametrizations.weight.0.down")) for name in names)
    assert sum(tensor.numel() for tensor in names.values()) == 3 * ((16 + 48 + 16 + 16) * 3 + (16 + 16) * 4)
    stored = load_file(home / "adapted" / "base.safetensors")
    assert len(base) - len(stored) == 1, "the readout is the target's table"
    assert all(torch.equal(tensor, base[name.removeprefix("model.")]) for name, tensor in stored.items())
    assert not [name for name in read_checkpoint(folder).trainer if ".up" not in name and ".down" not in name]


def test_a_run_is_read_as_the_plain_model_that_was_trained(home):
    run = load(home / "adapted", checkpoint="last")
    assert not has_adapters(run.model)
    for name, tensor in merged_by_hand(home / "adapted", "last").items():
        torch.testing.assert_close(run.model.state_dict()[name], tensor, rtol=1e-6, atol=1e-7)
    config = adapted(home)
    task = plan(home, config, resumed=home / "adapted").task
    checkpoint = read_checkpoint(Checkpoints(home / "adapted").find("last"), merge=False)
    with torch.no_grad():
        for name, tensor in trained_weights(task.objective).items():
            tensor.copy_(checkpoint.model[name])
    task.form = "packed"
    batch = first_batch(task)
    task.objective.eval()
    plain = type(task.objective)(run.model, task.objective.smoothing).eval()
    assert torch.equal(task.objective(batch).total, plain(batch).total)
    summary = summarise(home / "adapted")
    assert summary.parameters == summarise(home / "base").parameters
    assert [("adapter", summary.adapter_text)] == describe_adapters(task.model)
    assert summarise(home / "base").adapter is None


@pytest.mark.parametrize("ema", [None, 0.9])
def test_a_resumed_run_is_the_one_that_was_not_stopped(home, tmp_path, ema):
    how = {"training__validate_every": 3, **({} if ema is None else {"training__ema": ema})}
    start(adapted(home, training__steps=6, **how), tmp_path / "whole", base=home / "base")
    start(adapted(home, training__steps=3, **how), tmp_path / "halves", base=home / "base")
    start(adapted(home, training__steps=6, **how), tmp_path / "halves", resume=True)
    one, other = (
        read_checkpoint(Checkpoints(tmp_path / name).find("last"), merge=False) for name in ("whole", "halves")
    )
    assert same_tensors(one.model, other.model)
    assert same_tensors(one.trainer, other.trainer)
    assert one.manifest["base"] == other.manifest["base"]
    assert (tmp_path / "whole" / "base.safetensors").read_bytes() == (
        home / "adapted" / "base.safetensors"
    ).read_bytes()


def test_the_mean_of_checkpoints_is_that_of_their_products(home, tmp_path):
    how = {"training__average": 2, "training__keep": 3}
    start(adapted(home, training__steps=4, **how), tmp_path / "run", base=home / "base")
    steps = Checkpoints(tmp_path / "run").steps()[-2:]
    first, second = (read_checkpoint(each, trainer=False).model for each in steps)
    average = read_checkpoint(tmp_path / "run" / "checkpoints" / "average", trainer=False)
    assert "base" in average.manifest
    for name, tensor in average.model.items():
        torch.testing.assert_close(tensor, (first[name] + second[name]) / 2, rtol=1e-5, atol=1e-6)
    assert average.model.keys() == first.keys()
    assert load(tmp_path / "run", checkpoint="average").translate(["1 2 3"])
    assert mean_adapters([{"a": torch.tensor([1.0])}, {"a": torch.tensor([3.0])}]) == {"a": torch.tensor([2.0])}


def test_a_run_goes_on_from_an_adapted_one(home, tmp_path):
    expected = load(home / "adapted").model.state_dict()
    for name, config in (("plain", table(home, training__steps=2)), ("again", adapted(home, 5))):
        task = plan(home, config, base=home / "adapted").task
        found = {name.removeprefix("model."): tensor for name, tensor in plain_weights(task.objective).items()}
        assert same_tensors(found, {name: tensor for name, tensor in expected.items() if name in found}), name
        assert has_adapters(task.model) == (name == "again")
    start(table(home, training__steps=2, **RATE), tmp_path / "plain", base=home / "adapted")
    assert not (tmp_path / "plain" / "base.safetensors").exists()
    assert "base" not in read_manifest(Checkpoints(tmp_path / "plain").find("last"))


def test_a_classifier_has_them_too(tmp_path):
    config = document_table(tmp_path, "encoder")
    start(config, tmp_path / "base")
    config["model"]["adapter"] = 2
    start(config, tmp_path / "new", base=tmp_path / "base")
    assert load(tmp_path / "new").classify(["a fine film"])


def test_a_pack_is_its_run(home, tmp_path):
    file = pack(home / "adapted", tmp_path / "file")
    one, other = load(home / "adapted"), load(file)
    assert same_tensors(one.model.state_dict(), other.model.state_dict())
    assert one.translate(["1 2 3 4"]) == other.translate(["1 2 3 4"])
    assert summarise(file).parameters == summarise(home / "adapted").parameters
    assert summarise(file).adapter_text == summarise(home / "adapted").adapter_text != "–"
    task = plan(home, adapted(home), base=file).task
    assert same_tensors(plain_weights(task.model), weights_of(one.model))


def test_an_export_decodes_as_the_run(home, tmp_path):
    report = export_model(home / "adapted", tmp_path / "exported", to="ctranslate2", checkpoint="last")
    assert report.verification is not None
    assert report.verification.equal == report.verification.count > 0
    config = adapted(home)
    for key, value in {"norm": "post", "sines": "halves", "tied": "all"}.items():
        config["model"][key] = value
    start({**config, "model": {**config["model"], "adapter": 0}}, tmp_path / "base")
    start(config, tmp_path / "run", base=tmp_path / "base")
    export_model(tmp_path / "run", tmp_path / "marian", to="marian", checkpoint="last")
    written, plain = load_file(tmp_path / "marian" / "model.safetensors"), merged_by_hand(tmp_path / "run", "last")
    one, other = written["model.encoder.layers.0.fc1.weight"], plain["encoder.blocks.0.feed.0.weight"]
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


# ---- refusals


def damaged(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def exchanged(path):
    save_file({name: tensor + 1 for name, tensor in load_file(path).items()}, path)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: path.unlink(), "missing, the weights that the adapters of step-000004 change; put it back"),
        (damaged, "damaged, its contents do not match the checksum in manifest.json"),
        (exchanged, "damaged, its contents do not match the checksum in manifest.json"),
        (lambda path: path.write_bytes(path.read_bytes()[:100]), "damaged, 100 bytes given, expected 23,840"),
    ],
)
def test_a_base_that_is_not_the_one(home, tmp_path, harm, message):
    run = shutil.copytree(home / "adapted", tmp_path / "run", symlinks=True)
    harm(run / "base.safetensors")
    with pytest.raises(CheckpointError) as refusal:
        load(run, checkpoint="last")
    assert str(refusal.value) == f"{run / 'base.safetensors'}: {message}"
    with pytest.raises(CheckpointError, match="base.safetensors"):
        start(adapted(home, training__steps=6), run, resume=True)


def test_adapters_that_do_not_fit_their_base():
    base = {"a.weight": torch.zeros(4, 3), "b": torch.zeros(2)}
    name = "a.parametrizations.weight.0."
    up, down = {f"{name}up": torch.ones(4, 2)}, {f"{name}down": torch.ones(2, 3)}
    merged = merge_weights(base, {**up, **down, "b": torch.ones(2)}, "file")
    assert torch.equal(merged["a.weight"], torch.full((4, 3), 2.0))
    assert torch.equal(merged["b"], torch.ones(2))
    for trained, message in (
        (up, f"file: weight {name}down is missing"),
        ({f"{name}up": torch.ones(5, 2), **down}, "expected a product [4, 3]"),
        ({f"{name}up": torch.full((4, 2), torch.nan), **down}, "NaN"),
        ({"c": torch.ones(1)}, "weight c given, which base.safetensors does not have"),
        ({f"{name}side": torch.ones(1), **up, **down}, "which base.safetensors does not have"),
        ({name.replace("a.", "z.") + part: torch.ones(2, 2) for part in ("up", "down")}, "there is no z.weight"),
    ):
        with pytest.raises(CheckpointError) as refusal:
            merge_weights(base, trained, "file")
        assert message in str(refusal.value)


def test_mistakes(home, tmp_path):
    def refusal(config, **how):
        with pytest.raises(ConfigError) as caught:
            start(config, tmp_path / "new", **how)
        assert not (tmp_path / "new").exists()
        return caught.value

    error = refusal(adapted(home))
    assert error.key == "model.adapter"
    assert error.problem == "3 given without a run whose weights it adapts; give one with --from"
    error = refusal(adapted(home, training__shard=True), base=home / "base")
    assert error.key == "training.shard"
    error = refusal(adapted(home, 17), base=home / "base")
    assert (error.key, "at most 16" in error.problem) == ("model.adapter", True)
    error = refusal(adapted(home, training__freeze=["encoder", "decoder"]), base=home / "base")
    assert error.key == "model.adapter"
    error = refusal(adapted(home, -1), base=home / "base")
    assert error.key == "model.adapter"
    with pytest.raises(CheckpointError, match=r"made with model.adapter 3, but this run has 4"):
        start(adapted(home, 4, training__steps=6), home / "adapted", resume=True)


def test_the_adapter_of_a_run_is_not_taken_over(home):
    base = json.loads(json.dumps(adapted(home)))
    assert base_table(base, {}, "run")["model"]["adapter"] == 0
    assert "adapter" not in base_table({"model": {"kind": "rnn"}}, {}, "run")["model"]
    assert base_table(base, {"model": {"adapter": 5}}, "run")["model"]["adapter"] == 5
    assert base_table(base, {"model": {**base["model"], "adapter": 5}}, "run")["model"]["adapter"] == 5
    with pytest.raises(ConfigError, match="the run run has another"):
        base_table(base, {"model": {"kind": "transformer", "size": 32, "adapter": 5}}, "run")


def build_all(**options):
    config = TransformerConfig(size=8, heads=2, layers=2, hidden=16, **options)
    return kinds.build("transformer", config, 20, 20)


def trained(model):
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def test_parts_by_name_and_by_pattern():
    model = build_all(tied="none")
    everything = trained(model)
    assert freeze_parts(model, ["encoder"]) == sum(each.numel() for each in model.encoder.parameters())
    assert trained(model) == {name for name in everything if not name.startswith("encoder.")}
    model = build_all(tied="none")
    assert freeze_parts(model, ["embeddings"]) == 2 * 20 * 8
    assert everything - trained(model) == {"source.tokens.weight", "target.tokens.weight"}
    model = build_all(tied="none")
    freeze_parts(model, ["*.bias", "decoder.blocks.0"])
    left_out = {name for name in everything if name.endswith(".bias") or name.startswith("decoder.blocks.0.")}
    assert trained(model) == everything - left_out
    model = build_all(tied="none")
    model.encoder.requires_grad_(False)  # frozen by hand
    assert freeze_parts(model, []) == 0
    assert trained(model) == {name for name in everything if not name.startswith("encoder.")}


def test_a_shared_table_is_frozen_by_any_of_its_names():
    for part in ("embeddings", "source", "target", "readout.weight"):
        model = build_all(tied="all")
        assert freeze_parts(model, [part]) == 20 * 8
        assert not model.readout.weight.requires_grad


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            ["encodr"],
            '"encodr" given, which no weight is called; expected source, encoder, decoder, readout, embeddings',
        ),
        (["encoder.blocks.7.*"], '"encoder.blocks.7.*" given'),
        (["*"], "which leaves nothing to train"),
    ],
)
def test_mistakes_in_parts(parts, message):
    with pytest.raises(ConfigError) as refusal:
        freeze_parts(build_all(tied="all"), parts)
    assert refusal.value.key == "training.freeze"
    assert message in str(refusal.value)


def test_a_training_changes_only_what_is_left(tmp_path):
    start(table(tmp_path, training__steps=2), tmp_path / "base")
    freeze = {"training__freeze": ["encoder", "embeddings"]}
    start(table(tmp_path, training__steps=3, **freeze), tmp_path / "new", base=tmp_path / "base")
    before, after = (load(tmp_path / name).model.state_dict() for name in ("base", "new"))
    same = {name for name, tensor in before.items() if torch.equal(tensor, after[name])}
    assert same >= {name for name in before if name.startswith(("encoder.", "source.", "target."))}
    assert not {name for name in same if name.startswith("decoder.") and name.endswith("projection.weight")}
    state = read_checkpoint(Checkpoints(tmp_path / "new").find("last")).trainer
    assert state
    assert not [name for name in state if ".encoder." in name]


def test_a_resumed_run_stays_frozen(tmp_path):
    freeze = {"training__freeze": ["encoder"], "training__validate_every": 2}
    start(table(tmp_path / "a", training__steps=4, **freeze), tmp_path / "whole")
    start(table(tmp_path / "a", training__steps=2, **freeze), tmp_path / "halves")
    start(table(tmp_path / "a", training__steps=4, **freeze), tmp_path / "halves", resume=True)
    one, other = (load(tmp_path / name, checkpoint="last").model.state_dict() for name in ("whole", "halves"))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
