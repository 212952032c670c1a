"""Copy: a sequence of symbols, as it is. The plainest test of a memory.

Options: see `sequences`. Symbols are letters: a to z, then aa, ab and so on.
"""

from regard_corpora.sequences import Options, corpus

__all__ = ["Options", "draw", "every"]

draw, every = corpus(lambda sequence: list(range(len(sequence))))
