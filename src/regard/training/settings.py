"""What can be set about a training run, and the whole of a configuration file. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from regard.config import option, parse, plain, shown, suggestion
from regard.data.settings import DataSettings, TokenizerSettings
from regard.errors import ConfigError
from regard.models.config import ModelConfig
from regard.models.kinds import KINDS, Kind, kind_of, model_config

__all__ = ["Settings", "TrainingSettings", "base_table", "read_settings", "without_cache"]

STEPS = 1_000_000_000
TASKS = ("translate", "language-model", "caption", "classify")


@dataclass(frozen=True)
class TrainingSettings:
    """How a model is trained."""

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


@dataclass(frozen=True)
class Settings:
    """A whole configuration: what a TOML file holds."""

    task: Literal["translate", "language-model", "caption", "classify"] = option("translate", "what is learned")
    data: DataSettings = field(default_factory=DataSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    kind: str = "transformer"
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def table(self) -> dict[str, Any]:
        """As TOML holds it; the model's kind stands in its table, and its preset is written out."""
        table = plain(self)
        table["model"] = {"kind": table.pop("kind"), **table["model"]}
        return table


METRICS = {
    "translate": ("bleu", "chrf", "exact", "loss"),
    "language-model": ("loss",),
    "caption": ("cider", "bleu", "rouge", "chrf", "exact", "loss"),
    "classify": ("accuracy", "f1", "loss"),
}
READ_BY = {
    "translate": ("text",),
    "language-model": ("text",),
    "caption": ("pictures",),
    "classify": ("documents", "pictures"),
}
USUAL = {"translate": "transformer", "language-model": "encoder", "caption": "captioner", "classify": "han"}
SEARCHED = ("bleu", "chrf", "exact", "cider", "rouge")  # metrics of what was written by a search


def read_settings(table: Mapping[str, Any]) -> Settings:
    """The settings of a configuration's tables, or a ConfigError with the path of the key that is wrong."""
    known = ("task", "data", "tokenizer", "model", "training")
    for key in table:
        if key not in known:
            raise ConfigError(shown(key)[1:-1], f"no such key{suggestion(key, known)}")
    for key in known[1:]:
        if not isinstance(table.get(key, {}), Mapping):
            raise ConfigError(key, "expected a table")
    known_options(table.get("model", {}))
    data = parse(DataSettings, table.get("data", {}), "data")
    task, kind = task_and_kind(table, data)
    model = {**table.get("model", {}), "kind": kind.name}
    if any(each.name == "job" for each in fields(kind.config)) and model.setdefault("job", task) != task:
        raise ConfigError("model.job", f'{shown(model["job"])} given with task = "{task}", expected "{task}"')
    settings = Settings(
        task=task,  # type: ignore[arg-type]
        data=data,
        tokenizer=parse(TokenizerSettings, table.get("tokenizer", {}), "tokenizer"),
        kind=kind.name,
        model=model_config(model),
        training=parse(TrainingSettings, table.get("training", {}), "training"),
    )
    if settings.training.metric is not None and settings.training.metric not in METRICS[task]:
        raise ConfigError(
            "training.metric",
            f'"{settings.training.metric}" given with task = "{task}", expected one of {", ".join(METRICS[task])}',
        )
    if getattr(settings.model, "tied", None) == "all" and not settings.tokenizer.joint:
        raise ConfigError(
            "model.tied", '"all" given with tokenizer.joint = false, expected one vocabulary for both sides'
        )
    check_guided(settings)
    if settings.training.metric in SEARCHED and settings.training.validate_rows == 0:
        raise ConfigError(
            "training.validate_rows",
            f'0 given with training.metric = "{settings.training.metric}", which needs translations',
        )
    return settings


def check_guided(settings: Settings) -> None:
    """Refuse to guide what has no links to be guided by, and where attention cannot be seen."""
    training = settings.training
    if not training.guided:
        return
    if settings.task != "translate":
        raise ConfigError("training.guided", f'{training.guided} given with task = "{settings.task}", expected 0')
    if not settings.data.linked:
        raise ConfigError("training.guided", f"{training.guided} given without links; give them with data.alignment")
    if getattr(settings.model, "span", "global") != "global":
        raise ConfigError(
            "training.guided",
            f'{training.guided} given with model.span = "{settings.model.span}", '  # type: ignore[attr-defined]
            'expected "global": a link may lead out of a window',
        )
    for name in ("compile", "shard"):
        if getattr(training, name):
            raise ConfigError(
                f"training.{name}", "true given with training.guided, expected false: no head is seen then"
            )


def task_and_kind(table: Mapping[str, Any], data: DataSettings) -> tuple[str, Kind]:
    """What is learned, and by which kind: as the tables say, else as the data and each other suggest."""
    named = table.get("model", {}).get("kind") is not None
    task = table.get("task")
    if task is not None and task not in TASKS:
        meant = suggestion(task if isinstance(task, str) else "", TASKS)
        raise ConfigError("task", f"{shown(task)} given, no such task{meant}")
    reads = data.reads or (kind_of(table["model"]).reads if named else "text")
    if task is None and reads == "pictures":
        task = kind_of(table["model"]).tasks[0] if named else "caption" if data.captions or data.builtin else "classify"
    task = task or ("classify" if reads == "documents" else "translate")
    if data.reads is not None and data.reads not in READ_BY[task]:
        expected = " or ".join(READ_BY[task])
        raise ConfigError("task", f'"{task}" given with data that is {data.reads}, expected {expected}')
    if not named:
        return task, KINDS["convnet" if task == "classify" and reads == "pictures" else USUAL[task]]
    kind = kind_of(table["model"])
    # A classifier of text takes documents, whole.
    fitting = {data.reads, "text" if data.reads == "documents" else data.reads}
    if task not in kind.tasks or (data.reads is not None and kind.reads not in fitting):
        kinds = [each for each in KINDS.values() if task in each.tasks and (not data.reads or each.reads in fitting)]
        of = f" and data that is {data.reads}" if task == "classify" and data.reads else ""
        names = ", ".join(each.name for each in kinds)
        raise ConfigError("model.kind", f'"{kind.name}" given with task = "{task}"{of}, expected one of {names}')
    return task, kind


def known_options(model: Mapping[str, Any]) -> None:
    """Refuse an option that no kind has, before its kind is asked for: it may be the kind that is misspelt."""
    own = ("kind", "preset")
    everywhere = {field.name for kind in KINDS.values() for field in fields(kind.config)}
    for key in model:
        if key not in everywhere and key not in own:
            named = model.get("kind", "transformer")
            kind = KINDS.get(named) if isinstance(named, str) else None
            options = [field.name for field in fields(kind.config)] if kind else []
            raise ConfigError(f"model.{shown(key)[1:-1]}", f"no such key{suggestion(key, [*own, *options])}")


def base_table(base: Mapping[str, Any], table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What a run takes from the configuration of another that it begins with; its own may say nothing else."""
    taken = {key: base[key] for key in ("task", "model", "tokenizer") if key in base}
    for key in taken:
        own = {"task": taken.get("task", "translate"), **{key: table[key] for key in ("task", key) if key in table}}
        if key in table and read_settings(own).table()[key] != read_settings(taken).table()[key]:
            raise ConfigError(key, f"that of {name} is taken, and this configuration has another")
    return taken


def without_cache(table: Mapping[str, Any]) -> dict[str, Any]:
    """A run's configuration without the folder of its cache: a run from somebody else does not say where to write."""
    data = table.get("data")
    if not isinstance(data, Mapping):
        return dict(table)
    return {**table, "data": {key: value for key, value in data.items() if key != "cache"}}
