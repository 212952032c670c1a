"""The beam tree: what a search considered, step by step, and which way led to the output."""

from collections.abc import Sequence

from regard.data.tokenizer import END, Tokenizer
from regard.decoding import outputs
from regard.inspection.collect.exhibit import Candidate, Tree

__all__ = ["tree_of"]


def tree_of(
    steps: Sequence[Sequence[outputs.Candidate]], output: Sequence[int], tokenizer: Tokenizer, beam: int
) -> Tree:
    """The noted steps of a search in pieces; those on the way to `output` are marked."""
    way, totals, made = path(steps, output), {0: 0.0}, []
    for number, step in enumerate(steps):
        pieces = tokenizer.pieces([each.token for each in step])
        made.append(
            tuple(
                Candidate(
                    each.parent,
                    piece,
                    each.log_prob - totals[each.parent],
                    each.log_prob,
                    each.fate,
                    each.row,
                    way.get(number) == place,
                )
                for place, (each, piece) in enumerate(zip(step, pieces, strict=True))
            )
        )
        totals = {each.row: each.log_prob for each in step if each.row is not None}
    return Tree(beam, tuple(made))


def path(steps: Sequence[Sequence[outputs.Candidate]], output: Sequence[int]) -> dict[int, int]:
    """The place of the candidate, step by step, on the way to the output; none where it was not found on it."""
    if len(output) >= len(steps):
        return {}
    kept = [{each.row: place for place, each in enumerate(step) if each.row is not None} for step in steps]
    for place, last in enumerate(steps[len(output)]):
        if last.token != END or last.fate != "finished":
            continue
        way, parent = {len(output): place}, last.parent
        for number in range(len(output) - 1, -1, -1):
            at = kept[number][parent]
            if steps[number][at].token != output[number]:
                break
            way[number], parent = at, steps[number][at].parent
        else:
            return way
    return {}
