"""The models that are served, and the jobs of requests for them: opened, opened anew, found, searched.

It runs in the event loop, and computes nothing with a model there: workers do that, in threads or processes. Their
figures are in Prometheus' format, and no label of one holds a client or a text.
"""

import asyncio
import contextlib
import functools
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from regard.config import suggestion
from regard.data import language_tags
from regard.decoding import SearchResult
from regard.run import Run
from regard.serving.jobs import BULK, Job, Update
from regard.serving.models import NONE, Languages, ServedModel
from regard.serving.requests import ApiError, InvalidValueError
from regard.serving.settings import ServeSettings
from regard.serving.worker import call_between

MANY = 64  # sentences whose texts are split or written in a thread: fewer take less than to hand them over and back
T = TypeVar("T")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Pending:
    """The jobs of a request, and what came of them."""

    def __init__(self, jobs: Sequence[Job], stream: bool):
        self.jobs, self.left = jobs, len(jobs)
        self.outcomes: list[SearchResult | None] = [None] * len(jobs)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.updates: asyncio.Queue[tuple[int, list[int]] | None] | None = asyncio.Queue() if stream else None
        for number, job in enumerate(jobs):
            job.request, job.number, job.bulk, job.streams = self, number, len(jobs) > BULK, stream
        if not jobs:
            self.done.set_result(None)

    def release(self) -> Sequence[Job]:
        """Let go of the jobs, and return them.

        A job knows its request. If the request still knew its jobs in the end, they, with their pictures and outputs,
        would stay until Python next searches for garbage, a thousand requests later.
        """
        jobs, self.jobs = self.jobs, ()
        return jobs

    def update(self, job: Job, outcome: Any) -> None:
        """Note what came of a job, or what is certain of it so far."""
        if self.done.done():
            return
        if isinstance(outcome, list):
            if self.updates is not None:
                self.updates.put_nowait((job.number, outcome))
            return
        if isinstance(outcome, Exception):
            self.done.set_exception(outcome)
        else:
            self.outcomes[job.number] = outcome
            self.left -= 1
            if not self.left:
                self.done.set_result(None)
        if self.done.done() and self.updates is not None:
            self.updates.put_nowait(None)


class ModelRegistry:
    """The models of a server, and what every request for them needs."""

    def __init__(self, settings: ServeSettings, folders: Mapping[str, list[str]]):
        self.settings, self.folders = settings, dict(folders)
        language_tags.parse_given(settings.languages, list(self.folders))  # a mistake is told before anything is opened
        self.models: dict[str, ServedModel] = {}
        self.metrics = Metrics(self)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.draining = False
        self.reloading = asyncio.Lock()
        self.under_way: set[object] = set()  # requests
        self.replaced: dict[ServedModel, set[object]] = {}  # models, and the requests that may still use them

    # ---- from start to end

    async def start(self) -> None:
        """Open every model; an error of one is raised."""
        self.loop = asyncio.get_running_loop()
        for name, folders in self.folders.items():
            self.models[name] = await in_thread(self.open, name, folders)

    def open(self, name: str, folders: Sequence[str]) -> ServedModel:
        """Open a model, and wait until it is ready."""
        model = ServedModel(name, folders, self.settings, self.deliver)
        model.start()
        return model

    async def reload(self) -> list[str]:
        """Open models anew whose best checkpoint has moved; requests that are under way end with the old ones."""
        names = []
        async with self.reloading:
            for name, old in list(self.models.items()):
                if await asyncio.to_thread(old.has_moved):
                    self.models[name] = await in_thread(self.open, name, old.folders)
                    self.replaced[old] = set(self.under_way)
                    names.append(name)
        self.close_replaced()
        return names

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep the models open that a request may use, for as long as it lasts."""
        request = object()
        self.under_way.add(request)
        try:
            yield
        finally:
            self.under_way.remove(request)
            self.close_replaced()

    def close_replaced(self) -> None:
        """Close models that were opened anew, once no request is left that began with them."""
        for model, requests in list(self.replaced.items()):
            requests &= self.under_way
            if not requests:
                del self.replaced[model]
                model.close()

    def close(self) -> None:
        """End all workers."""
        for model in (*self.models.values(), *self.replaced):
            model.close()

    def end_processes(self, seconds: float) -> None:
        """Wait for the ends of all processes of workers."""
        for model in (*self.models.values(), *self.replaced):
            model.end_processes(seconds)

    @property
    def ready(self) -> bool:
        """Whether every model serves, and new requests are welcome."""
        loaded = len(self.models) == len(self.folders)
        return loaded and not self.draining and all(model.ready for model in self.models.values())

    def deliver(self, updates: list[Update]) -> None:
        """Take what workers hand over, in their threads."""
        if self.loop is not None and updates:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self.loop.call_soon_threadsafe(self.resolve, updates)

    @staticmethod
    def resolve(updates: list[Update]) -> None:
        """Note what came of jobs, in the event loop."""
        for job, outcome in updates:
            if isinstance(job.request, Pending):
                job.request.update(job, outcome)

    # ---- what every request needs

    def pick(self, name: str | None, *actions: str) -> ServedModel:
        """Find the model that a request names, or the only one that can do one of these actions."""
        if len(self.models) < len(self.folders):
            raise ApiError(503, "loading", "the models are being loaded; try again", headers={"Retry-After": "2"})
        if name is not None:
            if name not in self.models:
                raise ApiError(
                    404, "unknown_model", f"model: {name!r} is not served{suggestion(name, self.models)}", "model"
                )
            if not any(self.models[name].run.can(action) for action in actions):
                self.models[name].run.require(actions[0])
            return self.models[name]
        able = [model for model in self.models.values() if any(model.run.can(action) for action in actions)]
        if len(able) == 1:
            return able[0]
        names = ", ".join(model.name for model in able)
        problem = f"model: missing, expected one of {names}" if able else f"no model that is served can {actions[0]}"
        raise InvalidValueError(problem, "model")

    def admit(self, model: ServedModel, jobs: int) -> None:
        """Refuse jobs that would wait behind too many others, or for a worker that is gone."""
        self.require_worker(model)
        waiting = model.line.waiting + len(model.line.calls)
        if waiting and waiting + jobs > self.settings.waiting:
            rate = model.counters.rate
            seconds = min(60, max(1, math.ceil(waiting / rate))) if rate else 1
            message = f"{waiting:,} sentences are waiting, as many as this server allows; try again in {seconds} s"
            raise ApiError(429, "overloaded", message, headers={"Retry-After": str(seconds)})

    @staticmethod
    def require_worker(model: ServedModel) -> None:
        """Refuse what would wait for a worker that is gone."""
        if not model.ready_workers:
            raise ApiError(503, "worker_stopped", f"{model.name}: its worker has stopped; see the server's log")

    async def search(self, model: ServedModel, jobs: Sequence[Job]) -> list[SearchResult]:
        """Search all jobs of a request; if it is cancelled, its places are free again."""
        pending = self.begin(model, jobs, stream=False)
        return await self.finish(model, pending)

    def begin(self, model: ServedModel, jobs: Sequence[Job], stream: bool) -> Pending:
        """Let the jobs of a request wait for their places."""
        self.admit(model, len(jobs))
        pending = Pending(jobs, stream)
        model.line.add(jobs)
        return pending

    async def finish(self, model: ServedModel, pending: Pending) -> list[SearchResult]:
        """Wait for what comes of the jobs of a request."""
        start = time.perf_counter()
        try:
            await pending.done
        finally:
            jobs = pending.release()
            left = [job for job, outcome in zip(jobs, pending.outcomes, strict=True) if outcome is None]
            if left:
                model.line.cancel(left)
        begun = [job.begun for job in jobs if job.begun is not None]
        waited = max(0.0, min(begun) - start) if begun else 0.0
        self.metrics.stages.labels("wait").observe(waited)
        self.metrics.stages.labels("search").observe(time.perf_counter() - start - waited)
        return [outcome for outcome in pending.outcomes if outcome is not None]

    async def call(self, model: ServedModel, function: Callable[[Run], T], languages: Languages = NONE) -> T:
        """Have a worker call a function with its run, for a request that was admitted; cancelled in time, it is not."""
        self.require_worker(model)
        if languages != NONE:
            function = functools.partial(call_between, function=function, around=model.around(languages))
        return await asyncio.wrap_future(model.line.call(function))

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage of a request."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.metrics.stages.labels(name).observe(time.perf_counter() - start)

    @staticmethod
    async def apart(size: int, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function, in a thread where it has much to do, so that other requests do not wait for it."""
        return function(*arguments) if size <= MANY else await asyncio.to_thread(function, *arguments)


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a thread that the end of the process does not wait for."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="regard opens", daemon=True).start()
    return await asyncio.wrap_future(future)


class Metrics:
    """Counters of requests and histograms of their stages; what workers do is read when it is asked for."""

    def __init__(self, service: ModelRegistry):
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
        self.service = service
        self.registry.register(self)

    def collect(self) -> Iterator[Any]:
        """Read what the models do now."""
        gauge, counter = GaugeMetricFamily, CounterMetricFamily
        computing = "Seconds that workers scored, aligned, labelled and looked"
        rows: dict[str, tuple[Any, str, Callable[[ServedModel], float]]] = {
            "regard_queue_sentences": (gauge, "Sentences that wait for a place", lambda m: m.line.waiting),
            "regard_places_in_use": (gauge, "Sentences that are searched", lambda m: m.places),
            "regard_workers_ready": (gauge, "Workers that serve", lambda m: m.ready_workers),
            "regard_captures": (gauge, "CUDA graphs that were captured", lambda m: m.captures),
            "regard_sentences_per_second": (gauge, "Sentences a second, of late", lambda m: m.counters.rate),
            "regard_sentences": (counter, "Sentences that were searched", lambda m: m.counters.sentences),
            "regard_tokens": (counter, "Tokens that were written", lambda m: m.counters.tokens),
            "regard_search_seconds": (counter, "Seconds that workers searched", lambda m: m.counters.steps_seconds),
            "regard_call_seconds": (counter, computing, lambda m: m.counters.calls_seconds),
        }
        for name, (family, help, read) in rows.items():
            metric = family(name, help, labels=["model"])
            for model in self.service.models.values():
                metric.add_metric([model.name], read(model))
            yield metric

    def page(self) -> bytes:
        """Write all figures."""
        return generate_latest(self.registry)
