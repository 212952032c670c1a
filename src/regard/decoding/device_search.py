"""Search entirely on the device: each slot holds a sentence, and one step advances all slots, each at its own step.

Here tensors of fixed shapes decide what `regard.decoding.sentence_search` decides on the host after each step: which
hypotheses end, which of them stay among the best, and when a sentence is done. So a step can be captured once and
replayed. It serves greedy and beam search of many sentences on a GPU, run by `regard.decoding.replay`; both searches
score with `regard.decoding.scoring` and find the same outputs. A step reads nothing back to the host. A hypothesis is a
row and a step; when a sentence is collected, its tokens are traced along the parents, from the last to the first. A
slot that is done keeps stepping without effect until another sentence takes its place.

Each slot has its own options, as numbers in tensors: the length penalty, the minimum and maximum length, a prefix, and
a beam that may be narrower than the slot's number of rows. The rows beyond the beam have a score of -∞, so that the
result is that of a search with the slot's own beam.
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
    """The options of the searches in some slots, as tensors with one number per slot."""

    most: Int[Tensor, " k"]  # the most tokens of an output
    shortest: Int[Tensor, " k"]
    length_penalty: Float[Tensor, " k"]
    beam: Int[Tensor, " k"]

    @classmethod
    def of(cls, options: Sequence[Options], most: Sequence[int], device: torch.device | str) -> "SlotOptions":
        """Convert the options of several sentences and the limits of their outputs to tensors."""
        numbers = [(limit, each.shortest, each.beam) for limit, each in zip(most, options, strict=True)]
        whole = torch.tensor(numbers, dtype=torch.long).to(device)
        penalty = torch.tensor([each.length_penalty for each in options], dtype=torch.float64).to(device)
        return cls(whole[:, 0], whole[:, 1], penalty, whole[:, 2])


@dataclass(frozen=True, eq=False)
class Hypotheses:
    """Copies of the hypotheses of some slots, by rank, with the parents and words of all rows at all steps."""

    scores: np.ndarray  # [s r]; -∞: no hypothesis
    log_probs: np.ndarray
    lengths: np.ndarray  # tokens before END
    rows: np.ndarray  # the row before END
    natural: np.ndarray  # whether the model chose END, not the limit
    parents: np.ndarray  # [s t r]
    words: np.ndarray  # [s t r]

    def results(self, nbest: int | Sequence[int]) -> list[SearchResult]:
        """Return the best `nbest` outputs of each slot; `nbest` is one number for all slots, or one per slot."""
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
        for step in range(longest - 1, -1, -1):  # for all hypotheses at once
            there = step < lengths
            history[:, step] = np.where(there, self.words[slot, step, row], PAD)
            row = np.where(there, self.parents[slot, step, row], row)
        results = [SearchResult() for _ in counts]
        parts = (x[slot, rank].tolist() for x in (self.log_probs, self.scores, self.natural))
        for i, tokens, length, *rest in zip(slot.tolist(), history.tolist(), lengths.tolist(), *parts, strict=True):
            results[i].outputs.append(Output(tokens[:length], *rest))
        return results


class DeviceSearch:
    """A running search in `count` slots of `rows` hypotheses, with room for `size` steps and `prefix` tokens each."""

    def __init__(self, model: Model, memory: Memory, count: int, size: int, rows: int, prefix: int = 0):
        """Allocate the states in the shapes of `memory`, that of one sentence with the most source positions."""
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
        self.total = full(-torch.inf, wide, self.rows)  # log-probabilities; a slot whose rows are all -∞ is done
        self.step = full(0, torch.long)
        self.most = full(0, torch.long)  # the most tokens of an output
        self.shortest, self.penalty = full(0, torch.long), full(0.0, wide)
        # 0 for the candidates and the rows of a slot's beam, -∞ for those beyond it.
        self.candidate_bias = full(0.0, wide, candidate_count(self.rows))
        self.row_bias = full(0.0, wide, self.rows)
        self.last = full(self.rows - 1, torch.long, 1)  # the rank of the last hypothesis in a slot's beam
        self.prefix = full(FREE, torch.long, prefix + 1)
        self.parents = full(0, torch.int16, size, self.rows)
        self.words = full(PAD, torch.int32, size, self.rows)
        # The pool of the best finished hypotheses, in order, one place per row.
        self.scores, self.log_probs = full(-torch.inf, wide, self.rows), full(-torch.inf, wide, self.rows)
        self.lengths, self.ends = full(0, torch.long, self.rows), full(0, torch.long, self.rows)
        self.natural = full(False, torch.bool, self.rows)
        self.first = torch.arange(0, count * self.rows, self.rows, device=device)[:, None]

    @property
    def active(self) -> Bool[Tensor, " s"]:
        """Return a mask of the slots that are not done."""
        return (self.total > -torch.inf).any(1)

    def put(
        self,
        slots: Int[Tensor, " k"] | slice,
        memory: Memory,
        options: SlotOptions,
        prefix: Int[Tensor, "k p"] | None = None,
    ) -> None:
        """Start searches for other sentences in some slots; a slice of slots is faster to write than an index.

        Beams must not be wider than a slot's number of rows.
        """
        self.state.put_(slots, self.model.start(memory, self.rows, 1))
        fill(self.tokens, slots, START)
        fill(self.total, slots, -torch.inf)
        fill(self.total[:, 0], slots, 0.0)  # all other rows would be the same hypothesis
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
        """End the searches in these slots at once."""
        self.total[slots] = -torch.inf

    def collect(self, slots: Int[Tensor, " k"] | slice, non_blocking: bool = False) -> Hypotheses:
        """Copy the finished hypotheses of these slots to the host; with `non_blocking` without waiting for the copy."""
        parts = self.scores, self.log_probs, self.lengths, self.ends, self.natural, self.parents, self.words
        # A CPU must copy, too: the search overwrites the slots before the copy is read.
        return Hypotheses(*(part[slots].to("cpu", non_blocking=non_blocking, copy=True).numpy() for part in parts))

    def advance(self) -> None:
        """Take one step in every slot, with fixed shapes and without reading anything back to the host."""
        logits, _ = self.model.step(self.tokens.flatten(), self.state)
        rows, step = self.rows, self.step
        count = candidate_count(rows)
        each = min(count, logits.shape[-1])  # candidates per row
        forced = self.prefix.gather(1, step[:, None].clamp(max=self.prefix.shape[1] - 1))[:, 0]
        forced = torch.where(step >= self.most, END, forced).repeat_interleave(rows)
        early = (step < self.shortest).repeat_interleave(rows)
        best, tokens, norm = top_tokens(logits, each, never=(PAD, START), end=END, early=early, forced=forced)
        totals = add_log_probs(best, self.total.flatten(), norm).view(self.count, -1)
        tokens = tokens.view(self.count, -1)
        penalty = length_penalty((step + 1).to(totals.dtype), self.penalty)[:, None]  # the length includes END
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
        """Add the hypotheses that ended to the pool of their sentence."""
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
        """Replace the rows with the chosen hypotheses, and record their parents and words."""
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
        self.step.add_(1).clamp_(max=self.size - 1)  # a slot that is done must not step beyond its buffers
        if self.caches:
            torch._foreach_clamp_max_([cache.length for cache in self.caches], self.size - 1)


def fill(buffer: Tensor, slots: Int[Tensor, " k"] | slice, value: float) -> None:
    """Fill the rows of some slots with a number, without a copy from the host, which a CUDA graph cannot capture."""
    if isinstance(slots, slice):
        buffer[slots] = value
    else:
        buffer.index_fill_(0, slots, value)


def forbid_from(count: Int[Tensor, "k 1"], like: Float[Tensor, "s c"]) -> Float[Tensor, "k c"]:
    """Return rows as wide as those of `like`: zeros in the first `count` columns, -∞ in the others."""
    beyond = torch.arange(like.shape[1], device=like.device) >= count
    return torch.zeros_like(beyond, dtype=like.dtype).masked_fill(beyond, -torch.inf)


# ---- a model's copy in bfloat16, with logits in float32

# r rows · d width · v vocabulary
MULTIPLE = 16  # the number of logits per row is padded to a multiple of this
MORE = 8  # extra columns of a readout's weights; two hold the bias, and fast products need a multiple of eight


class WideReadout(nn.Module):
    """An output projection in bfloat16 with logits in float32: in bfloat16 likely tokens would often have equal logits.

    Two more columns of the weights hold the bias, rounded to bfloat16, and the rest of it, so that the matrix product
    adds the bias: a separate addition would take twice as long as the product. Rows of zeros pad the vocabulary to a
    multiple of sixteen: with any other size the product takes three times as long.
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
        """Compute x Wᵀ + b, accumulated and returned in float32."""
        assert isinstance(self.ones, Tensor)
        assert isinstance(self.weight, Tensor)
        wide = torch.cat([x, self.ones.expand(*x.shape[:-1], -1)], -1).flatten(0, -2)
        if x.is_cuda:
            scores = torch.mm(wide, self.weight.t(), out_dtype=torch.float32)
        else:
            scores = wide.float() @ self.weight.t().float()
        return scores[:, : self.out_features].unflatten(0, x.shape[:-1])


def to_bfloat16(model: Model) -> Model:
    """Return a copy of a model for inference, with weights in bfloat16 and logits in float32."""
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
    """Flatten an RNN's weights into one buffer for cuDNN; torch's `flatten_parameters` wrongly skips bfloat16."""
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
