"""Search: a model's states, step by step, become token sequences."""

# b sentences · m source positions · r rows
import torch

from regard.data.tokenizer import END, PAD, START
from regard.models.contract import Model, Tokens

__all__ = ["greedy", "greedy_in_batches", "tokens_of"]


@torch.no_grad()
def greedy(model: Model, source: Tokens, limit: int | None = None) -> list[list[int]]:
    """The likeliest next token, again and again, up to END, which is left out.

    `limit` is the most tokens of a sentence; by default twice its source's and twenty more. Sentences that are finished
    leave the batch.
    """
    lengths = source.lengths
    longest = int(lengths.max()) if len(lengths) else 0
    size = 2 * longest + 20 if limit is None else limit
    size = size if model.limit is None else min(size, model.limit)
    most = (2 * lengths + 20 if limit is None else torch.full_like(lengths, limit)).to(source.ids.device)
    state = model.start(model.encode(source), 1, size)
    rows = torch.arange(len(lengths), device=source.ids.device)  # the sentence of each row that is not finished
    said = torch.full((len(lengths), size), END, device=rows.device)
    tokens = torch.full_like(rows, START)
    for step in range(size):
        if not len(rows):
            break
        logits, state = model.step(tokens, state)
        logits[:, [PAD, START]] = -torch.inf
        tokens = logits.argmax(-1)
        said[rows, step] = tokens
        going = (tokens != END) & (step + 1 < most[rows])
        left = int(going.sum())
        if left == 0:
            break
        if left < len(rows):
            keep = going.nonzero()[:, 0]
            state, rows, tokens = state.take(keep), rows[keep], tokens[keep]
    return [cut(row) for row in said.tolist()]


def cut(tokens: list[int]) -> list[int]:
    """What stands before the first END."""
    return tokens[: tokens.index(END)] if END in tokens else tokens


def tokens_of(rows: list[list[int]], device: torch.device | str = "cpu") -> Tokens:
    """Sentences of token numbers as a padded batch."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), max(1, int(lengths.max()))), PAD)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row, dtype=torch.long)
    return Tokens.of(ids.to(device), lengths.to(device))


def greedy_in_batches(
    model: Model, sources: list[list[int]], device: torch.device | str, budget: int = 4096
) -> list[list[int]]:
    """Greedy search for many sentences, those of like length together; the answers in the order given."""
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    answers: list[list[int]] = [[] for _ in sources]
    while order:
        rows = max(1, budget // (len(sources[order[0]]) + 1))
        chunk, order = order[:rows], order[rows:]
        real = [i for i in chunk if sources[i]]  # nothing to read, nothing to say
        for i, answer in zip(
            real, greedy(model, tokens_of([sources[i] for i in real], device)) if real else [], strict=True
        ):
            answers[i] = answer
    return answers
