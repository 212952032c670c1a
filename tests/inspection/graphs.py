"""Small models for graphs, and what a box of a graph reads."""

import torch

from regard.inspection.collect.graph import Graph
from regard.models import Model, build, read_model_config


def make(kind: str, vocabulary: int = 20, **options: object) -> Model:
    torch.manual_seed(1)
    config = read_model_config({"kind": kind, "size": 8, **options})
    return build(kind, config, vocabulary, vocabulary).eval()


def stack(kind: str = "transformer", **options: object) -> Model:
    """A model of blocks."""
    return make(kind, **{"heads": 2, "layers": 2, "hidden": 12, **options})


def reads(graph: Graph, name: str) -> list[str]:
    """The boxes that a box reads."""
    return [edge.source for edge in graph.edges if edge.target == name]
