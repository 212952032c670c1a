"""What a search takes of memory, said before its hypotheses are there."""

# r rows of a sentence · k candidates of a row · v vocabulary
from regard.attention.state import State, buffers
from regard.decoding.options import Options
from regard.errors import ArgumentError
from regard.machine import amount, memory

__all__ = ["check_search", "row_bytes"]


def check_search(options: Options, row: int, sentences: int, steps: int, vocabulary: int = 0) -> None:
    """Refuse more hypotheses, or longer ones, than this machine has room for: the state of each takes `row` bytes."""
    name, rows = ("nbest", options.nbest) if options.sample else ("beam", options.beam)
    room = memory()

    def needed(rows: int) -> int:
        return sentences * bytes_of(rows, 1 if options.sample else options.groups, row, steps, vocabulary)

    if room is None or needed(rows) <= room:
        return
    fitting, above = 0, rows  # the most that fit lie between them
    while above - fitting > 1:
        middle = (fitting + above) // 2
        fitting, above = (middle, above) if needed(middle) <= room else (fitting, middle)
    together = "" if sentences == 1 else f" for {sentences:,} sentences at a time (batch_tokens)"
    expected = f"expected at most {fitting:,} here" if fitting else "make longest or shortest smaller"
    raise ArgumentError(
        f"{name}: {rows:,} given{together}, with outputs of up to {steps:,} tokens, which would take "
        f"{amount(needed(rows))}, and this machine has {amount(room)}; {expected}"
    )


def row_bytes(state: State, sentences: int) -> int:
    """Bytes that the state of one hypothesis takes, where there is one a sentence."""
    return sum(buffer.nbytes for part in state.row.values() for buffer in buffers(part)) // sentences


def bytes_of(rows: int, groups: int, row: int, steps: int, vocabulary: int) -> int:
    """Bytes that the hypotheses of one sentence take: their states, scores, candidates and tokens."""
    each = -(-rows // groups)
    candidates = min(2 * each + (groups - 1) * each, vocabulary)
    scores, tokens = 3 * 4 * vocabulary, 3 * 8 * steps
    compared = each * candidates * rows if groups > 1 else 0  # with what other groups said
    return rows * (row + scores + tokens + 2 * 12 * candidates) + compared
