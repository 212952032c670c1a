"""Captioners: the contract for pictures, and the paper's formulas one word and one place at a time."""

import pytest
import torch
from models.pictured import ATTENTIVE, CASES, WORDS, captioner, captions, pictures
from models.test_contract import NothingRead
from oracles import agree

from regard.attention import Attentive, Sinusoidal2D, watch
from regard.errors import ShapeError
from regard.models.config import CaptionerConfig
from regard.models.contract import Pictures
from regard.models.kinds import KINDS, build

every_case = pytest.mark.parametrize("name", CASES)
LSTMS = [name for name in CASES if name != "transformer"]


@every_case
@torch.no_grad()
@pytest.mark.shapes
def test_decode_equals_the_steps(name):
    model, source, target = captioner(name), pictures(), captions([4, 6, 1])
    wanted = model(source, target)
    state = model.start(model.encode(source), size=8)
    got = torch.stack([model.step(tokens, state)[0] for tokens in target.ids.unbind(1)], 1)
    agree(got[target.real], wanted[target.real])


@every_case
@torch.no_grad()
def test_several_captions_of_a_picture_are_one_each(name):
    model, source, target = captioner(name), pictures(2), captions([4, 6, 1, 3])
    which = torch.tensor([1, 0, 1, 1])
    hidden, _ = model.decode(model.encode(source).rows(which), target)
    for row, (picture, length) in enumerate(zip(which.tolist(), target.lengths.tolist(), strict=True)):
        alone = captions([length])
        alone.ids[:] = target.ids[row, :length]
        agree(model.output(hidden[row, :length]), model(Pictures(source.pixels[picture : picture + 1]), alone)[0])


@every_case
def test_padding_changes_nothing(name):
    """Neither its length nor what stands in it, in values and gradients."""
    model, source, target = captioner(name), pictures(), captions([4, 6, 1])
    longer = captions([4, 6, 1], room=3)
    longer.ids[:, :6][target.real] = target.ids[target.real]
    agree(model(source, longer)[longer.real], model(source, target)[target.real], model.parameters())


@every_case
@torch.no_grad()
def test_rows_are_spread_reordered_and_taken(name):
    model, source = captioner(name), pictures(2)
    read = [[] for _ in range(2)]
    state = model.start(model.encode(source), 1, 8)

    def step(pixels):
        tokens = torch.randint(WORDS, (len(read),))
        logits, _ = model.step(tokens, state)
        for said, token in zip(read, tokens.tolist(), strict=True):
            said.append(token)
        target = captions([len(read[0])] * len(read))
        target.ids[:] = torch.tensor(read)
        agree(logits, model(Pictures(pixels), target)[:, -1])

    step(source.pixels)
    state, read = state.spread(3), [list(said) for said in read for _ in range(3)]
    step(source.pixels.repeat_interleave(3, 0))
    chosen = torch.tensor([2, 0, 0, 5, 3, 4])
    state.select_(chosen)
    read = [list(read[i]) for i in chosen.tolist()]
    step(source.pixels.repeat_interleave(3, 0))
    state, read = state.take(torch.tensor([1])), read[3:]
    step(source.pixels[1:].repeat_interleave(3, 0))


@every_case
def test_every_parameter_gets_a_gradient(name):
    model, source, target = captioner(name, dropout=0.2), pictures(), captions([4, 6, 1])
    model.train()
    hidden, extra = model.decode(model.encode(source), target)
    logits = model.output(hidden)
    loss = (logits * torch.randn_like(logits))[target.real].sum()
    if "log_prob" in extra:
        loss = loss + extra["log_prob"][target.real].sum() + extra["entropy"][target.real].sum()
    loss.backward()
    without = {path for path, parameter in model.named_parameters() if parameter.grad is None}
    without |= {path for path, parameter in model.named_parameters() if not parameter.grad.any()}
    assert not {path for path in without if not path.startswith("backbone")}
    assert model.backbone(source.pixels).requires_grad


@every_case
def test_a_new_model_gives_small_finite_scores(name):
    model = captioner(name, scale=None).float()
    logits = model(pictures(), captions([4, 6, 1]))
    assert logits.dtype == torch.float32
    assert logits.isfinite().all()
    assert logits.std() < 3


@every_case
@pytest.mark.parametrize("coverage", [False, True])
@torch.no_grad()
def test_a_step_reads_nothing_back_to_the_host(name, coverage):
    if name == "transformer":
        pytest.skip("a cache on a CPU knows its length")
    model = captioner(name)
    state = model.start(model.encode(pictures()), 2, 8, coverage)
    addresses = [buffer.data_ptr() for buffer in state.row.values()]
    with NothingRead():
        model.step(torch.randint(WORDS, (6,)), state)
        model.step(torch.randint(WORDS, (6,)), state)
    assert [buffer.data_ptr() for buffer in state.row.values()] == addresses


@pytest.mark.parametrize("name", ATTENTIVE)
@torch.no_grad()
def test_coverage_is_the_sum_of_weights_and_changes_nothing(name):
    model, source, target = captioner(name), pictures(), captions([5, 5, 5])
    plain, covered = (model.start(model.encode(source), 1, 8, coverage=kept) for kept in (False, True))
    assert plain.coverage is None
    for tokens in target.ids.unbind(1):
        agree(model.step(tokens, covered)[0], model.step(tokens, plain)[0])
    with watch(model) as looks:
        model(source, target)
    weights = looks[model.cross_attentions[-1]].weights
    agree(covered.coverage, (weights.mean(1) if weights.ndim == 4 else weights).sum(1))


def test_without_attention_there_is_nothing_to_watch_or_cover():
    model = captioner("none")
    assert model.cross_attentions == []
    assert not [module for module in model.decoder.modules() if isinstance(module, Attentive)]
    assert model.start(model.encode(pictures()), coverage=True).coverage is None


def test_without_attention_only_the_attention_is_missing():
    count = {name: sum(p.numel() for p in captioner(name).parameters()) for name in ("soft", "none")}
    attention = sum(p.numel() for p in captioner("soft").decoder.cross.parameters())
    assert count["soft"] - count["none"] == attention


@pytest.mark.parametrize("size", [(8, 12), (9, 13), (32, 8)])
def test_places_lie_row_by_row(size):
    model = captioner()
    memory = model.encode(pictures(2, *size))
    grid = model.backbone(pictures(2, *size).pixels)
    assert memory.grid == tuple(grid.shape[-2:])
    assert memory.states.shape[1] == memory.grid[0] * memory.grid[1]
    assert memory.lengths.tolist() == [memory.states.shape[1]] * 2
    source = pictures(2, *size)
    grid, places = model.backbone(source.pixels), model.encode(source).states
    for y in range(memory.grid[0]):
        for x in range(memory.grid[1]):
            agree(places[:, y * memory.grid[1] + x], grid[:, :, y, x])


def test_attentions_are_found_by_their_names():
    assert captioner("soft").cross_attentions == ["decoder.cross"]
    assert captioner("transformer").cross_attentions == ["decoder.stack.blocks.0.cross", "decoder.stack.blocks.1.cross"]
    assert KINDS["captioner"].model_class.endswith("CaptionerModel")
    assert type(build("captioner", CaptionerConfig(channels=4), 0, 5)).__name__ == "CaptionerModel"


# ---- the Transformer that writes captions: its places have positions


def test_a_transformer_sees_where_places_are():
    """A picture of one colour is the same everywhere but for its edges: positions tell its places apart."""
    model, source = captioner("transformer"), pictures(1)
    features = model.decoder.project(model.backbone(source.pixels).movedim(1, -1)).movedim(-1, 1)
    wanted = Sinusoidal2D(8)(features).flatten(-2).mT
    agree(model.encode(source).states, wanted)


def test_a_packed_caption_is_refused_where_it_cannot_be_read():
    model, target = captioner("transformer"), captions([2, 3]).pack()
    with pytest.raises(ShapeError, match="packed"):
        model(pictures(2), target)
