"""What may be said next: never padding, an END neither too early nor too late, a forced prefix, no n-gram twice."""

# s sentences · r rows of a sentence · v vocabulary · t tokens said so far
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.tokenizer import END, PAD, START
from regard.errors import ArgumentError

__all__ = ["Allowed"]

FREE = -1  # behind a prefix


class Allowed:
    """The rules for the sentences of one search; scores of what they forbid become -∞."""

    def __init__(
        self, most: Int[Tensor, " s"], prefixes: Sequence[Sequence[int]] = (), shortest: int = 0, no_repeat: int = 0
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
        """Refuse a prefix of tokens that there are not."""
        largest = int(self.prefix.max()) if self.prefix.numel() else 0
        if largest >= vocabulary:
            raise ArgumentError(
                f"prefix: token {largest} given, expected less than {vocabulary}, the vocabulary's size"
            )

    def take(self, keep: Int[Tensor, " k"]) -> None:
        """Go on with these sentences alone."""
        self.most, self.prefix = self.most[keep], self.prefix[keep]

    def limit_(self, scores: Float[Tensor, "s r v"], said: Int[Tensor, "s r t"]) -> None:
        """Forbid, in place, what the rules forbid as the next token; a prefix and a limit come before the rest."""
        step = said.shape[-1]
        forced = self.prefix[:, step] if step < self.forced else None
        if step >= self.first_limit:
            ended = torch.where(step >= self.most, END, FREE)
            forced = ended if forced is None else torch.where(ended == END, ended, forced)
        ends = scores[..., END].clone() if step < self.shortest else None
        only = (
            None if forced is None else scores.gather(-1, forced.clamp(min=0)[:, None, None].expand(*said.shape[:2], 1))
        )
        scores[..., PAD] = scores[..., START] = -torch.inf
        if self.no_repeat and step >= self.no_repeat:
            self.forbid_repeats_(scores, said)
        if ends is not None:
            scores[..., END] = -torch.inf
            if self.no_repeat:  # where nothing else is left, it has to end
                scores[..., END] = torch.where(scores.amax(-1) == -torch.inf, ends, scores[..., END])
        if forced is not None and only is not None:
            given = (forced != FREE)[:, None, None]
            scores.masked_fill_(given, -torch.inf)
            place = forced.clamp(min=0)[:, None, None].expand_as(only)
            scores.scatter_(-1, place, torch.where(given, only, scores.gather(-1, place)))

    def forbid_repeats_(self, scores: Float[Tensor, "s r v"], said: Int[Tensor, "s r t"]) -> None:
        """Forbid what would say an n-gram for the second time; END may always come."""
        n = self.no_repeat
        earlier = said.unfold(-1, n, 1)  # [s r t-n+1 n]
        now = said[..., said.shape[-1] - n + 1 :]  # the n-1 before the next
        again = (earlier[..., :-1] == now[..., None, :]).all(-1)
        tokens = torch.where(again, earlier[..., -1], PAD)  # padding is forbidden already
        scores.scatter_(-1, tokens, -torch.inf)
