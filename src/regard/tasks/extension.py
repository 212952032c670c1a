"""Extending the vocabulary of a run that another begins with: which pieces, and which weights have a row for each.

Weights are found by how a model's shapes answer to the sizes of its vocabularies, and by no names: so every kind with
tables of pieces is served, one of your own, too.
"""

# v pieces before · w pieces after

from collections.abc import Mapping

import torch
from torch import Tensor

from regard.config import visible
from regard.data import PAD, Tokenizers, training_texts, vocabulary_extension
from regard.errors import ArgumentError, ConfigError
from regard.models import build
from regard.tasks.settings import Settings, check_extension
from regard.tasks.task import vocabulary_sizes
from regard.training import Prediction, weight_files

SHOWN = 10  # new pieces that are named
STEP = 8  # pieces by which a vocabulary is made larger to see which weights grow with it
NEVER = -1e4  # the output bias of a piece that is never written, as finite as half precision needs
Shapes = Mapping[str, tuple[int, ...]]


def extend_run(settings: Settings, tokenizers: Tokenizers | None, *, based: bool) -> vocabulary_extension.Extension:
    """Add the pieces that the settings name to the tokenizers of a run to begin with.

    `based` says that there is such a run: a new vocabulary has nothing to be added to.
    """
    check_extension(settings, based=based)
    own = settings.tokenizer
    if tokenizers is None:
        raise ConfigError("tokenizer.extend", f'given with task = "{settings.task}", which has no vocabulary')
    words: tuple[list[str], list[str]] = ([], [])
    if own.extend_words:
        words = vocabulary_extension.frequent_words(tokenizers, *training_texts(settings.data, own), own.extend_words)
    tags = {corpus.tag for corpus in settings.data.training if corpus.tag}
    return vocabulary_extension.extend_tokenizers(tokenizers, own.extend, around=own.around, tags=tags, words=words)


def describe_extension(extension: vocabulary_extension.Extension) -> str:
    """Return what was added, in a line."""
    names = extension.names
    listed = ", ".join(visible(name) for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    pieces = f"{len(names):,} {'piece' if len(names) == 1 else 'pieces'}"
    return f"Added {pieces} to the vocabulary{': ' * bool(names)}{listed}{more}"


@torch.no_grad()
def extend_rows(
    weights: Mapping[str, Tensor], tables: Mapping[str, vocabulary_extension.ExtendedSide]
) -> dict[str, Tensor]:
    """Return weights in which the named tables have a row for every piece of the extended side.

    A new piece begins as the mean of the pieces that its text had before, in every table: the model reads and writes it
    about as it did them. (Hewitt 2021, "Initializing new word embeddings for pretrained language models", begins with
    the mean of all rows.) All other rows stay as they are, to the last bit.
    """
    extended = dict(weights)
    for name in weights.keys() & tables.keys():
        table, side = weights[name], tables[name]  # a matrix [v …], or a bias
        longer = table.new_empty(side.after.size, *table.shape[1:])
        longer[: len(table)] = table
        for i, pieces in side.pieces.items():
            longer[i] = table[torch.tensor(pieces)].double().mean(0)
        if side.fillers:
            longer[torch.tensor(side.fillers)] = table[PAD] if table.ndim > 1 else NEVER
        extended[name] = longer
    return extended


def find_tables(
    settings: Settings, extension: vocabulary_extension.Extension, labels: tuple[str, ...]
) -> dict[str, vocabulary_extension.ExtendedSide]:
    """Return the weights that have a row for every piece, by name, each with its side."""
    before, row = extension.before, settings.row
    sizes = vocabulary_sizes(settings, before, labels)
    shapes = shapes_of(settings, *sizes)
    more = STEP if row.has_source and sizes[0] else 0, 0 if row.labels else STEP  # labels are no pieces

    def grown(source: int, target: int) -> list[str]:
        size = sizes[0] + (source if row.has_source else target), sizes[1] + target
        larger = shapes_of(settings, *size)
        names = [name for name, shape in larger.items() if shape != shapes.get(name)]
        for name in names:  # other changes than more rows cannot be served
            few, many = shapes.get(name, ()), larger[name]
            if len(few) != len(many) or many[1:] != few[1:] or many[0] - few[0] != STEP:
                raise ConfigError(
                    "tokenizer.extend",
                    f"given, but a model of kind {settings.kind} has weights without a row per piece, such as {name}",
                )
        return names

    if all(more) and not before.joint:
        try:
            return dict.fromkeys(grown(more[0], 0), extension.source) | dict.fromkeys(
                grown(0, more[1]), extension.target
            )
        except ArgumentError:  # one table for both sides
            pass
    return dict.fromkeys(grown(*more), extension.source if more[0] else extension.target)


def shapes_of(settings: Settings, source: int, target: int) -> Shapes:
    """Return the shapes of a model's weights with vocabularies of these sizes, by their names in a checkpoint."""
    with torch.random.fork_rng(devices=[]):
        model = Prediction(build(settings.kind, settings.model, source, target))
    return {name: tuple(tensor.shape) for name, tensor in weight_files.weights_of(model).items()}
