"""`regard compare`: two systems, tested for a difference."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli import options
from regard.cli.messages import print_message, print_table, print_text, show_progress
from regard.cli.options import name_option, number_option, with_search
from regard.cli.runs import open_run, warn_of_lowercase
from regard.errors import CommandError
from regard.io import packs

if TYPE_CHECKING:
    from regard.evaluation import Comparison, Items
    from regard.run import Run

Compared = Annotated[
    Path, typer.Argument(metavar="B", help="Run folder, or text file of outputs, to compare with.", show_default=False)
]
MetricsOption = Annotated[
    str | None,
    name_option(
        "Metrics, separated by commas; the first decides: bleu, chrf, ter, exact, character_errors and token_errors.",
        metavar="NAMES",
        show_default="all",
    ),
]
ExamplesOption = Annotated[
    int,
    number_option(
        "Number of sentences to show per system, those in which it beats the other most.", least=0, most=10_000
    ),
]


EXAMPLES = (
    "regard compare runs/a runs/b --source test.en --reference test.de",
    "regard compare runs/a others.de --source test.en --reference test.de",
)


@with_search("beam", "length_penalty")
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Run folder, or text file of outputs.", show_default=False)],
    b: Compared,
    *,
    source: options.SourceOption = None,
    reference: options.ReferenceOption = None,
    metrics: MetricsOption = None,
    examples: ExamplesOption = 3,
    resamples: Annotated[int, number_option("Number of bootstrap resamples.", least=1, most=1_000_000)] = 1000,
    seed: Annotated[int, number_option("Seed of the resamples.", least=0, most=options.SEED)] = 12345,
    alternatives: options.AlternativesOption = False,
    lowercase: options.LowercaseOption = False,
    tokenize: options.TokenizeOption = "auto",
    as_json: options.JsonOption = False,
    search: dict[str, Any],
    batch_tokens: options.BatchTokensOption = None,
    checkpoint: options.CheckpointOption = "best",
    device: options.DeviceOption = "auto",
) -> None:
    """Test whether one of two systems is better than the other.

    Runs translate the source first; text files of outputs are used as they are. Paired bootstrap resampling compares
    the scores: p is the probability of a difference this large between equally good systems. It also prints the
    sentences in which the two differ most.
    """
    if source is None or reference is None:
        missing = "--source" if source is None else "--reference"
        raise CommandError(f"{missing}: missing, expected a text file with one sentence per line")
    for system in (a, b):
        if not system.exists():
            raise CommandError(f"{system}: no such file or folder, expected a run folder or a text file of outputs")

    from regard.evaluation import METRICS, choose_metrics, compare_outputs, read_items, text_scores
    from regard.tasks import evaluation

    keys = list(METRICS) if metrics is None else choose_metrics(metrics, list(METRICS))
    text_scores.check_tokenizer(tokenize)
    items = read_items(source, reference, alternatives=alternatives, say=print_message)
    notes: list[str] = []
    keys = evaluation.drop_unfit_metrics(keys, items.references, tokenize, notes.append) if metrics is None else keys
    opening: dict[str, Any] = {"checkpoint": checkpoint, "device": device}
    runs = {system: open_run(system, **opening) for system in (a, b) if packs.is_folder(system)}
    if metrics is None and runs:
        keys = evaluation.lead_with(next(iter(runs.values())).settings.training.metric, keys)
    first, second = collect_outputs((a, b), runs, items, search, batch_tokens, lowercase)
    how: dict[str, Any] = {"lowercase": lowercase, "tokenize": tokenize, "resamples": resamples, "seed": seed}
    how["examples"] = examples
    for note in notes:  # after all checks, so that no note precedes an error
        print_message(note)
    comparison = compare_outputs(first, second, items.sources or [], items.references, keys, **how)
    if as_json:
        print(json.dumps({"a": str(a), "b": str(b), **comparison.table()}, ensure_ascii=False, allow_nan=False))
    else:
        print(f"A  {a}\nB  {b}")
        print_comparison(comparison)


def collect_outputs(
    systems: Sequence[Path],
    runs: Mapping[Path, "Run"],
    items: "Items",
    search: dict[str, Any],
    batch_tokens: int | None,
    lowercase: bool,
) -> list[list[str]]:
    """Collect the outputs of each system; read and check files before any run translates."""
    from regard.tasks import evaluation

    for run in runs.values():
        warn_of_lowercase(run, lowercase)
    outputs = {system: items.read_outputs(system, print_message) for system in systems if system not in runs}
    how, sources = (batch_tokens, print_message, show_progress), items.sources or []
    outputs |= {system: evaluation.translate_sources(run, sources, *how, **search) for system, run in runs.items()}
    return [outputs[system] for system in systems]


def print_comparison(comparison: "Comparison") -> None:
    """Print a comparison as text: the metrics, the conclusion, and the sentences that differ most."""
    from regard.training import bracketed, legible

    print(f"{comparison.sentences:,} sentences, {comparison.same:,} of them identical in both\n")
    rows, differences = [], list(comparison.differences.values())
    for each in differences:
        scale = 100 if each.a.unit == "share" else 1
        change, low, high = (f"{scale * value:+.2f}".replace("-", "−") for value in (each.value, each.low, each.high))
        rows.append((each.a.name, str(each.a), str(each.b), change, f"{low} to {high}", f"{each.p:.2g}"))
    print_table(("metric", "A", "B", "B − A", "95 % interval", "p"), rows)
    print()
    print_text(comparison.conclusion)
    print_text(f"({comparison.resamples:,} resamples, seed {comparison.seed}; {differences[0].a.signature})")
    if any(comparison.contrasts):
        print()
        print_text("Where they differ most, by chrF; [brackets] differ from the reference, ‸ marks missing words")
    for name, contrasts in zip("AB", comparison.contrasts, strict=True):
        for contrast in contrasts:
            reference = legible(contrast.reference)
            print(f"\n  {name} is better in sentence {contrast.number:,}")
            print_text(f"  source     {legible(contrast.source)}", 13)
            print_text(f"  reference  {reference}", 13)
            text = bracketed(legible(contrast.a), reference)
            print_text(f"  A {contrast.a_chrf:6.1f}   {text}", 13)
            text = bracketed(legible(contrast.b), reference)
            print_text(f"  B {contrast.b_chrf:6.1f}   {text}", 13)
