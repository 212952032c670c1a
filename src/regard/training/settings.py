"""The settings of the training loop. This module does not import torch."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from regard.config import option
from regard.errors import ConfigError
from regard.plugins import added

__all__ = ["FITTED", "TrainingSettings"]

STEPS = 1_000_000_000
FITTED = ("steps", "warmup", "validate_every")  # keys that are fitted to a time limit, unless the user set them


@dataclass(frozen=True)
class TrainingSettings:
    """The settings of training."""

    steps: int = option(8000, "number of updates of the weights", least=1, most=STEPS)
    minutes: float | None = option(
        None,
        "time limit: the schedule is fitted to this many minutes, from the start of the data's preparation to the end "
        "of the last validation, over all resumes",
        above=0,
        most=5_256_000,
    )
    fit: tuple[str, ...] = option(
        (),
        "with minutes: which of steps, warmup and validate_every follow from the measured pace, as nobody set them; "
        "written by regard train",
    )
    batch_tokens: int | Literal["auto"] = option(
        "auto",
        "tokens per batch, for each side and process; auto: 4,096 on a CPU, found by trying on a GPU",
        least=1,
        most=1_048_576,
    )
    batch_rows: int | None = option(None, "maximum number of sentences per batch", least=1, most=1_048_576)
    accumulate: int = option(1, "gradient accumulation: batches per update and process", least=1, most=4096)
    rate: float = option(1e-3, "highest learning rate", above=0, most=1_000_000)
    schedule: Literal["noam", "cosine", "constant"] = option(
        "noam",
        "learning rate after the warm-up: 1/√step (Vaswani 2017), half a cosine down to the last step, or constant",
    )
    warmup: int = option(1000, "steps in which the learning rate rises from 0", least=0, most=STEPS)
    betas: tuple[float, ...] = option((0.9, 0.98), "β1 and β2 of Adam", least=0, below=1)
    weight_decay: float = option(0.0, "weight decay of AdamW", least=0, most=1_000_000)
    smoothing: float = option(0.1, "label smoothing", least=0, below=1)
    guided: float = option(
        0.0,
        "guided alignment: weight of a loss that trains one head to follow the links of data.alignment",
        least=0,
        most=1_000_000,
    )
    guided_layer: int | None = option(
        None,
        "layer of the guided head, from 0; default: the last but one if there are more than three, or the last",
        least=0,
        most=255,
    )
    guided_head: int = option(0, "guided head, from 0", least=0, most=1023)
    freeze: tuple[str, ...] = option(
        (),
        "parts that are not trained: embeddings, a module such as encoder, or a pattern of weights' names such as "
        "encoder.blocks.0.*; for fine-tuning with --from",
    )
    clip: float = option(
        1.0, "gradient clipping: largest norm of the gradient; 0: no clipping", least=0, most=1_000_000
    )
    ema: float | None = option(
        None, "decay of an exponential moving average of the weights, such as 0.999", above=0, below=1
    )
    average: int = option(
        0, "average this many last checkpoints at the end, and keep the average if it is better", least=0, most=10_000
    )
    metric: Literal["bleu", "chrf", "exact", "cider", "rouge", "accuracy", "f1", "loss"] | None = option(
        None,
        "metric that selects the best checkpoint; the lower loss decides between equal ones; by default it suits the "
        "references: bleu, exact or chrf; cider for captions; accuracy or f1 for classifiers; loss for language models",
        also=partial(added, "metric"),
    )
    class_weights: Literal["none", "balanced"] = option("none", "balanced: rare labels count as much as frequent ones")
    validate_every: int = option(
        500, "steps between validations; each validation saves a checkpoint", least=1, most=STEPS
    )
    validate_rows: int = option(
        500,
        "sentences to translate in each validation; the loss covers all held-out sentences",
        least=0,
        most=1_000_000_000,
    )
    patience: int = option(
        0,
        "early stopping: stop after this many validations with neither a better metric nor a lower loss; 0: never",
        least=0,
        most=1_000_000_000,
    )
    keep: int = option(2, "number of checkpoints to keep beside the best one", least=1, most=10_000)
    log_every: int = option(20, "steps between records of the training loss", least=1, most=STEPS)
    track: tuple[str, ...] = option(
        (),
        "services to send the curves to: wandb, mlflow, or those of plugins; TensorBoard's files are written without "
        "asking if it is installed",
    )
    seed: int = option(1, "random seed for weights, dropout and the order of batches", least=0, most=2**63 - 1)
    device: Literal["auto", "cpu", "cuda", "mps"] = option(
        "auto", "device to train on; auto: a GPU if there is one, cuda or mps (Apple's, in float32)"
    )
    precision: Literal["auto", "fp32", "bf16"] = option(
        "auto", "number format; auto: bf16 on a CUDA GPU, fp32 elsewhere"
    )
    compile: bool = option(False, "compile model and loss with torch.compile")
    replay: bool | Literal["auto"] = option(
        "auto", "on a GPU, replay whole updates as CUDA graphs, one per batch shape; auto: wherever possible"
    )
    shard: bool = option(
        False, "with torchrun: shard weights, gradients and optimiser state over the processes (FSDP2)"
    )
    threads: int | None = option(None, "number of CPU threads; default: torch's choice", least=1, most=1024)

    def __post_init__(self) -> None:
        for name in self.fit:
            if name not in FITTED:
                raise ConfigError("fit", f'"{name}" given, expected steps, warmup or validate_every')
        if self.fit and self.minutes is None:
            raise ConfigError("fit", "given without training.minutes, the time that is fitted to")
        if len(self.betas) != 2:
            raise ConfigError("betas", f"{len(self.betas)} numbers given, expected two")
        if self.schedule == "noam" and self.warmup == 0:
            raise ConfigError("warmup", '0 given with schedule = "noam", which needs at least 1')
        if self.average > self.keep:
            raise ConfigError(
                "average", f"{self.average} given, but only {self.keep} checkpoints are kept (training.keep)"
            )
