r"""Captions: the objectives of soft and hard attention, and the task.

Xu et al. 2015 (arXiv:1502.03044), section 4. $y$ is a caption, $a$ the locations of its picture, $\alpha_t$ the
attention weights at word t.

Soft attention (4.2.1) minimises $-\log p(y | a) + \lambda \sum_i (1 - \sum_t \alpha_{ti})^2$ for each caption: summed
over its words, the attention to every location should be about one.

Hard attention (4.1) maximises a lower bound, $\sum_s p(s | a) \log p(y | s, a) \le \log p(y | a)$, with sampled
locations $\tilde s$ and the gradient
$\nabla \log p(y | \tilde s, a) + \lambda_r (\log p(y | \tilde s, a) - b) \nabla \log p(\tilde s | a)
+ \lambda_e \nabla H[\tilde s]$. The baseline b is a moving average of $\log p(y | \tilde s, a)$: 0.9 of the old value
and 0.1 of a batch's mean, initialised with the first batch's mean. A batch uses the baseline from before it, so that
the estimate is unbiased. A share of the captions uses the expected context instead of a sampled one; at first all do.
"""

# b pictures of a batch · r captions of all of them · n words · m places · t real tokens · d width
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard import data
from regard.config import parse
from regard.decoding import GREEDY, Options, batches, search
from regard.errors import DataError
from regard.evaluation import caption_scores, finite, measure_bleu_n, measure_cider, measure_rouge, text_scores
from regard.models import Model, Pictures, Reinforcement, Tokens
from regard.tasks import forcing
from regard.tasks.evaluation import EvaluationReport, Table, describe_search
from regard.tasks.forcing import ForcedExample, Item
from regard.tasks.settings import Settings
from regard.tasks.task import (
    PICTURES,
    NextToken,
    TrainedRun,
    Translation,
    halve,
    pick_three,
    to_translation,
    without_bleu,
)
from regard.training import Loss, Sample, nearest, next_token

OLD, NEW = 0.9, 0.1  # of the baseline
CIDER = 50  # pictures from which CIDEr is usable: it weighs words by how few pictures' references contain them


class Captioning(nn.Module):
    """The objective of captioning: encode each picture once, and decode it for all its captions."""

    def __init__(self, model: Model, smoothing: float = 0.0):
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: data.PictureBatch) -> Loss:
        """Sum the loss over all words of all captions; in training add the attention's terms for each caption."""
        memory = self.model.encode(Pictures(batch.pixels)).rows(batch.picture)
        target = Tokens.of(batch.target[:, :-1], batch.target_lengths)
        hidden, extra = self.model.decode(memory, target)
        real, rule = target.real, self.model.reinforcement
        tokens, expected = hidden[real], batch.target[:, 1:][real]
        parts = {"tokens": real.sum().to(hidden.dtype)}
        if rule is not None and "sampled" in extra:
            return self.reinforce(rule, tokens, expected, real, extra, parts)
        total, nll = next_token(self.model, tokens, expected, self.smoothing if self.training else 0.0)
        parts["nll"] = nll
        if self.training and (weight := self.model.doubly_stochastic):
            penalty = weight * doubly_stochastic(extra["weights"], real).sum()
            total, parts["penalty"] = total + penalty, penalty.detach()
        return Loss(total, parts)

    def reinforce(
        self,
        rule: Reinforcement,
        hidden: Float[Tensor, "t d"],
        expected: Int[Tensor, " t"],
        real: Bool[Tensor, "r n"],
        extra: dict[str, Tensor],
        parts: dict[str, Tensor],
    ) -> Loss:
        """Apply the learning rule of hard attention."""
        rule.batches.add_(1)
        logits = self.model.output(hidden)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        total = F.cross_entropy(logits, expected, reduction="sum", label_smoothing=self.smoothing)
        each = logits.new_zeros(real.shape)
        each[real] = -F.cross_entropy(logits.detach(), expected, reduction="none")
        reward = each.sum(1)  # log p(y | s̃, a) of each caption
        baseline = update_baseline(rule.baseline, reward, extra["sampled"])
        log_prob = extra["log_prob"].masked_fill(~real, 0.0).sum(1)  # log p(s̃ | a); 0 if no location was sampled
        entropy = extra["entropy"].masked_fill(~real, 0.0).sum()
        climbed = rule.weight * ((reward - baseline) * log_prob).sum() + rule.entropy * entropy
        parts |= {"nll": -reward.sum(), "entropy": entropy.detach()}
        return Loss(total - climbed, parts)


@torch.no_grad()
def update_baseline(
    baseline: Float[Tensor, ""], reward: Float[Tensor, " r"], sampled: Bool[Tensor, " r"]
) -> Float[Tensor, ""]:
    """Return the baseline from before this batch, and update it; 0, not a possible log-probability, means none yet."""
    mean = reward.masked_fill(~sampled, 0.0).sum() / sampled.sum().clamp(min=1)
    before = torch.where(baseline == 0, mean, baseline)
    baseline.copy_(torch.where(sampled.any(), OLD * before + NEW * mean, baseline))
    return before


def doubly_stochastic(weights: Float[Tensor, "r n m"], real: Bool[Tensor, "r n"]) -> Float[Tensor, " r"]:
    """Compute Σ_i (1 - Σ_t α_ti)² of each caption, over its real words and all places."""
    coverage = weights.masked_fill(~real[..., None], 0.0).sum(1)
    return (1 - coverage).square().sum(-1)


class Caption(NextToken):
    """The task of captioning pictures."""

    actions = ("caption",)

    @classmethod
    def prepare(cls, settings: Settings, *, labels: Sequence[str] = (), **how: Any) -> data.Prepared:
        """Prepare pictures and all their captions."""
        return data.prepare_images(settings.data, settings.tokenizer, settings.task, **how)

    def make_objective(self) -> Captioning:
        """Create the objective, for soft or hard attention."""
        return Captioning(self.model, self.settings.training.smoothing)

    def suitable_metric(self) -> str:
        """Choose the metric that suits the held-out captions."""
        return caption_metric(self.prepared.references) if self.settings.training.validate_rows else "loss"

    def make_order(self, budget: int) -> data.Order:
        """Order pictures independently of caption length, which batch norms would otherwise reveal to the model."""
        alike = np.ones((len(self.prepared.train), 2), np.int32)
        rows = self.settings.training.batch_rows or PICTURES
        return data.Order(alike, max(budget, 2 * rows), seed=self.settings.training.seed, rows=rows)

    def batch(self, plan: Any, position: data.Position) -> data.PictureBatch:
        """Load the pictures' pixels, with other random crops and mirrorings in every epoch, and all their captions."""
        return self.load(self.prepared.train, plan, train=True, epoch=position.epoch)

    def load(self, encoded: data.Encoded, plan: Any, *, train: bool, epoch: int = 0) -> data.PictureBatch:
        """Load a batch of the pictures of `plan`."""
        settings = self.settings
        return data.batching.load_pictures(
            self.prepared, encoded, plan, train=train, data=settings.data, seed=settings.training.seed, epoch=epoch
        )

    def halves(self, batch: Any) -> Sequence[data.PictureBatch]:
        """Split the batch into halves of its pictures."""
        side, lower = self.settings.data.image_size, "lower data.image_size or the model's size"
        return halve(batch, f"out of memory with one picture of {side} pixels: {lower}")

    def valid_batches(self) -> Iterator[data.PictureBatch]:
        """Yield the validation pictures, uncropped."""
        valid = self.prepared.valid
        plans = data.Order(valid.lengths, self.order.budget, rows=self.order.rows).epoch(0)
        return (self.load(valid, plan, train=False) for plan in plans)

    def write(self, rows: int) -> tuple[list[Sample], dict[str, float]]:
        """Write captions and compare each with all references of its picture; a sample shows the nearest reference."""
        caption_sets, valid = self.prepared.references[:rows], self.prepared.valid
        references = [[self.tokenizer.normalise(each) for each in captions] for captions in caption_sets]
        chunks = (range(i, min(i + PICTURES, rows)) for i in range(0, rows, PICTURES))
        pixels = (one for chunk in chunks for one in self.load(valid, chunk, train=False).pixels)
        results = batches.search_pictures(self.model, pixels, GREEDY, device=self.device, rows=PICTURES)
        outputs = [self.tokenizer.decode(each.outputs[0].tokens) for each in results]
        names = [name for name, _ in self.prepared.valid_pairs[:rows]]
        closest = [nearest(output, each) for output, each in zip(outputs, references, strict=True)]
        samples = zip(names, closest, outputs, strict=True)
        return [Sample(*each) for each in samples], caption_scores(outputs, references)

    def samples(self) -> list[Sample]:
        """Return three captions of the last validation, always of the same three pictures."""
        return [self.validation_samples[i] for i in pick_three(range(len(self.validation_samples)))]

    def facts(self) -> list[tuple[str, str]]:
        """List the model, the data, the captions and the batch size."""
        counts, side = self.prepared.counts, self.settings.data.image_size
        held_out = f"{len(self.prepared.valid):,} for validation"
        return [
            ("model", f"{self.settings.kind}, {self.parameters:,} parameters"),
            ("data", f"{counts['pairs']:,} pictures of {side} × {side} pixels, {held_out}"),
            ("captions", f"{counts['train_texts']:,}, {self.tokenizer.size:,} pieces ({self.tokenizer.kind})"),
            ("batch", f"up to {self.order.rows:,} pictures"),
        ]

    def fingerprint(self) -> dict[str, Any]:
        """Return the common values of text tasks, and the options that resize, crop and mirror pictures."""
        cut = {name: getattr(self.settings.data, name) for name in ("image_size", "crop", "flip")}
        return {**super().fingerprint(), **cut}

    def example(self) -> tuple[Item, str | None] | None:
        """Return the picture in the middle of the validation set."""
        valid = self.prepared.valid
        if not len(valid):
            return None
        return self.load(valid, np.array([len(valid) // 2]), train=False).pixels[0], None

    @classmethod
    def force(cls, run: TrainedRun, item: Item, target: str | None, options: Options, tree: bool) -> ForcedExample:
        """Return a picture and its caption for a teacher-forced pass."""
        pixels, tokenizer = forcing.read_pixels(run.settings.data, item), run.tokenizers.target
        source = Pictures(pixels[None].to(run.device))
        if target is not None:
            output, beam_tree = forcing.encode_text(tokenizer, target, "target", run.model.limit), None
        else:
            (result,) = search(run.model, source, options, trace=tree)
            output, beam_tree = result.outputs[0].tokens, forcing.search_tree(result, tokenizer, options)
        sides = forcing.output_sides(tokenizer, output, target)
        text = tokenizer.decode(output)
        return ForcedExample(
            source, sides, forcing.name_item(item), text, tuple(output), picture=pixels, tree=beam_tree
        )

    @classmethod
    def evaluate(  # type: ignore[override]
        cls,
        run: TrainedRun,
        *,
        images: str | Path,
        captions: str | Path,
        names: str | Path | None = None,
        **options: Any,
    ) -> EvaluationReport:
        """Caption the pictures of a test set, and compare the outputs with all their captions.

        The test set is the pictures that the file `names` lists; otherwise the test split of Karpathy's JSON; otherwise
        all pictures with captions. `options` are those of the search, such as beam=5.
        """
        parse(Options, options)
        notes: list[str] = []
        read = data.caption_files.read_captions(captions, notes.append)
        pictures, unread = data.picture_corpus.read_test_pictures(
            run.settings.data, images, choose_pictures(read, names)
        )
        notes += unread
        if not pictures:
            why = "; ".join(notes[:3])
            raise DataError(f"{images}: none of the pictures of {names or captions} can be read ({why})")
        results = caption(run, pictures.values(), **options)
        outputs = {name: best[0].text for name, best in zip(pictures, results, strict=True)}
        texts, references = list(outputs.values()), [read.captions[picture] for picture in outputs]
        measured = [measure_bleu_n(texts, references, n) for n in (1, 2, 3, 4)]
        measured += [way(texts, references) for way in (measure_cider, measure_rouge, text_scores.measure_exact)]
        first = {"bleu": 3, "cider": 4, "rouge": 5, "exact": 6}.get(run.settings.training.metric or "")
        if first is not None:  # list first the metric that selected the best checkpoint
            measured.insert(0, measured.pop(first))
        scores = [each.score() for each in measured]
        heading = f"{run.folder}{describe_search(options)}: {len(outputs):,} pictures"
        facts = {"system": str(run.folder), "search": options, "pictures": len(outputs)}
        rows = {
            each.name: {"value": finite(each.value), "signature": each.signature, "shown": str(each)} for each in scores
        }
        return EvaluationReport(heading, [Table.of_scores(scores)], {**facts, "scores": rows}, outputs, notes)


def caption_metric(references: Sequence[Sequence[str]]) -> str:
    """Choose the metric: exact match for captions of few words, CIDEr for enough pictures, otherwise chrF."""
    shape = data.TextProfile.of([text for texts in references for text in texts])
    return without_bleu(shape) or ("cider" if len(references) >= CIDER else "chrf")


def caption(run: TrainedRun, pictures: Iterable[Item], **options: Any) -> Iterator[list[Translation]]:
    """Yield the captions of each picture, best first, lazily."""
    pixels = data.picture_corpus.read_pictures(run.settings.data, pictures)
    results = batches.search_pictures(run.model, pixels, parse(Options, options), device=run.device)
    return ([to_translation(output, run.tokenizers.target) for output in each.outputs] for each in results)


def choose_pictures(captions: data.caption_files.Captions, names: str | Path | None) -> list[str]:
    """Return the names of the test set's pictures that have captions."""
    if names is not None:
        listed = data.caption_files.read_list(names)
        pictures = [picture for picture in captions.captions if picture in listed]
        if not pictures:
            raise DataError(f"{names}: none of its {len(listed):,} pictures has a caption")
        return pictures
    test = [picture for picture in captions.captions if captions.splits.get(picture) == "test"]
    return test or list(captions.captions)
