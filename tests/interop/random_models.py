"""Transformers whose every weight is drawn, with a word tokenizer, and CTranslate2's copy of them."""

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
    """A small Transformer of which no weight is what it was at first, so that none can be left behind unseen."""
    config = TransformerConfig(**{"size": 24, "heads": 3, "layers": 2, "hidden": 20, "length": 64, **options})
    torch.manual_seed(seed)
    model = kinds.build("transformer", config, SIZE, SIZE).eval()
    assert isinstance(model, TransformerModel)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * spread)
    return model


def draw_sources(seed: int, count: int = 24, longest: int = 9) -> list[list[int]]:
    """Sentences of all lengths, one of them empty."""
    generator = torch.Generator().manual_seed(seed)
    lengths = [0, *torch.randint(1, longest + 1, (count - 1,), generator=generator).tolist()]
    return [torch.randint(4, SIZE, (n,), generator=generator).tolist() for n in lengths]


def both_engines(
    folder: Path, model: TransformerModel, alignment: AlignmentSettings | None = None, quantize: str = "float32"
) -> tuple[ModelEngine, CTranslate2Engine]:
    """The model under Regard's search, and under CTranslate2's."""
    settings = alignment or AlignmentSettings("decoder.blocks.1.cross")
    head = AlignmentHead(int(settings.view.split(".")[2]), settings.head)
    pieces, positions = pieces_of(TOKENIZERS.source), position_count(model.config, 100)
    convert(model, folder, pieces, pieces, positions=positions, alignment=head, quantize=quantize)
    translator = library().Translator(str(folder), compute_type="default", intra_threads=1)
    mine = ModelEngine(model, TOKENIZERS, torch.device("cpu"))
    return mine, CTranslate2Engine(translator, TOKENIZERS, model, settings)
