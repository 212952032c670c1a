"""Measuring a run on a test set: the report of every task, and test sets of text and of alignments."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from regard import evaluation
from regard.errors import ArgumentError
from regard.io import Link, Say, formats, ignore, unequal_lines

if TYPE_CHECKING:
    from regard.tasks.task import TrainedRun

T = TypeVar("T")
Watch = Callable[[Iterable[T], int, str], Iterable[T]]  # takes items, their number, and a description of the work
CHUNK = 256  # sentences translated or scored together


@dataclass(frozen=True)
class Table:
    """A table for people to read."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    blank_line: bool = False  # whether an empty line separates title and table

    @classmethod
    def of_scores(cls, scores: Iterable[evaluation.Score]) -> "Table":
        """Build a table of scores with their signatures."""
        return cls("", ("metric", "score", "signature"), [(each.name, str(each), each.signature) for each in scores])


@dataclass(frozen=True)
class EvaluationReport:
    """The results of an evaluation, for people and for programs."""

    heading: str
    tables: Sequence[Table]
    json: Mapping[str, Any]
    outputs: Mapping[str, str] = field(default_factory=dict)  # the run's output, or its label, by item
    notes: Sequence[str] = ()  # about skipped items
    lengths: evaluation.Lengths | None = None  # BLEU by source length


def describe_search(search: Mapping[str, Any] | None) -> str:
    """Describe the search's options as a suffix of a system's name."""
    return f", beam {search['beam']}, length penalty {search['length_penalty']:g}" if search else ""


def possible_metrics(metrics: str | None, *, outputs: bool, run: bool, source: bool) -> list[str]:
    """Return the keys of the named metrics, or of all that the available data and run allow."""
    if metrics is not None:
        return evaluation.choose_metrics(metrics, evaluation.metric_names())
    can = {
        key: source if key == "lengths" else run if key == "perplexity" else outputs
        for key in evaluation.metric_names()
    }
    return [key for key in can if can[key]]


def drop_unfit_metrics(
    keys: list[str], references: Sequence[evaluation.Reference], tokenize: str = "auto", say: Say = ignore
) -> list[str]:
    """Remove TER if it would take minutes, and BLEU if the references are so short that it would be 0 anyway."""
    if "ter" in keys and evaluation.text_scores.ter_takes_minutes(references):
        say("TER is skipped, because it takes minutes on text as long as this; ask for it with --metrics ter")
        keys = [key for key in keys if key != "ter"]
    if "bleu" in keys and evaluation.text_scores.bleu_says_nothing(references, tokenize):
        say(
            "BLEU is skipped, because it counts runs of four words and hardly any reference has four; "
            "ask for it with --metrics bleu"
        )
        keys = [key for key in keys if key not in ("bleu", "lengths")]
    return keys


def lead_with(metric: str | None, keys: list[str]) -> list[str]:
    """Move the metric that selected the best checkpoint to the front, if it is among the keys."""
    first = "perplexity" if metric == "loss" else metric
    return sorted(keys, key=lambda key: key != first)


def watch_nothing(things: Iterable[T], count: int, what: str) -> Iterable[T]:
    """Return the items unchanged, without showing progress."""
    return things


@dataclass(frozen=True)
class TextTest:
    """A test set of texts, and the options for comparing outputs with its references."""

    items: evaluation.Items
    keys: list[str]  # of the metrics
    outputs: list[str] | None = None  # of a system whose outputs are known
    lowercase: bool = False
    tokenize: str = "auto"
    ordered: bool = False  # whether the user chose the order of the metrics
    notes: Sequence[str] = ()  # about skipped metrics

    @classmethod
    def read(
        cls,
        reference: str | Path,
        source: str | Path | None = None,
        hypothesis: str | Path | None = None,
        *,
        metrics: str | None = None,
        alternatives: bool = False,
        lowercase: bool = False,
        tokenize: str = "auto",
        run: bool = True,
        lengths: bool = False,
        say: Say = ignore,
    ) -> "TextTest":
        """Read a test set from text files; `run` says whether a model is available, `lengths` adds BLEU by length."""
        keys = possible_metrics(metrics, outputs=bool(source or hypothesis), run=run, source=source is not None)
        evaluation.text_scores.check_tokenizer(tokenize)
        items = evaluation.read_items(source, reference, alternatives=alternatives, say=say)
        notes: list[str] = []
        keys = drop_unfit_metrics(keys, items.references, tokenize, notes.append) if metrics is None else keys
        keys += ["lengths"] * (lengths and "lengths" not in keys)
        outputs = None if hypothesis is None else items.read_outputs(hypothesis, say)
        return cls(items, keys, outputs, lowercase, tokenize, ordered=metrics is not None, notes=notes)

    @property
    def needs_run(self) -> bool:
        """Return whether the measurement needs a model."""
        return self.outputs is None or "perplexity" in self.keys

    def measure(
        self,
        run: "TrainedRun | None",
        system: str,
        *,
        batch_tokens: int | None = None,
        keep: Callable[[Iterable[str]], None] | None = None,
        say: Say = ignore,
        watch: Watch[Any] = watch_nothing,
        **search: Any,
    ) -> EvaluationReport:
        """Compare outputs with references, translating with the run if needed; `keep` receives the lines of outputs."""
        items, outputs = self.items, self.outputs
        if run is not None and items.sources is None and run.settings.row.has_source:
            raise ArgumentError(f"source: missing, expected the text that {run.folder} is to translate")
        if run is not None and outputs is None and (keep is not None or self.keys != ["perplexity"]):
            outputs = translate_sources(run, items.sources or [], batch_tokens, say, watch, **search)
            if keep is not None:
                keep(formats.BREAKS.sub(" ", text) for text in items.by_line(outputs))
        tokens: Iterable[list[float]] = ()
        if run is not None and "perplexity" in self.keys:
            tokens = score_references(run, list(items.pairs()), say, watch)
        kind = f"{run.settings.tokenizer.kind}[{run.tokenizers.target.size}]" if run is not None else ""
        options: dict[str, Any] = {"lowercase": self.lowercase, "tokenize": self.tokenize}
        keys = self.keys if run is None or self.ordered else lead_with(run.settings.training.metric, self.keys)
        measured = evaluation.evaluate(items, outputs, keys, **options, tokens=tokens, tokenizer=kind)
        for note in self.notes:
            say(note)
        tables = [Table.of_scores(measured.scores.values())] if measured.scores else []
        if measured.lengths is not None:
            rows = []
            for each in measured.lengths.buckets:
                interval = "–" if each.interval is None else f"{each.interval[0]:.2f} to {each.interval[1]:.2f}"
                rows.append((each.name, f"{each.sentences:,}", f"{each.value:.2f}", interval))
            columns = (measured.lengths.unit, "sentences", measured.lengths.metric, "95 % interval")
            tables.append(Table(f"{measured.lengths.metric} by source length", columns, rows))
        options_used = dict(search) if self.outputs is None else None
        heading = f"{system}{describe_search(options_used)}: {measured.counted()}"
        whole = {"system": system, "search": options_used, **measured.table()}
        return EvaluationReport(heading, tables, whole, lengths=measured.lengths)


def translate_sources(
    run: "TrainedRun",
    sources: Sequence[str],
    batch_tokens: int | None = None,
    say: Say = ignore,
    watch: Watch[Any] = watch_nothing,
    **search: Any,
) -> list[str]:
    """Translate each source; truncate one that is too long for the run, as `regard translate` does."""
    from regard.decoding import file_translation  # imported here: comparing texts alone does not need torch

    fit = file_translation.LineFitter(run.tokenizers.source, run.settings.data.longest, run.model.limit)
    starts = range(0, len(sources), CHUNK)
    texts = (part[0].text for i in starts for part in fit.parts(list(sources[i : i + CHUNK]), ""))
    chunk = CHUNK if run.device.type == "cpu" else None  # on a GPU the default chunk is much larger
    stream = run.stream(texts, split=False, chunk=chunk, batch_tokens=batch_tokens, **search)
    outputs = [best[0].text for best in watch(stream, len(sources), f"translating with {run.folder}")]
    if fit.cut:
        say(f"{fit.cut:,} of {len(sources):,} sources were truncated to the {fit.limit:,} tokens of {run.folder}")
    return outputs


def score_references(
    run: "TrainedRun", pairs: Sequence[tuple[str, str]], say: Say = ignore, watch: Watch[Any] = watch_nothing
) -> Iterator[list[float]]:
    """Yield the log-probabilities of each reference's tokens; skip pairs that are too long for the model."""
    has_source, most, too_long = run.settings.row.has_source, run.model.limit, 0
    starts = range(0, len(pairs), CHUNK)
    for start in watch(starts, len(starts), f"scoring references with {run.folder}"):
        chunk = pairs[start : start + CHUNK]
        if most is not None:
            source, target = run.tokenizers.source, run.tokenizers.target
            fitting = [pair for pair in chunk if max(len(source.encode(pair[0])), len(target.encode(pair[1]))) < most]
            too_long, chunk = too_long + len(chunk) - len(fitting), fitting
        sources, references = [source for source, _ in chunk], [reference for _, reference in chunk]
        yield from (each.tokens for each in (run.score(sources, references) if has_source else run.score(references)))
    if too_long:
        say(f"perplexity: {too_long:,} pairs longer than the {most:,} tokens that {run.folder} takes are skipped")


@dataclass(frozen=True)
class AlignmentTest:
    """A test set of word alignments: gold links, and pairs of texts to align or the links of a system."""

    gold: Sequence[evaluation.Gold]
    pairs: Sequence[tuple[str, str]] = ()
    links: Sequence[Sequence[Link]] | None = None  # of a system whose links are known
    system: str = ""

    @classmethod
    def read(
        cls,
        gold: str | Path,
        source: str | Path | None = None,
        reference: str | Path | None = None,
        hypothesis: str | Path | None = None,
        *,
        first: int = 0,
        say: Say = ignore,
    ) -> "AlignmentTest":
        """Read gold links, whose words are numbered from `first`, and either texts or the links of `hypothesis`."""
        right = evaluation.read_links(gold, first=first, say=say)
        if hypothesis is not None:
            links = [sorted(each.possible) for each in evaluation.read_links(hypothesis, say=say)]
            if len(links) != len(right):
                raise unequal_lines(str(hypothesis), len(links), str(gold), len(right))
            return cls(right, links=links, system=str(hypothesis))
        if source is None or reference is None:
            raise ArgumentError("source and reference: missing, expected the texts whose words are linked")
        items = evaluation.read_items(source, reference, say=say)
        pairs = [(one, two) for one, (two,) in zip(items.sources or [], items.references, strict=True)]
        for slip in evaluation.alignment_scores.check_links(
            gold, right, [one for one, _ in pairs], [two for _, two in pairs]
        ):
            say(slip)
        return cls(right, pairs)

    def measure(self, run: "TrainedRun | None" = None, watch: Watch[Any] = watch_nothing) -> EvaluationReport:
        """Compare links with the gold ones; align with the run if the links are not known."""
        links, system = self.links, self.system
        if links is None:
            if run is None:
                raise ArgumentError("run: missing, expected a run to align the texts")
            links = list(watch(run.links(self.pairs), len(self.pairs), f"aligning with {run.folder}"))
            system = f"{run.folder}, {run.alignment_settings}"
        scores = {key: each.score() for key, each in evaluation.measure_links(links, self.gold).items()}
        table = {key: {**asdict(score), "value": evaluation.finite(score.value)} for key, score in scores.items()}
        count = len(self.gold)
        heading = f"{system}: {count:,} sentence{'s' * (count != 1)}"
        whole = {"system": system, "sentences": count, "scores": table}
        return EvaluationReport(heading, [Table.of_scores(scores.values())], whole)
