"""Search that never leaves its device: slots for sentences, all stepped together, each at a step of its own.

What `regard.decoding.sentence_search` decides on the host after each step is decided here by tensors of fixed shapes,
so that a step can be captured once and replayed: which hypotheses end, which of them stay among the best, when a
sentence is done. It serves greedy and beam search of many sentences on a GPU, where `regard.decoding.replay` runs it;
both searches score by `regard.decoding.scoring`, and find the same. Nothing is read back. A hypothesis is a row and a
step; what it wrote is read along the parents of its rows, from the last word to the first, when its sentence is
collected. A slot that is done steps on without effect until another sentence is put there.

Each slot has options of its own, as numbers in tensors: the length penalty, the fewest and the most tokens, a prefix,
and a beam that may be narrower than the slot has rows. The rows beyond it are impossible (-∞), so that its answer is
that of a search with its own beam.
"""

# s slots · r rows of each, or ranks · k candidates, or slots that are written · t steps · p prefix
import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import Cache
from regard.data import END, PAD, START
from regard.decoding.limits import FREE
from regard.decoding.options import Options, Output, SearchResult
from regard.decoding.scoring import add_log_probs, candidate_count, is_settled, length_penalty
from regard.kernels import top_tokens
from regard.models import Memory, Model


@dataclass(frozen=True, eq=False)
class SlotOptions:
    """The options of the searches in some slots, a number each."""

    most: Int[Tensor, " k"]  # tokens of an output
    shortest: Int[Tensor, " k"]
    length_penalty: Float[Tensor, " k"]
    beam: Int[Tensor, " k"]

    @classmethod
    def of(cls, options: Sequence[Options], most: Sequence[int], device: torch.device | str) -> "SlotOptions":
        """Options of several sentences and the limits of their outputs, as tensors."""
        numbers = [(limit, each.shortest, each.beam) for limit, each in zip(most, options, strict=True)]
        whole = torch.tensor(numbers, dtype=torch.long).to(device)
        penalty = torch.tensor([each.length_penalty for each in options], dtype=torch.float64).to(device)
        return cls(whole[:, 0], whole[:, 1], penalty, whole[:, 2])


@dataclass(frozen=True, eq=False)
class Hypotheses:
    """Hypotheses of some slots, by rank, with the past of all rows: copies of what a search holds."""

    scores: np.ndarray  # [s r]; -∞ where there is none
    log_probs: np.ndarray
    lengths: np.ndarray  # tokens before END
    rows: np.ndarray  # that END followed
    natural: np.ndarray  # whether END came by itself
    parents: np.ndarray  # [s t r]
    words: np.ndarray  # [s t r]

    def results(self, nbest: int | Sequence[int]) -> list[SearchResult]:
        """The best outputs of each slot: `nbest` of them, a number for all or one each."""
        counts = [nbest] * len(self.scores) if isinstance(nbest, int) else list(nbest)
        many = np.array(
            [[i, rank] for i, count in enumerate(counts) for rank in range(min(count, self.scores.shape[1]))]
        )
        slot, rank = many.T if len(many) else np.zeros((2, 0), np.int64)
        chosen = self.scores[slot, rank] > -np.inf
        slot, rank = slot[chosen], rank[chosen]
        lengths, row = self.lengths[slot, rank], self.rows[slot, rank].astype(np.int64)
        longest = int(lengths.max(initial=0))
        history = np.full((len(slot), longest), PAD, dtype=np.int64)
        for step in range(longest - 1, -1, -1):  # all hypotheses side by side
            there = step < lengths
            history[:, step] = np.where(there, self.words[slot, step, row], PAD)
            row = np.where(there, self.parents[slot, step, row], row)
        results = [SearchResult() for _ in counts]
        parts = (x[slot, rank].tolist() for x in (self.log_probs, self.scores, self.natural))
        for i, tokens, length, *rest in zip(slot.tolist(), history.tolist(), lengths.tolist(), *parts, strict=True):
            results[i].outputs.append(Output(tokens[:length], *rest))
        return results


class DeviceSearch:
    """A search under way in `count` slots of `rows` hypotheses, with room for `size` steps and `prefix` tokens each."""

    def __init__(self, model: Model, memory: Memory, count: int, size: int, rows: int, prefix: int = 0):
        """`memory` is one sentence's, with the most source positions there can be: what all states are shaped like."""
        self.model, self.count, self.size = model, count, size
        self.rows = rows
        device = memory.states.device
        one = model.start(memory, self.rows, size)
        self.state = one.take(torch.zeros(count, dtype=torch.long, device=device))
        self.caches = [part for part in self.state.row.values() if isinstance(part, Cache)]
        wide = torch.float64 if memory.states.dtype == torch.float64 else torch.float32

        def full(value: float, dtype: torch.dtype, *shape: int) -> Tensor:
            return torch.full((count, *shape), value, dtype=dtype, device=device)

        self.tokens = full(START, torch.long, self.rows)
        self.total = full(-torch.inf, wide, self.rows)  # of all hypotheses; a slot with none is done
        self.step = full(0, torch.long)
        self.most = full(0, torch.long)  # tokens of an output
        self.shortest, self.penalty = full(0, torch.long), full(0.0, wide)
        # 0 for what a slot's beam considers and continues, -∞ for what is beyond it.
        self.candidate_bias = full(0.0, wide, candidate_count(self.rows))
        self.row_bias = full(0.0, wide, self.rows)
        self.last = full(self.rows - 1, torch.long, 1)  # the rank of the last hypothesis of a slot's beam
        self.prefix = full(FREE, torch.long, prefix + 1)
        self.parents = full(0, torch.int16, size, self.rows)
        self.words = full(PAD, torch.int32, size, self.rows)
        # The best that have ended, in order: a pool of as many as there are rows.
        self.scores, self.log_probs = full(-torch.inf, wide, self.rows), full(-torch.inf, wide, self.rows)
        self.lengths, self.ends = full(0, torch.long, self.rows), full(0, torch.long, self.rows)
        self.natural = full(False, torch.bool, self.rows)
        self.first = torch.arange(0, count * self.rows, self.rows, device=device)[:, None]

    @property
    def active(self) -> Bool[Tensor, " s"]:
        """The slots that are not done."""
        return (self.total > -torch.inf).any(1)

    def put(
        self,
        slots: Int[Tensor, " k"] | slice,
        memory: Memory,
        options: SlotOptions,
        prefix: Int[Tensor, "k p"] | None = None,
    ) -> None:
        """Begin with other sentences in some slots; neighbours, given as a slice, are quicker to write.

        No beam is wider than a slot has rows.
        """
        self.state.put_(slots, self.model.start(memory, self.rows, 1))
        fill(self.tokens, slots, START)
        fill(self.total, slots, -torch.inf)
        fill(self.total[:, 0], slots, 0.0)  # the others are the same hypothesis
        fill(self.step, slots, 0)
        self.most[slots], self.shortest[slots] = options.most, options.shortest
        self.penalty[slots] = options.length_penalty.to(self.penalty.dtype)
        if self.rows > 1:
            beam = options.beam[:, None]
            self.candidate_bias[slots] = forbid_from(torch.where(beam > 1, 2 * beam, 1), self.candidate_bias)
            self.row_bias[slots] = forbid_from(beam, self.row_bias)
            self.last[slots] = beam - 1
        fill(self.prefix, slots, FREE)
        if prefix is not None:
            self.prefix[slots, : prefix.shape[1]] = prefix
        fill(self.scores, slots, -torch.inf)

    def stop(self, slots: Int[Tensor, " k"] | slice) -> None:
        """End the searches in these slots, whatever they have found."""
        self.total[slots] = -torch.inf

    def collect(self, slots: Int[Tensor, " k"] | slice, non_blocking: bool = False) -> Hypotheses:
        """The finished hypotheses of these slots; with `non_blocking` they may still be on their way to the host."""
        parts = self.scores, self.log_probs, self.lengths, self.ends, self.natural, self.parents, self.words
        # A copy on every device: the slots are written to before it is read.
        return Hypotheses(*(part[slots].to("cpu", non_blocking=non_blocking, copy=True).numpy() for part in parts))

    def advance(self) -> None:
        """One step of every slot. All shapes are fixed, and nothing is read."""
        logits, _ = self.model.step(self.tokens.flatten(), self.state)
        rows, step = self.rows, self.step
        count = candidate_count(rows)
        each = min(count, logits.shape[-1])  # of a row
        forced = self.prefix.gather(1, step[:, None].clamp(max=self.prefix.shape[1] - 1))[:, 0]
        forced = torch.where(step >= self.most, END, forced).repeat_interleave(rows)
        early = (step < self.shortest).repeat_interleave(rows)
        best, tokens, norm = top_tokens(logits, each, never=(PAD, START), end=END, early=early, forced=forced)
        totals = add_log_probs(best, self.total.flatten(), norm).view(self.count, -1)
        tokens = tokens.view(self.count, -1)
        penalty = length_penalty((step + 1).to(totals.dtype), self.penalty)[:, None]  # END counts
        if rows == 1:
            parents = torch.zeros_like(tokens)
        else:
            totals, index = totals.topk(min(count, totals.shape[1]))
            totals = totals + self.candidate_bias[:, : totals.shape[1]]
            parents, tokens = index // each, tokens.gather(1, index)
        ends = tokens == END
        first = totals[:, :rows] + self.row_bias[:, : totals.shape[1]] if rows > 1 else totals
        finished = ends[:, :rows] & (first > -torch.inf)
        self.finish(finished, totals[:, :rows], parents[:, :rows], penalty)
        totals = totals.masked_fill(ends, -torch.inf)
        if rows > 1:
            totals, order = totals.topk(min(rows, totals.shape[1]))
            totals = totals + self.row_bias[:, : totals.shape[1]]
            parents, tokens = parents.gather(1, order), tokens.gather(1, order)
        last = self.scores.gather(1, self.last)[:, 0] if rows > 1 else self.scores[:, 0]
        full = last > -torch.inf
        over = full if rows == 1 else full & is_settled((totals / penalty).amax(1), last, rows)
        self.move(parents, tokens, totals.masked_fill(over[:, None], -torch.inf))

    def finish(self, finished: Tensor, totals: Tensor, parents: Tensor, penalty: Tensor) -> None:
        """Put the hypotheses that ended among the best of their sentence."""
        new = (totals / penalty).masked_fill(~finished, -torch.inf)
        scores, order = torch.cat([self.scores, new], 1).topk(self.rows)
        step, natural = self.step[:, None].expand_as(parents), (self.step < self.most)[:, None].expand_as(parents)
        for pool, values in (
            (self.log_probs, totals),
            (self.lengths, step),
            (self.ends, parents),
            (self.natural, natural),
        ):
            pool.copy_(torch.cat([pool, values], 1).gather(1, order))
        self.scores.copy_(scores)

    def move(self, parents: Tensor, tokens: Tensor, totals: Tensor) -> None:
        """The chosen hypotheses become the rows."""
        if tokens.shape[1] < self.rows:  # a small vocabulary gives fewer candidates than there are rows
            fill = (0, self.rows - tokens.shape[1])
            parents, tokens = (F.pad(x, fill) for x in (parents, tokens))
            totals = F.pad(totals, fill, value=-torch.inf)
        at = self.step[:, None, None].expand(-1, 1, self.rows)
        self.parents.scatter_(1, at, parents[:, None].to(self.parents.dtype))
        self.words.scatter_(1, at, tokens[:, None].to(self.words.dtype))
        if self.rows > 1:
            self.state.select_((self.first + parents).flatten())
        self.tokens.copy_(tokens)
        self.total.copy_(totals)
        self.step.add_(1).clamp_(max=self.size - 1)  # a slot that is done goes no further than its room
        if self.caches:
            torch._foreach_clamp_max_([cache.length for cache in self.caches], self.size - 1)


def fill(buffer: Tensor, slots: Int[Tensor, " k"] | slice, value: float) -> None:
    """Fill the rows of some slots with a number, without a tensor of the host's, which a graph could not hold."""
    if isinstance(slots, slice):
        buffer[slots] = value
    else:
        buffer.index_fill_(0, slots, value)


def forbid_from(count: Int[Tensor, "k 1"], like: Float[Tensor, "s c"]) -> Float[Tensor, "k c"]:
    """Rows of zeros up to `count`, and of -∞ from there on, as wide as those of `like`."""
    beyond = torch.arange(like.shape[1], device=like.device) >= count
    return torch.zeros_like(beyond, dtype=like.dtype).masked_fill(beyond, -torch.inf)


# ---- a model's copy in bfloat16, whose scores of tokens are in float32 still

# r rows · d width · v vocabulary
MULTIPLE = 16  # scores of a row are a multiple of it
MORE = 8  # columns behind a readout's weights: two are used, and products want a multiple of eight


class WideReadout(nn.Module):
    """An output projection whose scores are in float32: in bfloat16 those of likely tokens would often be equal.

    The bias is two more columns of the weights, what bfloat16 has of it and what that leaves, so that it is in the same
    product: added to the scores it would cost twice as much as they do. Rows of zeros behind the weights make a row of
    scores a multiple of sixteen: for a vocabulary of any other size the product takes three times as long.
    """

    def __init__(self, linear: nn.Linear):
        super().__init__()
        weight = linear.weight.detach().to(torch.bfloat16)
        bias = torch.zeros_like(linear.weight[:, 0]) if linear.bias is None else linear.bias.detach()
        high = bias.to(torch.bfloat16)
        more = weight.new_zeros(len(weight), MORE)
        more[:, 0], more[:, 1] = high, (bias.float() - high.float()).to(torch.bfloat16)
        rows = -len(weight) % MULTIPLE
        self.register_buffer("weight", F.pad(torch.cat([weight, more], 1), (0, 0, 0, rows)), persistent=False)
        ones = torch.zeros(MORE)
        ones[:2] = 1
        self.register_buffer("ones", ones.to(weight), persistent=False)
        self.out_features = linear.out_features

    def forward(self, x: Tensor) -> Tensor:
        """Compute x Wᵀ + b, summed and returned in float32."""
        assert isinstance(self.ones, Tensor)
        assert isinstance(self.weight, Tensor)
        wide = torch.cat([x, self.ones.expand(*x.shape[:-1], -1)], -1).flatten(0, -2)
        if x.is_cuda:
            scores = torch.mm(wide, self.weight.t(), out_dtype=torch.float32)
        else:
            scores = wide.float() @ self.weight.t().float()
        return scores[:, : self.out_features].unflatten(0, x.shape[:-1])


def to_bfloat16(model: Model) -> Model:
    """Copy a model, with weights in bfloat16."""
    half = copy.deepcopy(model)
    wide = {
        name: WideReadout(part.readout)
        for name, part in half.named_modules()
        if isinstance(part, Model) and part.projects and isinstance(getattr(part, "readout", None), nn.Linear)
    }
    half = half.to(torch.bfloat16).eval().requires_grad_(False)
    for name, readout in wide.items():
        half.get_submodule(name).readout = readout
    for part in half.modules():
        if isinstance(part, nn.RNNBase):
            flatten(part)
    return half


def flatten(part: nn.RNNBase) -> None:
    """Put the weights side by side, as cuDNN wants them; `flatten_parameters` wrongly skips bfloat16."""
    if not part.weight_ih_l0.is_cuda or not torch._use_cudnn_rnn_flatten_weight():
        return
    from torch.backends.cudnn.rnn import get_cudnn_mode

    torch._cudnn_rnn_flatten_weight(
        part._flat_weights,  # type: ignore[arg-type]
        4 if part.bias else 2,
        part.input_size,
        get_cudnn_mode(part.mode),
        part.hidden_size,
        part.proj_size,
        part.num_layers,
        part.batch_first,
        bool(part.bidirectional),
    )
