"""Non-finite weights or scores end in one sentence, never in empty lines with status 0 or in a traceback.

This covers every kind of model, every dtype of a file, every bad value, and every command that opens a run.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from typer.testing import CliRunner
from untrained import LABELS, STEP, change_weights, make_run

from regard.cli import app
from regard.decoding import batches
from regard.errors import CheckpointError, NotFiniteError
from regard.models import KINDS
from regard.run import Run, load

pytestmark = pytest.mark.unchecked
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
OTHERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64]
BAD = [float("nan"), float("inf"), -float("inf")]
PICTURE = np.full((3, 32, 32), 100, np.uint8)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("untrained")
    made = {kind: make_run(home / kind, kind) for kind in KINDS}
    return made | {"language-model": make_run(home / "lm", "encoder", "language-model", job="language-model")}


def weights_in(run: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    change_weights(run, found.update)
    return found


def answer(run: Run) -> object:
    """Return the results of the run's task."""
    task = run.settings.task
    if task == "translate":
        return run.translate(["1 2 3"], beam=2, longest=4)
    if task == "language-model":
        return run.sample(2, longest=4)
    if task == "caption":
        return run.caption([PICTURE], longest=4)
    return run.classify([PICTURE] if run.settings.kind == "convnet" else ["1 2 3"])


def spoilt(weights: dict[str, Tensor], name: str, value: float) -> None:
    weights[name] = weights[name].clone()
    weights[name].view(-1)[random.randrange(weights[name].numel())] = value


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [*KINDS, "language-model"])
def test_every_kind_and_value_in_any_weight(runs, kind, every):
    """Change random weights of each kind; the message names the first bad one."""
    run = runs[kind]
    whole = weights_in(run)
    floating = [name for name, tensor in whole.items() if tensor.is_floating_point()]
    for value in BAD:
        for dtype in FLOATS if every else random.sample(FLOATS, 1):
            name = random.choice(floating)

            def change(weights: dict[str, Tensor], name: str = name, dtype: torch.dtype = dtype) -> None:
                weights.update({key: each.to(dtype) for key, each in weights.items() if key in floating})
                spoilt(weights, name, value)  # noqa: B023

            change_weights(run, change)
            with pytest.raises(CheckpointError, match=f"{run.name}/.*weight {name} has (NaN|infinity) in it"):
                load(run)
            change_weights(run, lambda weights: weights.update(whole))
    answer(load(run))


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_and_dtype(runs, kind, every):
    """Floats of any width are cast, and nothing else is; an integer stays an integer."""
    run = runs[kind]
    whole = weights_in(run)
    for dtype in FLOATS:
        change_weights(
            run, lambda w, d=dtype: w.update({key: x.to(d) for key, x in whole.items() if x.is_floating_point()})
        )
        opened = load(run)
        assert all(weight.dtype == torch.float32 for weight in opened.model.parameters())
        name, parameter = next(iter(opened.model.named_parameters()))
        assert torch.equal(parameter, whole[f"model.{name}"].to(dtype).float())
    for dtype in OTHERS if every else random.sample(OTHERS, 3):
        for name in {next(iter(whole)), *(name for name in whole if not whole[name].is_floating_point())}:
            if dtype == whole[name].dtype:
                continue
            change_weights(run, lambda w, n=name, d=dtype: w.update(whole) or w.update({n: whole[n].to(d)}))
            kind_of = str(dtype).removeprefix("torch.")
            with pytest.raises(CheckpointError, match=f"weight {name} is {kind_of}, expected (float16 or|int64)"):
                load(run)
    change_weights(run, lambda w: w.update(whole))


def test_a_number_that_only_float64_holds(runs):
    run = runs["rnn"]
    whole = weights_in(run)
    name = next(iter(whole))
    change_weights(run, lambda w: w.update({name: torch.full_like(whole[name], 1e300, dtype=torch.float64)}))
    with pytest.raises(CheckpointError, match=f"weight {name} has infinity in it"):
        load(run)
    change_weights(run, lambda w: w.update({name: torch.full_like(whole[name], 3e38)}))
    load(run)
    change_weights(run, lambda w: w.update(whole))


# ---- finite weights with scores that are not finite


def overflowing(run: Run) -> Run:
    """Make the last layer's weights so large that sums of them overflow."""
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.copy_(torch.sign(parameter + 1e-9) * 3e38)
    return run


@pytest.mark.parametrize("kind", [*KINDS, "language-model"])
def test_scores_that_overflow(runs, kind):
    run = overflowing(load(runs[kind]))
    with pytest.raises(NotFiniteError, match="are not finite"):
        answer(run)


WAYS = [{"beam": 1}, {"beam": 4}, {"beam": 4, "groups": 2, "diversity": 0.5}, {"sample": True, "nbest": 3}]


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("when", [0, 2])
def test_every_way_to_search(runs, options, bad, when, monkeypatch):
    """One score among many is bad, at the first step or later."""
    run = load(runs["transformer"])
    steps = iter(range(100))
    original = type(run.model).step

    def step(self, tokens, state):
        logits, state = original(self, tokens, state)
        logits = logits.clone()
        logits[..., 2] -= 50.0  # no END yet
        if next(steps) == when:
            logits[-1, 5] = bad
        return logits, state

    monkeypatch.setattr(type(run.model), "step", step)
    with pytest.raises(NotFiniteError, match="transformer: its scores for this input are not finite"):
        run.translate(["1 2 3", "4 5"], longest=6, **options)


def test_places_on_a_device_say_so_too(runs):
    """The search that a GPU replays drops non-finite scores, and reports an error if none is left."""
    from regard.decoding import Options, check_outputs, tokens_of
    from regard.decoding.device_search import DeviceSearch, SlotOptions

    run = overflowing(load(runs["transformer"]))
    with torch.no_grad():
        memory = run.model.encode(tokens_of([[5, 6, 7]]))
        device_search = DeviceSearch(run.model, memory, 1, 5, 2)
        device_search.put(slice(0, 1), memory, SlotOptions.of([Options(beam=2, longest=4)], [4], "cpu"))
        for _ in range(5):
            device_search.advance()
        found = device_search.collect(slice(0, 1)).results(1)
    with pytest.raises(NotFiniteError, match="not finite"):
        check_outputs(found[0].outputs)  # the check of each answer of a replay


def test_impossible_outputs_are_no_fault(runs):
    """A pointer gives words that are not in the source almost no probability, which is still a finite number."""
    run = load(runs["pointer"])
    assert run.score(["1 2"], ["9 9"])[0].log_prob < -100
    assert run.translate(["1 2 3"], beam=4)
    assert batches.search_in_batches(run.model, [[5, 6]])[0].outputs


# ---- the commands


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("given")
    (home / "a.txt").write_text("1 2 3\n4 5\n")
    (home / "b.txt").write_text("3 2 1\n5 4\n")
    (home / "docs.tsv").write_text("".join(f"{label}\t1 2 3\n" for label in LABELS))
    Image.fromarray(PICTURE.transpose(1, 2, 0)).save(home / "x.png")
    (home / "captions.tsv").write_text("x.png\t1 2\n")
    (home / "labels.tsv").write_text("x.png\tbad\n")
    return home


def commands(run: Path, kind: str, home: Path, task: str) -> Iterator[list[str]]:
    """Yield every command that opens a run of this task."""
    a, b, page = str(home / "a.txt"), str(home / "b.txt"), str(home / "look.html")
    if task == "translate":
        yield ["translate", str(run), a, "--longest", "4"]
        yield ["score", str(run), "--source", a, "--target", b]
        yield ["eval", str(run), "--source", a, "--reference", b, "--beam", "1"]
        yield ["compare", str(run), str(run), "--source", a, "--reference", b]
        yield ["look", str(run), "1 2 3", "--out", page, "--longest", "4"]
        yield ["look", str(run), "1 2 3", "--target", "3 2", "--out", page]
        if kind not in ("rnn", "ntm"):
            yield ["align", str(run), "--source", a, "--target", b]
    if task == "language-model":
        yield ["sample", str(run), "--count", "2"]
        yield ["score", str(run), "--target", b]
        yield ["eval", str(run), "--reference", b]
    if task == "caption":
        yield ["caption", str(run), str(home / "x.png")]
        yield ["look", str(run), str(home / "x.png"), "--out", page]
    if task == "classify":
        item = str(home / "x.png") if kind == "convnet" else "1 2 3"
        yield ["classify", str(run), item] if kind == "convnet" else ["classify", str(run), a]
        yield ["look", str(run), item, "--out", page]


def said(arguments: list[str]) -> str:
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 2, (arguments, shown.output, shown.exception)
    assert isinstance(shown.exception, SystemExit), arguments
    assert shown.stderr.startswith("regard: ")
    assert shown.stderr.count("\n") == 1, shown.stderr
    return shown.stderr


@pytest.mark.parametrize("kind", ["transformer", "rnn", "language-model", "captioner", "han", "convnet"])
def test_every_command_says_so(runs, files, kind):
    """Try NaN weights, and finite weights that overflow."""
    run = runs[kind]
    task = load(run).settings.task
    whole = weights_in(run)
    first = next(name for name in whole if whole[name].is_floating_point())
    every = [*commands(run, kind, files, task)]
    assert len(every) >= 2
    change_weights(run, lambda weights: spoilt(weights, first, float("nan")))
    for arguments in every:
        text = said(arguments)
        assert f"{run}/checkpoints/{STEP}/model.safetensors: weight {first} has NaN in it" in text
    large = {name: torch.sign(x + 1e-9) * 3e38 for name, x in whole.items() if x.is_floating_point()}
    change_weights(run, lambda weights: weights.update(large))
    for arguments in every:
        assert f"{run}: its scores for this input are not finite" in said(arguments)
    change_weights(run, lambda weights: weights.update(whole))
