"""The Transformer that writes captions: its places have positions."""

import pytest
from models.pictured import captioner, captions, pictures
from oracles import agree

from regard.attention import Sinusoidal2D
from regard.errors import ShapeError


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
