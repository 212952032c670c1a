"""Sort: a sequence of numbers, in ascending order. Equal numbers keep their order, so that each link is known.

Options: see `sequences`. Symbols are numbers, 0 to symbols - 1, and are sorted as such: 9 before 10.
"""

from regard_corpora.sequences import Options, corpus

__all__ = ["Options", "draw", "every"]

draw, every = corpus(
    lambda sequence: sorted(range(len(sequence)), key=sequence.__getitem__),
    lambda count: [str(n) for n in range(count)],
)
