"""Step-by-step search: one loop for every model and every search option, where the host decides after each step.

It runs on every device, with all options: greedy search, beams, groups, sampling, coverage, n-gram blocking and traces.
For many sentences on a GPU `regard.decoding.device_search` does the same without the host, if the options allow it.

A beam keeps the likeliest hypotheses of each sentence; greedy search keeps one. At each step every hypothesis is
extended by every token, and the best 2 × `beam` candidates are considered: those that end and are among the first
`beam` are finished, and the best `beam` of the others continue. Finished hypotheses are ranked by
log P / ((5 + length) / 6)^α, where the length includes END, and the coverage penalty β Σⱼ log min(Σᵢ aᵢⱼ, 1) (Wu et al.
2016, arXiv:1609.08144, equation 14). Two departures: a source position counts at least 1e-6, since log 0 = -∞ for one
position would hide all others; and i includes the step that writes END. A sentence is done when `beam` hypotheses are
finished and no other scores better, at its current length, than the last of them.

Sampling draws each token by its probability; the samples of a sentence do not depend on the rest of its batch. `top_k`
is from Fan et al. 2018 (arXiv:1805.04833), `top_p` is the nucleus of Holtzman et al. 2020 (arXiv:1904.09751).

A diverse beam search (Vijayakumar et al. 2016, arXiv:1610.02424) searches its groups in order: a group's candidate pays
`diversity` for each hypothesis of an earlier group that chose the same token at this step.

An output that reaches its limit ends there with END, and its log-probability includes END's, as that of any pair.

Other code can take a search's steps itself (`advance`), and join searches while they run (`join_searches`). Sentences
are then at different steps: the search counts steps for all, and each sentence records the step at which it began.
"""

# s sentences or pictures · r rows of each · k, c candidates · v vocabulary · t tokens so far · m source positions
import bisect
import itertools
import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from regard.attention import Cache
from regard.data import END, PAD, START
from regard.decoding.limits import Constraints, check_memory, check_prefixes, output_limits, row_bytes
from regard.decoding.options import Candidate, Options, Output, SearchResult, check_outputs
from regard.decoding.scoring import (
    add_log_probs,
    candidate_count,
    check_finite,
    coverage_penalty,
    is_settled,
    length_penalty,
    log_sum,
    top_tokens,
)
from regard.errors import ArgumentError
from regard.kernels import pack_weights
from regard.models import Model, Pictures, Tokens

NONE = -1  # no token, or no row
OPENMP = "ATen parallel backend: OpenMP" in torch.__config__.parallel_info()  # it can change its threads at any time
THREADED = 16  # from so many rows, a second thread pays
MANY = 512  # from so many rows, a CPU's memory is checked
FAR = 4096  # from so many steps, memory is checked before the caches are allocated
CROWD = 8  # finished sentences leave the batch when they are one in this many, since leaving copies all others


def search(
    model: Model,
    source: Tokens | Pictures,
    options: Options = Options(),  # noqa: B008
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    trace: bool = False,
) -> list[SearchResult]:
    """Return the outputs for each sentence of a padded batch, or for each picture, best first.

    `prefixes` are the tokens that each sentence's outputs begin with. `trace` keeps the candidates of all steps.
    """
    if not len(source.lengths):
        return []
    rows = len(source.lengths) * (options.nbest if options.sample else options.beam)
    with without_gradients(model, numbers_of(source).device), pack_weights(rows):
        return StepSearch(model, source, options, prefixes, trace).run()


def without_gradients(model: Model, device: torch.device) -> AbstractContextManager[None]:
    """Return inference mode on a CPU if no code outside Regard can see the tensors, and no_grad otherwise.

    A user's module might keep a tensor for training, and a hook might read a tensor's version counter; inference
    tensors allow neither.
    """
    if device.type != "cpu" or not isinstance(model, nn.Module) or _has_any_global_hook():
        return torch.no_grad()
    modules: list[nn.Module | None] = [model]  # `modules()` takes several times as long, since it builds names
    for module in modules:
        if module is None:
            continue
        listened = module._forward_hooks or module._forward_pre_hooks
        if listened or not type(module).__module__.startswith(("regard.", "torch.nn.")):
            return torch.no_grad()
        modules.extend(module._modules.values())
    return torch.inference_mode()


@contextmanager
def threads_for(rows: int, device: torch.device) -> Iterator[None]:
    """Use one thread for a few rows: waking a second thread takes longer than the work that it would save."""
    threads = torch.get_num_threads()
    if rows >= THREADED or threads == 1 or device.type != "cpu" or not OPENMP:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Choice(NamedTuple):
    """Hypotheses or candidates for the next step: the parent's row, a token, and the log-probability so far."""

    parents: Int[Tensor, "s k"]
    tokens: Int[Tensor, "s k"]
    total: Float[Tensor, "s k"]


@dataclass(eq=False)
class SentenceSearch:
    """A sentence or a picture of a running search, with its options and its outputs so far."""

    options: Options
    pools: list[list[Output]]  # the best finished hypotheses of each group, in order
    samples: dict[int, Output] = field(default_factory=dict)  # by row
    steps: list[list[Candidate]] | None = None  # the trace, if kept
    begin: int = 0  # the search's step at which it began
    done: bool = False

    def result(self) -> SearchResult:
        """Return the outputs of a finished sentence: its samples, or the best distinct sequences of all groups."""
        outputs = [self.samples[row] for row in sorted(self.samples)]
        if not self.options.sample:
            best: dict[tuple[int, ...], Output] = {}
            for output in sorted(itertools.chain(*self.pools), key=lambda each: -each.score):
                best.setdefault(tuple(output.tokens), output)
            outputs = [*best.values()][: self.options.nbest]
        check_outputs(outputs)
        while self.steps and not self.steps[-1]:  # steps that waited for other sentences
            self.steps.pop()
        return SearchResult(outputs, self.steps)


class StepSearch:
    """A running search over the rows [s r] of the sentences that have not left the batch.

    `each` holds one `Options` per sentence, which may differ in a sentence's own options (see `shared_options`).
    """

    def __init__(
        self,
        model: Model,
        source: Tokens | Pictures,
        options: Options,
        prefixes: Sequence[Sequence[int]] | None = None,
        trace: bool = False,
        each: Sequence[Options] | None = None,
    ):
        self.model, self.options, self.trace = model, options, trace
        each = [options] * len(source.lengths) if each is None else each
        most = output_limits(model, source, each, prefixes)
        check_prefixes(prefixes, most)
        self.alpha: float | Float[Tensor, "s 1"] = options.length_penalty
        shortest: int | Tensor = options.shortest
        if any(own.length_penalty != options.length_penalty for own in each):
            self.alpha = most.new_tensor([[own.length_penalty] for own in each], dtype=torch.float64)
        if any(own.shortest != options.shortest for own in each):
            shortest = most.new_tensor([own.shortest for own in each])
        self.constraints = Constraints(most, prefixes or [], shortest, options.no_repeat)
        self.size = int(most.max()) + 1  # steps, including END's
        with threads_for(numbers_of(source).numel(), most.device):
            memory = model.encode(source)
        self.lengths = memory.lengths.to(most.device)  # source positions to be covered
        if self.size > FAR and not most.is_cuda:  # its cache alone may be too large
            short, long = (row_bytes(model.start(memory, 1, size), len(most)) for size in (FAR // 2, FAR))
            check_memory(options, long + (long - short) * (self.size - FAR) * 2 // FAR, len(most), self.size)
        self.state = model.start(memory, 1, self.size, options.coverage_penalty > 0)
        if options.coverage_penalty and self.state.coverage is None:
            raise ArgumentError(
                f"coverage_penalty: {options.coverage_penalty:g} given, but a model without attention covers nothing"
            )
        self.rows, count = options.nbest if options.sample else options.beam, len(most)
        self.sentences = [  # in the batch
            SentenceSearch(own, [[] for _ in range(own.groups)], steps=[] if trace else None) for own in each
        ]
        self.step = 0  # the number of steps taken
        self.ended = False  # whether any hypothesis has finished
        self.count = candidate_count(self.rows // options.groups)
        self.begin: Int[Tensor, " s"] | None = None  # when each sentence began; None: all of them at 0
        self.history = torch.full((count, 1, self.size), PAD, device=most.device)
        self.total = torch.zeros(count, 1, device=most.device)
        self.numbers: Float[Tensor, "s t r"] | None = None
        if options.sample:
            self.numbers = torch.zeros(count, self.size, self.rows, dtype=torch.float64)
            # The random numbers depend only on the sentence's tokens or the picture's pixels, not on the batch.
            if isinstance(source, Pictures):
                named = [[zlib.crc32(pixels.contiguous().numpy().tobytes())] for pixels in source.pixels.cpu()]
            else:
                pairs = zip(source.ids.tolist(), source.lengths.tolist(), strict=True)
                named = [ids[:length] for ids, length in pairs]
            for i, limit in enumerate(most.tolist()):
                self.numbers[i, : limit + 1] = random_numbers(named[i], limit + 1, self.rows, each[i].seed)

    def run(self) -> list[SearchResult]:
        """Take steps until all sentences are done, and return their results."""
        sentences = list(self.sentences)
        while self.advance():
            pass
        return [each.result() for each in sentences]

    def advance(self) -> bool:
        """Take one step of every sentence, and set `done` of those that are done; return False if none is left."""
        with threads_for(len(self.sentences) * self.rows, self.total.device):
            return self.take_step()

    def take_step(self) -> bool:
        """Take one step, with the current number of threads."""
        step = self.step
        if step == 0:
            tokens = torch.full((len(self.sentences),), START, device=self.total.device)
        else:
            tokens = self.history[..., step - 1].flatten()
        logits, self.state = self.model.step(tokens, self.state)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        logits = logits.view(len(self.sentences), -1, logits.shape[-1])
        if step == 0:
            self.constraints.check(logits.shape[-1])
            if len(self.sentences) * self.rows > MANY and not logits.is_cuda:  # a GPU raises its own error
                row = row_bytes(self.state, len(self.sentences))
                check_memory(self.options, row, len(self.sentences), self.size, logits.shape[-1])
        norm = log_sum(logits)
        if not math.isfinite(norm.sum()):  # rows that are done may have any value
            check_finite(self.model, norm[self.total > -torch.inf], impossible=False)
        self.constraints.limit_(logits, self.history[..., :step])
        choice = (self.draw if self.options.sample else self.choose)(logits, norm, step)
        self.step += 1
        return self.move(choice, step) and self.step < self.size

    # ---- the next tokens

    def choose(self, scores: Float[Tensor, "s r v"], norm: Float[Tensor, "s r"], step: int) -> Choice:
        """Choose the hypotheses that continue, one group after another."""
        groups, rows = self.options.groups, self.rows // self.options.groups
        if step < self.constraints.alike:  # while all sentences are within their prefixes, each has one hypothesis
            groups = rows = 1
        count = self.count if rows > 1 else candidate_count(1)
        best, tokens = top_tokens(scores, min(count + (groups - 1) * rows, scores.shape[-1]))
        best = add_log_probs(best, self.total, norm)
        if self.rows == 1 and not self.trace:
            return self.choose_top(best[..., 0], tokens[..., 0], step)
        choices: list[Choice] = []
        for group in range(groups):
            first, last = (group * rows, (group + 1) * rows) if best.shape[1] > 1 else (0, 1)
            totals, each = best[:, first:last], tokens[:, first:last]
            paid = None
            if choices:
                earlier = [choice.tokens.masked_fill(choice.total == -torch.inf, NONE) for choice in choices]
                same = each[..., None] == torch.cat(earlier, 1)[:, None, None]
                paid = totals - self.options.diversity * same.sum(-1)
            candidates, rank = rank_candidates(totals, each, paid, count, first)
            choices.append(self.select_next(candidates, rank, rows, group, step))
        return choices[0] if groups == 1 else Choice(*(torch.cat(part, 1) for part in zip(*choices, strict=True)))

    def choose_top(self, total: Float[Tensor, "s 1"], tokens: Int[Tensor, "s 1"], step: int) -> Choice:
        """Extend each sentence by its likeliest token, or end it: a fast `select_next` for greedy search."""
        choice, ends = Choice(torch.zeros_like(tokens), tokens, total), tokens == END
        if not bool(ends.any()):
            return choice
        self.finish(choice, ends & (total > -torch.inf), 0, step)
        return choice._replace(total=total.masked_fill(ends, -torch.inf))

    def select_next(self, candidates: Choice, rank: Float[Tensor, "s k"], rows: int, group: int, step: int) -> Choice:
        """Finish candidates that end and are among the first `rows`; return the best `rows` others, which continue."""
        ends = candidates.tokens == END
        finished = ends & (candidates.total > -torch.inf)
        finished[:, rows:] = False
        self.finish(candidates, finished, group, step)
        total = candidates.total.masked_fill(ends, -torch.inf)
        if total.shape[1] == 1:
            order = torch.zeros_like(candidates.parents)
        else:
            order = rank.masked_fill(ends, -torch.inf).topk(min(rows, total.shape[1])).indices
        choice = Choice(*(part.gather(1, order) for part in (candidates.parents, candidates.tokens, total)))
        if len(order[0]) < rows:  # a small vocabulary gives fewer candidates than rows
            fill = (0, rows - len(order[0]))
            choice = Choice(
                F.pad(choice.parents, fill),
                F.pad(choice.tokens, fill, value=PAD),
                F.pad(choice.total, fill, value=-torch.inf),
            )
        if self.ended:
            self.stop_full(choice, group, step)
        if self.trace:
            alive = (choice.total > -torch.inf)[:, : order.shape[1]]
            self.note(candidates, finished, order.masked_fill(~alive, NONE), group * rows)
        return choice

    def draw(self, scores: Float[Tensor, "s r v"], norm: Float[Tensor, "s r"], step: int) -> Choice:
        """Sample a token for each row; rows that sample END are finished."""
        assert self.numbers is not None
        s, r = norm.shape
        shift = (self.total - norm).expand(-1, self.rows)  # at the first step, one row serves all samples
        scores = scores.expand(-1, self.rows, -1)
        numbers = (
            self.numbers[:, step] if self.begin is None else self.numbers[torch.arange(s), step - self.begin.cpu()]
        )
        tokens = sample_tokens(scores, numbers, self.options)
        total = shift + scores.gather(-1, tokens[..., None])[..., 0]
        rows = torch.arange(self.rows, device=tokens.device).expand(s, -1)
        choice = Choice(rows if r > 1 else torch.zeros_like(rows), tokens, total)
        ends = tokens == END
        finished = ends & (total > -torch.inf)
        self.finish(choice, finished, 0, step)
        if self.trace:
            self.note(choice, finished, rows.masked_fill(ends, NONE), 0)
        return choice._replace(total=total.masked_fill(ends, -torch.inf))

    # ---- hypotheses that end

    def finish(self, candidates: Choice, finished: Bool[Tensor, "s k"], group: int, step: int) -> None:
        """Add the hypotheses that ended to the outputs of their sentence."""
        if not bool(finished.any()):
            return
        self.ended = True
        scores = self.scores(candidates, step)
        history, most = self.history[..., :step].tolist(), self.constraints.most.tolist()
        parents, total, score = candidates.parents.tolist(), candidates.total.tolist(), scores.tolist()
        for i, j in finished.nonzero().tolist():
            sentence = self.sentences[i]
            tokens = history[i][parents[i][j]][sentence.begin :]
            output = Output(tokens, total[i][j], score[i][j], step < most[i])
            if self.options.sample:
                sentence.samples[j] = output
            else:
                pool = sentence.pools[group]
                bisect.insort(pool, output, key=lambda each: -each.score)
                del pool[self.rows // self.options.groups :]

    def scores(self, choice: Choice, step: int) -> Float[Tensor, "s k"]:
        """Compute the scores of hypotheses: their log-probabilities with the penalties."""
        length = step + 1 if self.begin is None else (step + 1 - self.begin)[:, None].double()
        scores = choice.total / length_penalty(length, self.alpha)
        if self.state.coverage is None:
            return scores
        coverage = self.state.coverage.view(len(self.sentences), -1, self.state.coverage.shape[-1]).to(scores)
        penalty = coverage_penalty(coverage, self.lengths)
        return scores + self.options.coverage_penalty * penalty.gather(1, choice.parents)

    def stop_full(self, choice: Choice, group: int, step: int) -> None:
        """Stop all hypotheses of sentences whose pool is full and better than every unfinished hypothesis."""
        rows = self.rows // self.options.groups
        full = [i for i, sentence in enumerate(self.sentences) if len(sentence.pools[group]) == rows]
        if full:
            best = self.scores(choice, step).amax(1).tolist()
            for i in full:
                if is_settled(best[i], self.sentences[i].pools[group][-1].score, rows):
                    choice.total[i] = -torch.inf

    def note(self, candidates: Choice, finished: Bool[Tensor, "s k"], order: Int[Tensor, "s r"], first: int) -> None:
        """Add the step's candidates to the traces of their sentences; a sentence that is done has none."""
        ended, rows = finished.tolist(), order.tolist()
        parts = zip(*(part.tolist() for part in candidates), strict=True)
        for i, (parents, tokens, totals) in enumerate(parts):
            steps = self.sentences[i].steps
            assert steps is not None
            noted = []
            for j, candidate in enumerate(zip(parents, tokens, totals, strict=True)):
                if candidate[2] == -torch.inf:
                    continue
                goes_on = j in rows[i]
                fate = "finished" if ended[i][j] else "kept" if goes_on else "dropped"
                noted.append(Candidate(*candidate, fate, first + rows[i].index(j) if goes_on else None))  # type: ignore[arg-type]
            if first == 0:
                steps.append(noted)
            else:
                steps[-1].extend(noted)

    # ---- hypotheses that continue

    def move(self, choice: Choice, step: int) -> bool:
        """Replace the rows with the chosen hypotheses, and remove finished sentences; return False if none is left."""
        rows, before = choice.parents.shape[1], self.history.shape[1]
        if rows > before:
            self.state = self.state.repeat_rows(rows)
            self.history = self.history.expand(-1, rows, -1).clone()
        elif rows > 1 and not self.options.sample:
            first = torch.arange(0, rows * len(self.sentences), rows, device=choice.parents.device)
            self.state.select_((first[:, None] + choice.parents).flatten())
            self.history = self.history.gather(1, choice.parents[..., None].expand_as(self.history))
        self.history[..., step] = choice.tokens
        self.total = choice.total
        going = (self.total > -torch.inf).any(1)
        active_count = 0
        for sentence, active in zip(self.sentences, going.tolist(), strict=True):
            sentence.done = not active
            active_count += active
        if 0 < active_count <= len(self.sentences) * (CROWD - 1) / CROWD:
            self.take(going.nonzero()[:, 0])
        return active_count > 0

    def take(self, keep: Int[Tensor, " k"]) -> None:
        """Keep only these sentences in the batch."""
        self.state, self.history, self.total = self.state.take(keep), self.history[keep], self.total[keep]
        self.lengths = self.lengths[keep]
        self.constraints.take(keep)
        rows = keep.tolist()
        if isinstance(self.alpha, Tensor):
            self.alpha = self.alpha[keep]
        if self.begin is not None:
            self.begin = self.begin[keep]
        self.sentences = [self.sentences[i] for i in rows]
        if self.numbers is not None:
            self.numbers = self.numbers[rows]

    # ---- calls from other code

    def stop(self, sentence: SentenceSearch) -> None:
        """End the search for a sentence; it leaves the batch at a later step."""
        self.total[self.sentences.index(sentence)] = -torch.inf


def rank_candidates(
    totals: Float[Tensor, "s r k"],
    tokens: Int[Tensor, "s r k"],
    paid: Float[Tensor, "s r k"] | None,
    count: int,
    first: int,
) -> tuple[Choice, Float[Tensor, "s c"]]:
    """Return the best candidates of all rows, in order, and the values that rank them; rows count from `first`."""
    rank = (totals if paid is None else paid).flatten(1)
    if paid is None and totals.shape[1] == 1:  # they are in order already
        each = slice(None), slice(count)
        return Choice(torch.zeros_like(tokens[:, 0])[each], tokens[:, 0][each], totals[:, 0][each]), rank[each]
    rank, place = rank.topk(min(count, rank.shape[1]))
    parents = place // totals.shape[2] + first
    return Choice(parents, tokens.flatten(1).gather(1, place), totals.flatten(1).gather(1, place)), rank


def numbers_of(source: Tokens | Pictures) -> Tensor:
    """Return a batch's token ids, or its pixels."""
    return source.pixels if isinstance(source, Pictures) else source.ids


# ---- sampling


def random_numbers(source: list[int], steps: int, rows: int, seed: int) -> Float[Tensor, "t r"]:
    """Draw a sentence's random numbers in [0, 1), one per step and row, from its tokens and the seed alone."""
    # Hash the tokens and the seed into the 32 bits of the generator's seed.
    key = zlib.crc32(torch.tensor([seed % 2**63, *source], dtype=torch.int64).numpy().tobytes())
    generator = torch.Generator().manual_seed(key)
    # Draw row by row, so that the first samples do not depend on the number of samples.
    return torch.rand(rows, steps, generator=generator, dtype=torch.float64).T


def sample_tokens(
    scores: Float[Tensor, "s r v"], numbers: Float[Tensor, "s r"], options: Options
) -> Int[Tensor, "s r"]:
    """Sample one token per row by inverting the cumulative distribution at the row's random number."""
    device = scores.device
    scores = (scores.cpu() if device.type == "mps" else scores).double()  # Apple's GPU has no float64
    scores = (scores - scores.amax(-1, keepdim=True)) / options.temperature  # the largest stays 0 at any temperature
    order = None
    if 0 < options.top_k < scores.shape[-1]:
        scores, order = scores.topk(options.top_k)
    elif options.top_p < 1:
        scores, order = scores.sort(descending=True)
    probability = scores.softmax(-1)
    if options.top_p < 1:
        before = probability.cumsum(-1) - probability
        probability = probability.masked_fill(before >= options.top_p, 0.0)  # always keeps the first token
    summed = probability.cumsum(-1)
    place = (summed <= numbers[..., None].to(summed.device) * summed[..., -1:]).sum(-1, keepdim=True)
    place = place.clamp(max=probability.shape[-1] - 1)
    return (place if order is None else order.gather(-1, place))[..., 0].to(device)


# ---- joining of running searches

# s sentences · r rows of each · t steps
# The options in which the sentences of one search may differ.
OWN = ("length_penalty", "shortest", "longest", "seed", "precision")


def shared_options(options: Options) -> Options:
    """Return the options that all sentences of one search must share, with each sentence's own set to defaults."""
    own = OWN if options.sample else (*OWN, "nbest")
    return replace(options, **{name: getattr(Options, name) for name in own})


def can_join(search: StepSearch, other: StepSearch) -> bool:
    """Return whether two searches can be joined now: same model, shared options and cache types, and all rows exist."""
    if search.model is not other.model or shared_options(search.options) != shared_options(other.options):
        return False
    if any(each.trace or each.step == 0 or each.history.shape[1] != each.rows for each in (search, other)):
        return False
    pairs = [(part, other.state.row[name]) for name, part in search.state.row.items() if isinstance(part, Cache)]
    return all(type(one) is type(two) for one, two in pairs)


def join_searches(search: StepSearch, other: StepSearch) -> None:
    """Move the sentences of another search into the first; the other must not be used afterwards."""
    ahead = search.step - other.step
    shift(search, max(0, -ahead))
    shift(other, max(0, ahead))
    first = min(each.begin for each in (*search.sentences, *other.sentences))
    for one in (search, other):
        shift(one, -first)  # remove the steps before the first sentence began
    search.size = max(search.size, other.size)
    search.state = search.state.join(other.state, search.size - search.step)
    search.history = torch.cat(
        [F.pad(one.history, (0, search.size - one.history.shape[-1]), value=PAD) for one in (search, other)]
    )
    search.total = torch.cat([search.total, other.total])
    search.lengths = torch.cat([search.lengths, other.lengths])
    search.alpha = torch.cat([penalties(search), penalties(other)])
    search.constraints.join(other.constraints)
    search.sentences, search.ended = search.sentences + other.sentences, search.ended or other.ended
    search.begin = torch.tensor([each.begin for each in search.sentences], device=search.total.device)
    if search.numbers is not None and other.numbers is not None:
        steps = max(search.numbers.shape[1], other.numbers.shape[1])
        both = (F.pad(one, (0, 0, 0, steps - one.shape[1])) for one in (search.numbers, other.numbers))
        search.numbers = torch.cat(list(both))


def shift(search: StepSearch, steps: int) -> None:
    """Shift a search's step count, and everything that is relative to it, forwards or backwards."""
    search.step, search.size = search.step + steps, search.size + steps
    search.history = F.pad(search.history, (steps, 0), value=PAD)
    search.constraints.shift(steps)
    for sentence in search.sentences:
        sentence.begin += steps


def penalties(search: StepSearch) -> Float[Tensor, "s 1"]:
    """Return the length penalty's α of each sentence."""
    if isinstance(search.alpha, Tensor):
        return search.alpha
    return torch.full((len(search.sentences), 1), search.alpha, dtype=torch.float64, device=search.total.device)
