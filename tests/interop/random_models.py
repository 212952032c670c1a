"""Transformers with random weights and a word tokenizer, and their copies in CTranslate2."""

from pathlib import Path
from typing import Any

import torch

from regard.alignment import AlignmentSettings
from regard.data import Tokenizers, train
from regard.interop.ctranslate2 import AlignmentHead, convert, library, pieces_of, position_count
from regard.interop.exported import CTranslate2Engine
from regard.models import TransformerConfig, TransformerModel, kinds
from regard.tasks import ModelEngine

WORDS = [f"w{i}" for i in range(36)]
TOKENIZERS = Tokenizers(train([" ".join(WORDS)] * 2, "word"))
SIZE = TOKENIZERS.target.size


def draw_model(seed: int = 0, spread: float = 0.2, **options: Any) -> TransformerModel:
    """Return a small Transformer with no weight at its initial value, so that a missing weight shows."""
    config = TransformerConfig(**{"size": 24, "heads": 3, "layers": 2, "hidden": 20, "length": 64, **options})
    torch.manual_seed(seed)
    model = kinds.build("transformer", config, SIZE, SIZE).eval()
    assert isinstance(model, TransformerModel)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * spread)
    return model


def draw_sources(seed: int, count: int = 24, longest: int = 9) -> list[list[int]]:
    """Draw sentences of all lengths, one of them empty."""
    generator = torch.Generator().manual_seed(seed)
    lengths = [0, *torch.randint(1, longest + 1, (count - 1,), generator=generator).tolist()]
    return [torch.randint(4, SIZE, (n,), generator=generator).tolist() for n in lengths]


def both_engines(
    folder: Path, model: TransformerModel, alignment: AlignmentSettings | None = None, quantize: str = "float32"
) -> tuple[ModelEngine, CTranslate2Engine]:
    """Return the model with Regard's search, and with CTranslate2's."""
    settings = alignment or AlignmentSettings("decoder.blocks.1.cross")
    head = AlignmentHead(int(settings.view.split(".")[2]), settings.head)
    pieces, positions = pieces_of(TOKENIZERS.source), position_count(model.config, 100)
    convert(model, folder, pieces, pieces, positions=positions, alignment=head, quantize=quantize)
    translator = library().Translator(str(folder), compute_type="default", intra_threads=1)
    mine = ModelEngine(model, TOKENIZERS, torch.device("cpu"))
    return mine, CTranslate2Engine(translator, TOKENIZERS, model, settings)
