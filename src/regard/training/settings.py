"""The settings of training: what can be set about the loop. Imports no torch."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from regard.config import option
from regard.errors import ConfigError
from regard.plugins import added

__all__ = ["TrainingSettings"]

STEPS = 1_000_000_000


@dataclass(frozen=True)
class TrainingSettings:
    """The settings of training."""

    steps: int = option(8000, "updates of the weights", least=1, most=STEPS)
    minutes: float | None = option(None, "stop after so many minutes, whatever step it is", above=0, most=5_256_000)
    batch_tokens: int | Literal["auto"] = option(
        "auto",
        "token budget of a batch, a side and a process; auto: 4,096 on a CPU, found by trying on a GPU",
        least=1,
        most=1_048_576,
    )
    batch_rows: int | None = option(None, "the most sentences a batch", least=1, most=1_048_576)
    accumulate: int = option(1, "batches an update and a process", least=1, most=4096)
    rate: float = option(1e-3, "the highest learning rate", above=0, most=1_000_000)
    schedule: Literal["noam", "cosine", "constant"] = option(
        "noam", "after the warm-up: 1/√step (Vaswani 2017), half a cosine down to the last step, or constant"
    )
    warmup: int = option(1000, "steps in which the rate grows from nothing", least=0, most=STEPS)
    betas: tuple[float, ...] = option((0.9, 0.98), "Adam's two", least=0, below=1)
    weight_decay: float = option(0.0, "AdamW's", least=0, most=1_000_000)
    smoothing: float = option(0.1, "label smoothing", least=0, below=1)
    guided: float = option(
        0.0,
        "guided alignment: the weight of a loss that lets one head look where the links of data.alignment lead",
        least=0,
        most=1_000_000,
    )
    guided_layer: int | None = option(
        None, "its layer, from 0; default: the last but one of more than three, else the last", least=0, most=255
    )
    guided_head: int = option(0, "its head, from 0", least=0, most=1023)
    clip: float = option(1.0, "the largest norm of the gradient; 0: no limit", least=0, most=1_000_000)
    ema: float | None = option(
        None, "decay of an exponential moving average of the weights, such as 0.999", above=0, below=1
    )
    average: int = option(
        0, "at the end, average the last so many checkpoints; taken if it is better", least=0, most=10_000
    )
    metric: Literal["bleu", "chrf", "exact", "cider", "rouge", "accuracy", "f1", "loss"] | None = option(
        None,
        "what says which checkpoint is best, the loss where two are equal; by default what suits the references: bleu, "
        "exact or chrf; cider for captions; a classifier's accuracy or f1; a language model's loss",
        also=partial(added, "metric"),
    )
    class_weights: Literal["none", "balanced"] = option(
        "none", "balanced: a classifier's rare labels count as much as its frequent ones"
    )
    validate_every: int = option(
        500, "steps between validations, each of which saves a checkpoint", least=1, most=STEPS
    )
    validate_rows: int = option(
        500, "sentences translated at a validation; the loss is over all of them", least=0, most=1_000_000_000
    )
    patience: int = option(
        0,
        "stop after so many validations with neither a better metric nor a lower loss; 0: never",
        least=0,
        most=1_000_000_000,
    )
    keep: int = option(2, "checkpoints kept beside the best one", least=1, most=10_000)
    log_every: int = option(20, "steps between two records of the training loss", least=1, most=STEPS)
    seed: int = option(1, "of weights, dropout and the order of batches", least=0, most=2**63 - 1)
    device: Literal["auto", "cpu", "cuda", "mps"] = option(
        "auto", "auto takes a GPU where there is one: cuda, or else mps, Apple's, in float32"
    )
    precision: Literal["auto", "fp32", "bf16"] = option("auto", "auto: bf16 on a CUDA GPU, fp32 elsewhere")
    compile: bool = option(False, "compile the objective (torch.compile)")
    replay: bool | Literal["auto"] = option(
        "auto", "on a GPU, replay a whole update as one CUDA graph a shape of batch; auto: where that can be done"
    )
    shard: bool = option(False, "with torchrun: shard weights, gradients and optimiser over the processes (FSDP2)")
    threads: int | None = option(None, "CPU threads; default: what torch chooses", least=1, most=1024)

    def __post_init__(self) -> None:
        if len(self.betas) != 2:
            raise ConfigError("betas", f"{len(self.betas)} numbers given, expected two")
        if self.schedule == "noam" and self.warmup == 0:
            raise ConfigError("warmup", '0 given with schedule = "noam", which needs at least 1')
        if self.average > self.keep:
            raise ConfigError(
                "average", f"{self.average} given, but only {self.keep} checkpoints are kept (training.keep)"
            )
