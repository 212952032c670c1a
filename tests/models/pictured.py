"""Small captioners of every kind, and pictures for them."""

import torch

from regard.models.captioner import CaptionerModel
from regard.models.config import CaptionerConfig
from regard.models.contract import Pictures, Tokens

WORDS = 13
CASES = {
    "soft": {},
    "soft-ungated": {"gate": False},
    "soft-two-layers": {"layers": 2},
    "hard": {"attention": "hard"},
    "straight-through": {"attention": "straight-through", "tau": 0.7},
    "none": {"attention": "none"},
    "transformer": {"decoder": "transformer", "size": 8, "heads": 2, "layers": 2, "hidden": 12},
}
ATTENTIVE = [name for name in CASES if name != "none"]


def captioner(name: str = "soft", words: int = WORDS, scale: float | None = 0.5, **options) -> CaptionerModel:
    """Return a float64 model with random parameters, even initial zeros and ones; without a scale, as initialised."""
    small = {"channels": 4, "stages": 2, "blocks": 1, "size": 5, "embedding": 3, "hidden": 7, "dropout": 0.0}
    model = CaptionerModel(CaptionerConfig(**{**small, **CASES[name], **options}), 0, words).double().eval()
    if scale is not None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=scale)
    return model


def pictures(count: int = 3, height: int = 8, width: int = 12) -> Pictures:
    return Pictures(torch.randint(256, (count, 3, height, width), dtype=torch.uint8))


def captions(lengths: list[int], words: int = WORDS, room: int = 0) -> Tokens:
    """Draw random words, in the padding too."""
    return Tokens.of(torch.randint(words, (len(lengths), max(lengths) + room)), torch.tensor(lengths))
