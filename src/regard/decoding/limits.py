"""Limits of a search: the tokens that may come next, the length of an output, and memory.

The next token is never padding; END comes neither too early nor too late; a forced prefix comes first; and on request
no n-gram comes twice.
"""

# s sentences · r rows of a sentence · v vocabulary · t tokens so far
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import State, buffers
from regard.data import END, PAD, START
from regard.decoding.options import Options
from regard.errors import ArgumentError
from regard.machine import amount, memory
from regard.models import Model, Pictures, Tokens

FREE = -1  # behind a prefix
ROOM = 20  # tokens beyond twice the source's, and beyond a prefix, unless a number is given
CAPTION = 60  # the most tokens of a caption, unless another number is given


class Constraints:
    """The rules for the sentences of one search; scores of what they forbid become -∞."""

    def __init__(
        self,
        most: Int[Tensor, " s"],
        prefixes: Sequence[Sequence[int]] = (),
        shortest: int | Int[Tensor, " s"] = 0,
        no_repeat: int = 0,
    ):
        self.most, self.shortest, self.no_repeat = most, shortest, no_repeat
        lengths = [len(prefix) for prefix in prefixes]
        self.forced = max(lengths, default=0)  # steps until the last prefix is over
        self.alike = min(lengths, default=0)  # steps for which all sentences are within theirs
        self.prefix = torch.full((len(most), self.forced), FREE, device=most.device)
        for i, prefix in enumerate(prefixes):
            self.prefix[i, : len(prefix)] = torch.tensor([*prefix], dtype=torch.long, device=most.device)
        self.first_limit = int(most.min()) if len(most) else 0  # no sentence is at its limit before this step

    def check(self, vocabulary: int) -> None:
        """Refuse a prefix with tokens that do not exist."""
        largest = int(self.prefix.max()) if self.prefix.numel() else 0
        if largest >= vocabulary:
            raise ArgumentError(
                f"prefix: token {largest} given, expected less than {vocabulary}, the vocabulary's size"
            )

    def take(self, keep: Int[Tensor, " k"]) -> None:
        """Keep these sentences alone."""
        self.most, self.prefix = self.most[keep], self.prefix[keep]
        if isinstance(self.shortest, Tensor):
            self.shortest = self.shortest[keep]

    def shift(self, steps: int) -> None:
        """Count steps from another beginning: limits and prefixes come that much later, or earlier."""
        self.most, self.prefix = self.most + steps, F.pad(self.prefix, (steps, 0), value=FREE)
        self.shortest, self.first_limit = self.shortest + steps, self.first_limit + steps
        self.forced, self.alike = self.prefix.shape[1], 0

    def join(self, other: "Constraints") -> None:
        """Add the rules of other sentences, which count from the same beginning."""
        each, self.forced = (self, other), max(self.forced, other.forced)
        self.shortest = torch.cat([torch.as_tensor(one.shortest).expand(len(one.most)) for one in each])
        self.prefix = torch.cat([F.pad(one.prefix, (0, self.forced - one.prefix.shape[1]), value=FREE) for one in each])
        self.most, self.first_limit = torch.cat([self.most, other.most]), min(self.first_limit, other.first_limit)

    def limit_(self, scores: Float[Tensor, "s r v"], history: Int[Tensor, "s r t"]) -> None:
        """Forbid, in place, what the rules forbid as the next token; a prefix and a limit come before the rest."""
        step = history.shape[-1]
        forced = self.prefix[:, step] if step < self.forced else None
        if step >= self.first_limit:
            ended = torch.where(step >= self.most, END, FREE)
            forced = ended if forced is None else torch.where(ended == END, ended, forced)
        early = step < self.shortest  # one for all, or one each
        ends = scores[..., END].clone() if (early if isinstance(early, bool) else bool(early.any())) else None
        only = (
            None
            if forced is None
            else scores.gather(-1, forced.clamp(min=0)[:, None, None].expand(*history.shape[:2], 1))
        )
        scores[..., PAD] = scores[..., START] = -torch.inf
        if self.no_repeat and step >= self.no_repeat:
            self.forbid_repeats_(scores, history)
        if ends is not None:
            blocked = early if isinstance(early, bool) else early[:, None]
            scores[..., END] = ends.masked_fill(torch.as_tensor(blocked, device=ends.device), -torch.inf)
            if self.no_repeat:  # where nothing else is left, it has to end
                scores[..., END] = torch.where(scores.amax(-1) == -torch.inf, ends, scores[..., END])
        if forced is not None and only is not None:
            forcing = (forced != FREE)[:, None, None]
            scores.masked_fill_(forcing, -torch.inf)
            place = forced.clamp(min=0)[:, None, None].expand_as(only)
            scores.scatter_(-1, place, torch.where(forcing, only, scores.gather(-1, place)))

    def forbid_repeats_(self, scores: Float[Tensor, "s r v"], history: Int[Tensor, "s r t"]) -> None:
        """Forbid tokens that would repeat an n-gram; END is always allowed."""
        n = self.no_repeat
        earlier = history.unfold(-1, n, 1)  # [s r t-n+1 n]
        now = history[..., history.shape[-1] - n + 1 :]  # the n-1 before the next
        again = (earlier[..., :-1] == now[..., None, :]).all(-1)
        tokens = torch.where(again, earlier[..., -1], PAD)  # padding is forbidden already
        scores.scatter_(-1, tokens, -torch.inf)


def check_memory(options: Options, row: int, sentences: int, steps: int, vocabulary: int = 0) -> None:
    """Refuse more hypotheses, or longer ones, than fit into this machine's memory, at `row` bytes each."""
    name, rows = ("nbest", options.nbest) if options.sample else ("beam", options.beam)
    room = memory()

    def needed(rows: int) -> int:
        return sentences * search_bytes(rows, 1 if options.sample else options.groups, row, steps, vocabulary)

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
        f"{amount(needed(rows))}, but this machine has {amount(room)}; {expected}"
    )


def row_bytes(state: State, sentences: int) -> int:
    """Count the bytes of one hypothesis' state, where there is one per sentence."""
    return sum(buffer.nbytes for part in state.row.values() for buffer in buffers(part)) // sentences


def search_bytes(rows: int, groups: int, row: int, steps: int, vocabulary: int) -> int:
    """Count the bytes of one sentence's hypotheses: their states, scores, candidates and tokens."""
    each = -(-rows // groups)
    candidates = min(2 * each + (groups - 1) * each, vocabulary)
    scores, tokens = 3 * 4 * vocabulary, 3 * 8 * steps
    compared = each * candidates * rows if groups > 1 else 0  # with what other groups said
    return rows * (row + scores + tokens + 2 * 12 * candidates) + compared


def output_limits(
    model: Model,
    source: Tokens | Pictures,
    options: Options | Sequence[Options],
    prefixes: Sequence[Sequence[int]] | None = None,
) -> Int[Tensor, " s"]:
    """The most tokens of each output, without END; the options are one for all, or one each."""
    pictures = isinstance(source, Pictures)
    device = source.pixels.device if isinstance(source, Pictures) else source.ids.device
    lengths = source.lengths.tolist()
    begun = prefixes if prefixes is not None and len(prefixes) == len(lengths) else [()] * len(lengths)
    each = [options] * len(lengths) if isinstance(options, Options) else options
    most = [
        output_limit(model, None if pictures else n, own, len(p))
        for n, own, p in zip(lengths, each, begun, strict=True)
    ]
    return torch.tensor(most, dtype=torch.long, device=device)


def output_limit(model: Model, length: int | None, options: Options, prefix: int = 0) -> int:
    """Return the most tokens, without END, of the output for a source of so many tokens or a picture (None).

    Where no number is given, a prefix leaves room for twenty more.
    """
    most = options.longest
    if most is None:
        most = CAPTION if length is None else 2 * length + ROOM
        most = max(most, prefix + ROOM) if prefix else most
    most = max(most, options.shortest)
    return most if model.limit is None else min(most, model.limit - 1)


def check_prefixes(prefixes: Sequence[Sequence[int]] | None, most: Int[Tensor, " s"]) -> None:
    """Refuse prefixes that do not fit."""
    if prefixes is None:
        return
    if len(prefixes) != len(most):
        raise ArgumentError(f"prefixes: {len(prefixes)} given, expected one for each of {len(most)} sentences")
    for prefix, limit in zip(prefixes, most.tolist(), strict=True):
        check_prefix(prefix, limit)


def check_prefix(prefix: Sequence[int], limit: int) -> None:
    """Refuse a prefix that does not fit into an output of at most `limit` tokens."""
    wrong = [token for token in prefix if token <= END]
    if wrong:
        raise ArgumentError(f"prefix: {wrong[0]} given, expected tokens of words: padding, start and end are none")
    if len(prefix) > limit:
        raise ArgumentError(
            f"prefix: {len(prefix)} tokens given, expected at most {limit}, the limit of its output (longest)"
        )


def select_prefixes(prefixes: Sequence[Sequence[int]] | None, numbers: list[int]) -> list[Sequence[int]] | None:
    """The prefixes of some sentences."""
    return None if prefixes is None else [prefixes[i] for i in numbers]
