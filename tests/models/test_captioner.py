"""Captioners against the paper's formulas, one word and one place at a time; the draws of hard attention.

`test_contract` tests the contract of every model.
"""

import oracles
import pytest
import torch
from models import formulas
from models.pictured import CASES, captioner, captions, pictures
from oracles import agree

from regard.attention import Attentive, Score, Sinusoidal2D, Softmax, use_backend, watch
from regard.errors import ShapeError
from regard.models.contract import Pictures

LSTMS = [name for name in CASES if name != "transformer"]


def oracle(model, places, read, seen=None):
    """Compute one caption, one word and one place at a time; places [m c]."""
    decoder, config = model.decoder, model.config
    mean = sum(places) / len(places)
    begun = torch.tanh(decoder.begin.weight @ mean + decoder.begin.bias).view(config.layers, 2, config.size)
    states = [list(layer) for layer in begun]
    hidden = []
    for word in read:
        h, x = states[-1][0], decoder.words.weight[word]
        z = mean
        if config.attention != "none":
            z, alpha = formulas.look(decoder.cross, h, places, weighting=weighting(config))
            if seen is not None:
                seen.append(alpha)
        if config.gate:
            z = z / (1 + torch.exp(-(decoder.gate.weight[0] @ h + decoder.gate.bias[0])))
        top, states = formulas.step_stack(decoder.cells.layers, torch.cat([x, z]), states)
        said = decoder.said.weight @ top + decoder.said.bias
        hidden.append(x + said + decoder.shown.weight @ z)
    return torch.stack([model.readout.weight @ one + model.readout.bias for one in hidden])


def weighting(config):
    """Return the softmax, or the argmax with no gradient, or the argmax with the softmax's gradient at τ."""

    def straight_through(scores):
        soft = oracles.softmax(scores, config.tau)
        return oracles.argmax(scores) + soft - soft.detach()

    return {"soft": oracles.softmax, "hard": oracles.argmax, "straight-through": straight_through}[config.attention]


@pytest.mark.parametrize("name", LSTMS)
def test_equals_the_papers_formulas(name):
    model, source, target = captioner(name), pictures(2), captions([4, 2])
    grid = model.backbone(source.pixels).flatten(-2)
    wanted = [
        oracle(model, list(grid[i].T), target.ids[i, :length]) for i, length in enumerate(target.lengths.tolist())
    ]
    agree(model(source, target)[target.real], torch.cat(wanted), model.parameters())


@pytest.mark.parametrize("name", ["soft", "soft-two-layers", "hard", "straight-through"])
def test_watching_gives_the_weights_of_every_word(name):
    model, source, target = captioner(name), pictures(1), captions([5])
    with watch(model) as looks:
        hidden, extra = model.decode(model.encode(source), target)
    wanted: list[torch.Tensor] = []
    oracle(model, list(model.backbone(source.pixels)[0].flatten(-2).T), target.ids[0], wanted)
    agree(looks["decoder.cross"].weights[0], torch.stack(wanted))
    agree(hidden, model.decode(model.encode(source), target)[0])
    if name.startswith("soft"):
        agree(extra["weights"][0], torch.stack(wanted))
        agree(model.decode(model.encode(source), target)[1]["weights"][0], torch.stack(wanted))


def test_the_gate_shuts_the_picture_out():
    model, target = captioner(), captions([4])
    with torch.no_grad():
        model.decoder.gate.weight.zero_()
        model.decoder.gate.bias.fill_(-1e9)
        source = pictures(1)
        memory = model.encode(source)
        other = model.encode(pictures(1))
        other.sentence["start"].copy_(memory.sentence["start"])
        agree(model.decode(memory, target)[0], model.decode(other, target)[0])
        model.decoder.gate.bias.fill_(0.0)
        assert not torch.allclose(model.decode(memory, target)[0], model.decode(other, target)[0])


# ---- hard attention


def test_hard_attention_draws_in_training_and_takes_the_likeliest_in_evaluation():
    model, source, target = captioner("hard", settle=0, sampled=1.0), pictures(3), captions([4, 6, 1])
    first, second = (model.decode(model.encode(source), target)[0] for _ in range(2))
    assert torch.equal(first, second)
    model.train()
    drawn = [model.decode(model.encode(source), target)[1]["weights"] for _ in range(2)]
    assert not torch.equal(*drawn)
    assert set(drawn[0].unique().tolist()) == {0.0, 1.0}
    assert torch.equal(drawn[0].sum(-1), torch.ones(3, 6, dtype=torch.float64))


def test_hard_attention_says_how_likely_and_how_spread_its_draws_were():
    model, source, target = captioner("hard", settle=0, sampled=1.0), pictures(2), captions([4, 6])
    model.decoder.train()
    _, extra = model.decode(model.encode(source), target)
    model.eval()  # the first word's distribution depends on no draw
    look = model.decoder.cross.look(
        model.encode(source).sentence["start"][:, -1, :1], model.decoder.cross.prepare(model.encode(source).states)
    )
    picked = extra["weights"][:, 0].argmax(-1, keepdim=True)
    agree(extra["log_prob"][:, 0], look.probabilities[:, 0].gather(-1, picked)[:, 0].log())
    agree(extra["entropy"][:, 0], -(look.probabilities[:, 0] * look.probabilities[:, 0].log()).sum(-1))


def test_some_captions_take_the_expectation():
    model, source = captioner("hard", settle=0), pictures(1)
    model.train()
    target = captions([3] * 64)
    memory = model.encode(source).rows(torch.zeros(64, dtype=torch.long))
    hidden, extra = model.decode(memory, target)
    drawn = extra["sampled"]
    assert 10 < int(drawn.sum()) < 54
    hard = ((extra["weights"] == 0) | (extra["weights"] == 1)).all(-1).all(-1)
    assert torch.equal(hard, drawn)
    assert not extra["log_prob"][~drawn].any()
    assert (extra["log_prob"][drawn] < 0).all()
    soft = captioner("soft")
    soft.load_state_dict(
        {
            name: tensor
            for name, tensor in model.state_dict().items()
            if name not in ("decoder.baseline", "decoder.batches")
        }
    )
    agree(hidden[~drawn], soft.decode(memory, target)[0][~drawn])


def test_straight_through_draws_from_the_first_batch_on():
    model, source, target = captioner("straight-through"), pictures(1), captions([1] * 4000)
    wanted = model.decoder.cross.look(
        model.encode(source).sentence["start"][:, -1, :1], model.decoder.cross.prepare(model.encode(source).states)
    ).probabilities[0, 0]
    model.decoder.train()
    memory = model.encode(source).rows(torch.zeros(4000, dtype=torch.long))
    weights = model.decode(memory, target)[1]["weights"]
    assert set(weights.unique().tolist()) == {0.0, 1.0}
    share = weights[:, 0].mean(0)
    assert (share - wanted).abs().max() < 4 * 0.5 / 4000**0.5
    assert model.decoder.cross.weighting.tau == 0.7


def test_straight_through_learns_where_to_look_and_a_draw_does_not():
    """With straight-through, a word's loss reaches the scores of all places, drawn or not."""
    for name, learns in (("straight-through", True), ("hard", False)):
        model, source, target = captioner(name, settle=0, sampled=1.0), pictures(3), captions([4, 6, 1])
        model.decoder.train()
        hidden, _ = model.decode(model.encode(source), target)
        (gained,) = torch.autograd.grad(
            hidden[target.real].square().sum(), model.decoder.cross.score.v, allow_unused=True
        )
        assert (gained is not None and bool(gained.any())) == learns


def test_nothing_is_drawn_at_first_and_more_and_more_later():
    model = captioner("hard", settle=10, sampled=0.8)
    shares = []
    for batches in (0, 10, 15, 20, 99):
        model.decoder.batches.fill_(batches)
        shares.append(float(model.decoder.share))
    assert shares == pytest.approx([0.0, 0.0, 0.4, 0.8, 0.8])
    model.decoder.train()
    model.decoder.batches.fill_(10)
    _, extra = model.decode(model.encode(pictures(3)), captions([4, 6, 1]))
    assert not extra["sampled"].any()


class Third(Score):
    """A score that always favours the third place."""

    def compare(self, query, keys, first=0):
        scores = query.new_zeros(*query.shape[:-1], keys.shape[-2])
        scores[..., 2] = 80
        return scores


@pytest.mark.parametrize("name", ["soft", "hard", "straight-through"])
def test_a_score_of_ones_own_is_what_is_computed_in_training_too(name):
    """In training, soft attention is written out and places are sampled from the scores."""
    model, target = captioner(name, settle=0, sampled=1.0), captions([4, 2])
    model.decoder.cross.score = Third()
    memory = model.encode(pictures(2))
    hidden, _ = model.decode(memory, target)
    trained, extra = model.train().decode(memory, target)
    agree(hidden, trained)
    agree(extra["weights"][..., 2], torch.ones(2, 4, dtype=torch.float64))
    with use_backend("dense"):
        agree(model.eval().decode(memory, target)[0], hidden)


def test_a_weighting_of_ones_own_is_what_is_computed_in_training_too():
    model, target = captioner("hard", settle=0), captions([4, 2])
    memory = model.encode(pictures(2))
    model.decoder.cross.weighting = Softmax(temperature=1e9)
    weights = model.train().decode(memory, target)[1]["weights"]
    agree(weights, torch.full_like(weights, 1 / weights.shape[-1]), rtol=1e-6, atol=1e-6)


# ---- inputs and attributes of either decoder


every_case = pytest.mark.parametrize("name", CASES)


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


def test_without_attention_only_the_attention_is_missing():
    count = {name: sum(p.numel() for p in captioner(name).parameters()) for name in ("soft", "none")}
    attention = sum(p.numel() for p in captioner("soft").decoder.cross.parameters())
    assert count["soft"] - count["none"] == attention
    assert not [module for module in captioner("none").modules() if isinstance(module, Attentive)]


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


# ---- the captioning Transformer: its places have positions


def test_a_transformer_sees_where_places_are():
    """A single-colour picture is the same everywhere except at its edges: positions distinguish its places."""
    model, source = captioner("transformer"), pictures(1)
    features = model.decoder.project(model.backbone(source.pixels).movedim(1, -1)).movedim(-1, 1)
    wanted = Sinusoidal2D(8)(features).flatten(-2).mT
    agree(model.encode(source).states, wanted)


def test_a_packed_caption_is_refused_where_it_cannot_be_read():
    model, target = captioner("transformer"), captions([2, 3]).pack()
    with pytest.raises(ShapeError, match="packed"):
        model(pictures(2), target)
