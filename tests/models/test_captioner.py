"""Captioners: the contract for pictures, and the paper's formulas one word and one place at a time."""

import pytest
import torch
from models.pictured import CASES, captioner, captions, pictures
from oracles import agree

from regard.attention import Attentive, Sinusoidal2D
from regard.errors import ShapeError
from regard.models.config import CaptionerConfig
from regard.models.contract import Pictures
from regard.models.kinds import KINDS, build

every_case = pytest.mark.parametrize("name", CASES)
LSTMS = [name for name in CASES if name != "transformer"]


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
