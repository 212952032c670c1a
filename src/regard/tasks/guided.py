r"""Guided alignment: one head is taught to look at the words that a word translates.

Chen et al. 2016 (arXiv:1607.01628), section 3; of a Transformer's heads one alone, of the last layer but one, after
Garg et al. 2019 (arXiv:1909.02074), section 3.3:

$L = L_{\text{next token}} - \lambda \sum_i \sum_j G_{ij} \log a_{ij}$

over the target pieces i that are linked, $G_i$ even over the source pieces that i is linked to, $a_i$ what the head
looks at in the step that writes i. A departure: Garg's head sees the whole target in a pass of its own, and here it
sees what is written so far, so that one pass does both.
"""

# b sentences · n target positions · m source positions · d width · l links
import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Heads, watch
from regard.data import Batch, Links, PackedBatch
from regard.errors import ConfigError
from regard.models import Memory, Model, Tokens
from regard.training import Loss, Prediction, TrainingSettings, inputs


class Guided(Prediction):
    """The objective of guided alignment: the next token, and where one head looks meanwhile."""

    replays = False  # the head is watched, and no two batches have as many links

    def __init__(self, model: Model, smoothing: float, weight: float, name: str, head: int = 0):
        """Guide the attention to the source that `watch` knows by `name`."""
        super().__init__(model, smoothing)
        self.weight, self.name, self.head = weight, name, head

    def forward(self, batch: Batch | PackedBatch) -> Loss:
        """Sum both losses; `guided` is over the linked target pieces, of which there are `guided_count`."""
        if not self.training or isinstance(batch, PackedBatch):
            return super().forward(batch)
        if batch.links is None or not len(batch.links):  # said all the same: every process sums the same parts
            loss = super().forward(batch)
            nothing = torch.zeros_like(loss.total)
            return Loss(loss.total, {**loss.parts, "guided": nothing, "guided_count": nothing})
        source, target = inputs(batch)
        hidden, weights = self.decode_with_weights(self.model.encode(source), target)
        loss = self.token_loss(hidden, batch, target)
        guided = missed(weights, batch.links)
        counted = batch.links.weight.sum()
        parts = {**loss.parts, "guided": guided.detach(), "guided_count": counted.to(guided.dtype)}
        return Loss(loss.total + self.weight * guided, parts)

    def decode_with_weights(
        self, memory: Memory, target: Tokens
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n m"]]:
        """Return the decoder's output and the guided head's weights; all other attentions stay on their fast path."""
        if self.model.gives_weights:
            hidden, extra = self.model.decode(memory, target)
            return hidden, extra["weights"]
        with watch(self.model, only=[self.name]) as looks:
            hidden, _ = self.model.decode(memory, target)
        weights = looks[self.name].weights
        return hidden, weights[:, self.head] if weights.ndim == 4 else weights


def missed(weights: Float[Tensor, "b n m"], links: Links) -> Float[Tensor, ""]:
    """Compute -Σ G log a over all links of a batch: how far the weights are from the links."""
    wide = torch.promote_types(weights.dtype, torch.float32)
    link_weights = weights[links.row, links.target, links.source].to(wide)
    # What is too small to be told from nothing has no gradient, and no infinite loss.
    return -(links.weight * link_weights.clamp(min=torch.finfo(wide).tiny).log()).sum()


def guided_at(model: Model, settings: TrainingSettings) -> tuple[str, int]:
    """Return the name of the guided attention and its head, or raise a ConfigError that lists what there is."""
    cross_attentions, layer, head = model.cross_attentions, settings.guided_layer, settings.guided_head
    if not cross_attentions or not model.projects:
        why = "no attention to its source" if not cross_attentions else "an attention that is its output"
        raise ConfigError("training.guided", f"{settings.guided} given, but the model has {why}; expected 0")
    if layer is not None and layer >= len(cross_attentions):
        raise ConfigError(
            "training.guided_layer", f"{layer} given, expected less than {len(cross_attentions)}, the number of layers"
        )
    name = model.alignment_attention if layer is None else cross_attentions[layer]
    attention = model.get_submodule(name)
    heads = attention.heads if isinstance(attention, Heads) else 1
    if head >= heads:
        raise ConfigError("training.guided_head", f"{head} given, expected less than {heads}, the number of heads")
    return name, head
