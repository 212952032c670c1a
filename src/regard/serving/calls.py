"""What workers are asked to call with their run, between two turns of searches.

These are functions at the top of a module, as a worker may be in another process: it finds them by their names.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from regard.decoding import batches
from regard.inspection import exhibit_of, page_parts
from regard.run import Run, surround_run
from regard.tasks import Translation, translate

T = TypeVar("T")


def call_between(run: Run, function: Callable[[Run], T], around: Mapping[str, tuple[str, ...]]) -> T:
    """Call a function with the run as it is for other languages."""
    return function(surround_run(run, around))


def list_alignments(run: Run, given: Any) -> list[list[Translation]]:
    """The translations of some outputs, with their alignments."""
    return list(translate.add_alignments(run, *given))


def score_tokens(run: Run, sources: list[list[int]], targets: list[list[int]]) -> list[batches.Scored]:
    """The log-probabilities of the tokens of each target."""
    return run.engine.score(sources, targets)


def collect_page(run: Run, item: str | np.ndarray, target: str | None, table: dict[str, Any]) -> dict[str, Any]:
    """The data of a page of one item."""
    return page_parts.page_data([exhibit_of(run, item, target=target, **table)])


def list_links(run: Run, pairs: list[tuple[str, str]]) -> list[Any]:
    """The links of each pair of texts."""
    return list(run.links(pairs))
