"""The service behind the routes: what a request asks for is split into jobs, searched, and put together again.

It runs in the event loop, and computes nothing with a model there: workers do that, in threads or processes.
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
from regard.data import picture_pixels, run_languages
from regard.decoding import Options, SearchResult
from regard.errors import ArgumentError
from regard.run import Run
from regard.serving import requests
from regard.serving.answers import (
    SplitText,
    as_table,
    check_pairs,
    join_texts,
    split_texts,
    write_texts,
)
from regard.serving.jobs import Job, PendingRequest, Update
from regard.serving.models import NONE, Languages, Metrics, ServedModel
from regard.serving.requests import ApiError, InvalidValueError, TooLargeError
from regard.serving.settings import ServeSettings
from regard.serving.worker import call_between, collect_page, list_alignments, list_links, score_tokens
from regard.tasks import Classified, Translation, to_translation, to_translations, translate

SENTENCE = 150  # characters of one, about
MANY = 64  # sentences whose texts are split or written in a thread: fewer take less than to hand them over and back
PAIRS = 16  # pairs that are scored or aligned between two steps of searches
File = tuple[str, Any]  # what an uploaded picture is called in a message, and what it is read from
T = TypeVar("T")


class Service:
    """The models of a server, and what can be asked of them."""

    def __init__(self, settings: ServeSettings, folders: Mapping[str, list[str]]):
        self.settings, self.folders = settings, dict(folders)
        run_languages.parse_given(settings.languages, list(self.folders))  # a mistake is told before anything is opened
        self.models: dict[str, ServedModel] = {}
        self.metrics = Metrics(self.models)
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
        for model, users in list(self.replaced.items()):
            users &= self.under_way
            if not users:
                del self.replaced[model]
                model.queue.close()

    def close(self) -> None:
        """End all workers."""
        for model in (*self.models.values(), *self.replaced):
            model.queue.close()

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
            if isinstance(job.request, PendingRequest):
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
            if self.models[name].actions.isdisjoint(actions):
                self.models[name].run.require(actions[0])
            return self.models[name]
        able = [model for model in self.models.values() if not model.actions.isdisjoint(actions)]
        if len(able) == 1:
            return able[0]
        names = ", ".join(model.name for model in able)
        problem = f"model: missing, expected one of {names}" if able else f"no model that is served can {actions[0]}"
        raise InvalidValueError(problem, "model")

    def admit(self, model: ServedModel, jobs: int) -> None:
        """Refuse jobs that would wait behind too many others, or for a worker that is gone."""
        self.require_worker(model)
        waiting = model.queue.waiting + len(model.queue.calls)
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

    def begin(self, model: ServedModel, jobs: Sequence[Job], stream: bool) -> PendingRequest:
        """Let the jobs of a request wait for their places."""
        self.admit(model, len(jobs))
        pending = PendingRequest(jobs, stream)
        model.queue.add(jobs)
        return pending

    async def finish(self, model: ServedModel, pending: PendingRequest) -> list[SearchResult]:
        """Wait for what comes of the jobs of a request."""
        start = time.perf_counter()
        try:
            await pending.done
        finally:
            jobs = pending.release()
            left = [job for job, outcome in zip(jobs, pending.outcomes, strict=True) if outcome is None]
            if left:
                model.queue.cancel(left)
        begun = [job.begun for job in jobs if job.begun is not None]
        waited = max(0.0, min(begun) - start) if begun else 0.0
        self.metrics.stages.labels("wait").observe(waited)
        self.metrics.stages.labels("search").observe(time.perf_counter() - start - waited)
        return [outcome for outcome in pending.outcomes if outcome is not None]

    async def call(self, model: ServedModel, function: Callable[[Run], T], languages: Languages = NONE) -> T:
        """Have a worker call a function with its run, for a request that was admitted; cancelled in time, it is not."""
        self.require_worker(model)
        if languages != NONE:
            function = functools.partial(call_between, function=function, around=model.choose(languages)[0])
        return await asyncio.wrap_future(model.queue.call(function))

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

    # ---- translations

    async def translate(self, request: requests.TranslateRequest, options: Options) -> dict[str, Any]:
        """Translate texts."""
        model, texts, jobs, sources = await self.prepare(request, options)
        results = await self.search(model, jobs)
        return await self.complete(model, request, options, texts, sources, results)

    async def translate_stream(
        self, request: requests.TranslateRequest, options: Options
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Translate texts: events of what is certain so far, and then the whole answer."""
        model, texts, jobs, sources = await self.prepare(request, options)
        pieces = [(text, piece) for text, each in enumerate(texts) for piece in range(len(each.texts))]
        pending = self.begin(model, jobs, stream=True)
        async for number, output in self.follow(model, pending, request.languages):
            yield "partial", {"text": pieces[number][0], "piece": pieces[number][1], "output": output}
        results = await self.finish(model, pending)
        yield "result", await self.complete(model, request, options, texts, sources, results)

    async def follow(
        self, model: ServedModel, pending: PendingRequest, languages: Languages = NONE
    ) -> AsyncIterator[tuple[int, str]]:
        """The number of a job and what is written of it so far, whenever that grows."""
        assert pending.updates is not None
        tokenizer, written = model.run_between(languages).tokenizers.target, [""] * len(pending.jobs)
        try:
            while (update := await pending.updates.get()) is not None:
                number, tokens = update
                output = tokenizer.decode(tokens)
                if output != written[number]:
                    written[number] = output
                    yield number, output
        except BaseException:  # nobody listens any more
            model.queue.cancel(pending.release())
            raise

    async def prepare(
        self, request: requests.TranslateRequest, options: Options
    ) -> tuple[ServedModel, list[SplitText], list[Job], list[list[int]]]:
        """Split texts into sentences, and make a job of each."""
        if not request.texts:
            raise InvalidValueError("texts: missing, expected a list of texts", "texts")
        if request.prefixes and len(request.prefixes) != len(request.texts):
            message = f"prefixes: {len(request.prefixes)} given, expected one for each of {len(request.texts)} texts"
            raise InvalidValueError(message, "prefixes")
        model = self.pick(request.model, "translate")
        run = model.run_between(request.languages)
        if options.precision == "bf16" and model.device_type != "cuda":
            device = model.device_type
            raise ArgumentError(f"precision: bf16 given, expected fp32 or auto: a search on {device} is in fp32")
        run.engine.check(options)
        if request.alignment or request.replace_unknown or request.coverage:
            translate.check_attention(run)
        with self.stage("prepare"):
            source, target = run.tokenizers.source, run.tokenizers.target
            texts, ids = await self.apart(
                sum(map(len, request.texts)) // SENTENCE,
                split_texts,
                request.texts,
                source,
                model.longest,
                (model.splits or None) if request.split is None else request.split,
                model.tags,
            )
            prefixes: dict[int, list[int]] = {}
            if any(request.prefixes):
                number = 0
                for each, prefix in zip(texts, target.encode_prefixes(list(request.prefixes)), strict=True):
                    prefixes[number] = prefix  # of a text's first piece
                    number += len(each.texts)
            jobs = [Job(tokens, options, prefixes.get(number, target.before)) for number, tokens in enumerate(ids)]
        return model, texts, jobs, ids

    async def complete(
        self,
        model: ServedModel,
        request: requests.TranslateRequest,
        options: Options,
        texts: Sequence[SplitText],
        sources: Sequence[list[int]],
        results: Sequence[SearchResult],
    ) -> dict[str, Any]:
        """Put the outputs of sentences together, with what was asked for beside them."""
        with self.stage("finish"):
            outputs = [result.outputs for result in results]
            target = model.run_between(request.languages).tokenizers.target
            attended = request.alignment or request.replace_unknown or request.coverage
            if not (attended or request.scores):
                answers = await self.apart(len(outputs), write_texts, texts, outputs, target, options)
                return await self.answer(model, answers, request.texts)
            if attended:
                pieces = [piece for each in texts for piece in each.texts]
                wanted = request.alignment, request.replace_unknown, request.alignment or request.coverage
                align = functools.partial(list_alignments, wanted=wanted)
                lists = {"texts": pieces, "sources": sources, "outputs": outputs}
                translations = await self.call_in_parts(model, align, request.languages, **lists)
            else:
                translations = await self.apart(len(outputs), to_translations, outputs, target)
            if request.scores:
                translations = await self.add_scores(model, sources, outputs, translations)
            answers = await self.apart(len(outputs), join_texts, texts, translations, options)
            return await self.answer(model, answers, request.texts)

    async def answer(
        self, model: ServedModel, results: Sequence[dict[str, Any]], texts: Sequence[str]
    ) -> dict[str, Any]:
        """The answer for some texts: the result for each, with those of its words that did not occur in training."""
        unknown = await self.apart(sum(map(len, texts)) // SENTENCE, model.list_unknown, texts)
        results = [{**result, "unknown": words} for result, words in zip(results, unknown, strict=True)]
        return {"model": model.name, "results": results}

    async def add_scores(
        self, model: ServedModel, sources: Any, outputs: Any, translations: list[list[Translation]]
    ) -> list[list[Translation]]:
        """Add the log-probability of every token, by teacher forcing."""
        pairs = [(i, j) for i, each in enumerate(outputs) for j, output in enumerate(each) if sources[i]]
        target = model.run.tokenizers.target

        def visible(pair: tuple[int, int], scores: Sequence[float]) -> tuple[float, ...]:
            flags = target.are_visible(outputs[pair[0]][pair[1]].tokens)
            return tuple(score for score, flag in zip(scores, flags, strict=False) if flag)

        given, written = [sources[i] for i, _ in pairs], [outputs[i][j].tokens for i, j in pairs]
        scored = await self.call_in_parts(model, score_tokens, sources=given, targets=written)
        log_probs = {pair: visible(pair, each.tokens) for pair, each in zip(pairs, scored, strict=True)}
        return [
            [dataclasses.replace(output, token_log_probs=log_probs.get((i, j), ())) for j, output in enumerate(each)]
            for i, each in enumerate(translations)
        ]

    async def call_in_parts(
        self, model: ServedModel, function: Callable[..., Any], languages: Languages = NONE, **lists: Sequence[Any]
    ) -> list[Any]:
        """Have a worker call a function for some items of each list at a time, between two steps of searches."""
        results = []
        for first in range(0, len(next(iter(lists.values()))), PAIRS):
            some = {name: list(each[first : first + PAIRS]) for name, each in lists.items()}
            results += await self.call(model, functools.partial(function, **some), languages)
        return results

    # ---- other actions

    def sampling(self, request: requests.SampleRequest, table: Mapping[str, Any]) -> tuple[ServedModel, list[Job]]:
        """The jobs of a request for samples."""
        model = self.pick(request.model, "sample")
        options = Options(**{"longest": model.sample_tokens, **table, "sample": True, "nbest": 1})
        prefix = model.run.tokenizers.target.encode(request.prefix)
        # A source is not looked at; the number in it gives each text random numbers of its own.
        return model, [Job([number], options, prefix) for number in range(request.count)]

    async def sample(self, request: requests.SampleRequest, table: Mapping[str, Any]) -> dict[str, Any]:
        """Sample texts from a language model."""
        model, jobs = self.sampling(request, table)
        return self.samples_of(model, await self.search(model, jobs))

    async def sample_stream(
        self, request: requests.SampleRequest, table: Mapping[str, Any]
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

    async def score(self, request: requests.ScoreRequest) -> dict[str, Any]:
        """Score given translations, or the texts of a language model."""
        model, texts, targets = self.pick(request.model, "translate", "sample"), request.texts, request.targets
        model.run_between(request.languages)
        if model.has_source:
            check_pairs(texts, targets)
        elif targets:
            raise InvalidValueError("targets: given to a language model, expected only texts", "targets")
        self.admit(model, 1)
        given = {"sources": texts, "targets": targets} if targets else {"sources": texts}
        results = await self.call_in_parts(model, Run.score, request.languages, **given)
        scored = [{"log_prob": each.log_prob, "tokens": list(each.tokens)} for each in results]
        return await self.answer(model, scored, texts)

    async def align(self, request: requests.AlignRequest) -> dict[str, Any]:
        """Align the words of given translations."""
        model, texts, targets = self.pick(request.model, "align"), request.texts, request.targets
        model.run_between(request.languages)
        check_pairs(texts, targets)
        self.admit(model, 1)
        pairs = list(zip(texts, targets, strict=True))
        links = await self.call_in_parts(model, list_links, request.languages, pairs=pairs)
        results = [{"alignment": [list(link) for link in each]} for each in links]
        return await self.answer(model, results, texts)

    async def classify(self, name: str | None, items: Sequence[Any] = (), files: Sequence[File] = ()) -> dict[str, Any]:
        """Label documents, or uploaded pictures."""
        model = self.pick(name, "classify")
        pictures = model.reads_pictures
        if files and not pictures:
            raise InvalidValueError(f"{model.name}: reads texts, expected JSON with texts", "texts")
        if pictures and not files:
            raise InvalidValueError(f"{model.name}: reads pictures, expected them uploaded", "texts")
        if files:
            items = await self.decode(model, files)
        self.admit(model, 1)
        labels: list[Classified | None] = await self.call_in_parts(model, Run.classify, items=items)
        keys = ("label", "probability", "probabilities")  # each null for a text without words
        results = [{key: getattr(each, key, None) for key in keys} for each in labels]
        return {"model": model.name, "results": results} if pictures else await self.answer(model, results, items)

    async def caption(self, name: str | None, files: Sequence[File], options: Options) -> dict[str, Any]:
        """Caption uploaded pictures."""
        model = self.pick(name, "caption")
        results = await self.search(model, [Job(pixels, options) for pixels in await self.decode(model, files)])
        target = model.run.tokenizers.target
        answers = [[to_translation(output, target) for output in result.outputs] for result in results]
        return {
            "model": model.name,
            "results": [{"text": each[0].text, "outputs": [as_table(one) for one in each]} for each in answers],
        }

    @staticmethod
    async def decode(model: ServedModel, files: Sequence[File]) -> list[np.ndarray]:
        """Decode uploaded pictures, in a thread."""
        data = model.run.settings.data
        return await asyncio.to_thread(lambda: [picture_pixels.decode_for(data, file, name) for name, file in files])

    async def look(self, request: requests.LookRequest, table: Mapping[str, Any]) -> dict[str, Any]:
        """Look into a model with a text: the data that a page of `regard look` draws from."""
        text, target = request.text, request.target
        if not text.strip():
            raise InvalidValueError("text: empty, expected a text to look into", "text")
        self.check_words("text", text, target)
        model = self.pick(request.model, "translate", "sample", "classify", "caption")
        if model.reads_pictures:
            raise InvalidValueError(f"{model.name}: reads pictures, expected one uploaded as a form", "text")
        model.run_between(request.languages)
        return await self.collect(model, text, target, table, request.languages)

    async def look_at_picture(
        self, request: requests.LookRequest, files: Sequence[File], table: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Look into a model with an uploaded picture: the data that a page of `regard look` draws from."""
        if len(files) > 1:
            raise InvalidValueError(f"pictures: {len(files)} given, expected one to look into", "pictures")
        if request.text:
            raise InvalidValueError("text: given beside a picture, expected one of them", "text")
        if request.languages != NONE:
            name = "target_language" if request.source_language is None else "source_language"
            raise InvalidValueError(f"{name}: given beside a picture, which is in no language", name)
        self.check_words("target", request.target)
        model = self.pick(request.model, "caption", "classify")
        if not model.reads_pictures:
            raise InvalidValueError(f"{model.name}: reads texts, expected JSON with a text", "pictures")
        (pixels,) = await self.decode(model, files)
        return await self.collect(model, pixels, request.target, table)

    async def collect(
        self,
        model: ServedModel,
        item: str | np.ndarray,
        target: str | None,
        table: Mapping[str, Any],
        languages: Languages = NONE,
    ) -> dict[str, Any]:
        """Collect what a page shows of one item."""
        self.admit(model, 1)
        look = functools.partial(collect_page, item=item, target=target, table=dict(table))
        answer = {"model": model.name, "page": await self.call(model, look, languages)}
        return answer | ({"unknown": model.list_unknown([item])[0]} if isinstance(item, str) else {})

    def check_words(self, field: str, *texts: str | None) -> None:
        """Refuse a text that is too long to be looked into."""
        words = sum(len((text or "").split()) for text in texts)
        if words > self.settings.look_words:
            raise TooLargeError(f"{field}: {words:,} words given, expected at most {self.settings.look_words:,}", field)


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
