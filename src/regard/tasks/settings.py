"""The settings of a whole configuration file. This module does not import torch."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from regard import plugins
from regard.config import option, parse, plain, show_value, suggestion
from regard.data import DataSettings, TokenizerSettings, data_settings
from regard.errors import ConfigError
from regard.models import KINDS, Kind, ModelConfig, find_kind, kinds, read_model_config
from regard.tasks.table import TASKS, TaskRow, default_task, find_task
from regard.training import FITTED, TrainingSettings


@dataclass(frozen=True)
class Settings:
    """A whole configuration, as a TOML file holds it."""

    task: str = option("translate", "what the model learns")
    data: DataSettings = field(default_factory=DataSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    kind: str = kinds.DEFAULT
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    # The keys that the user set.
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def row(self) -> TaskRow:
        """Return the task's row of the table."""
        return TASKS[self.task]

    @property
    def plugins(self) -> tuple[str, ...]:
        """Return the names of the plugins that a run with these settings needs."""
        rows = {"task": self.task, "kind": self.kind, "corpus": self.data.builtin, "metric": self.training.metric}
        return plugins.providers(**rows)

    def table(self) -> dict[str, Any]:
        """Return the settings as TOML holds them: with the kind in the model's table, and with the preset's values."""
        table = plain(replace(self, overrides={}))
        del table["overrides"]
        table["model"] = {"kind": table.pop("kind"), **table["model"]}
        return {"plugins": list(self.plugins), **table} if self.plugins else table

    def model_table(self) -> dict[str, Any]:
        """Return the [model] table alone."""
        return {"kind": self.kind, **plain(self.model)}

    def own_table(self) -> dict[str, Any]:
        """Return the settings as TOML holds them, without keys that apply only to other tasks or data."""
        table, row, reads = self.table(), self.row, self.data.reads or "text"
        unused = {key for kind, keys in DATA_KEYS.items() if kind != reads for key in keys}
        unused -= set(DATA_KEYS.get(reads, ()))
        unused |= set() if self.data.builtin else BUILTIN_KEYS
        if reads == "pictures" and row.labels:
            table.pop("tokenizer", None)
        guided = {"guided_layer", "guided_head"} | (set() if row.linked else {"guided"})
        idle = (set() if self.training.guided else guided) | ({"validate_rows"} if row.labels else {"class_weights"})
        for name, keys in (("data", unused), ("training", idle)):
            table[name] = {key: value for key, value in table[name].items() if key not in keys}
        return table

    def suggest(self, **tables: Mapping[str, Any]) -> "Settings":
        """Fill in keys that the user did not set, such as training={"rate": 1e-3}; the user's own stay."""
        merged = {name: {**tables.get(name, {}), **self.overrides.get(name, {})} for name in {*tables, *self.overrides}}
        settings = replace(self, overrides=merged)
        for name in tables:
            settings = replace(settings, **{name: read_part(settings, name)})
        return checked(settings)

    def decide(self, **tables: Mapping[str, Any]) -> "Settings":
        """Replace values, even those that the user set, such as "auto" by the value chosen from the corpus."""
        parts = {name: replace(getattr(self, name), **values) for name, values in tables.items()}
        overrides = {name: {**self.overrides.get(name, {}), **values} for name, values in tables.items()}
        return checked(replace(self, overrides={**self.overrides, **overrides}, **parts))


DATA_KEYS = {  # keys of [data] that only one kind of data has
    "text": ("source", "target", "alignment", "corpora", "valid_source", "valid_target", "valid",
             "rehearsal", "earlier"),
    "documents": ("documents", "valid_documents", "label_column", "text_column", "sentence_mark", "document_tokens"),
    "pictures": ("images", "captions", "valid_captions", "train_list", "valid_list", "labels", "image_size", "flip",
                 "crop", "workers"),
}  # fmt: skip
BUILTIN_KEYS = {"builtin", "pair", "count", "builtin_seed", "builtin_edition", "builtin_options"}
PARTS: dict[str, Any] = {"data": DataSettings, "tokenizer": TokenizerSettings, "training": TrainingSettings}


def read_settings(table: Mapping[str, Any]) -> Settings:
    """Read the settings of a configuration's tables, or raise a ConfigError with the path of the wrong key."""
    plugins.load_environment()
    table, keys = dict(table), ("task", "data", "tokenizer", "model", "training")
    plugins.check_loaded(table.pop("plugins", ()), "plugins")
    for key in table:
        if key not in keys:
            raise ConfigError(show_value(key)[1:-1], f"no such key{suggestion(key, keys)}")
    for key in keys[1:]:
        if not isinstance(table.get(key, {}), Mapping):
            raise ConfigError(key, "expected a table")
    model, own = table.get("model", {}), ("kind", "preset")
    everywhere = {field.name for kind in KINDS.values() for field in fields(kind.config)}
    for key in model:  # check the other keys before the kind, which may be misspelt
        if key not in everywhere and key not in own:
            named = model.get("kind", kinds.DEFAULT)
            meant = KINDS.get(named) if isinstance(named, str) else None
            options = [field.name for field in fields(meant.config)] if meant else []
            raise ConfigError(f"model.{show_value(key)[1:-1]}", f"no such key{suggestion(key, [*own, *options])}")
    data = parse(DataSettings, table.get("data", {}), "data")
    task, kind = task_and_kind(table, data)
    overrides = {key: dict(table[key]) for key in keys[1:] if key in table}
    settings = Settings(task=task, data=data, kind=kind.name, overrides=overrides)
    for name in ("tokenizer", "model", "training"):
        settings = replace(settings, **{name: read_part(settings, name)})
    return checked(settings)


def read_part(settings: Settings, name: str) -> Any:
    """Read one table of the settings from the keys that the user set."""
    table = settings.overrides.get(name, {})
    if name != "model":
        return parse(PARTS[name], table, name)
    model, kind = {**table, "kind": settings.kind}, KINDS[settings.kind]
    job = settings.row.served_as(kind.tasks)
    if any(each.name == "job" for each in fields(kind.config)) and model.setdefault("job", job) != job:
        wrong = f'{show_value(model["job"])} given with task = "{settings.task}", expected "{job}"'
        raise ConfigError("model.job", wrong)
    return read_model_config(model)


def checked(settings: Settings) -> Settings:
    """Return the settings, or raise a ConfigError if their tables contradict each other."""
    row, metric = settings.row, settings.training.metric
    if metric is not None and metric not in row.all_metrics():
        raise ConfigError(
            "training.metric",
            f'"{metric}" given with task = "{row.name}", expected one of {", ".join(row.all_metrics())}',
        )
    if settings.model.ties_both_sides() and not settings.tokenizer.joint:
        raise ConfigError(
            "model.tied", '"all" given with tokenizer.joint = false, expected one vocabulary for both sides'
        )
    for name, pieces in settings.tokenizer.around.items():
        if pieces and not row.surrounded:
            raise ConfigError(f"tokenizer.{name}", f'given with task = "{row.name}", expected one with two texts')
    check_guided(settings)
    if (metric in row.searched or metric in plugins.added("metric")) and settings.training.validate_rows == 0:
        raise ConfigError(
            "training.validate_rows", f'0 given with training.metric = "{metric}", which needs translations'
        )
    return settings


def check_guided(settings: Settings) -> None:
    """Refuse guided alignment without links, or with options under which attention weights cannot be read."""
    training = settings.training
    if not training.guided:
        return
    if not settings.row.linked:
        raise ConfigError("training.guided", f'{training.guided} given with task = "{settings.task}", expected 0')
    if not settings.data.linked:
        raise ConfigError("training.guided", f"{training.guided} given without links; give them with data.alignment")
    if not settings.model.sees_whole_source():
        span = getattr(settings.model, "span", None)
        raise ConfigError(
            "training.guided",
            f'{training.guided} given with model.span = "{span}", expected "global": a link may lead out of a window',
        )
    for name in ("compile", "shard"):
        if getattr(training, name):
            raise ConfigError(
                f"training.{name}", "true given with training.guided, expected false: the head cannot be read then"
            )


def check_extension(settings: Settings, *, based: bool) -> None:
    """Refuse to extend a vocabulary without a base run (not `based`), or with options that conflict with it."""
    for name in data_settings.EXTENSION:
        if not getattr(settings.tokenizer, name):
            continue
        if not based:
            raise ConfigError(f"tokenizer.{name}", "given without --from, expected a run whose vocabulary is extended")
        if name == "extend_words" and not settings.row.surrounded:
            raise ConfigError(f"tokenizer.{name}", f'given with task = "{settings.task}", expected one with two texts')
        for key, given in (
            ("model.adapter", settings.model.adapter_rank()),
            ("training.freeze", "embeddings" in settings.training.freeze),
        ):
            if given:
                raise ConfigError(key, f"given with tokenizer.{name}, whose new rows would not be trained; choose one")


def task_and_kind(table: Mapping[str, Any], data: DataSettings) -> tuple[str, Kind]:
    """Return the task and the kind of model: those in the tables, or else those that suit the data and each other."""
    named = table.get("model", {}).get("kind") is not None
    task = table.get("task")
    if task is not None:
        find_task(task)
    reads = data.reads or (find_kind(table["model"]).reads if named else "text")
    if task is None:
        task = find_kind(table["model"]).tasks[0] if named and reads == "pictures" else default_task(reads, data)
    row = TASKS[task]
    if data.reads is not None and data.reads not in row.reads:
        expected = " or ".join(row.reads)
        raise ConfigError("task", f'"{task}" given with data that is {data.reads}, expected {expected}')
    kind = find_kind(table["model"] if named else {"kind": row.usual_kind(reads)})
    # A kind that reads text also classifies documents, each as one text.
    fitting = {data.reads, "text" if data.reads == "documents" else data.reads}
    if row.served_as(kind.tasks) is None or (data.reads is not None and kind.reads not in fitting):
        serving = [each for each in KINDS.values() if row.served_as(each.tasks) is not None]
        candidates = [each for each in serving if not data.reads or each.reads in fitting]
        of = f" and data that is {data.reads}" if len(row.kinds) > 1 and data.reads else ""
        names = ", ".join(each.name for each in candidates)
        raise ConfigError("model.kind", f'"{kind.name}" given with task = "{task}"{of}, expected one of {names}')
    return task, kind


def base_table(base: Mapping[str, Any], table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the tables that a run takes over from its base run `name`; raise an error if its own contradict them."""
    subset = {key: base[key] for key in ("plugins", "task", "model", "tokenizer") if key in base}
    own: dict[str, Any] = {key: table[key] for key in ("task", "model", "tokenizer") if key in table and key in subset}
    if isinstance(own.get("tokenizer"), Mapping):  # a run may change the pieces around a text, and add pieces
        kept = (*data_settings.AROUND, *data_settings.EXTENSION)
        around = {key: value for key, value in own["tokenizer"].items() if key in kept}
        subset["tokenizer"] = {**subset["tokenizer"], **around}
        if own["tokenizer"] == around:
            del own["tokenizer"]
    if isinstance(subset.get("model"), Mapping):  # the base run's adapters are merged; this run may have its own
        subset["model"] = {key: 0 if key == "adapter" else value for key, value in subset["model"].items()}
        if isinstance(own.get("model"), Mapping) and "adapter" in own["model"]:
            subset["model"]["adapter"] = own["model"]["adapter"]
            if own["model"].keys() == {"adapter"}:
                del own["model"]
    if own:
        theirs, mine = read_settings(subset).table(), read_settings({"task": subset.get("task", Settings.task), **own})
        for key in own:
            if mine.table()[key] != theirs[key]:
                raise ConfigError(key, f"given, but the run {name} has another; leave it out")
    return subset


def complete_run_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """Complete a run's own configuration for later commands.

    Leave out its cache folder: a run from a stranger must not decide where files are written. A run from before
    built-in corpora had editions was trained on edition 1.
    """
    data = table.get("data", {})
    if not isinstance(data, Mapping):
        return dict(table)
    rest = {key: value for key, value in data.items() if key != "cache"}
    return {**table, "data": {"builtin_edition": 1, **rest}}


def leave_open(settings: Settings) -> Settings:
    """Set training.fit of a new run with a time limit: the keys to fit to the measured pace.

    These are the keys of the schedule that the user did not set. If the user set the number of steps, it stays the
    maximum, and training.fit stays empty.
    """
    own = settings.overrides.get("training", {})
    if settings.training.minutes is None or "steps" in own or "fit" in own:
        return settings
    return settings.decide(training={"fit": tuple(name for name in FITTED if name not in own)})


def set_by_hand(table: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return a resumed run's tables, in which the keys `names` of [training] are now set and no longer fitted."""
    training = table.get("training", {})
    if not isinstance(training, Mapping) or not isinstance(training.get("fit"), list):
        return dict(table)
    fit = [name for name in training["fit"] if name not in names and "steps" not in names]
    return {**table, "training": {**training, "fit": fit}}
