"""The service behind the routes: it splits a request into jobs, has them searched, and joins the results.

It runs in the event loop and computes nothing with a model: workers do that, in threads or processes.

It keeps the lines of a text. It splits each line into sentences, and a sentence that is too long into pieces, as
`regard translate --split` does; if `split` is None, it splits only lines that are too long. If `split` is false, it
cuts such a line, and the answer says so. A tag at the beginning, such as <2de>, applies to everything that follows: it
is put before every piece.
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
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from regard.config import suggestion
from regard.data import Tokenizer, picture_pixels, run_languages, sentence_split
from regard.decoding import Options, SearchResult, file_translation
from regard.errors import ArgumentError
from regard.run import Run
from regard.serving import requests
from regard.serving.errors import ApiError, InvalidValueError, TooLargeError
from regard.serving.jobs import Job, PendingRequest, Update
from regard.serving.models import NONE, Languages, Metrics, ServedModel
from regard.serving.requests import ActionRequest
from regard.serving.settings import ServeSettings
from regard.serving.worker import collect_page, list_all, score_tokens
from regard.tasks import Classified, Translation, to_translation, to_translations, translate

SENTENCE = 150  # characters of one, about
MANY = 64  # sentences above which texts are handled in a thread; for fewer, passing them to it costs more than it saves
Event = tuple[str, dict[str, Any]]  # of a stream: its name and data
T = TypeVar("T")


@dataclass(frozen=True)
class SplitText:
    """A text in lines, and each line in pieces."""

    text: str
    lines: tuple[str, ...]
    parts: tuple[tuple[sentence_split.Piece, ...], ...]  # of each line, at least one
    cut: bool  # whether the end of a line was cut off

    @property
    def texts(self) -> list[str]:
        """The pieces of all lines, in order."""
        return [piece.text for line in self.parts for piece in line]

    @property
    def whole(self) -> bool:
        """Whether the text is a single unchanged piece."""
        return len(self.lines) == 1 and len(self.parts[0]) == 1 and self.parts[0][0].text == self.text

    def join(self, outputs: Iterator[list[Translation]], count: int, ranked: bool) -> list[Translation]:
        """Join the outputs for the pieces into outputs for the text, the `count` best if they are `ranked`."""
        if self.whole:
            return list(next(outputs))
        each = []
        for line, parts in zip(self.lines, self.parts, strict=True):
            each.append(file_translation.join_outputs(line, parts, list(islice(outputs, len(parts))), count, ranked))
        starts, start = [], 0
        for line in self.lines:
            starts.append(sentence_split.Piece(start, start + len(line), line))
            start += len(line) + 1
        return file_translation.join_outputs(self.text, starts, each, count, ranked, between="\n")


class Service:
    """The models of a server, and its actions."""

    def __init__(self, settings: ServeSettings, folders: Mapping[str, list[str]]):
        self.settings, self.folders = settings, dict(folders)
        run_languages.parse_given(settings.languages, list(self.folders))  # report mistakes before opening models
        self.models: dict[str, ServedModel] = {}
        self.metrics = Metrics(self.models)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.draining = False
        self.reloading = asyncio.Lock()
        self.under_way: set[object] = set()  # requests in progress
        self.replaced: dict[ServedModel, set[object]] = {}  # replaced models, and the requests that may still use them

    # ---- from start to end

    async def start(self) -> None:
        """Open every model; raise an error if one cannot be opened."""
        self.loop = asyncio.get_running_loop()
        for name, folders in self.folders.items():
            self.models[name] = await open_in_thread(self.open, name, folders)

    def open(self, name: str, folders: Sequence[str]) -> ServedModel:
        """Open a model, and wait until it is ready."""
        model = ServedModel(name, folders, self.settings, self.deliver)
        model.start()
        return model

    async def reload(self) -> list[str]:
        """Reopen models whose best checkpoint has changed; requests in progress finish with the old ones."""
        names = []
        async with self.reloading:
            for name, old in list(self.models.items()):
                if await asyncio.to_thread(old.has_moved):
                    self.models[name] = await open_in_thread(self.open, name, old.folders)
                    self.replaced[old] = set(self.under_way)
                    names.append(name)
        self.close_replaced()
        return names

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep the models open that the current request may use."""
        request = object()
        self.under_way.add(request)
        try:
            yield
        finally:
            self.under_way.remove(request)
            self.close_replaced()

    def close_replaced(self) -> None:
        """Close replaced models once all requests that may use them have ended."""
        for model, users in list(self.replaced.items()):
            users &= self.under_way
            if not users:
                del self.replaced[model]
                model.queue.close()

    def close(self) -> None:
        """Close the queues of all models, which ends their workers."""
        for model in (*self.models.values(), *self.replaced):
            model.queue.close()

    def end_processes(self, seconds: float) -> None:
        """Wait for all worker processes to end."""
        for model in (*self.models.values(), *self.replaced):
            model.end_processes(seconds)

    @property
    def ready(self) -> bool:
        """Whether every model serves and the server is not draining."""
        loaded = len(self.models) == len(self.folders)
        return loaded and not self.draining and all(model.ready for model in self.models.values())

    def deliver(self, updates: list[Update]) -> None:
        """Pass updates from workers' threads to the event loop."""
        if self.loop is not None and updates:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no request waits any more
                self.loop.call_soon_threadsafe(self.resolve, updates)

    @staticmethod
    def resolve(updates: list[Update]) -> None:
        """Pass outcomes to their requests, in the event loop."""
        for job, outcome in updates:
            if isinstance(job.request, PendingRequest):
                job.request.update(job, outcome)

    # ---- what every request needs

    def pick(self, name: str | None, *actions: str) -> ServedModel:
        """Return the model that a request names, or the only one that supports one of these actions."""
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

    def begin(self, model: ServedModel, jobs: Sequence[Job], stream: bool = False) -> PendingRequest:
        """Queue the jobs of a request."""
        model.admit(len(jobs))
        pending = PendingRequest(jobs, stream)
        model.queue.add(jobs)
        return pending

    async def finish(self, model: ServedModel, pending: PendingRequest) -> list[SearchResult]:
        """Wait for the results of a request; if it is cancelled, cancel its unfinished jobs."""
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

    @staticmethod
    async def run_in_thread(size: int, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function, in a thread if it has much to do, so that it does not block other requests."""
        return function(*arguments) if size <= MANY else await asyncio.to_thread(function, *arguments)

    # ---- translations

    async def translate(self, asked: ActionRequest) -> dict[str, Any]:
        """Translate texts."""
        model, texts, jobs, sources = await self.prepare(asked.fields, asked.options)
        results = await self.finish(model, self.begin(model, jobs))
        return await self.complete(model, asked.fields, asked.options, texts, sources, results)

    async def translate_stream(self, asked: ActionRequest) -> AsyncIterator[Event]:
        """Translate texts: yield events with the tokens so far, and then the whole answer."""
        request, options = asked.fields, asked.options
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
        """Yield the number of a job and its output so far, whenever that changes."""
        assert pending.updates is not None
        tokenizer, written = model.tokenizers_between(languages).target, [""] * len(pending.jobs)
        try:
            while (update := await pending.updates.get()) is not None:
                number, tokens = update
                output = tokenizer.decode(tokens)
                if output != written[number]:
                    written[number] = output
                    yield number, output
        except BaseException:  # the client is gone
            model.queue.cancel(pending.release())
            raise

    async def prepare(
        self, request: requests.TranslateRequest, options: Options
    ) -> tuple[ServedModel, list[SplitText], list[Job], list[list[int]]]:
        """Split texts into sentences, and make a job of each."""
        requests.require_texts(request.texts)
        if request.prefixes and len(request.prefixes) != len(request.texts):
            message = f"prefixes: {len(request.prefixes)} given, expected one for each of {len(request.texts)} texts"
            raise InvalidValueError(message, "prefixes")
        model = self.pick(request.model, "translate")
        tokenizers = model.tokenizers_between(request.languages)
        if options.precision == "bf16" and model.device_type != "cuda":
            device = model.device_type
            raise ArgumentError(f"precision: bf16 given, expected fp32 or auto: a search on {device} is in fp32")
        model.check_options(options)
        if request.alignment or request.replace_unknown or request.coverage:
            translate.check_attention(model.run)
        with self.metrics.stages.labels("prepare").time():
            source, target = tokenizers.source, tokenizers.target
            texts, ids = await self.run_in_thread(
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
                    prefixes[number] = prefix  # of the text's first piece
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
        """Build the answer from the outputs of the sentences, with alignments and scores if requested."""
        with self.metrics.stages.labels("finish").time():
            outputs = [result.outputs for result in results]
            target = model.tokenizers_between(request.languages).target
            if request.alignment or request.replace_unknown or request.coverage:
                pieces = [piece for each in texts for piece in each.texts]
                align = functools.partial(
                    list_all,
                    function=translate.add_alignments,
                    alignment=request.alignment,
                    replace_unknown=request.replace_unknown,
                    coverage=request.alignment or request.coverage,
                )
                lists = {"texts": pieces, "sources": sources, "outputs": outputs}
                translations = await model.call_in_parts(align, request.languages, **lists)
            else:
                translations = await self.run_in_thread(len(outputs), to_translations, outputs, target)
            if request.scores:
                translations = await self.add_scores(model, sources, outputs, translations)
            answers = await self.run_in_thread(len(outputs), join_texts, texts, translations, options)
            return await self.answer(model, answers, request.texts)

    async def answer(
        self, model: ServedModel, results: Sequence[dict[str, Any]], texts: Sequence[str]
    ) -> dict[str, Any]:
        """Build the answer for some texts, adding to each result the words that did not occur in training."""
        unknown = await self.run_in_thread(sum(map(len, texts)) // SENTENCE, model.list_unknown, texts)
        results = [{**result, "unknown": words} for result, words in zip(results, unknown, strict=True)]
        return {"model": model.name, "results": results}

    async def add_scores(
        self, model: ServedModel, sources: Any, outputs: Any, translations: list[list[Translation]]
    ) -> list[list[Translation]]:
        """Add the log-probability of every token, by teacher forcing."""
        pairs = [(i, j) for i, each in enumerate(outputs) for j, output in enumerate(each) if sources[i]]
        target = model.tokenizers.target

        def visible(pair: tuple[int, int], scores: Sequence[float]) -> tuple[float, ...]:
            flags = target.are_visible(outputs[pair[0]][pair[1]].tokens)
            return tuple(score for score, flag in zip(scores, flags, strict=False) if flag)

        given, written = [sources[i] for i, _ in pairs], [outputs[i][j].tokens for i, j in pairs]
        scored = await model.call_in_parts(score_tokens, sources=given, targets=written)
        log_probs = {pair: visible(pair, each.tokens) for pair, each in zip(pairs, scored, strict=True)}
        return [
            [dataclasses.replace(output, token_log_probs=log_probs.get((i, j), ())) for j, output in enumerate(each)]
            for i, each in enumerate(translations)
        ]

    # ---- other actions

    def sampling(self, asked: ActionRequest) -> tuple[ServedModel, list[Job]]:
        """Make the jobs of a request for samples."""
        request: requests.SampleRequest = asked.fields
        model = self.pick(request.model, "sample")
        options = Options(**{"longest": model.sample_tokens, **asked.given, "sample": True, "nbest": 1})
        prefix = model.tokenizers.target.encode(request.prefix)
        # The model does not read the source; its number gives each text random numbers of its own.
        return model, [Job([number], options, prefix) for number in range(request.count)]

    async def sample(self, asked: ActionRequest) -> dict[str, Any]:
        """Sample texts from a language model."""
        model, jobs = self.sampling(asked)
        return self.samples_of(model, await self.finish(model, self.begin(model, jobs)))

    async def sample_stream(self, asked: ActionRequest) -> AsyncIterator[Event]:
        """Sample texts: yield events with the texts so far, and then the whole answer."""
        model, jobs = self.sampling(asked)
        pending = self.begin(model, jobs, stream=True)
        async for number, output in self.follow(model, pending):
            yield "partial", {"text": number, "piece": 0, "output": output}
        yield "result", self.samples_of(model, await self.finish(model, pending))

    def samples_of(self, model: ServedModel, results: Sequence[SearchResult]) -> dict[str, Any]:
        """Build the answer for samples."""
        target = model.tokenizers.target
        texts = [to_translation(result.outputs[0], target) for result in results]
        return {"model": model.name, "results": [as_table(text) for text in texts]}

    async def score(self, asked: ActionRequest) -> dict[str, Any]:
        """Score given translations, or the texts of a language model."""
        request: requests.ScoreRequest = asked.fields
        requests.require_texts(request.texts)
        model, texts, targets = self.pick(request.model, "translate", "sample"), request.texts, request.targets
        model.tokenizers_between(request.languages)
        if model.has_source:
            check_pairs(texts, targets)
        elif targets:
            raise InvalidValueError("targets: given to a language model, expected only texts", "targets")
        model.admit(1)
        given = {"sources": texts, "targets": targets} if targets else {"sources": texts}
        results = await model.call_in_parts(Run.score, request.languages, **given)
        scored = [{"log_prob": each.log_prob, "tokens": list(each.tokens)} for each in results]
        return await self.answer(model, scored, texts)

    async def align(self, asked: ActionRequest) -> dict[str, Any]:
        """Align the words of given translations."""
        request: requests.AlignRequest = asked.fields
        requests.require_texts(request.texts)
        model, texts, targets = self.pick(request.model, "align"), request.texts, request.targets
        model.tokenizers_between(request.languages)
        check_pairs(texts, targets)
        model.admit(1)
        pairs = list(zip(texts, targets, strict=True))
        link = functools.partial(list_all, function=Run.links)
        links = await model.call_in_parts(link, request.languages, pairs=pairs)
        results = [{"alignment": [list(link) for link in each]} for each in links]
        return await self.answer(model, results, texts)

    async def classify(self, asked: ActionRequest) -> dict[str, Any]:
        """Label documents, or uploaded pictures."""
        request, files = asked.fields, asked.files
        if not files:
            requests.require_texts(request.texts)
        model = self.pick(request.model, "classify")
        pictures = model.reads_pictures
        if files and not pictures:
            raise InvalidValueError(f"{model.name}: reads texts, expected JSON with texts", "texts")
        if pictures and not files:
            raise InvalidValueError(f"{model.name}: reads pictures, expected them uploaded", "texts")
        items: Any = await self.decode(model, files) if files else request.texts
        model.admit(1)
        labels: list[Classified | None] = await model.call_in_parts(Run.classify, items=items)
        keys = ("label", "probability", "probabilities")  # all null for a text without words
        results = [{key: getattr(each, key, None) for key in keys} for each in labels]
        return {"model": model.name, "results": results} if pictures else await self.answer(model, results, items)

    async def caption(self, asked: ActionRequest) -> dict[str, Any]:
        """Caption uploaded pictures."""
        model = self.pick(asked.fields.model, "caption")
        pictures = await self.decode(model, asked.files)
        jobs = [Job(pixels, asked.options) for pixels in pictures]
        results = await self.finish(model, self.begin(model, jobs))
        target = model.tokenizers.target
        answers = [[to_translation(output, target) for output in result.outputs] for result in results]
        return {
            "model": model.name,
            "results": [{"text": each[0].text, "outputs": [as_table(one) for one in each]} for each in answers],
        }

    @staticmethod
    async def decode(model: ServedModel, files: Sequence[requests.File]) -> list[np.ndarray]:
        """Decode uploaded pictures in a thread."""
        data = model.run.settings.data
        return await asyncio.to_thread(lambda: [picture_pixels.decode_for(data, file, name) for name, file in files])

    async def look(self, asked: ActionRequest) -> dict[str, Any]:
        """Look into a model with a text or an uploaded picture; return the data of a `regard look` page."""
        request, files = asked.fields, asked.files
        item: Any = request.text
        if len(files) > 1:
            raise InvalidValueError(f"pictures: {len(files)} given, expected one to look into", "pictures")
        if files and item:
            raise InvalidValueError("text: given beside a picture, expected one of them", "text")
        if files and request.languages != NONE:
            name = "target_language" if request.source_language is None else "source_language"
            raise InvalidValueError(f"{name}: given beside a picture, which is in no language", name)
        if not files and not item.strip():
            raise InvalidValueError("text: empty, expected a text to look into", "text")
        words, most = len(item.split()) + len((request.target or "").split()), self.settings.look_words
        if words > most:
            field = "target" if files else "text"
            raise TooLargeError(f"{field}: {words:,} words given, expected at most {most:,}", field)
        actions = ("caption", "classify") if files else ("translate", "sample", "classify", "caption")
        model = self.pick(request.model, *actions)
        if files and not model.reads_pictures:
            raise InvalidValueError(f"{model.name}: reads texts, expected JSON with a text", "pictures")
        if model.reads_pictures and not files:
            raise InvalidValueError(f"{model.name}: reads pictures, expected one uploaded as a form", "text")
        if files:
            (item,) = await self.decode(model, files)
        else:
            model.tokenizers_between(request.languages)
        model.admit(1)
        look = functools.partial(collect_page, item=item, target=request.target, table=dict(asked.given))
        answer = {"model": model.name, "page": await model.call(look, request.languages)}
        return answer | ({} if files else {"unknown": model.list_unknown([item])[0]})


async def open_in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a daemon thread, which does not delay the end of the process."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="regard opens", daemon=True).start()
    return await asyncio.wrap_future(future)


# ---- splitting texts, and joining outputs


def split_texts(
    texts: Sequence[str], tokenizer: Tokenizer, longest: int, split: bool | None, tags: Sequence[str] = ()
) -> tuple[list[SplitText], list[list[int]]]:
    """Split texts into pieces that fit the model; return them with the tokens of all pieces, in order."""
    whole, ids, again = [], tokenizer.encode_batch(list(texts)), list[str]()
    tokens: list[list[int] | None] = []
    for text, own in zip(texts, ids, strict=True):
        whole_line = len(own) <= longest and "\n" not in text and "\r" not in text
        if whole_line and split:  # is it one sentence, with nothing before or after it?
            found = [each.text for each in sentence_split.source_sentences(text, tags)]
            whole_line = found in ([], [text])
        if whole_line:
            whole.append(SplitText(text, (text,), ((sentence_split.Piece(0, len(text), text),),), False))
            tokens.append(own)
            continue
        whole.append(split_text(text, tokenizer, longest, split, tags))
        again += whole[-1].texts
        tokens += [None] * len(whole[-1].texts)
    rest = iter(tokenizer.encode_batch(again))
    return whole, [next(rest) if own is None else own for own in tokens]


def split_text(text: str, tokenizer: Tokenizer, longest: int, split: bool | None, tags: Sequence[str]) -> SplitText:
    """Split a text into lines, and each line into pieces that fit the model, each with the tag that applies to it."""

    def count(text: str) -> int:
        return len(tokenizer.encode(text))

    lines, parts = tuple(text.replace("\r\n", "\n").replace("\r", "\n").split("\n")), []
    tag, shorter = None, False
    for line in lines:
        room = sentence_split.room_beside(sentence_split.leading_tag(line, tags) or tag, count, longest)
        if split or (split is None and count(line) > room):
            found, tag = sentence_split.tagged_pieces(line, count, longest, tags, tag)
        else:
            fitting = line if count(line) <= room else sentence_split.cut(line, count, room)
            shorter |= len(fitting) < len(line)
            found, tag = sentence_split.put_tags([sentence_split.Piece(0, len(fitting), fitting)], tags, tag)
        parts.append(tuple(found) or (sentence_split.Piece(0, 0, ""),))
    return SplitText("\n".join(lines), lines, tuple(parts), shorter)


def join_texts(
    texts: Sequence[SplitText], translations: Sequence[list[Translation]], options: Options
) -> list[dict[str, Any]]:
    """Join the outputs of pieces into the results for their texts, as JSON objects."""
    pieces, answers = iter(translations), []
    for each in texts:
        joined = each.join(pieces, options.nbest, not options.sample)
        answers.append({"text": joined[0].text, "cut": each.cut, "outputs": [as_table(output) for output in joined]})
    return answers


def check_pairs(texts: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse lists of different lengths."""
    if len(texts) != len(targets):
        message = f"targets: {len(targets)} given, expected one for each of {len(texts)} texts"
        raise InvalidValueError(message, "targets")


def as_table(output: Translation) -> dict[str, Any]:
    """Return an output as a JSON object."""
    table: dict[str, Any] = {
        "text": output.text,
        "score": finite(output.score),
        "log_prob": finite(output.log_prob),
        "tokens": list(output.tokens),
        "finished": output.finished,
    }
    if output.alignment is not None:
        table["alignment"] = [list(link) for link in output.alignment]
    if output.untranslated is not None:
        table["untranslated"] = [list(span) for span in output.untranslated]
    if output.token_log_probs is not None:
        table["scores"] = [finite(each) for each in output.token_log_probs]
    return table


def finite(value: float) -> float | None:
    """Return a number, or None if JSON cannot hold it."""
    return value if math.isfinite(value) else None
