"""Reverse: a sequence of symbols, backwards. Where to look is known exactly: word i is word n - 1 - i.

Options: see `sequences`. Symbols are letters: a to z, then aa, ab and so on.
"""

from regard_corpora.sequences import Options, corpus

__all__ = ["Options", "draw", "every"]

draw, every = corpus(lambda sequence: list(range(len(sequence) - 1, -1, -1)))
