"""Limits of a search: the allowed next tokens, the length of outputs, and memory.

PAD and START are never allowed; END must be neither too early nor too late; a forced prefix comes first; with
`no_repeat` no n-gram occurs twice.
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

FREE = -1  # no forced token: the steps after a prefix
ROOM = 20  # default limit: this many tokens more than twice the source's; at least this many after a prefix
CAPTION = 60  # default limit of a caption's tokens


class Constraints:
    """The constraints on the sentences of one search; they set the scores of forbidden tokens to -∞."""

    def __init__(
        self,
        most: Int[Tensor, " s"],
        prefixes: Sequence[Sequence[int]] = (),
        shortest: int | Int[Tensor, " s"] = 0,
        no_repeat: int = 0,
    ):
        self.most, self.shortest, self.no_repeat = most, shortest, no_repeat
        lengths = [len(prefix) for prefix in prefixes]
        self.forced = max(lengths, default=0)  # the length of the longest prefix
        self.alike = min(lengths, default=0)  # the length of the shortest prefix
        self.prefix = torch.full((len(most), self.forced), FREE, device=most.device)
        for i, prefix in enumerate(prefixes):
            self.prefix[i, : len(prefix)] = torch.tensor([*prefix], dtype=torch.long, device=most.device)
        self.first_limit = int(most.min()) if len(most) else 0  # no sentence reaches its limit before this step

    def check(self, vocabulary: int) -> None:
        """Raise an error for a prefix with tokens outside the vocabulary."""
        largest = int(self.prefix.max()) if self.prefix.numel() else 0
        if largest >= vocabulary:
            raise ArgumentError(
                f"prefix: token {largest} given, expected less than {vocabulary}, the vocabulary's size"
            )

    def take(self, keep: Int[Tensor, " k"]) -> None:
        """Keep the constraints of these sentences only."""
        self.most, self.prefix = self.most[keep], self.prefix[keep]
        if isinstance(self.shortest, Tensor):
            self.shortest = self.shortest[keep]

    def shift(self, steps: int) -> None:
        """Shift all limits and prefixes later by `steps`, or earlier if it is negative."""
        self.most, self.prefix = self.most + steps, F.pad(self.prefix, (steps, 0), value=FREE)
        self.shortest, self.first_limit = self.shortest + steps, self.first_limit + steps
        self.forced, self.alike = self.prefix.shape[1], 0

    def join(self, other: "Constraints") -> None:
        """Add the constraints of other sentences, which must count steps from the same start."""
        each, self.forced = (self, other), max(self.forced, other.forced)
        self.shortest = torch.cat([torch.as_tensor(one.shortest).expand(len(one.most)) for one in each])
        self.prefix = torch.cat([F.pad(one.prefix, (0, self.forced - one.prefix.shape[1]), value=FREE) for one in each])
        self.most, self.first_limit = torch.cat([self.most, other.most]), min(self.first_limit, other.first_limit)

    def limit_(self, scores: Float[Tensor, "s r v"], history: Int[Tensor, "s r t"]) -> None:
        """Set the scores of forbidden tokens to -∞, in place; prefixes and limits override the other constraints."""
        step = history.shape[-1]
        forced = self.prefix[:, step] if step < self.forced else None
        if step >= self.first_limit:
            ended = torch.where(step >= self.most, END, FREE)
            forced = ended if forced is None else torch.where(ended == END, ended, forced)
        early = step < self.shortest  # one bool for all sentences, or a tensor of one each
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
            if self.no_repeat:  # allow END if every other token is forbidden
                scores[..., END] = torch.where(scores.amax(-1) == -torch.inf, ends, scores[..., END])
        if forced is not None and only is not None:
            forcing = (forced != FREE)[:, None, None]
            scores.masked_fill_(forcing, -torch.inf)
            place = forced.clamp(min=0)[:, None, None].expand_as(only)
            scores.scatter_(-1, place, torch.where(forcing, only, scores.gather(-1, place)))

    def forbid_repeats_(self, scores: Float[Tensor, "s r v"], history: Int[Tensor, "s r t"]) -> None:
        """Forbid tokens that would repeat an n-gram; END, which no hypothesis contains, stays allowed."""
        n = self.no_repeat
        earlier = history.unfold(-1, n, 1)  # [s r t-n+1 n]
        now = history[..., history.shape[-1] - n + 1 :]  # the last n-1 tokens
        again = (earlier[..., :-1] == now[..., None, :]).all(-1)
        tokens = torch.where(again, earlier[..., -1], PAD)  # padding is forbidden already
        scores.scatter_(-1, tokens, -torch.inf)


def check_memory(options: Options, row: int, sentences: int, steps: int, vocabulary: int = 0) -> None:
    """Raise an error if the hypotheses, at `row` bytes each, do not fit into the machine's memory."""
    name, rows = ("nbest", options.nbest) if options.sample else ("beam", options.beam)
    room = memory()

    def needed(rows: int) -> int:
        return sentences * search_bytes(rows, 1 if options.sample else options.groups, row, steps, vocabulary)

    if room is None or needed(rows) <= room:
        return
    fitting, above = 0, rows  # bounds of a bisection for the largest number that fits
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
    """Count the bytes of one hypothesis's state, from a state with one hypothesis per sentence."""
    return sum(buffer.nbytes for part in state.row.values() for buffer in buffers(part)) // sentences


def search_bytes(rows: int, groups: int, row: int, steps: int, vocabulary: int) -> int:
    """Estimate the bytes of one sentence's hypotheses: their states, scores, candidates and tokens."""
    each = -(-rows // groups)
    candidates = min(2 * each + (groups - 1) * each, vocabulary)
    scores, tokens = 3 * 4 * vocabulary, 3 * 8 * steps
    compared = each * candidates * rows if groups > 1 else 0  # tokens compared with those of other groups
    return rows * (row + scores + tokens + 2 * 12 * candidates) + compared


def output_limits(
    model: Model,
    source: Tokens | Pictures,
    options: Options | Sequence[Options],
    prefixes: Sequence[Sequence[int]] | None = None,
) -> Int[Tensor, " s"]:
    """Return the largest number of tokens of each output, without END; `options` is one for all, or one each."""
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
    """Return the largest number of tokens, without END, of the output for a source of `length` tokens.

    `length` None: a picture. Without `longest`, an output has room for at least twenty tokens after its prefix.
    """
    most = options.longest
    if most is None:
        most = CAPTION if length is None else 2 * length + ROOM
        most = max(most, prefix + ROOM) if prefix else most
    most = max(most, options.shortest)
    return most if model.limit is None else min(most, model.limit - 1)


def check_prefixes(prefixes: Sequence[Sequence[int]] | None, most: Int[Tensor, " s"]) -> None:
    """Raise an error if there is not one prefix per sentence, or if one is too long or has special tokens."""
    if prefixes is None:
        return
    if len(prefixes) != len(most):
        raise ArgumentError(f"prefixes: {len(prefixes)} given, expected one for each of {len(most)} sentences")
    for prefix, limit in zip(prefixes, most.tolist(), strict=True):
        check_prefix(prefix, limit)


def check_prefix(prefix: Sequence[int], limit: int) -> None:
    """Raise an error for a prefix that is longer than `limit` or has special tokens."""
    wrong = [token for token in prefix if token <= END]
    if wrong:
        raise ArgumentError(f"prefix: {wrong[0]} given, expected tokens of words: padding, start and end are none")
    if len(prefix) > limit:
        raise ArgumentError(
            f"prefix: {len(prefix)} tokens given, expected at most {limit}, the limit of its output (longest)"
        )


def select_prefixes(prefixes: Sequence[Sequence[int]] | None, numbers: list[int]) -> list[Sequence[int]] | None:
    """Return the prefixes of the sentences with these numbers; None if there are no prefixes."""
    return None if prefixes is None else [prefixes[i] for i in numbers]
