"""Translation: the task for training, and the actions of a trained run: translate, score, align, inspect."""

# b sentences · n target positions · m source positions · d width · l links
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.alignment import extraction
from regard.attention import Heads, watch
from regard.config import parse
from regard.data import UNKNOWN, Batch, Links, PackedBatch, TableTexts, TextProfile, sentence_split
from regard.decoding import GREEDY, Options, Output, Processes, batches, file_translation, first_model, tokens_of
from regard.errors import ArgumentError, ConfigError
from regard.evaluation import measure
from regard.io import CHUNK, CHUNK_CUDA, GivenText, Say, SourceLines, UntranslatedReport, formats, ignore, is_keyboard
from regard.models import KINDS, Memory, Model, Tokens
from regard.tasks import forcing
from regard.tasks.forcing import ForcedExample, Item
from regard.tasks.task import Aligned, TextPairs, TrainedRun, Translation, to_translation, without_bleu
from regard.training import Loss, Prediction, Sample, TrainingSettings, inputs

__all__ = ["Translate", "align", "link_pairs", "score", "translate"]

PAIRS = 8192  # pairs to align together
SPELLED = 30  # symbols per line above which hardly any line matches exactly


class Translate(TextPairs):
    """The task of translating from source to target."""

    actions = ("translate", "align")

    def suitable_metric(self) -> str:
        """Choose the metric that suits the held-out references."""
        rows = self.settings.training.validate_rows
        return translation_metric([target for _, target in self.prepared.valid_pairs]) if rows else "loss"

    def make_objective(self) -> Prediction:
        """Create the objective: predicting the next token, with guided alignment if it is set."""
        training, train = self.settings.training, self.prepared.train
        if not training.guided:
            return Prediction(self.model, training.smoothing)
        if train.links is None or not len(train.links):
            raise ConfigError(
                "training.guided", f"{training.guided} given, but no pair has word links (data.alignment)"
            )
        return Guided(self.model, training.smoothing, training.guided, *guided_at(self.model, training))

    def write(self, rows: int) -> tuple[list[Sample], dict[str, float]]:
        """Translate the first validation sources, and score against references that the tokenizer normalises."""
        pairs = self.prepared.valid_pairs[:rows]
        sources, references = [one for one, _ in pairs], [self.tokenizer.normalise(two) for _, two in pairs]
        outputs = self.translate(sources)
        scores = {key: measure(key, outputs, references).score().value for key in ("bleu", "chrf", "exact")}
        return [Sample(*each) for each in zip(sources, references, outputs, strict=True)], scores

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translate texts by greedy search."""
        ids = self.tokenizers.source.encode_batch(list(texts))
        first = [self.tokenizer.before] * len(ids) if self.tokenizer.before else None
        results = batches.search_in_batches(self.model, ids, GREEDY, prefixes=first, device=self.device)
        return [self.tokenizer.decode(each.outputs[0].tokens) for each in results]

    def example(self) -> tuple[Item, str | None] | None:
        """Return a translation of the last validation, of middle length, with its reference."""
        samples = self.samples()
        return (samples[len(samples) // 2].source, samples[len(samples) // 2].reference) if samples else None

    @classmethod
    def force(cls, run: TrainedRun, item: Item, target: str | None, options: Options, tree: bool) -> ForcedExample:
        """Return a source and its translation for a teacher-forced pass."""
        text, tokenizers = str(item), run.tokenizers
        ids = forcing.encode_text(tokenizers.source, text, "text")
        if target is not None:
            output, beam_tree = forcing.encode_text(tokenizers.target, target, "target", run.model.limit), None
        else:
            how: dict[str, Any] = {"prefixes": prefixes_of(run, 1), "device": run.device, "trace": tree}
            (result,) = batches.search_in_batches(run.model, [ids], options, **how)
            output, beam_tree = result.outputs[0].tokens, forcing.search_tree(result, tokenizers.target, options)
        sides = {
            "source": forcing.text_side(tokenizers.source, ids, text, end=KINDS[run.settings.kind].reads_end),
            **forcing.output_sides(tokenizers.target, output, target),
        }
        source = tokens_of([ids], run.device)
        return ForcedExample(source, sides, text, tokenizers.target.decode(output), tuple(output), tree=beam_tree)


def translation_metric(references: Sequence[str]) -> str:
    """Choose a metric: BLEU for sentences, exact match for names and short symbol strings, chrF without spaces."""
    shape = TextProfile.of(references)
    if shape.spelled and shape.words > SPELLED:
        return "chrf"
    return without_bleu(shape) or ("exact" if shape.spelled else "bleu")


def translate(
    run: TrainedRun,
    texts: Iterable[str],
    *,
    prefixes: Iterable[str] | None = None,
    split: bool = False,
    alignment: bool = False,
    replace_unknown: bool = False,
    coverage: bool = False,
    chunk: int | None = None,
    batch_tokens: int | None = None,
    **options: Any,
) -> Iterator[list[Translation]]:
    """Yield the translations of each text, best first; `Run.stream` documents the arguments."""
    if chunk is None:
        chunk = CHUNK_CUDA if run.device.type == "cuda" else CHUNK
    if chunk < 1:
        raise ArgumentError(f"chunk: {chunk} given, expected at least 1")
    parsed = parse(Options, options)
    run.engine.check(parsed)
    if alignment or replace_unknown or coverage:
        check_attention(run)
    extras, size = (alignment, replace_unknown, coverage), chunk
    search = partial(translate_chunks, run, size, extras, batch_tokens, parsed)

    def search_sentences() -> Iterator[list[Translation]]:
        fit = line_fitter(run, split=True)
        for rows, begun in chunks_of(texts, prefixes, size):
            parts = fit.parts(rows, "")
            own = None if begun is None else file_translation.first_prefixes(parts, begun)
            outputs = search([piece.text for each in parts for piece in each], own)
            for row, each in zip(rows, parts, strict=True):
                own_outputs = list(itertools.islice(outputs, len(each)))
                yield file_translation.join_outputs(row, each, own_outputs, parsed.nbest, not parsed.sample)

    return search_sentences() if split else search(texts, prefixes)


def chunks_of(
    texts: Iterable[str], prefixes: Iterable[str] | None, size: int
) -> Iterator[tuple[list[str], list[str] | None]]:
    """Yield the texts in chunks, each with its prefixes, or None without; there must be one prefix for each text."""
    texts, begins, count = iter(texts), None if prefixes is None else iter(prefixes), 0
    while rows := list(itertools.islice(texts, size)):
        begun = None if begins is None else list(itertools.islice(begins, len(rows)))
        if begun is not None and len(begun) < len(rows):
            raise ArgumentError("prefixes: fewer than texts given, expected one for each")
        yield rows, begun
        count += len(rows)
    if begins is not None and next(begins, None) is not None:
        raise ArgumentError(f"prefixes: more than the {count:,} texts given, expected one for each")


def line_fitter(run: TrainedRun, *, split: bool | None = False, warn: Say = ignore) -> file_translation.LineFitter:
    """Create a LineFitter for a run: for its length limits, and the tags of its corpora."""
    data = run.settings.data
    tags = [corpus.tag for corpus in data.corpora if corpus.tag]
    return file_translation.LineFitter(
        run.tokenizers.source, data.longest, run.model.limit, split=split, tags=tags, warn=warn
    )


def translate_lines(
    run: TrainedRun,
    lines: SourceLines,
    form: formats.OutputFormat,
    processes: Processes,
    *,
    split: bool | None = None,
    coverage: bool | None = None,
    warn: Say = ignore,
    **options: Any,
) -> Iterator[tuple[int, str]]:
    """Translate files or a pipe; yield for each block the number of lines done, and the text to write for them.

    With `split`, translate each line sentence by sentence; otherwise truncate lines that are too long, with a warning.
    By default, typed texts are split if the run was trained on single sentences; files and pipes are not, but a warning
    counts their lines with several sentences. Of a table, only the sources are translated. With `coverage`, the default
    for typed texts, warn about source words that outputs leave out. The other `options` are those of `translate`.
    """
    typed = all(isinstance(path, GivenText) or is_keyboard(path) for path in lines.paths)
    if coverage is None:
        coverage = typed and bool(first_model(run.model).cross_attentions)
    if run.device.type == "cuda" and processes.world == 1:
        lines.size = CHUNK_CUDA
    lines.texts = [TableTexts.of(path, run.settings.data, lines.say) or list for path in lines.paths]
    fit = line_fitter(run, split=split, warn=warn)
    if split is None:  # a typed text is never truncated
        fit.split = (run.sentence_share.single or None) if typed else False
        fit.counter = sentence_split.SentenceCounter(fit.tags) if run.sentence_share.single and not typed else None

    def search(texts: list[str], prefixes: list[str] | None) -> Iterator[list[Translation]]:
        return run.stream(texts, prefixes=prefixes, split=False, coverage=coverage, **options)

    report, nbest = UntranslatedReport(warn, lines.total), options.get("nbest", Options.nbest)
    ranked, look = not options.get("sample", Options.sample), report.look if coverage else None
    how: dict[str, Any] = {"nbest": nbest, "ranked": ranked, "look": look}
    for block in file_translation.translate_file(lines, search, fit, form, processes, **how):
        yield block
        if typed:  # print the warning below its translation
            report.tell()
    report.tell()


def check_attention(run: TrainedRun) -> None:
    """Refuse a model without attention to its source, which alignment needs."""
    if not first_model(run.model).cross_attentions:
        raise ArgumentError(f"{run.folder}: a model of kind {run.settings.kind} has no attention to its source")


def translate_chunks(
    run: TrainedRun,
    size: int,
    extras: tuple[bool, bool, bool],
    budget: int | None,
    options: Options,
    texts: Iterable[str],
    prefixes: Iterable[str] | None,
) -> Iterator[list[Translation]]:
    """Yield the translations of each text lazily, in chunks of `size` texts."""
    count = 0
    for rows, prefix_texts in chunks_of(texts, prefixes, size):
        begun = prefixes_of(run, len(rows))
        if prefix_texts is not None:
            begun = run.tokenizers.target.encode_prefixes(prefix_texts)
            longest = sys.maxsize if options.longest is None else options.longest
            for number, prefix in enumerate(begun, count + 1):
                if len(prefix) > longest:
                    raise ArgumentError(
                        f"prefix {number:,}: {len(prefix)} tokens given, expected at most {longest} (longest)"
                    )
        count += len(rows)
        sources = run.tokenizers.source.encode_batch(rows)
        results = run.engine.search(sources, options, prefixes=begun, budget=budget)
        outputs = [each.outputs for each in results]
        if any(extras):
            yield from add_alignments(run, rows, sources, outputs, *extras)
        else:
            yield from ([to_translation(output, run.tokenizers.target) for output in each] for each in outputs)


def prefixes_of(run: TrainedRun, count: int) -> list[list[int]] | None:
    """Return the prefixes of `count` outputs, which tokenizer.first sets, or None if it is empty."""
    first = run.tokenizers.target.before
    return [[*first] for _ in range(count)] if first else None


def add_alignments(
    run: TrainedRun,
    texts: Sequence[str],
    sources: Sequence[list[int]],
    outputs: Sequence[list[Output]],
    alignment: bool,
    replace_unknown: bool,
    coverage: bool = False,
) -> Iterator[list[Translation]]:
    """Convert outputs to text, with the requested extras: alignments, replaced unknown words, untranslated words."""
    needed = [
        (i, j)
        for i, each in enumerate(outputs)
        for j, output in enumerate(each)
        if sources[i] and output.tokens and (alignment or coverage or UNKNOWN in output.tokens)
    ]
    pairs = [(sources[i], outputs[i][j].tokens) for i, j in needed]
    settings, tags = run.alignment_settings, [*run.tokenizers.source.tags.values()]
    with torch.no_grad():
        attention = dict(zip(needed, run.engine.word_attention(pairs, settings), strict=True))
    for i, each in enumerate(outputs):
        words = run.tokenizers.source.normalise(texts[i]).split()
        translations = []
        for j, output in enumerate(each):
            translation, own = to_translation(output, run.tokenizers.target), attention.get((i, j))
            weight = None if own is None else own.weights
            if replace_unknown and weight is not None and UNKNOWN in output.tokens:
                translation = replace(translation, text=replace_unknown_words(run, output, words, weight))
            if alignment:
                links = [] if weight is None else extraction.extract_links(weight[None], settings)[0]
                translation = replace(translation, alignment=tuple(links))
            if coverage:
                received = [] if own is None else own.received.tolist()
                translation = replace(translation, untranslated=extraction.untranslated_spans(words, received, tags))
            translations.append(translation)
        yield translations


def replace_unknown_words(run: TrainedRun, output: Output, words: Sequence[str], weights: Tensor) -> str:
    """Replace unknown words in the output by the source words to which they attend most."""
    target = run.tokenizers.target
    text_words, belongs = target.decode(output.tokens).split(), target.words(output.tokens)
    for token, word in zip(output.tokens, belongs, strict=True):
        if token == UNKNOWN and word is not None and word < len(weights):
            text_words[word] = words[int(weights[word].argmax())]
    return " ".join(text_words)


def score(run: TrainedRun, sources: Sequence[str], targets: Sequence[str]) -> list[batches.Scored]:
    """Score each target given its source by its log-probability under the model."""
    second = run.tokenizers.target.encode_prefixes(list(targets))
    return run.engine.score(run.tokenizers.source.encode_batch(list(sources)), second)


def align(run: TrainedRun, source: str, target: str) -> Aligned:
    """Return the words of a pair of texts, and the attention of each target word to each source word."""
    check_attention(run)
    tokenizers = run.tokenizers
    ids = tokenizers.source.encode(source), tokenizers.target.encode(target)
    if not ids[0] or not ids[1]:
        raise ArgumentError("source and target: an empty text given, expected words to align")
    words = tokenizers.source.decode(ids[0]).split(), tokenizers.target.decode(ids[1]).split()
    return Aligned(*words, run.engine.word_weights([ids], run.alignment_settings)[0])


def link_pairs(run: TrainedRun, pairs: Iterable[tuple[str, str]], chunk: int = PAIRS) -> Iterator[extraction.Links]:
    """Yield the links (source word, target word) of each pair of texts, lazily."""
    check_attention(run)
    rows = iter(pairs)
    while some := list(itertools.islice(rows, chunk)):
        sides = [
            tokenizer.encode_batch([pair[side] for pair in some])
            for side, tokenizer in enumerate((run.tokenizers.source, run.tokenizers.target))
        ]
        full = [number for number, (source, target) in enumerate(zip(*sides, strict=True)) if source and target]
        ids = [(sides[0][number], sides[1][number]) for number in full]
        links = dict(zip(full, run.engine.link_words(ids, run.alignment_settings), strict=True))
        yield from (links.get(number, []) for number in range(len(some)))


# ---- guided alignment


class Guided(Prediction):
    r"""The objective of guided alignment: predict the next token, and train one head's weights towards given links.

    Chen et al. 2016 (arXiv:1607.01628), section 3. In a Transformer only one head is guided, by default (with more than
    three layers) in the last layer but one, as in Garg et al. 2019 (arXiv:1909.02074), section 3.3:

    $L = L_{\text{next token}} - \lambda \sum_i \sum_j G_{ij} \log a_{ij}$

    over the linked target pieces i. $G_i$ is uniform over the source pieces to which i is linked, and $a_i$ holds the
    head's attention weights in the step that predicts i. A difference: Garg's head sees the whole target in a separate
    pass; here it sees only the pieces before i, so that one pass computes both losses.
    """

    replays = False  # reading the head's weights needs `watch`, and the number of links varies between batches

    def __init__(self, model: Model, smoothing: float, weight: float, name: str, head: int = 0):
        """Guide a head of the attention to the source that `watch` calls `name`."""
        super().__init__(model, smoothing)
        self.weight, self.name, self.head = weight, name, head

    def forward(self, batch: Batch | PackedBatch) -> Loss:
        """Sum both losses; `guided` is the sum over linked target pieces, `guided_count` their number."""
        if not self.training or isinstance(batch, PackedBatch):
            return super().forward(batch)
        if batch.links is None or not len(batch.links):  # report both: every process sums the same parts
            loss = super().forward(batch)
            nothing = torch.zeros_like(loss.total)
            return Loss(loss.total, {**loss.parts, "guided": nothing, "guided_count": nothing})
        source, target = inputs(batch)
        hidden, weights = self.decode_with_weights(self.model.encode(source), target)
        loss = self.token_loss(hidden, batch, target)
        guided = guided_loss(weights, batch.links)
        counted = batch.links.weight.sum()
        parts = {**loss.parts, "guided": guided.detach(), "guided_count": counted.to(guided.dtype)}
        return Loss(loss.total + self.weight * guided, parts)

    def decode_with_weights(
        self, memory: Memory, target: Tokens
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n m"]]:
        """Return the decoder's output and the guided head's weights; all other attentions keep their fast path."""
        if self.model.gives_weights:
            hidden, extra = self.model.decode(memory, target)
            return hidden, extra["weights"]
        with watch(self.model, only=[self.name]) as looks:
            hidden, _ = self.model.decode(memory, target)
        weights = looks[self.name].weights
        return hidden, weights[:, self.head] if weights.ndim == 4 else weights


def guided_loss(weights: Float[Tensor, "b n m"], links: Links) -> Float[Tensor, ""]:
    """Compute -Σ G log a over all links of a batch: the cross-entropy between links and attention weights."""
    wide = torch.promote_types(weights.dtype, torch.float32)
    link_weights = weights[links.row, links.target, links.source].to(wide)
    # Clamp weights that underflow: they get no gradient, and the loss stays finite.
    return -(links.weight * link_weights.clamp(min=torch.finfo(wide).tiny).log()).sum()


def guided_at(model: Model, settings: TrainingSettings) -> tuple[str, int]:
    """Return the name of the guided attention and its head, or raise a ConfigError if it does not exist."""
    cross_attentions, layer, head = model.cross_attentions, settings.guided_layer, settings.guided_head
    if not cross_attentions or not model.projects:
        why = "no attention to its source" if not cross_attentions else "an attention that is its output"
        raise ConfigError("training.guided", f"{settings.guided} given, but the model has {why}; expected 0")
    if layer is not None and layer >= len(cross_attentions):
        raise ConfigError(
            "training.guided_layer", f"{layer} given, expected less than {len(cross_attentions)}, the number of layers"
        )
    name = model.alignment_attention if layer is None else cross_attentions[layer]
    attention = model.get_submodule(name)
    heads = attention.heads if isinstance(attention, Heads) else 1
    if head >= heads:
        raise ConfigError("training.guided_head", f"{head} given, expected less than {heads}, the number of heads")
    return name, head
