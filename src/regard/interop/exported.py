"""Exported folders as runs whose engine is CTranslate2. A run is exported once, into the cache.

from regard.interop.exported import open_engine
run = open_engine("runs/en-de", quantize="int8")
run.translate(["I ate pizza yesterday."], beam=5)

The engine searches, scores and aligns in place of a model, and gives every option the same meaning.

Both searches use the same beam: among the best candidates, twice as many as the beam has places, those that end and are
within the first places are finished, and the best of the others continue. CTranslate2 differs in three ways, which this
module evens out:

- Ranking. CTranslate2 divides by length^α. So it is asked for all hypotheses with α = 0, and Regard's formula
  (`regard.decoding.scoring`) ranks them.
- Limits. CTranslate2 has one limit for a batch, and leaves out END if an output reaches it. Hypotheses are cut at the
  limit of their sentence, and each is scored with END, as in Regard. If a beam's outputs include such a hypothesis,
  the sentence is searched again up to its own limit, without early stopping, so that none is missing.
- Stopping. CTranslate2 stops when the likeliest hypothesis has ended and the beam is full of finished ones. Regard
  continues while an unfinished one scores better than the worst finished one. With a length penalty of 0 and one
  output both give the same result. With penalties up to 1, an output that is found late may be missing near the end
  of an n-best list, and is rarely the best; larger penalties are refused.

Settings that change probabilities in only one of the two, or have another meaning, are refused by name.
"""

import contextlib
import copy
import hashlib
import json
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.alignment import AlignmentSettings, extraction
from regard.data import END, START, Tokenizers, data_settings, sentence_split
from regard.decoding import (
    Options,
    Output,
    SearchResult,
    batches,
    check_outputs,
    check_prefix,
    first_model,
    length_penalty,
    output_limit,
)
from regard.errors import ArgumentError, CommandError, ConfigError, DataError
from regard.interop.ctranslate2 import COMPUTE_TYPES, library, pieces_of
from regard.interop.export import Opened, export_model
from regard.interop.formats import is_export, read_manifest
from regard.io import Say, ignore
from regard.models import Model
from regard.run import Run, load
from regard.tasks import ForcedExample, Item, build_model, read_settings, require_run
from regard.training import Checkpoints, checkpoint_files

FORMAT = 1  # of exports in the cache; a new number makes them anew
NEAREST = {"float16": "float32", "int8_float16": "int8"}  # the closest type for a device without half precision
SERVED = ("beam", "nbest", "length_penalty", "shortest", "longest")  # supported search options
STRONGEST = 1.0  # length penalty: beyond it, Regard's search often finds the best output late
NEARLY_ZERO = 1e-9  # a length penalty that changes no rank, but disables early stopping
FEW = 256  # tokens in a batch of prefixes: the scores of the whole vocabulary are stored for each
Ids = Sequence[Sequence[int]]
Hypotheses = list[tuple[list[int], float]]  # tokens of each, with END if finished, and its log-probability


class CTranslate2Engine:
    """A `ctranslate2.Translator` of an exported run.

    `model` sets the maximum output length; it computes nothing. `alignment` holds the export's settings: it has the
    weights of one attention only.
    """

    name = "ctranslate2"

    def __init__(
        self,
        translator: Any,
        tokenizers: Tokenizers,
        model: Model,
        alignment: AlignmentSettings | None,
        device: torch.device = torch.device("cpu"),  # noqa: B008
    ):
        self.translator, self.tokenizers, self.model, self.alignment = translator, tokenizers, model, alignment
        self.device = device
        self.source, self.target = (pieces_of(each) for each in (tokenizers.source, tokenizers.target))
        self.numbers = {piece: number for number, piece in enumerate(self.target)}

    # ---- supported options

    def check(self, options: Options) -> None:
        """Refuse options that CTranslate2 does not support, or interprets differently."""
        for field in fields(options):
            value = getattr(options, field.name)
            if field.name not in SERVED and value != field.default:
                given = "given" if value is True else f"{value} given"
                raise ConfigError(field.name, f"{given}, which the engine {self.name} does not serve")
        if options.shortest and options.beam > 1:
            raise ConfigError(
                "shortest",
                f"{options.shortest} given with a beam of {options.beam}; the engine {self.name} serves it with a beam "
                "of 1 alone, as its probabilities are others where it may not end",
            )
        if options.length_penalty > STRONGEST:
            raise ConfigError(
                "length_penalty",
                f"{options.length_penalty:g} given, expected at most {STRONGEST:g} with the engine {self.name}, whose "
                "search ends before outputs as long as that favours",
            )
        most = self.model.limit
        if most is not None and options.longest is not None and options.longest >= most:
            raise ConfigError("longest", f"{options.longest} given, expected less than {most}, the export's positions")

    # ---- search

    def search(
        self, sources: Ids, options: Options, *, prefixes: Ids | None = None, budget: int | None = None
    ) -> list[SearchResult]:
        """Search for each source, in batches of similar length; an empty source gets an empty output."""
        self.check(options)
        if prefixes is not None and len(prefixes) != len(sources):
            raise ArgumentError(f"prefixes: {len(prefixes)} given, expected one for each of {len(sources)} sources")
        answers = [SearchResult([Output([], 0.0, 0.0, True)]) for _ in sources]
        begun: list[list[int]] = [[] for _ in sources] if prefixes is None else [list(each) for each in prefixes]
        order = sorted((i for i in range(len(sources)) if len(sources[i])), key=lambda i: -len(sources[i]))
        budget = (batches.BUDGET if budget is None else budget) // options.beam  # every hypothesis counts
        for some in ([i for i in order if begun[i]], [i for i in order if not begun[i]]):
            sizes = [max(len(sources[i]), options.longest or 0) + 1 for i in some]
            for chunk in batches.batches_of_like_size(sizes, budget):
                rows = [some[place] for place in chunk]
                found = self.search_batch([sources[i] for i in rows], options, [begun[i] for i in rows])
                for i, result in zip(rows, found, strict=True):
                    answers[i] = result
        return answers

    def search_batch(self, sources: Ids, options: Options, prefixes: Ids) -> list[SearchResult]:
        """Search for the sources of one batch; either all of them have a prefix, or none."""
        limits = [
            output_limit(self.model, len(source), options, len(prefix))
            for source, prefix in zip(sources, prefixes, strict=True)
        ]
        for prefix, limit in zip(prefixes, limits, strict=True):
            check_prefix(prefix, limit)
        one = options.nbest == 1 and options.length_penalty == 0
        count = 1 if one else options.beam  # the likeliest is certain once it ends
        found = self.decode(
            sources, prefixes, options, max(limits), num_hypotheses=count, min_decoding_length=options.shortest
        )
        for i, limit in enumerate(
            limits
        ):  # cut outputs at each sentence's limit, without duplicates; `rank` scores them again
            cut = {tuple(tokens[:limit]): total for tokens, total in found[i][::-1]}
            found[i] = [(list(tokens), total) for tokens, total in cut.items()]
        results = self.rank(sources, prefixes, found, options)
        again: dict[int, list[int]] = defaultdict(list)
        for i, limit in enumerate(limits):
            limited = options.beam > 1 and not all(output.finished for output in results[i].outputs)
            if limited or any(min(tokens, default=END) <= START for tokens, _ in found[i]):  # not allowed in outputs
                again[limit].append(i)
        for limit, rows in again.items():
            some, begun = [sources[i] for i in rows], [prefixes[i] for i in rows]
            repeated = self.decode_to_limit(some, begun, options, limit)
            for i, result in zip(rows, self.rank(some, begun, repeated, options, certain=False), strict=True):
                results[i] = result
        return results

    def decode(self, sources: Ids, prefixes: Ids, options: Options, limit: int, **how: Any) -> list[Hypotheses]:
        """Call `translate_batch` for one batch, with outputs of at most `limit` tokens and END."""
        begin = [self.spell(prefix, self.target) for prefix in prefixes] if any(prefixes) else None
        results = self.translator.translate_batch(
            [self.spell(source, self.source) for source in sources],
            begin,
            beam_size=options.beam,
            max_decoding_length=max(1, limit),
            max_input_length=0,
            return_scores=True,
            return_end_token=True,
            **{"length_penalty": 0.0, "min_decoding_length": 0, **how},
        )
        numbers = self.numbers
        return [
            [
                ([numbers[piece] for piece in pieces], score)
                for pieces, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]

    def add_prefixes(self, sources: Ids, prefixes: Ids, found: list[Hypotheses], options: Options) -> None:
        """Add the log-probabilities of prefixes, and outputs that end right after them.

        CTranslate2 lets END follow a prefix only if it is the likeliest token. Regard also lets it follow if it is
        among the first `beam`, as at any other position.
        """
        pairs = list(zip(sources, prefixes, strict=True))
        for chunk in pair_batches(pairs, FEW):
            results = self.force([pairs[i] for i in chunk], return_logits_vocab=True)
            for i, result in zip(chunk, results, strict=True):
                steps = [torch.from_numpy(np.array(each)) for each in result.logits[0][: len(prefixes[i]) + 1]]
                log_probs = torch.stack(steps).float().log_softmax(-1)
                total = float(log_probs[:-1].gather(1, torch.tensor(prefixes[i])[:, None]).sum())
                log_probs[-1, : START + 1] = -torch.inf
                ends, end = [*prefixes[i], END], float(log_probs[-1, END])
                rank = int((log_probs[-1] > end).sum())
                if not options.shortest and rank < options.beam and all(tokens != ends for tokens, _ in found[i]):
                    found[i].append((ends, end))
                found[i] = [(tokens, each + total) for tokens, each in found[i]]

    def decode_to_limit(self, sources: Ids, prefixes: Ids, options: Options, limit: int) -> list[Hypotheses]:
        """Search up to the limit without stopping early, and suppress the tokens that no output may contain."""
        if limit == 0:
            return [[([], 0.0)] for _ in sources]
        special = [[piece] for piece in self.target[: START + 1]]
        how: dict[str, Any] = {"suppress_sequences": special, "min_decoding_length": options.shortest}
        if options.beam > 1:  # up to `beam` of them can end in one step
            how |= {"length_penalty": NEARLY_ZERO, "patience": limit + 1, "num_hypotheses": options.beam * (limit + 1)}
        found = self.decode(sources, prefixes, options, limit, **how)
        return [[(tokens, total) for tokens, total in each if min(tokens, default=END) > START] for each in found]

    def rank(
        self, sources: Ids, prefixes: Ids, found: list[Hypotheses], options: Options, certain: bool = True
    ) -> list[SearchResult]:
        """Rank hypotheses by Regard's formula.

        Score a hypothesis again if CTranslate2 did not count its END, or, unless `certain`, left tokens out of its sum.
        """
        if any(prefixes):  # CTranslate2 does not count their probability
            self.add_prefixes(sources, prefixes, found, options)
        certain = certain and not options.shortest
        missing = [
            (i, j)
            for i, hypotheses in enumerate(found)
            for j, (tokens, _) in enumerate(hypotheses)
            if not certain or tokens[-1:] != [END]
        ]
        pairs = [(sources[i], without_end(found[i][j][0])) for i, j in missing]
        totals = dict(zip(missing, self.score([one for one, _ in pairs], [two for _, two in pairs]), strict=True))
        results = []
        for i, hypotheses in enumerate(found):
            outputs = []
            for j, (tokens, total) in enumerate(hypotheses):
                log_prob = totals[i, j].log_prob if (i, j) in totals else total
                words = without_end(tokens)
                score = log_prob / length_penalty(len(words) + 1, options.length_penalty)
                outputs.append(Output(words, log_prob, score, tokens[-1:] == [END]))
            outputs.sort(key=lambda output: -output.score)
            check_outputs(outputs)
            results.append(SearchResult(outputs[: options.nbest]))
        return results

    # ---- teacher forcing

    def score(self, sources: Ids, targets: Ids) -> list[batches.Scored]:
        """Score each target given its source."""
        if len(sources) != len(targets):
            raise ArgumentError(f"targets: {len(targets)} given, expected one for each of {len(sources)} sources")
        limit = self.model.limit
        if limit is not None and max(map(len, targets), default=0) >= limit:
            raise ArgumentError(
                f"target: {max(map(len, targets))} tokens given, expected fewer than {limit}, the export's positions"
            )
        answers: list[batches.Scored] = [batches.Scored(0.0, [])] * len(sources)
        for chunk in pair_batches([(sources[i], targets[i]) for i in range(len(sources))]):
            scored = self.translator.score_batch(
                [self.spell(sources[i], self.source) for i in chunk],
                [self.spell(targets[i], self.target) for i in chunk],
                max_input_length=0,
            )
            for i, result in zip(chunk, scored, strict=True):
                answers[i] = batches.Scored(sum(result.log_probs), list(result.log_probs))
        return answers

    def word_weights(self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings) -> list[Tensor]:
        """Return how much each target word of a pair attends to each source word, with teacher forcing."""
        return [each.weights for each in self.word_attention(pairs, settings)]

    def word_attention(
        self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings
    ) -> list[extraction.WordAttention]:
        """Return these weights, and the total that each source word received.

        CTranslate2 writes the target as a forced prefix and one token more, whose row is END's.
        """
        self.check_alignment(settings)
        attention = [extraction.WordAttention(torch.empty(0, 0), torch.empty(0))] * len(pairs)
        for chunk in pair_batches(pairs):
            results = self.force([pairs[i] for i in chunk], return_attention=True, return_end_token=True)
            for i, result in zip(chunk, results, strict=True):
                n, m = len(pairs[i][1]), len(pairs[i][0])
                rows = torch.tensor(result.attention[0])[: n + 1, :m]
                source, target = self.tokenizers.source.words(pairs[i][0]), self.tokenizers.target.words(pairs[i][1])
                columns, source_words = extraction.word_ids([source], torch.device("cpu"))
                words = [None, *target] if settings.offset else [*target, None]
                places, target_words = extraction.word_ids([words], torch.device("cpu"))
                weights = extraction.merge_batch(rows[None, None], places, columns, (target_words, source_words))[0, 0]
                content = torch.tensor(
                    [extraction.content_rows(self.tokenizers.target, pairs[i][1], len(rows), settings.offset)]
                )
                received = extraction.sum_received(rows[None, None], content, columns, source_words)[0]
                attention[i] = extraction.WordAttention(weights, received)
        return attention

    def link_words(self, pairs: Sequence[extraction.Pair], settings: AlignmentSettings) -> list[extraction.Links]:
        """Return the links between the words of each pair."""
        return [extraction.extract_links(weights[None], settings)[0] for weights in self.word_weights(pairs, settings)]

    def check_alignment(self, settings: AlignmentSettings) -> None:
        """Refuse settings for another attention than the exported one."""
        made = self.alignment
        if made is None or (made.view, made.head) != (settings.view, settings.head):
            raise ArgumentError(f"alignment: {settings} given, but the export has {made}; export the run again")

    def force(self, pairs: Sequence[extraction.Pair], **how: Any) -> Any:
        """Call `translate_batch` with the targets as forced prefixes, and one token more."""
        return self.translator.translate_batch(
            [self.spell(source, self.source) for source, _ in pairs],
            [self.spell(target, self.target) for _, target in pairs],
            beam_size=1,
            max_decoding_length=max(len(target) for _, target in pairs) + 1,
            max_input_length=0,
            min_decoding_length=0,
            **how,
        )

    def spell(self, ids: Sequence[int], pieces: Sequence[str]) -> list[str]:
        """Return token numbers as pieces, which CTranslate2 takes."""
        return [pieces[i] for i in ids]


def pair_batches(pairs: Sequence[extraction.Pair], budget: int = batches.SCORE_BUDGET) -> Iterator[list[int]]:
    """Yield batches of pairs of similar length."""
    return batches.batches_of_like_size([max(map(len, pair)) + 1 for pair in pairs], budget)


def without_end(tokens: list[int]) -> list[int]:
    """Return the tokens of a hypothesis without END."""
    return tokens[:-1] if tokens[-1:] == [END] else tokens


# ---- opening


class ExportedRun(Run):
    """A run whose engine is CTranslate2; its model only describes its shape, and computes nothing."""

    def __init__(self, folder: Path, manifest: dict[str, Any], engine: CTranslate2Engine, warn: Say | None = None):
        settings = read_settings(manifest["facts"]["settings"])
        step = int(manifest["run"]["step"])
        super().__init__(folder, settings, engine.tokenizers, engine.model, step, warn=warn)
        self._engine = engine
        self.sentence_share = sentence_split.SentenceShare.from_table(manifest["run"].get("sentences"))
        if engine.alignment is not None:
            self.alignment_settings = engine.alignment

    @property
    def engine(self) -> CTranslate2Engine:
        """The engine that searches, scores and aligns."""
        return self._engine

    @property
    def device(self) -> torch.device:
        """The device that the engine computes on."""
        return self._engine.device

    def _surround(self, around: Mapping[str, tuple[str, ...]]) -> None:
        """Set the pieces around texts, with a copy of the engine: another run may share the old one."""
        super()._surround(around)
        self._engine = copy.copy(self._engine)
        self._engine.tokenizers = self.tokenizers

    def force(self, item: Item, target: str | None, options: Options, tree: bool) -> ForcedExample:
        """Refuse: looking into a run needs the model itself."""
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
    """Open a run, or an exported folder, with CTranslate2.

    A run is first exported into the cache, once for each checkpoint and number format; `say` reports that.
    """
    if others:
        raise CommandError(
            f"--engine: ctranslate2 given with {len(others) + 1} runs, expected one: it has no ensembles"
        )
    if quantize is not None and quantize not in COMPUTE_TYPES:
        raise CommandError(f"--quantize: {quantize} given, expected {', '.join(COMPUTE_TYPES)}")
    if quantize is not None and quantize not in (types := compute_types(device)):
        lacks = f"which this {'CPU' if device == 'cpu' else 'GPU'} lacks"
        able = ", ".join(each for each in COMPUTE_TYPES if each in types)
        raise CommandError(f"--quantize: {quantize} given, {lacks}; expected {able}")
    path = Path(run)
    if is_export(path):
        if checkpoint != "best":
            raise CommandError(f"--checkpoint: {checkpoint} given, but {path} is exported: it has one alone")
        return open_exported(path, device=device, quantize=quantize, warn=warn)
    return open_cached(path, checkpoint, device, quantize or "float32", warn, say)


def open_cached(run: Path, checkpoint: str, device: str, quantize: str, warn: Say | None, say: Say) -> ExportedRun:
    """Open the export of a run in the cache; create it if it is missing or damaged."""
    require_run(run)
    path = Checkpoints(run).find(checkpoint)
    facts = [FORMAT, library().__version__, quantize]
    facts += [
        checkpoint_files.digest(file)
        for file in (path / "manifest.json", run / "config.toml", run / extraction.ALIGNMENT_FILE)
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
        if not folder.exists():  # otherwise another process was faster
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
    """Open a folder that was exported to CTranslate2; messages name `run` instead, if given."""
    folder = Path(folder)
    manifest = read_manifest(folder, "ctranslate2")
    kept = str(manifest["facts"].get("quantize"))
    compute = quantize or kept
    if compute not in compute_types(device):
        lacks = f"{compute} weights, which this {'CPU' if device == 'cpu' else 'GPU'} cannot compute with"
        raise CommandError(f"{folder}: {lacks}; give --quantize {NEAREST.get(compute, 'float32')}")
    try:
        settings = read_settings(manifest["facts"]["settings"])
        tokenizers = Tokenizers.load(folder / "tokenizer.json").surround(**settings.tokenizer.around)
        with torch.device("meta"):
            model = build_model(settings, tokenizers)
        if manifest["facts"]["positions"] is not None:
            model.limit = int(manifest["facts"]["positions"])
        model.origin = str(run or folder)
        alignment = AlignmentSettings.read(folder / extraction.ALIGNMENT_FILE, first_model(model).cross_attentions)
        kind, _, index = device.partition(":")
        threads = torch.get_num_threads() if kind == "cpu" else 0  # as many as torch would use
        limits = {"inter_threads": 1, "intra_threads": threads, "device_index": int(index or 0)}
        translator = library().Translator(str(folder), kind, compute_type=compute, **limits)
        engine = CTranslate2Engine(translator, tokenizers, model.eval(), alignment, torch.device(device))
        return ExportedRun(run or folder, manifest, engine, warn)
    except (DataError, ArgumentError):
        raise
    except (RuntimeError, ValueError, KeyError, TypeError) as error:  # from CTranslate2, or a foreign manifest
        problem = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{folder}: cannot be opened with ctranslate2: {problem}; export the run again") from None


def open_ctranslate2(folder: Path, run: Run | None = None) -> Opened:
    """Open a newly written folder on this machine's CPU, in its own number format or the nearest supported one."""
    kept = str(read_manifest(folder, "ctranslate2")["facts"]["quantize"])
    compute = kept if kept in compute_types("cpu") else NEAREST.get(kept, "float32")
    engine = open_exported(folder, quantize=compute).engine
    versions = {"ctranslate2": library().__version__, "compute": engine.translator.compute_type}
    return Opened(engine, kept == "float32", versions)


def compute_types(device: str) -> set[str]:
    """Return the number formats that a device supports in CTranslate2."""
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda"):
        raise CommandError(f"--device: {device} given, but CTranslate2 runs on cpu and cuda alone")
    types: set[str] = library().get_supported_compute_types(kind, int(index or 0))
    return types
