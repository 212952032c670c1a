"""The service behind the routes: what a request asks for is split into jobs, searched, and put together again.

It runs in the event loop, and computes nothing with a model there: workers do that in their threads.
"""

import asyncio
import contextlib
import dataclasses
import functools
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np

from regard.config import suggestion
from regard.data.images.batching import decode_for
from regard.decoding.batches import score_pairs
from regard.decoding.options import Options
from regard.decoding.outputs import SearchResult
from regard.errors import ArgumentError, RegardError
from regard.inspection.collect.from_run import exhibit_of
from regard.inspection.draw.page import page_data
from regard.run import Run
from regard.serving.jobs import BULK, Job, Update
from regard.serving.languages import parse_given
from regard.serving.metrics import Metrics
from regard.serving.models import ServedModel, parse_runs
from regard.serving.requests import ApiError, SampleRequest, TranslateRequest
from regard.serving.settings import ServeSettings
from regard.serving.texts import SplitText, split_texts
from regard.tasks.language_model import SAMPLE
from regard.tasks.results import Classified, Translation, to_translation, to_translations
from regard.tasks.translate import add_alignments, check_attention

__all__ = ["Service", "error_of"]

PAIRS = 16  # pairs that are scored or aligned between two steps of searches
T = TypeVar("T")


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


class Service:
    """Models, and what can be asked of them."""

    def __init__(self, settings: ServeSettings, folders: Mapping[str, list[str]]):
        self.settings, self.folders = settings, dict(folders)
        parse_given(settings.languages, list(self.folders))  # a mistake is told before anything is opened
        self.models: dict[str, ServedModel] = {}
        self.metrics = Metrics(self)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.draining = False
        self.reloading = asyncio.Lock()
        self.under_way: set[object] = set()  # requests
        self.replaced: dict[ServedModel, set[object]] = {}  # models, and the requests that may still use them

    @classmethod
    def of(cls, settings: ServeSettings, runs: Sequence[str]) -> "Service":
        """Make a service of the runs that a person names."""
        return cls(settings, parse_runs(runs))

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
        raise ApiError(422, "invalid_value", problem, "model")

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
            left = [job for job, outcome in zip(pending.jobs, pending.outcomes, strict=True) if outcome is None]
            model.line.cancel(left)
        begun = [job.begun for job in pending.jobs if job.begun is not None]
        waited = max(0.0, min(begun) - start) if begun else 0.0
        self.metrics.stages.labels("wait").observe(waited)
        self.metrics.stages.labels("search").observe(time.perf_counter() - start - waited)
        return [outcome for outcome in pending.outcomes if outcome is not None]

    async def call(self, model: ServedModel, function: Callable[[Run], T]) -> T:
        """Have a worker call a function with its run, for a request that was admitted; cancelled in time, it is not."""
        self.require_worker(model)
        return await asyncio.wrap_future(model.line.call(function))

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage of a request."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.metrics.stages.labels(name).observe(time.perf_counter() - start)

    # ---- translations

    async def translate(self, request: TranslateRequest, options: Options) -> dict[str, Any]:
        """Translate texts."""
        model, texts, jobs, sources = await self.prepare(request, options)
        results = await self.search(model, jobs)
        return await self.complete(model, request, options, texts, sources, results)

    async def translate_stream(
        self, request: TranslateRequest, options: Options
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Translate texts: events of what is certain so far, and then the whole answer."""
        model, texts, jobs, sources = await self.prepare(request, options)
        pieces = [(text, piece) for text, each in enumerate(texts) for piece in range(len(each.texts))]
        pending = self.begin(model, jobs, stream=True)
        async for number, output in self.follow(model, pending):
            yield "partial", {"text": pieces[number][0], "piece": pieces[number][1], "output": output}
        results = await self.finish(model, pending)
        yield "result", await self.complete(model, request, options, texts, sources, results)

    async def follow(self, model: ServedModel, pending: Pending) -> AsyncIterator[tuple[int, str]]:
        """The number of a job and what is written of it so far, whenever that grows."""
        assert pending.updates is not None
        tokenizer, written = model.run.tokenizers.target, [""] * len(pending.jobs)
        try:
            while (update := await pending.updates.get()) is not None:
                number, tokens = update
                output = tokenizer.decode(tokens)
                if output != written[number]:
                    written[number] = output
                    yield number, output
        except BaseException:  # nobody listens any more
            model.line.cancel(pending.jobs)
            raise

    async def prepare(
        self, request: TranslateRequest, options: Options
    ) -> tuple[ServedModel, list[SplitText], list[Job], list[list[int]]]:
        """Split texts into sentences, and make a job of each."""
        if not request.texts:
            raise ApiError(422, "invalid_value", "texts: missing, expected a list of texts", "texts")
        if request.prefixes and len(request.prefixes) != len(request.texts):
            message = f"prefixes: {len(request.prefixes)} given, expected one for each of {len(request.texts)} texts"
            raise ApiError(422, "invalid_value", message, "prefixes")
        model = self.pick(request.model, "translate")
        run = model.run
        if options.precision == "bf16" and run.device.type != "cuda":
            raise ArgumentError(f"precision: bf16 given, expected fp32 or auto: a search on {run.device} is in fp32")
        if request.alignment or request.replace_unknown:
            check_attention(run)
        with self.stage("prepare"):
            source, target = run.tokenizers.source, run.tokenizers.target
            texts, ids = await asyncio.to_thread(split_texts, request.texts, source, model.longest, request.split)
            prefixes: dict[int, list[int]] = {}
            if any(request.prefixes):
                number = 0
                for each, prefix in zip(texts, target.encode_batch(list(request.prefixes)), strict=True):
                    prefixes[number] = prefix  # of a text's first piece
                    number += len(each.texts)
            jobs = [Job(tokens, options, prefixes.get(number, ())) for number, tokens in enumerate(ids)]
        return model, texts, jobs, ids

    async def complete(
        self,
        model: ServedModel,
        request: TranslateRequest,
        options: Options,
        texts: Sequence[SplitText],
        sources: Sequence[list[int]],
        results: Sequence[SearchResult],
    ) -> dict[str, Any]:
        """Put the outputs of sentences together, with what was asked for beside them."""
        with self.stage("finish"):
            outputs = [result.outputs for result in results]
            if request.alignment or request.replace_unknown:
                pieces = [piece for each in texts for piece in each.texts]

                def align(run: Run) -> list[list[Translation]]:
                    return list(
                        add_alignments(run, pieces, sources, outputs, request.alignment, request.replace_unknown)
                    )

                translations = await self.call(model, align)
            else:
                target = model.run.tokenizers.target
                translations = await self.apart(len(outputs), to_translations, outputs, target)
            if request.scores:
                translations = await self.add_scores(model, sources, outputs, translations)
            answers = await self.apart(len(outputs), join_texts, texts, translations, options)
        return {"model": model.name, "results": answers}

    @staticmethod
    async def apart(size: int, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function, in a thread where it has much to do, so that other requests do not wait for it."""
        return function(*arguments) if size <= BULK else await asyncio.to_thread(function, *arguments)

    async def add_scores(
        self, model: ServedModel, sources: Any, outputs: Any, translations: list[list[Translation]]
    ) -> list[list[Translation]]:
        """Add the log-probability of every token, by teacher forcing."""
        pairs = [(i, j) for i, each in enumerate(outputs) for j, output in enumerate(each) if sources[i]]
        log_probs: dict[tuple[int, int], tuple[float, ...]] = {}
        for first in range(0, len(pairs), PAIRS):
            some = pairs[first : first + PAIRS]

            def score(run: Run, some: Any = some) -> Any:
                given, written = [sources[i] for i, _ in some], [outputs[i][j].tokens for i, j in some]
                return score_pairs(run.model, given, written, device=run.device)

            scored = await self.call(model, score)
            log_probs |= {pair: tuple(each.tokens[:-1]) for pair, each in zip(some, scored, strict=True)}
        return [
            [replace_scores(output, log_probs.get((i, j), ())) for j, output in enumerate(each)]
            for i, each in enumerate(translations)
        ]

    # ---- other actions

    def sampling(self, request: SampleRequest, table: Mapping[str, Any]) -> tuple[ServedModel, list[Job]]:
        """The jobs of a request for samples."""
        model = self.pick(request.model, "sample")
        limit = model.run.model.limit
        most = SAMPLE if limit is None else min(SAMPLE, limit - 1)
        options = Options(**{"longest": most, **table, "sample": True, "nbest": 1})
        prefix = model.run.tokenizers.target.encode(request.prefix)
        # A source is not looked at; the number in it gives each text random numbers of its own.
        return model, [Job([number], options, prefix) for number in range(request.count)]

    async def sample(self, request: SampleRequest, table: Mapping[str, Any]) -> dict[str, Any]:
        """Sample texts from a language model."""
        model, jobs = self.sampling(request, table)
        return self.samples_of(model, await self.search(model, jobs))

    async def sample_stream(
        self, request: SampleRequest, table: Mapping[str, Any]
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Sample texts: events of what is written so far, and then the whole answer."""
        model, jobs = self.sampling(request, table)
        pending = self.begin(model, jobs, stream=True)
        async for number, output in self.follow(model, pending):
            yield "partial", {"text": number, "piece": 0, "output": output}
        yield "result", self.samples_of(model, await self.finish(model, pending))

    def samples_of(self, model: ServedModel, results: Sequence[SearchResult]) -> dict[str, Any]:
        """Samples as an answer holds them."""
        target = model.run.tokenizers.target
        texts = [to_translation(result.outputs[0], target) for result in results]
        return {"model": model.name, "results": [as_table(text) for text in texts]}

    async def score(self, name: str | None, texts: Sequence[str], targets: Sequence[str]) -> dict[str, Any]:
        """Score given translations, or the texts of a language model."""
        model = self.pick(name, "translate", "sample")
        alone = model.run.settings.row.alone
        if alone and targets:
            raise ApiError(422, "invalid_value", "targets: given to a language model, expected only texts", "targets")
        if not alone:
            check_pairs(texts, targets)
        self.admit(model, 1)
        results = []
        for first in range(0, len(texts), PAIRS):
            some, written = list(texts[first : first + PAIRS]), list(targets[first : first + PAIRS])
            results += await self.call(model, functools.partial(Run.score, sources=some, targets=written or None))
        return {
            "model": model.name,
            "results": [{"log_prob": each.log_prob, "tokens": list(each.tokens)} for each in results],
        }

    async def align(self, name: str | None, texts: Sequence[str], targets: Sequence[str]) -> dict[str, Any]:
        """Align the words of given translations."""
        model = self.pick(name, "align")
        check_pairs(texts, targets)
        self.admit(model, 1)
        results: list[dict[str, Any]] = []
        for first in range(0, len(texts), PAIRS):
            pairs = list(zip(texts, targets, strict=True))[first : first + PAIRS]
            links = await self.call(model, functools.partial(list_links, pairs=pairs))
            results += [{"alignment": [list(link) for link in each]} for each in links]
        return {"model": model.name, "results": results}

    async def classify(self, name: str | None, items: Sequence[Any]) -> dict[str, Any]:
        """Label documents, or pictures as they were decoded."""
        model = self.pick(name, "classify")
        self.admit(model, 1)
        labels: list[Classified | None] = []
        for first in range(0, len(items), PAIRS):
            some = list(items[first : first + PAIRS])
            labels += await self.call(model, functools.partial(Run.classify, items=some))
        return {
            "model": model.name,
            "results": [
                {"label": None, "probability": None, "probabilities": None}
                if each is None
                else {"label": each.label, "probability": each.probability, "probabilities": each.probabilities}
                for each in labels
            ],
        }

    async def caption(self, name: str | None, pictures: Sequence[np.ndarray], options: Options) -> dict[str, Any]:
        """Caption pictures as they were decoded."""
        model = self.pick(name, "caption")
        results = await self.search(model, [Job(pixels, options) for pixels in pictures])
        target = model.run.tokenizers.target
        answers = [[to_translation(output, target) for output in result.outputs] for result in results]
        return {
            "model": model.name,
            "results": [{"text": each[0].text, "outputs": [as_table(one) for one in each]} for each in answers],
        }

    async def decode(self, model: ServedModel, files: Sequence[tuple[str, Any]]) -> list[np.ndarray]:
        """Decode uploaded pictures, in a thread."""
        data = model.run.settings.data
        return await asyncio.to_thread(lambda: [decode_for(data, file, name) for name, file in files])

    async def look(self, name: str | None, text: str, target: str | None, table: Mapping[str, Any]) -> dict[str, Any]:
        """Look into a model: the data that a page of `regard look` draws from."""
        if not text.strip():
            raise ApiError(422, "invalid_value", "text: empty, expected a text to look into", "text")
        words = len(text.split()) + len((target or "").split())
        if words > self.settings.look_words:
            message = f"text: {words:,} words given, expected at most {self.settings.look_words:,}"
            raise ApiError(413, "too_large", message, "text")
        model = self.pick(name, "translate", "sample", "classify", "caption")
        if model.run.settings.data.reads == "pictures":
            raise ApiError(422, "invalid_value", f"{model.name}: reads pictures; regard look shows them", "model")

        self.admit(model, 1)

        def collect(run: Run) -> dict[str, Any]:
            return page_data([exhibit_of(run, text, target=target, **table)])

        return {"model": model.name, "page": await self.call(model, collect)}


def join_texts(
    texts: Sequence[SplitText], translations: Sequence[list[Translation]], options: Options
) -> list[dict[str, Any]]:
    """The outputs of texts from those of their sentences, as an answer holds them."""
    pieces, answers = iter(translations), []
    for each in texts:
        joined = each.join(pieces, options.nbest, not options.sample)
        answers.append({"text": joined[0].text, "cut": each.cut, "outputs": [as_table(output) for output in joined]})
    return answers


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


def list_links(run: Run, pairs: list[tuple[str, str]]) -> list[Any]:
    """The links of each pair of texts."""
    return list(run.links(pairs))


def check_pairs(texts: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse lists of other lengths."""
    if len(texts) != len(targets):
        message = f"targets: {len(targets)} given, expected one for each of {len(texts)} texts"
        raise ApiError(422, "invalid_value", message, "targets")


def as_table(output: Translation) -> dict[str, Any]:
    """An output as an answer holds it."""
    table: dict[str, Any] = {
        "text": output.text,
        "score": finite(output.score),
        "log_prob": finite(output.log_prob),
        "tokens": list(output.tokens),
        "finished": output.finished,
    }
    if output.alignment is not None:
        table["alignment"] = [list(link) for link in output.alignment]
    if output.token_log_probs is not None:
        table["scores"] = [finite(each) for each in output.token_log_probs]
    return table


def finite(value: float) -> float | None:
    """A number that JSON can hold."""
    return value if math.isfinite(value) else None


def replace_scores(output: Translation, log_probs: tuple[float, ...]) -> Translation:
    """A translation with the log-probabilities of its tokens."""
    return dataclasses.replace(output, token_log_probs=log_probs)


def error_of(error: Exception) -> ApiError | None:
    """The answer to an error of the library's: the sentence that the command line has; None for a fault of its own."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RegardError):
        name = str(error).partition(":")[0]
        return ApiError(422, "invalid_value", str(error), name if name.replace("_", "").isalnum() else None)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return ApiError(
            503, "out_of_memory", "out of memory; send less at once, or try again", headers={"Retry-After": "5"}
        )
    return None
