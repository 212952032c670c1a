"""Export: a folder that another toolkit opens, made from a run, and verified before it gets its final name.

from regard import export_model
export_model("runs/en-de", "exported", to="ctranslate2", quantize="int8")

The folder's manifest names the run's checkpoint by its hash, the verification, and the hash of every file.

Verification decodes two hundred sentences greedily with both the run and the export. In float32 the outputs must be
equal token by token, except for ties: two tokens whose log-probabilities differ by at most 1e-4. With rounded weights
the outputs must be similar: BLEU of at least 90 and chrF of at least 95 between the two. The sentences come from the
user's file, or from the run's validation pairs if the cache still has them. Otherwise source and target pieces are
drawn at random, and the log-probabilities of the targets are compared. Run and export would agree even after a faulty
import: so `regard.interop.importing` compares them with the folder that the run was imported from.

Transformers is no dependency of Regard, so Regard's own importer reads a folder written for it; the tests compare the
importer with Transformers. The run's tokenizer is used: pieces keep its numbers, and the folder's vocabulary maps each
piece to its row.
"""

import hashlib
import random
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from regard import __version__
from regard.config import read, show_value
from regard.data import UNKNOWN, Tokenizer, Tokenizers, cached_valid_pairs, special_pieces
from regard.decoding import GREEDY
from regard.errors import CheckpointError, CommandError, ConfigError, DataError, VerificationError
from regard.evaluation import text_scores
from regard.interop.formats import (
    Format,
    Imported,
    check_new,
    describe_run,
    find_format,
    hash_file,
    model_type,
    read_manifest,
    whole_folder,
    write_manifest,
)
from regard.interop.importing import compare_with_origin
from regard.io import packs, read_chunks
from regard.plugins import resolve
from regard.run import Run, load
from regard.tasks import ModelEngine, build_model, read_settings, require_run, translate
from regard.training import Checkpoints, Prediction, weight_files

COUNT = 200  # sentences
TIE = 1e-4  # maximum difference of two tokens' log-probabilities that counts as a tie
APART = 1e-3  # maximum difference of a token's log-probabilities, in float32
MEAN_APART = 0.25  # maximum mean difference for rounded weights, with random pieces
BLEU, CHRF = 90.0, 95.0  # minimum between the two, for rounded weights
MAX_PIECES = 30  # maximum number of random pieces per sentence
Ids = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Verification:
    """The comparison of an export with its run, and its results."""

    sentences: str  # file, validation or drawn
    count: int
    sha256: str  # of the sources' token numbers
    versions: Mapping[str, str]
    equal: int | None = None  # number of equal outputs
    ties: int | None = None  # number of outputs that differ by a tie
    log_prob_difference: float | None = None  # maximum per token; the mean for rounded weights
    bleu: float | None = None
    chrf: float | None = None
    origin: str | None = None  # result of the comparison with the folder that the run was imported from

    def __str__(self) -> str:
        where = {"file": "{} of the file", "validation": "validation {}", "drawn": "random {}"}
        parts = [f"{self.count:,} " + where[self.sentences].format("sentence" + "s" * (self.count != 1))]
        if self.equal is not None:
            parts.append(
                f"{self.equal:,} output{'s' * (self.equal != 1)} equal"
                + (f", {self.ties:,} by a tie" if self.ties else "")
            )
        if self.bleu is not None and self.chrf is not None:
            parts.append(f"BLEU {self.bleu:.1f} and chrF {self.chrf:.1f} between the two")
        if self.log_prob_difference is not None:
            parts.append(f"log-probabilities differ by {self.log_prob_difference:.1g}")
        parts += [self.origin] if self.origin is not None else []
        return "; ".join(parts)


@dataclass(frozen=True)
class ExportReport:
    """The result of an export: the folder, its files, and its verification if the format has one."""

    folder: Path
    format: str
    files: tuple[str, ...]
    bytes: int
    verification: Verification | None = None


def export_model(
    run: str | Path | Run,
    out: str | Path,
    *,
    to: str,
    checkpoint: str = "best",
    check: str | Path | None = None,
    **options: Any,
) -> ExportReport:
    """Write a run as a folder `out` of the format `to`; `options` are passed to that format's writer.

    `check` is a text file; the run and the export decode its first sentences and must agree. Without it, validation
    pairs in the cache are used, or random pieces.
    """
    out, row = Path(out), find_format(to, "--to")
    check_new(out)
    home = run.folder if isinstance(run, Run) else Path(run)
    require_run(home)
    path = Checkpoints(home).find(checkpoint)
    opened = run if isinstance(run, Run) else load(run, checkpoint=path.name)
    opened.require("translate")
    with whole_folder(out) as temporary:
        facts = row.write(opened, temporary, **options)
        about: dict[str, Any] = {"format": row.name, "facts": facts}
        origin = describe_run(opened.folder, path, opened.step, out)
        about["run"] = {**origin, "sentences": asdict(opened.sentence_share)}
        write_manifest(temporary, **about, verification=None)
        verification = verify_written(opened, temporary, row, out, check)
        if verification is not None:
            write_manifest(temporary, **about, verification=asdict(verification))
        elif check is not None:
            raise CommandError(f"--check: {check} given, but {row.name} is not verified")
        paths = sorted(path for path in temporary.rglob("*") if path.is_file())
        names = tuple(path.relative_to(temporary).as_posix() for path in paths)
        size = sum(path.stat().st_size for path in paths)
    return ExportReport(out, row.name, names, size, verification)


def verify_export(folder: str | Path, run: str | Path | None = None, check: str | Path | None = None) -> Verification:
    """Verify an exported folder again: against `run`, or, if it still exists, the run that it was made from.

    The manifest has the relative path of that run; its checkpoint must have the same hash.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    row, origin = find_format(manifest["format"], "--verify"), manifest["run"]
    if row.opener is None:
        raise CommandError(f"--verify: {folder} is of format {row.name}, which is not verified")
    place = Path(run) if run is not None else folder.absolute().parent / str(origin.get("folder"))
    name = str(origin.get("checkpoint"))
    path = Checkpoints(place).folder / name
    if not packs.is_file(path / "manifest.json"):
        raise CheckpointError(
            f"{place}: no checkpoint {name}, which {folder} was exported from; give its run, as in: "
            f"regard export RUN --verify {shlex.quote(str(folder))}"
        )
    if hash_file(path / "manifest.json")["sha256"] != origin.get("sha256"):
        raise CheckpointError(f"{path}: another checkpoint than {folder} was exported from")
    verification = verify_written(load(place, checkpoint=name), folder, row, folder, check)
    assert verification is not None
    return verification


def verify_written(run: Run, folder: Path, row: Format, out: Path, check: str | Path | None) -> Verification | None:
    """Compare a folder with its run, and with the folder that the run was imported from; error messages call it `out`.

    Return None for a format that is not verified.
    """
    if row.opener is None:
        return None
    before = f"{run.folder}: not verified: "
    try:
        opened = resolve(row.opener)(folder, run)
    except (CheckpointError, ConfigError, DataError) as error:
        problem = str(error).replace(str(folder), str(out))
        raise VerificationError(f"{before}the folder cannot be opened again: {problem}") from error
    verification = verify(run, opened, check)
    try:
        return replace(verification, origin=compare_with_origin(run, folder, row.name))
    except VerificationError as error:
        raise VerificationError(before + str(error).replace(str(folder), str(out))) from error


class Opened(NamedTuple):
    """An opened export, as verification needs it."""

    engine: Any  # searches and scores
    exact: bool  # its weights are the run's, in float32
    versions: Mapping[str, str]  # of the software that decodes it, by name


@dataclass(frozen=True)
class Sentences:
    """The sentences to decode: texts, or random pieces with targets."""

    kind: Literal["file", "validation", "drawn"]
    texts: Sequence[str]  # empty for random pieces
    sources: list[list[int]]
    targets: list[list[int]] | None = None


def verify(run: Run, opened: Opened, check: str | Path | None = None) -> Verification:
    """Compare an exported folder with its run; raise a VerificationError with the first difference."""
    sentences = find_sentences(run, check)
    content = "\n".join(" ".join(map(str, row)) for row in sentences.sources)
    about: dict[str, Any] = {
        "sentences": sentences.kind,
        "count": len(sentences.sources),
        "sha256": hashlib.sha256(content.encode()).hexdigest(),
        "versions": dict(opened.versions),
    }
    if sentences.targets is not None:
        difference = compare_scores(run, opened, sentences.sources, sentences.targets)
        return Verification(**about, log_prob_difference=difference)
    prefixes = translate.prefixes_of(run, len(sentences.sources))
    outputs, others = (
        [result.outputs[0].tokens for result in engine.search(sentences.sources, GREEDY, prefixes=prefixes)]
        for engine in (run.engine, opened.engine)
    )
    if opened.exact:
        ties = compare_outputs(run, sentences, outputs, others)
        difference = compare_scores(run, opened, sentences.sources, outputs)
        return Verification(**about, equal=len(outputs) - ties, ties=ties, log_prob_difference=difference)
    return Verification(**about, **compare_texts(run, sentences, outputs, others))


def find_sentences(run: Run, check: str | Path | None) -> Sentences:
    """Return sentences to decode: of the file, else of the validation set, else random ones."""
    longest = run.settings.data.longest if run.model.limit is None else min(run.settings.data.longest, run.model.limit)
    texts = []
    if check is not None:
        texts = [line for line in next(read_chunks(check), []) if line.strip()][:COUNT]
        if not texts:
            raise DataError(f"{check}: no sentence in it, expected some to verify the export with")
    else:
        table = read(run.folder / "config.toml").get("data", {})
        cache = table.get("cache") if isinstance(table, dict) else None
        settings = run.settings
        pairs = cached_valid_pairs(settings.data, settings.tokenizer, run.tokenizers, cache)
        texts = [source for source, _ in pairs[:COUNT]]
    if not texts:
        sources, targets = (
            draw_pieces(each, COUNT, min(MAX_PIECES, longest - 1), seed)
            for seed, each in enumerate((run.tokenizers.source, run.tokenizers.target))
        )
        return Sentences("drawn", (), sources, targets)
    rows = [(text, ids[:longest]) for text, ids in zip(texts, run.tokenizers.source.encode_batch(texts), strict=True)]
    return Sentences("validation" if check is None else "file", [text for text, _ in rows], [ids for _, ids in rows])


def draw_pieces(tokenizer: Tokenizer, count: int, longest: int, seed: int) -> list[list[int]]:
    """Draw sentences of 1 to `longest` random pieces, without special pieces and fillers."""
    draw, first = random.Random(seed), min(UNKNOWN + 1, tokenizer.size - 1)
    pieces = [i for i in range(first, tokenizer.size) if not special_pieces.is_filler(tokenizer.names[i])]
    return [[draw.choice(pieces) for _ in range(draw.randint(1, max(1, longest)))] for _ in range(count)]


def compare_outputs(run: Run, sentences: Sentences, outputs: Ids, others: Ids) -> int:
    """Compare outputs token by token, and return how many differ by a tie; any other difference is an error."""
    different = [i for i, (one, two) in enumerate(zip(outputs, others, strict=True)) if list(one) != list(two)]
    wrong = [i for i in different if not is_tie(run, sentences.sources[i], outputs[i], others[i])]
    if wrong:
        raise differ(run, sentences, wrong[0], outputs, others, f"{len(wrong):,} of {len(outputs):,} outputs differ")
    return len(different)


def is_tie(run: Run, source: Sequence[int], one: Sequence[int], two: Sequence[int]) -> bool:
    """Return whether the first differing tokens, or END after a shorter output, are equally likely."""
    place = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    first, second = (
        scored.tokens[place] for scored in run.engine.score([source] * 2, [one[: place + 1], two[: place + 1]])
    )
    return abs(first - second) <= TIE


def compare_scores(run: Run, opened: Opened, sources: Ids, targets: Ids) -> float:
    """Compare the log-probabilities of all tokens; return the largest difference, or the mean for rounded weights."""
    mine, others = (engine.score(sources, targets) for engine in (run.engine, opened.engine))
    gaps = [  # relative for unlikely tokens
        [abs(a - b) / max(1.0, abs(a)) for a, b in zip(one.tokens, two.tokens, strict=True)]
        for one, two in zip(mine, others, strict=True)
    ]
    worst = max(range(len(gaps)), key=lambda i: max(gaps[i], default=0.0))
    every = [each for row in gaps for each in row]
    found, most = (max(every), APART) if opened.exact else (sum(every) / len(every), MEAN_APART)
    if not found <= most:  # NaN is refused, too
        one, two = mine[worst].log_prob, others[worst].log_prob
        pieces = " ".join(run.tokenizers.source.pieces(sources[worst]))
        raise VerificationError(
            f"{run.folder}: not verified: log-probabilities differ by {found:.2g}, expected at most {most:g}; those "
            f"of “{pieces}” are {one:.4f} by the run and {two:.4f} by the export"
        )
    return found


def compare_texts(run: Run, sentences: Sentences, outputs: Ids, others: Ids) -> dict[str, Any]:
    """Compare outputs as texts, by the BLEU and chrF between them."""
    one, two = (run.tokenizers.target.decode_batch(list(map(list, rows))) for rows in (outputs, others))
    # BLEU fails for outputs shorter than four words: they would not even match themselves.
    known = text_scores.bleu(one, one) > BLEU and one != two
    scores = text_scores.bleu(two, one) if known else 100.0, 100.0 if one == two else text_scores.chrf(two, one)
    if scores[0] < BLEU or scores[1] < CHRF:
        first = next(i for i in range(len(one)) if one[i] != two[i])
        problem = f"BLEU {scores[0]:.1f} and chrF {scores[1]:.1f} between the two, expected {BLEU:g} and {CHRF:g}"
        raise differ(run, sentences, first, outputs, others, problem)
    equal = sum(list(a) == list(b) for a, b in zip(outputs, others, strict=True))
    return {"equal": equal, "bleu": round(scores[0], 2), "chrf": round(scores[1], 2)}


def differ(run: Run, sentences: Sentences, first: int, outputs: Ids, others: Ids, problem: str) -> VerificationError:
    """Build the error for differing outputs, which shows the first of them."""
    one, two = (run.tokenizers.target.decode(rows[first]) for rows in (outputs, others))
    return VerificationError(
        f"{run.folder}: not verified: {problem}; the first is “{sentences.texts[first]}”, by the run “{one}”, "
        f"by the export “{two}”"
    )


# ---- folders for Transformers, reopened


def reopen(folder: Path, run: Run, family: str, read_rows: Callable[[Path, Tokenizers], Imported]) -> Opened:
    """Open a folder that was written from a run: build its model, on the run's device.

    Refuse one that Transformers would open as another family, because the family determines the order of sinusoids.
    """
    if (name := model_type(folder)) != family:
        raise DataError(f"{folder / 'config.json'}: model_type is {show_value(name)}, expected {show_value(family)}")
    imported = read_rows(folder, run.tokenizers)
    model = build_model(read_settings(imported.table), imported.tokenizers)
    weight_files.load_weights(
        Prediction(model), {f"model.{name}": tensor for name, tensor in imported.weights.items()}, str(folder)
    )
    engine = ModelEngine(model.to(run.device).eval(), run.tokenizers, run.device)
    versions = {"regard": __version__, "torch": torch.__version__}
    return Opened(engine, True, versions)  # such folders are always float32
