"""Exported folders, opened: a run whose engine is CTranslate2. A run itself is exported once, into the cache.

from regard.interop.exported import open_engine
run = open_engine("runs/en-de", quantize="int8")
run.translate(["I ate pizza yesterday."], beam=5)
"""

import contextlib
import copy
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from regard.alignment import AlignmentSettings
from regard.alignment import settings as alignment_settings
from regard.data import Tokenizers, data_settings, sentence_shares
from regard.decoding import Options, first_model
from regard.errors import ArgumentError, CommandError, DataError
from regard.interop.ctranslate2 import COMPUTE_TYPES, library
from regard.interop.engine import CTranslate2Engine
from regard.interop.export import Opened, export_model
from regard.interop.folders import is_export, read_manifest
from regard.io import Say, ignore
from regard.run import Run, load
from regard.tasks import ForcedExample, Item, build_model, read_settings
from regard.training import Checkpoints, checkpoint_files

FORMAT = 1  # of exports in the cache: those of another number are made anew
NEAREST = {"float16": "float32", "int8_float16": "int8"}  # what a device computes in that has no half precision


class ExportedRun(Run):
    """A run that is searched, scored and aligned by another engine; its model says its shape, and computes nothing."""

    def __init__(self, folder: Path, manifest: dict[str, Any], engine: CTranslate2Engine, warn: Say | None = None):
        settings = read_settings(manifest["facts"]["settings"])
        step = int(manifest["run"]["step"])
        super().__init__(folder, settings, engine.tokenizers, engine.model, step, warn=warn)
        self._engine = engine
        self.sentence_share = sentence_shares.SentenceShare.from_table(manifest["run"].get("sentences"))
        if engine.alignment is not None:
            self.alignment_settings = engine.alignment

    @property
    def engine(self) -> CTranslate2Engine:
        """What searches, scores and aligns."""
        return self._engine

    @property
    def device(self) -> torch.device:
        """The device that the engine computes on."""
        return self._engine.device

    def _surround(self, around: Mapping[str, tuple[str, ...]]) -> None:
        """Set what stands around a text from now on, with an engine that knows of it; another run may have this one."""
        super()._surround(around)
        self._engine = copy.copy(self._engine)
        self._engine.tokenizers = self.tokenizers

    def force(self, item: Item, target: str | None, options: Options, tree: bool) -> ForcedExample:
        """Refuse to look into it: that takes the model itself."""
        raise ArgumentError(
            f"model: {self.folder} is opened by ctranslate2, which cannot be looked into; open the run with regard"
        )


def open_engine(
    run: str | Path,
    *others: str | Path,
    checkpoint: str = "best",
    device: str = "cpu",
    quantize: str | None = None,
    warn: Say | None = None,
    say: Say = ignore,
) -> ExportedRun:
    """Open a run, or a folder that was exported, with CTranslate2.

    A run is exported into the cache first, once for each checkpoint and quantisation; `say` is told of it.
    """
    if others:
        raise CommandError(
            f"--engine: ctranslate2 given with {len(others) + 1} runs, expected one: it has no ensembles"
        )
    check_quantize(quantize, device)
    path = Path(run)
    if is_export(path):
        if checkpoint != "best":
            raise CommandError(f"--checkpoint: {checkpoint} given, but {path} is exported: it has one alone")
        return open_exported(path, device=device, quantize=quantize, warn=warn)
    return open_cached(path, checkpoint, device, quantize or "float32", warn, say)


def open_cached(run: Path, checkpoint: str, device: str, quantize: str, warn: Say | None, say: Say) -> ExportedRun:
    """Open the export of a run in the cache; make it where it is not there, or is damaged."""
    from regard.tasks import require_run

    require_run(run)
    path = Checkpoints(run).find(checkpoint)
    facts = [FORMAT, library().__version__, quantize]
    facts += [
        checkpoint_files.digest(file)
        for file in (path / "manifest.json", run / "config.toml", run / alignment_settings.FILE)
    ]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
    folder = data_settings.cache_folder() / "exports" / key
    if folder.exists():
        with contextlib.suppress(DataError):
            return open_exported(folder, device=device, quantize=quantize, warn=warn, run=run)
        say(f"{folder}: damaged; {run} is exported again")
        shutil.rmtree(folder)
    opened = load(run, checkpoint=path.name)
    say(f"{run}: exported to ctranslate2 ({quantize}) for the first time, into {folder}")
    try:
        export_model(opened, folder, to="ctranslate2", checkpoint=path.name, quantize=quantize)
    except CommandError:
        if not folder.exists():  # else another process was faster
            raise
    return open_exported(folder, device=device, quantize=quantize, warn=warn, run=run)


def open_exported(
    folder: str | Path,
    *,
    device: str = "cpu",
    quantize: str | None = None,
    warn: Say | None = None,
    run: Path | None = None,
) -> ExportedRun:
    """Open a folder that was exported to CTranslate2; `run` is what messages call it, where it is a run's."""
    folder = Path(folder)
    manifest = read_manifest(folder, "ctranslate2")
    kept = str(manifest["facts"].get("quantize"))
    compute = quantize or kept
    if compute not in supported(device):
        raise CommandError(
            f"{folder}: {compute} weights, which this {name_device(device)} cannot compute with; give --quantize "
            f"{NEAREST.get(compute, 'float32')}"
        )
    with described(folder):
        settings = read_settings(manifest["facts"]["settings"])
        tokenizers = Tokenizers.load(folder / "tokenizer.json").surround(**settings.tokenizer.around)
        with torch.device("meta"):
            model = build_model(settings, tokenizers)
        if manifest["facts"]["positions"] is not None:
            model.limit = int(manifest["facts"]["positions"])
        model.origin = str(run or folder)
        alignment = AlignmentSettings.read(folder / alignment_settings.FILE, first_model(model).cross_attentions)
        translator = make_translator(folder, device, compute)
        engine = CTranslate2Engine(translator, tokenizers, model.eval(), alignment, torch.device(device))
        return ExportedRun(run or folder, manifest, engine, warn)


def open_ctranslate2(folder: Path, run: Run | None = None) -> Opened:
    """Open a folder that was just written, on this machine's CPU: in its own format, or the nearest that there is."""
    kept = str(read_manifest(folder, "ctranslate2")["facts"]["quantize"])
    compute = kept if kept in supported("cpu") else NEAREST.get(kept, "float32")
    engine = open_exported(folder, quantize=compute).engine
    versions = {"ctranslate2": library().__version__, "compute": engine.translator.compute_type}
    return Opened(engine, kept == "float32", versions)


def make_translator(folder: Path, device: str, compute: str) -> Any:
    """Open a folder with CTranslate2; on a CPU with as many threads as torch would take."""
    kind, _, index = device.partition(":")
    threads = torch.get_num_threads() if kind == "cpu" else 0
    options = {"compute_type": compute, "inter_threads": 1, "intra_threads": threads, "device_index": int(index or 0)}
    return library().Translator(str(folder), kind, **options)


def check_quantize(quantize: str | None, device: str) -> None:
    """Refuse a quantisation that there is not, or that the device lacks."""
    if quantize is not None and quantize not in COMPUTE_TYPES:
        raise CommandError(f"--quantize: {quantize} given, expected {', '.join(COMPUTE_TYPES)}")
    if quantize is not None and quantize not in supported(device):
        able = ", ".join(each for each in COMPUTE_TYPES if each in supported(device))
        raise CommandError(f"--quantize: {quantize} given, which this {name_device(device)} lacks; expected {able}")


def supported(device: str) -> set[str]:
    """Return what a device computes in, by CTranslate2."""
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda"):
        raise CommandError(f"--device: {device} given, but CTranslate2 runs on cpu and cuda alone")
    types: set[str] = library().get_supported_compute_types(kind, int(index or 0))
    return types


def name_device(device: str) -> str:
    """Name a device in a sentence."""
    return "CPU" if device == "cpu" else "GPU"


@contextlib.contextmanager
def described(folder: Path) -> Iterator[None]:
    """Turn what a foreign folder makes CTranslate2, or a manifest, raise into one sentence."""
    try:
        yield
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, (DataError, ArgumentError)):
            raise
        problem = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{folder}: cannot be opened with ctranslate2: {problem}; export the run again") from None
