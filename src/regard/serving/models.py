"""The models that are served: each with its queue, its workers and what people are told of it, and their figures."""

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
PAIRS = 1_000  # of languages, whose tokenizers are kept
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # of histograms
WORDS = 10_000  # whose pieces, and whether they are known, are remembered: a server meets new ones for ever


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
        self.between: dict[Languages, tuple[dict[str, tuple[str, ...]], Tokenizers]] = {}  # what is around texts

    def start(self) -> None:
        """Start the workers, and wait until all are ready; an error of one is raised, and ends the others."""
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
        """Settle what requests need to know of the run, and its card, which `GET /v1/models` answers."""
        # Its tokenizers, settings and labels, and the facts of its model; nothing is computed with it here.
        self.run = run
        self.actions, self.translates = frozenset(run.task.actions), run.can("translate")
        # Regard's own engine serves all options of a search, or says why not when it begins.
        self.check_options = run.engine.check if self.settings.engine != "regard" else lambda options: None
        self.longest, limit = longest_source(run), run.model.limit
        self.sample_tokens = language_model.SAMPLE if limit is None else min(language_model.SAMPLE, limit - 1)
        self.reads_pictures = run.settings.data.reads == "pictures"
        if not (self.reads_pictures and run.can("classify")):  # labels of pictures need no words
            self.tokenizers = run.tokenizers
        self.has_source = run.settings.row.has_source
        self.attends = bool(first_model(run.model).cross_attentions)  # to its source: there are links of words
        self.tags = tuple(corpus.tag for corpus in run.settings.data.corpora if corpus.tag)
        self.splits = run.sentence_share.single if self.translates else None  # texts into their sentences
        given = dict(each.split("=", 1) for each in self.settings.languages).get(self.name)
        languages = run_languages.languages_of(run.settings.data, given) if self.translates else None
        sources, targets = run_languages.spoken_languages(run.tokenizers) if self.translates else ((), ())
        self.card = {
            "name": self.name,
            "task": run.settings.task,
            "kind": run.settings.kind,
            "reads": "pictures" if self.reads_pictures else "texts",
            # What its task can do, without aligning where no attention leads to the source.
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
        """Open the run for whoever computes nothing with it: its weights have their shapes, and take no memory."""
        run = self.open_model("cpu")
        for parameter in run.model.parameters():  # moved to meta, those that are tied would come apart
            parameter.data = parameter.data.new_zeros(()).expand(parameter.shape)
        return run

    @functools.cached_property
    def unknown_words(self) -> unknown_words.UnknownWords:
        """What knows the words that the run was trained to read."""
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
        """Find what stands around texts of two languages, and the tokenizers with it."""
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
        """Workers that serve."""
        return sum(worker.ready for worker in self.workers)

    @property
    def under_way(self) -> int:
        """Sentences that are searched now."""
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
        """Refuse what would wait for a worker that is gone."""
        if not self.ready_workers:
            raise ApiError(503, "worker_stopped", f"{self.name}: its worker has stopped; see the server's log")

    async def call(self, function: Callable[[Run], T], languages: Languages = NONE) -> T:
        """Have a worker call a function with its run, for a request that was admitted; cancelled in time, it is not."""
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
        """Answer everything that waits, if that was the last worker."""
        if not self.ready_workers:
            self.queue.fail(WorkerError(STOPPED))

    def end_processes(self, seconds: float) -> None:
        """Wait for the ends of its processes, and kill those that are busy then: nobody waits for them any more."""
        end = time.monotonic() + seconds
        for worker in self.workers:
            if isinstance(worker, ProcessWorker):
                worker.join(0 if worker.under_way else max(0.0, end - time.monotonic()))
                worker.kill()

    def has_moved(self) -> bool:
        """Return whether the best checkpoint is another one than was loaded."""
        return versions(self.folders) != self.version


def open_run(folders: Sequence[str], device: str, settings: ServeSettings) -> Run:
    """Open the run of a model on a device, for the engine that is to search."""
    run: Run
    if settings.engine == "regard":
        run = load(*folders, device=device)
    else:
        from regard.interop import open_engine

        run = open_engine(*folders, device=device, quantize=settings.quantize, say=log.info)
    if not run.can("classify") or run.settings.data.reads != "pictures":  # labels of pictures need no words
        run.tokenizers.source.remembered = run.tokenizers.target.remembered = WORDS
        run.unknown = unknown_words.IgnoredWords(run.tokenizers.source)
    return run


def worker_class(workers: str, device: str) -> type[Worker]:
    """Choose the form of a worker: by default a process for a GPU, which is as fast as the Python that feeds it."""
    if workers == "auto":
        workers = "process" if device.startswith("cuda") and sys.platform != "win32" else "thread"
    if workers == "process" and sys.platform == "win32":
        raise ConfigError("workers", "process given, expected thread or auto: there are no such processes on Windows")
    return ProcessWorker if workers == "process" else ThreadWorker


def versions(folders: Sequence[str]) -> tuple[str, ...]:
    """Tell the best checkpoints of some folders, or what was exported, from any others."""
    paths = [Path(folder) if is_export(folder) else Checkpoints(Path(folder)).find("best") for folder in folders]
    return tuple(f"{path.name} {checkpoint_files.digest(path / 'manifest.json')}" for path in paths)


def parse_devices(text: str) -> list[str]:
    """Read devices separated by commas."""
    return [Processes().device(name.strip()) for name in text.split(",")]


def share_threads(devices: Sequence[str]) -> None:
    """Share threads among workers that compute on the CPU; for the main thread, before it starts them."""
    cpus = sum(device == "cpu" for device in devices)
    if cpus > 1:
        torch.set_num_threads(max(1, torch.get_num_threads() // cpus))


class Metrics:
    """Counters of requests and histograms of their stages; what workers do is read when it is asked for.

    They are in Prometheus' format, and no label of one holds a client or a text.
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
        """Read what the models do now."""
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
