"""The served models: each with its queue, its workers, its description for clients, and its metrics."""

import asyncio
import functools
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from regard.data import Tokenizers, run_languages, unknown_words
from regard.decoding import Processes, first_model
from regard.errors import ConfigError
from regard.interop import is_export
from regard.run import Run, load, read_tokenizer
from regard.serving.errors import ApiError, WorkerError
from regard.serving.jobs import JobQueue, Update
from regard.serving.settings import ServeSettings
from regard.serving.worker import STOPPED, Counters, ProcessWorker, ThreadWorker, Worker, call_between, longest_source
from regard.tasks import language_model
from regard.training import Checkpoints, checkpoint_files

log = logging.getLogger("regard.serving")
T = TypeVar("T")
Deliver = Callable[[list[Update]], None]
Languages = tuple[str | None, str | None]  # of sources and targets; None: the model's own
NONE: Languages = (None, None)
CALLED = 16  # items that a worker scores, aligns or labels between two steps of searches
PAIRS = 1_000  # language pairs whose tokenizers are cached
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # buckets of histograms
WORDS = 10_000  # words whose pieces, and whether they are known, are cached: a server keeps meeting new ones


class ServedModel:
    """A run, or an ensemble of several, behind a name."""

    def __init__(self, name: str, folders: Sequence[str], settings: ServeSettings, deliver: Deliver):
        self.name, self.folders, self.settings = name, tuple(folders), settings
        self.queue, self.counters = JobQueue(deliver), Counters()
        self.version = versions(self.folders)
        self.open_model = functools.partial(open_run, self.folders, settings=settings)
        self.workers: list[Worker] = [
            worker_class("thread" if settings.engine != "regard" else settings.workers, device)(
                name, device, self.open_model, self.queue, self.counters, settings, self.worker_stopped
            )
            for device in parse_devices(settings.device)
        ]
        types = {worker.device.partition(":")[0] for worker in self.workers}
        self.device_type = "cuda" if "cuda" in types else next(iter(types))
        self.card: dict[str, Any] = {}
        self.between: dict[Languages, tuple[dict[str, tuple[str, ...]], Tokenizers]] = {}  # tokens around texts

    def start(self) -> None:
        """Start the workers, and wait until all are ready; if one fails, end the others and raise its error."""
        try:
            for worker in self.workers:
                worker.start()
            own = any(isinstance(worker, ProcessWorker) for worker in self.workers)
            opened = self.open_here() if own else None  # while they open theirs
            for worker in self.workers:
                worker.started.wait()
                if worker.failure is not None:
                    raise worker.failure
            run = opened or self.workers[0].opened
            assert run is not None
            self.settle(run)
        except BaseException:
            self.queue.close()
            raise

    def settle(self, run: Run) -> None:
        """Set what requests need to know of the run, and its card, the answer to `GET /v1/models`."""
        # Its tokenizers, settings, labels and model dimensions are read here; nothing is computed with the model.
        self.run = run
        self.actions, self.translates = frozenset(run.task.actions), run.can("translate")
        # Regard's own engine supports all options, or raises an error when a search begins.
        self.check_options = run.engine.check if self.settings.engine != "regard" else lambda options: None
        self.longest, limit = longest_source(run), run.model.limit
        self.sample_tokens = language_model.SAMPLE if limit is None else min(language_model.SAMPLE, limit - 1)
        self.reads_pictures = run.settings.data.reads == "pictures"
        if not (self.reads_pictures and run.can("classify")):  # labels of pictures need no tokenizers
            self.tokenizers = run.tokenizers
        self.has_source = run.settings.row.has_source
        self.attends = bool(first_model(run.model).cross_attentions)  # it has cross-attention, and so word links
        self.tags = tuple(corpus.tag for corpus in run.settings.data.corpora if corpus.tag)
        self.splits = run.sentence_share.single if self.translates else None  # whether texts are split into sentences
        given = dict(each.split("=", 1) for each in self.settings.languages).get(self.name)
        languages = run_languages.languages_of(run.settings.data, given) if self.translates else None
        sources, targets = run_languages.spoken_languages(run.tokenizers) if self.translates else ((), ())
        self.card = {
            "name": self.name,
            "task": run.settings.task,
            "kind": run.settings.kind,
            "reads": "pictures" if self.reads_pictures else "texts",
            # The actions of its task, except aligning if the model has no cross-attention.
            "actions": [each for each in run.task.actions if self.attends or each != "align"],
            "languages": None if languages is None else {"source": languages[0], "targets": list(languages[1])},
            "known_languages": {"sources": list(sources), "targets": list(targets)} if targets else None,
            "split": self.splits,
            "labels": list(run.labels) or None,
            "step": run.step,
            "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
            "longest": self.longest,
            "devices": [worker.device for worker in self.workers],
        }

    def open_here(self) -> Run:
        """Open the run without computing with it: its weights keep their shapes and take no memory."""
        run = self.open_model("cpu")
        for parameter in run.model.parameters():  # moving them to meta would untie tied parameters
            parameter.data = parameter.data.new_zeros(()).expand(parameter.shape)
        return run

    @functools.cached_property
    def unknown_words(self) -> unknown_words.UnknownWords:
        """The words that the run was trained to read."""
        words = unknown_words.UnknownWords(read_tokenizer(self.run), unknown_words.read_words(self.run.folder))
        words.remembered = WORDS
        return words

    def list_unknown(self, texts: Sequence[str]) -> list[list[str]]:
        """List the words of each text that did not occur in training."""
        return [self.unknown_words.list_words(text) for text in texts]

    def tokenizers_between(self, languages: Languages) -> Tokenizers:
        """Return the tokenizers for two languages; a CommandError names one that the model does not know."""
        return self.tokenizers if languages == NONE else self.choose(languages)[1]

    def choose(self, languages: Languages) -> tuple[dict[str, tuple[str, ...]], Tokenizers]:
        """Return the tokens around texts in two languages, and the tokenizers with them."""
        if languages not in self.between:
            self.run.require("translate")
            around = run_languages.choose_languages(
                self.tokenizers, *languages, flags=("source_language", "target_language")
            )
            if len(self.between) >= PAIRS:
                self.between.clear()
            self.between[languages] = around, self.tokenizers.surround(**around)
        return self.between[languages]

    @property
    def ready(self) -> bool:
        """Whether every worker serves."""
        return bool(self.card) and all(worker.ready for worker in self.workers)

    @property
    def ready_workers(self) -> int:
        """The number of workers that serve."""
        return sum(worker.ready for worker in self.workers)

    @property
    def under_way(self) -> int:
        """The number of sentences in all engines now."""
        return sum(worker.under_way for worker in self.workers)

    def admit(self, jobs: int) -> None:
        """Refuse jobs that would wait behind too many others, or for a worker that is gone."""
        self.require_worker()
        waiting = self.queue.waiting + len(self.queue.calls)
        if waiting and waiting + jobs > self.settings.waiting:
            rate = self.counters.rate
            seconds = min(60, max(1, math.ceil(waiting / rate))) if rate else 1
            message = f"{waiting:,} sentences are waiting, as many as this server allows; try again in {seconds} s"
            raise ApiError(429, "overloaded", message, headers={"Retry-After": str(seconds)})

    def require_worker(self) -> None:
        """Refuse a request if no worker is left."""
        if not self.ready_workers:
            raise ApiError(503, "worker_stopped", f"{self.name}: its worker has stopped; see the server's log")

    async def call(self, function: Callable[[Run], T], languages: Languages = NONE) -> T:
        """Have a worker call a function with its run; a cancelled call that still waits is skipped."""
        self.require_worker()
        if languages != NONE:
            function = functools.partial(call_between, function=function, around=self.choose(languages)[0])
        return await asyncio.wrap_future(self.queue.call(function))

    async def call_in_parts(
        self, function: Callable[..., Any], languages: Languages = NONE, **lists: Sequence[Any]
    ) -> list[Any]:
        """Have a worker call a function for some items of each list at a time, between two steps of searches."""
        results = []
        for first in range(0, len(next(iter(lists.values()))), CALLED):
            some = {name: list(each[first : first + CALLED]) for name, each in lists.items()}
            results += await self.call(functools.partial(function, **some), languages)
        return results

    def worker_stopped(self) -> None:
        """Answer everything that waits with an error, if that was the last worker."""
        if not self.ready_workers:
            self.queue.fail(WorkerError(STOPPED))

    def end_processes(self, seconds: float) -> None:
        """Wait for the worker processes to end, then kill those that have not; kill busy ones at once."""
        end = time.monotonic() + seconds
        for worker in self.workers:
            if isinstance(worker, ProcessWorker):
                worker.join(0 if worker.under_way else max(0.0, end - time.monotonic()))
                worker.kill()

    def has_moved(self) -> bool:
        """Return whether the best checkpoint has changed since the model was loaded."""
        return versions(self.folders) != self.version


def open_run(folders: Sequence[str], device: str, settings: ServeSettings) -> Run:
    """Open the run of a model on a device, for the engine of the settings."""
    run: Run
    if settings.engine == "regard":
        run = load(*folders, device=device)
    else:
        from regard.interop import open_engine

        run = open_engine(*folders, device=device, quantize=settings.quantize, say=log.info)
    if not run.can("classify") or run.settings.data.reads != "pictures":  # labels of pictures need no tokenizers
        run.tokenizers.source.remembered = run.tokenizers.target.remembered = WORDS
        run.unknown = unknown_words.IgnoredWords(run.tokenizers.source)
    return run


def worker_class(workers: str, device: str) -> type[Worker]:
    """Choose thread or process; auto: a process for a GPU, whose speed depends on the Python code that feeds it."""
    if workers == "auto":
        workers = "process" if device.startswith("cuda") and sys.platform != "win32" else "thread"
    if workers == "process" and sys.platform == "win32":
        raise ConfigError("workers", "process given, expected thread or auto: there are no such processes on Windows")
    return ProcessWorker if workers == "process" else ThreadWorker


def versions(folders: Sequence[str]) -> tuple[str, ...]:
    """Identify the best checkpoints, or the exports, of some folders."""
    paths = [Path(folder) if is_export(folder) else Checkpoints(Path(folder)).find("best") for folder in folders]
    return tuple(f"{path.name} {checkpoint_files.digest(path / 'manifest.json')}" for path in paths)


def parse_devices(text: str) -> list[str]:
    """Read devices separated by commas."""
    return [Processes().device(name.strip()) for name in text.split(",")]


def share_threads(devices: Sequence[str]) -> None:
    """Divide threads among workers that compute on the CPU; call it in the main thread, before starting them."""
    cpus = sum(device == "cpu" for device in devices)
    if cpus > 1:
        torch.set_num_threads(max(1, torch.get_num_threads() // cpus))


class Metrics:
    """Counters of requests and histograms of their stages; figures of workers are read when `/metrics` is requested.

    They are in Prometheus' format, and no label holds a client or a text.
    """

    def __init__(self, models: Mapping[str, ServedModel]):
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "regard_requests", "Requests by route and status", ["route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "regard_request_seconds", "Seconds of requests", ["route"], buckets=SECONDS, registry=self.registry
        )
        self.stages = Histogram(
            "regard_stage_seconds",
            "Seconds by stage: prepare (split, tokenise), wait (for a place), search, finish (detokenise, align)",
            ["stage"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.in_flight = Gauge("regard_requests_in_flight", "Requests that are being answered", registry=self.registry)
        self.models = models
        self.registry.register(self)

    def collect(self) -> Iterator[Any]:
        """Read the current figures of the models."""
        gauge, counter = GaugeMetricFamily, CounterMetricFamily
        captured = "CUDA graphs that were captured"
        computing = "Seconds that workers scored, aligned, labelled and looked"
        rows: dict[str, tuple[Any, str, Callable[[ServedModel], float]]] = {
            "regard_queue_sentences": (gauge, "Sentences that wait for a place", lambda m: m.queue.waiting),
            "regard_places_in_use": (gauge, "Sentences that are searched", lambda m: m.under_way),
            "regard_workers_ready": (gauge, "Workers that serve", lambda m: m.ready_workers),
            "regard_captures": (gauge, captured, lambda m: sum(worker.captures for worker in m.workers)),
            "regard_sentences_per_second": (gauge, "Sentences a second, of late", lambda m: m.counters.rate),
            "regard_sentences": (counter, "Sentences that were searched", lambda m: m.counters.sentences),
            "regard_tokens": (counter, "Tokens that were written", lambda m: m.counters.tokens),
            "regard_search_seconds": (counter, "Seconds that workers searched", lambda m: m.counters.steps_seconds),
            "regard_call_seconds": (counter, computing, lambda m: m.counters.calls_seconds),
        }
        for name, (family, help, read) in rows.items():
            metric = family(name, help, labels=["model"])
            for model in self.models.values():
                metric.add_metric([model.name], read(model))
            yield metric
