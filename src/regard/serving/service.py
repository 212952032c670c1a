"""The service behind the routes: what a request asks for is split into jobs, searched, and put together again."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import numpy as np

from regard.data import picture_batches
from regard.decoding import Options, SearchResult
from regard.errors import ArgumentError
from regard.run import Run
from regard.serving import requests
from regard.serving.answers import (
    SplitText,
    add_unknown,
    as_table,
    check_pairs,
    join_texts,
    replace_scores,
    split_texts,
    write_texts,
)
from regard.serving.jobs import Job
from regard.serving.models import NONE, Languages, ServedModel
from regard.serving.registry import ModelRegistry, Pending
from regard.serving.worker import collect_page, list_alignments, list_links, score_tokens
from regard.tasks import Classified, Translation, language_model, to_translation, to_translations, translate

SENTENCE = 150  # characters of one, about
PAIRS = 16  # pairs that are scored or aligned between two steps of searches


class Service(ModelRegistry):
    """Models, and what can be asked of them."""

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
        self, model: ServedModel, pending: Pending, languages: Languages = NONE
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
            model.line.cancel(pending.release())
            raise

    async def prepare(
        self, request: requests.TranslateRequest, options: Options
    ) -> tuple[ServedModel, list[SplitText], list[Job], list[list[int]]]:
        """Split texts into sentences, and make a job of each."""
        if not request.texts:
            raise requests.InvalidValueError("texts: missing, expected a list of texts", "texts")
        if request.prefixes and len(request.prefixes) != len(request.texts):
            message = f"prefixes: {len(request.prefixes)} given, expected one for each of {len(request.texts)} texts"
            raise requests.InvalidValueError(message, "prefixes")
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
            tags = [corpus.tag for corpus in run.settings.data.corpora if corpus.tag]
            texts, ids = await self.apart(
                sum(map(len, request.texts)) // SENTENCE,
                split_texts,
                request.texts,
                source,
                model.longest,
                (run.sentence_share.single or None) if request.split is None else request.split,
                tags,
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
            unknown = await self.list_unknown(model, request.texts)
            target = model.run_between(request.languages).tokenizers.target
            attended = request.alignment or request.replace_unknown or request.coverage
            if not (attended or request.scores):
                answers = await self.apart(len(outputs), write_texts, texts, outputs, target, options)
                return {"model": model.name, "results": add_unknown(answers, unknown)}
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
        return {"model": model.name, "results": add_unknown(answers, unknown)}

    async def list_unknown(self, model: ServedModel, texts: Sequence[str]) -> list[list[str]]:
        """List the words of each text that did not occur in training."""
        return await self.apart(sum(map(len, texts)) // SENTENCE, model.list_unknown, texts)

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
            [replace_scores(output, log_probs.get((i, j), ())) for j, output in enumerate(each)]
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
        limit = model.run.model.limit
        most = language_model.SAMPLE if limit is None else min(language_model.SAMPLE, limit - 1)
        options = Options(**{"longest": most, **table, "sample": True, "nbest": 1})
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
        alone = model.run.settings.row.alone
        if alone and targets:
            raise requests.InvalidValueError("targets: given to a language model, expected only texts", "targets")
        if not alone:
            check_pairs(texts, targets)
        self.admit(model, 1)
        given = {"sources": texts, "targets": targets} if targets else {"sources": texts}
        results = await self.call_in_parts(model, Run.score, request.languages, **given)
        scored = [{"log_prob": each.log_prob, "tokens": list(each.tokens)} for each in results]
        return {"model": model.name, "results": add_unknown(scored, await self.list_unknown(model, texts))}

    async def align(self, request: requests.AlignRequest) -> dict[str, Any]:
        """Align the words of given translations."""
        model, texts, targets = self.pick(request.model, "align"), request.texts, request.targets
        model.run_between(request.languages)
        check_pairs(texts, targets)
        self.admit(model, 1)
        pairs = list(zip(texts, targets, strict=True))
        links = await self.call_in_parts(model, list_links, request.languages, pairs=pairs)
        results = [{"alignment": [list(link) for link in each]} for each in links]
        return {"model": model.name, "results": add_unknown(results, await self.list_unknown(model, texts))}

    async def classify(self, name: str | None, items: Sequence[Any]) -> dict[str, Any]:
        """Label documents, or pictures as they were decoded."""
        model = self.pick(name, "classify")
        self.admit(model, 1)
        labels: list[Classified | None] = await self.call_in_parts(model, Run.classify, items=items)
        results = [
            {"label": None, "probability": None, "probabilities": None}
            if each is None
            else {"label": each.label, "probability": each.probability, "probabilities": each.probabilities}
            for each in labels
        ]
        if model.run.settings.data.reads != "pictures":
            results = add_unknown(results, await self.list_unknown(model, items))
        return {"model": model.name, "results": results}

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
        return await asyncio.to_thread(lambda: [picture_batches.decode_for(data, file, name) for name, file in files])

    async def look(self, request: requests.LookRequest, table: Mapping[str, Any]) -> dict[str, Any]:
        """Look into a model with a text: the data that a page of `regard look` draws from."""
        text, target = request.text, request.target
        if not text.strip():
            raise requests.InvalidValueError("text: empty, expected a text to look into", "text")
        self.check_words("text", text, target)
        model = self.pick(request.model, "translate", "sample", "classify", "caption")
        if model.run.settings.data.reads == "pictures":
            raise requests.InvalidValueError(f"{model.name}: reads pictures, expected one uploaded as a form", "text")
        model.run_between(request.languages)
        return await self.collect(model, text, target, table, request.languages)

    async def look_at_picture(
        self, request: requests.LookRequest, files: Sequence[tuple[str, Any]], table: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Look into a model with an uploaded picture: the data that a page of `regard look` draws from."""
        if len(files) > 1:
            raise requests.InvalidValueError(f"pictures: {len(files)} given, expected one to look into", "pictures")
        if request.text:
            raise requests.InvalidValueError("text: given beside a picture, expected one of them", "text")
        if request.languages != NONE:
            name = "target_language" if request.source_language is None else "source_language"
            raise requests.InvalidValueError(f"{name}: given beside a picture, which is in no language", name)
        self.check_words("target", request.target)
        model = self.pick(request.model, "caption", "classify")
        if model.run.settings.data.reads != "pictures":
            raise requests.InvalidValueError(f"{model.name}: reads texts, expected JSON with a text", "pictures")
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
            raise requests.TooLargeError(
                f"{field}: {words:,} words given, expected at most {self.settings.look_words:,}", field
            )
