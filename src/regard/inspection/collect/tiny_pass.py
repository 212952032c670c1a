"""A small input for a model of any kind, and one pass over it: teacher forced, or classifying."""

from collections.abc import Iterator

import torch
from torch import nn

from regard.inspection.collect.trace import Trace, kind_of, trace
from regard.models import Documents, Model, Pictures, Source, Tokens

PIXELS = 32  # a side of the picture that is drawn of: small, and halved five times at most
PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)


@torch.no_grad()
def run_tiny(model: Model, source: Source | None = None, target: Tokens | None = None) -> Trace:
    """Trace a pass over a source and a target; where none is given, over a small one of the kind that the model reads.

    Sizes are numbers that no parameter has, so that a batch or a length is known by its size wherever it stands.
    """
    letters = iter(free_sizes(model))
    device = next(model.parameters()).device
    sizes: dict[str, int] = {}
    if source is None:
        source = make_source(model, letters, sizes)
    config = getattr(model, "config", None)
    classifies = type(model).decode is Model.decode or not getattr(config, "writes", True)
    # What may be either, and writes, reads no source unless it says so.
    alone = hasattr(config, "writes") and not classifies and not getattr(config, "reads_source", False)
    if target is None and not classifies:
        rows = len(source.lengths)
        n = min(next(letters), model.limit or PRIMES[-1])
        target, sizes["n"] = make_tokens(model, rows, n), n
    was_training = model.training
    model.eval()
    try:
        with trace(model) as recorder:
            if not alone:
                words = source.words if isinstance(source, Documents) else source
                recorder.add_input("source", words.pixels if isinstance(words, Pictures) else words.ids, "source")
            memory = model.encode(source.to(device))
            if classifies:
                scores = model.classify(memory)
            else:
                assert target is not None
                recorder.phase = "decoder"
                recorder.add_input("target", target.ids, "target")
                scores = model.output(model.decode(memory, target)[0])
            if model.projects:
                torch.softmax(scores, -1)
    finally:
        model.train(was_training)
    recorder.sizes = sizes
    return recorder


def free_sizes(model: nn.Module) -> list[int]:
    """Choose primes that are neither the size of a parameter nor a number of the configuration."""
    sizes = {size for parameter in model.parameters() for size in parameter.shape}
    options = getattr(getattr(model, "config", None), "__dict__", {})
    sizes |= {value for value in options.values() if isinstance(value, int)}
    return [prime for prime in PRIMES if prime not in sizes and prime + 1 not in sizes] + list(PRIMES)


def make_source(model: Model, letters: Iterator[int], sizes: dict[str, int]) -> Source:
    """Make a small source of what the kind reads, of unequal lengths, so that there is padding."""
    rows = sizes["b"] = next(letters)
    kind = kind_of(model)
    reads = "text" if kind is None else kind.reads
    if reads == "pictures":
        generator = torch.Generator().manual_seed(0)
        pixels = torch.randint(256, (rows, 3, PIXELS, PIXELS), generator=generator, dtype=torch.uint8)
        return Pictures(pixels.to(next(model.parameters()).device))
    if reads == "documents":
        sizes["l"], sizes["w"] = next(letters), next(letters)
        counts = torch.full((rows,), sizes["l"])
        counts[-1] -= 1
        sizes["s"] = int(counts.sum())
        return Documents(make_tokens(model, sizes["s"], sizes["w"]), counts.to(next(model.parameters()).device))
    known = [length for each in model.modules() if isinstance(length := getattr(each, "length", None), int)]
    sizes["m"] = min(next(letters), model.limit or PRIMES[-1], *known)  # a location score knows so many positions
    return make_tokens(model, rows, sizes["m"])


def make_tokens(model: nn.Module, rows: int, length: int) -> Tokens:
    """Make rows of tokens that every vocabulary of the model has, the last row one shorter."""
    vocabulary = min((each.num_embeddings for each in model.modules() if isinstance(each, nn.Embedding)), default=4)
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(min(4, vocabulary - 1), vocabulary, (rows, length), generator=generator)
    lengths = torch.full((rows,), length)
    lengths[-1] = max(1, length - 1)
    return Tokens.of(ids.to(device), lengths.to(device))
