r"""Captions: the objectives of soft and hard attention, and the task.

Xu et al. 2015 (arXiv:1502.03044), section 4. $y$ is a caption, $a$ the places of its picture, $\alpha_t$ the weights of
word t.

Soft (4.2.1): $-\log p(y | a) + \lambda \sum_i (1 - \sum_t \alpha_{ti})^2$, a caption: over all its words every place
should be looked at about once.

Hard (4.1): a bound on the likelihood, $\sum_s p(s | a) \log p(y | s, a) \le \log p(y | a)$, is climbed by drawing the
places $\tilde s$ of a caption:
$\nabla \log p(y | \tilde s, a) + \lambda_r (\log p(y | \tilde s, a) - b) \nabla \log p(\tilde s | a)
+ \lambda_e \nabla H[\tilde s]$. The baseline b is a moving average of $\log p(y | \tilde s, a)$, 0.9 of the old and 0.1
of a batch's mean; it is what it was before the batch, so that the estimate is not biased, and begins with the first
batch's. A share of the captions takes the expected context in place of a drawn one; at first all do.
"""

# b pictures of a batch · r captions of all of them · n words · m places · t real tokens · d width
import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.data.batching import Order, Position
from regard.data.cache import Encoded
from regard.data.images.prepare import PictureBatch, load_pictures
from regard.data.prepare import Prepared
from regard.data.tokenizer import Tokenizer
from regard.decoding.batches import search_pictures
from regard.decoding.options import GREEDY
from regard.errors import ArgumentError, NotFiniteError, TrainingError
from regard.evaluation.captions import caption_scores
from regard.models.captioner.lstm import LSTMDecoder
from regard.models.captioner.model import CaptionerModel
from regard.models.contract import Pictures, Tokens
from regard.models.kinds import build
from regard.tasks.metric_choice import caption_metric
from regard.tasks.settings import Settings
from regard.tasks.translate import Translate
from regard.training.objective import next_token
from regard.training.sample import Sample
from regard.training.task import Loss

__all__ = ["Caption", "Captioning", "doubly_stochastic"]

PICTURES = 64  # of a batch
OLD, NEW = 0.9, 0.1  # of the baseline


class Captioning(nn.Module):
    """The captions of pictures: each picture is encoded once, and decoded for all its captions."""

    def __init__(self, model: CaptionerModel, smoothing: float = 0.0):
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: PictureBatch) -> Loss:
        """The sum over all words of all captions, and in training over captions of what attention adds to it."""
        memory = self.model.encode(Pictures(batch.pixels)).rows(batch.picture)
        target = Tokens.of(batch.target[:, :-1], batch.target_lengths)
        hidden, extra = self.model.decode(memory, target)
        real, config = target.real, self.model.config
        tokens, expected = hidden[real], batch.target[:, 1:][real]
        parts = {"tokens": real.sum().to(hidden.dtype)}
        if "drawn" in extra:
            return self.reinforced(tokens, expected, real, extra, parts)
        total, nll = next_token(self.model, tokens, expected, self.smoothing if self.training else 0.0)
        parts["nll"] = nll
        if self.training and config.attention == "soft" and config.penalty:
            penalty = config.penalty * doubly_stochastic(extra["weights"], real).sum()
            total, parts["penalty"] = total + penalty, penalty.detach()
        return Loss(total, parts)

    def reinforced(
        self,
        hidden: Float[Tensor, "t d"],
        expected: Int[Tensor, " t"],
        real: Bool[Tensor, "r n"],
        extra: dict[str, Tensor],
        parts: dict[str, Tensor],
    ) -> Loss:
        """The learning rule of hard attention."""
        config, drawn = self.model.config, extra["drawn"]
        cast(LSTMDecoder, self.model.decoder).batches.add_(1)
        logits = self.model.output(hidden)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        total = F.cross_entropy(logits, expected, reduction="sum", label_smoothing=self.smoothing)
        each = logits.new_zeros(real.shape)
        each[real] = -F.cross_entropy(logits.detach(), expected, reduction="none")
        reward = each.sum(1)  # log p(y | s̃, a) of each caption
        baseline = self.baseline(reward, drawn)
        places = extra["log_prob"].masked_fill(~real, 0.0).sum(1)  # log p(s̃ | a); nothing where none was drawn
        entropy = extra["entropy"].masked_fill(~real, 0.0).sum()
        climbed = config.reinforce * ((reward - baseline) * places).sum() + config.entropy * entropy
        parts |= {"nll": -reward.sum(), "entropy": entropy.detach()}
        return Loss(total - climbed, parts)

    @torch.no_grad()
    def baseline(self, reward: Float[Tensor, " r"], drawn: Bool[Tensor, " r"]) -> Float[Tensor, ""]:
        """The baseline before this batch, which then has its share in it. Log-probabilities are not 0: that is none."""
        mean = reward.masked_fill(~drawn, 0.0).sum() / drawn.sum().clamp(min=1)
        kept = cast(LSTMDecoder, self.model.decoder).baseline
        before = torch.where(kept == 0, mean, kept)
        kept.copy_(torch.where(drawn.any(), OLD * before + NEW * mean, kept))
        return before


def doubly_stochastic(weights: Float[Tensor, "r n m"], real: Bool[Tensor, "r n"]) -> Float[Tensor, " r"]:
    """Σ_i (1 - Σ_t α_ti)² of each caption, over its real words and all places."""
    looked = weights.masked_fill(~real[..., None], 0.0).sum(1)
    return (1 - looked).square().sum(-1)


class Caption(Translate):
    """From pictures to captions."""

    def __init__(self, settings: Settings, prepared: Prepared, budget: int):
        self.settings, self.prepared = settings, prepared
        training = settings.training
        torch.manual_seed(training.seed)
        self.model = build(settings.kind, settings.model, 0, self.tokenizer.size)
        self.objective = Captioning(cast(CaptionerModel, self.model), training.smoothing)
        self.metric = training.metric or self.suitable_metric()
        # Pictures of any captions go together: were those of like length in a batch, its norms would tell how long.
        alike = np.ones((len(prepared.train), 2), np.int32)
        rows = training.batch_rows or PICTURES
        self.order = Order(alike, max(budget, 2 * rows), seed=training.seed, rows=rows)

    def suitable_metric(self) -> str:
        """What says which checkpoint is best, where nothing else is said."""
        return caption_metric(self.prepared.references) if self.settings.training.validate_rows else "loss"

    @property
    def tokenizer(self) -> Tokenizer:
        """Of the captions."""
        assert self.prepared.tokenizers is not None
        return self.prepared.tokenizers.target

    def batch(self, plan: Any, position: Position) -> PictureBatch:
        """The pictures' pixels, cut and mirrored anew every epoch, and all their captions."""
        return self.load(self.prepared.train, plan, train=True, epoch=position.epoch)

    def load(self, encoded: Encoded, plan: Any, *, train: bool, epoch: int = 0) -> PictureBatch:
        """A batch of some of the pictures."""
        settings = self.settings
        return load_pictures(
            self.prepared, encoded, plan, train=train, data=settings.data, seed=settings.training.seed, epoch=epoch
        )

    def halves(self, batch: Any) -> Sequence[PictureBatch]:
        """Half of the pictures each."""
        try:
            halves: tuple[PictureBatch, PictureBatch] = batch.halves()
        except ArgumentError:
            side = self.settings.data.image_size
            raise TrainingError(
                f"out of memory with one picture of {side} pixels: set data.image_size or the model's size lower"
            ) from None
        return halves

    def validate(self) -> dict[str, float]:
        """The loss a token over all validation pictures, and scores of the first ones' captions."""
        figures = self.loss()
        rows = min(self.settings.training.validate_rows, len(self.prepared.valid))
        self.translated: list[tuple[str, str, str]] = []
        if rows and math.isfinite(figures["loss"]):  # a model without finite scores says nothing
            references = [[self.tokenizer.normalise(each) for each in given] for given in self.references[:rows]]
            try:
                outputs = self.describe(rows)
            except NotFiniteError:  # though what is told to it has a finite loss
                return figures
            figures |= caption_scores(outputs, references)
            names = [name for name, _ in self.prepared.valid_pairs[:rows]]
            self.translated = list(zip(names, (given[0] for given in references), outputs, strict=True))
        return figures

    @property
    def references(self) -> Sequence[Sequence[str]]:
        """All captions of each validation picture."""
        return self.prepared.references

    def loss(self) -> dict[str, float]:
        """The negative log-likelihood of a validation token, without smoothing and dropout."""
        valid = self.prepared.valid
        if not len(valid):
            return {}
        total, count = 0.0, 0
        for plan in Order(valid.lengths, self.order.budget, rows=self.order.rows).epoch(0):
            batch = self.load(valid, plan, train=False)
            total += float(self.objective(batch.to(self.device)).parts["nll"])
            count += batch.tokens
        return {"loss": total / count}

    def describe(self, rows: int) -> list[str]:
        """Greedy captions of the first validation pictures."""
        valid = self.prepared.valid
        chunks = (range(i, min(i + PICTURES, rows)) for i in range(0, rows, PICTURES))
        pixels = (one for chunk in chunks for one in self.load(valid, chunk, train=False).pixels)
        found = search_pictures(self.model, pixels, GREEDY, device=self.device, rows=PICTURES)
        return [self.tokenizer.decode(each.outputs[0].tokens) for each in found]

    def samples(self) -> list[Sample]:
        """Three captions of the last validation: the same three pictures every time."""
        translated = getattr(self, "translated", [])
        chosen = sorted({len(translated) * part // 4 for part in (1, 2, 3)}) if translated else []
        return [Sample(*translated[i]) for i in chosen]

    def facts(self) -> list[tuple[str, str]]:
        """Model, data and vocabulary."""
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        counts, side = self.prepared.counts, self.settings.data.image_size
        held = f"{len(self.prepared.valid):,} for validation"
        return [
            ("model", f"{self.settings.kind}, {parameters:,} parameters"),
            ("data", f"{counts['pairs']:,} pictures of {side} × {side} pixels, {held}"),
            ("captions", f"{counts['train_texts']:,}, {self.tokenizer.size:,} pieces ({self.tokenizer.kind})"),
            ("batch", f"up to {self.order.rows:,} pictures"),
        ]

    def fingerprint(self) -> dict[str, Any]:
        """The model's options, the tokenizer, the data and how pictures are cut."""
        data = self.settings.data
        return {**super().fingerprint(), "image_size": data.image_size, "crop": data.crop, "flip": data.flip}
