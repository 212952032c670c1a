"""`regard compare`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.commands.eval import open_run
from regard.cli.messages import print_message, print_table, show_progress
from regard.cli.options import (
    SEED,
    AlternativesOption,
    BatchTokensOption,
    BeamOption,
    CheckpointOption,
    DeviceOption,
    JsonOption,
    LengthPenaltyOption,
    LowercaseOption,
    ReferenceOption,
    SourceOption,
    TokenizeOption,
    number_option,
)
from regard.errors import CommandError

if TYPE_CHECKING:
    from regard.evaluation.items import Items
    from regard.evaluation.significance import Contrast, Difference
    from regard.run import Run


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Run folder, or text file of outputs.", show_default=False)],
    b: Annotated[
        Path,
        typer.Argument(metavar="B", help="Run folder, or text file of outputs, to compare with.", show_default=False),
    ],
    source: SourceOption = None,
    reference: ReferenceOption = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Metrics, with commas between them; the first decides: bleu, chrf, ter, exact, character_errors and "
            "token_errors.",
            show_default="all",
        ),
    ] = None,
    examples: Annotated[
        int, number_option("Number of sentences to show of each system's best.", least=0, most=10_000)
    ] = 3,
    resamples: Annotated[int, number_option("Number of bootstrap resamples.", least=1, most=1_000_000)] = 1000,
    seed: Annotated[int, number_option("Seed of the resamples.", least=0, most=SEED)] = 12345,
    alternatives: AlternativesOption = False,
    lowercase: LowercaseOption = False,
    tokenize: TokenizeOption = "13a",
    as_json: JsonOption = False,
    beam: BeamOption = 5,
    length_penalty: LengthPenaltyOption = 0.6,
    batch_tokens: BatchTokensOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
) -> None:
    """Test whether one of two systems is better, and show where they differ most.

    `regard compare runs/a runs/b --source test.en --reference test.de` translates with both. Scores are compared by
    paired bootstrap resampling: p is how likely a difference as large is between systems that are equally good.
    """
    if source is None or reference is None:
        missing = "--source" if source is None else "--reference"
        raise CommandError(f"{missing}: missing, expected a text file with a sentence a line")
    for system in (a, b):
        if not system.exists():
            raise CommandError(f"{system}: no such file or folder, expected a run folder or a text file of outputs")

    from regard.evaluation.items import read_items
    from regard.evaluation.metric import METRICS, choose_metrics, measure
    from regard.evaluation.significance import find_contrasts, paired_bootstrap
    from regard.evaluation.text import check_tokenizer
    from regard.tasks.evaluation import drop_slow_metrics

    keys = list(METRICS) if metrics is None else choose_metrics(metrics, list(METRICS))
    check_tokenizer(tokenize)
    items = read_items(source, reference, alternatives=alternatives, say=print_message)
    keys = drop_slow_metrics(keys, items.references, print_message) if metrics is None else keys
    search = {"beam": beam, "length_penalty": length_penalty}
    runs = {
        each: open_run([each], search, lowercase, checkpoint=checkpoint, device=device)
        for each in (a, b)
        if each.is_dir()
    }
    outputs = outputs_of([a, b], runs, items, search, batch_tokens)
    first, second = (
        [measure(key, each, items.references, lowercase=lowercase, tokenize=tokenize) for key in keys]
        for each in outputs
    )
    found = dict(zip(keys, paired_bootstrap(first, second, resamples=resamples, seed=seed), strict=True))
    where = find_contrasts(items.sources or [], items.references, *outputs, count=examples, lowercase=lowercase)
    facts = {"a": str(a), "b": str(b), "sentences": len(items), "resamples": resamples, "seed": seed}
    if as_json:
        print(json.dumps(table(facts, found, where), ensure_ascii=False, allow_nan=False))
    else:
        same = sum(one == other for one, other in zip(*outputs, strict=True))
        show(facts, found, where, same)


def outputs_of(
    systems: list[Path], runs: "dict[Path, Run]", items: "Items", search: dict[str, Any], batch_tokens: int | None
) -> list[list[str]]:
    """What each system says; files are read, and found wrong, before any run translates."""
    from regard.tasks.evaluation import translate_sources

    found = {system: items.read_outputs(system, print_message) for system in systems if system not in runs}
    how = batch_tokens, print_message, show_progress
    found |= {system: translate_sources(run, items.sources or [], *how, **search) for system, run in runs.items()}
    return [found[system] for system in systems]


def table(
    facts: dict[str, Any], found: "dict[str, Difference]", where: "tuple[list[Contrast], list[Contrast]]"
) -> dict[str, Any]:
    """The comparison in types that JSON has."""
    from regard.evaluation.significance import conclusion

    metrics = {
        key: {
            "name": each.a.name,
            "a": each.a.value,
            "b": each.b.value,
            "difference": each.value,
            "mean": each.mean,
            "interval": [each.low, each.high],
            "p": each.p,
            "significant": each.significant,
            "better": each.better,
            "signature": each.a.signature,
        }
        for key, each in found.items()
    }
    better = {
        name: [asdict(each) for each in given] for name, given in zip(("a_better", "b_better"), where, strict=True)
    }
    return {**facts, "said": conclusion(list(found.values())), "metrics": metrics, **better}


def show(
    facts: dict[str, Any], found: "dict[str, Difference]", where: "tuple[list[Contrast], list[Contrast]]", same: int
) -> None:
    """Print the comparison for people."""
    from regard.evaluation.significance import conclusion
    from regard.training.sample import bracketed, legible

    print(f"A  {facts['a']}\nB  {facts['b']}")
    print(f"{facts['sentences']:,} sentences, {same:,} of them the same by both\n")
    rows = []
    for each in found.values():
        scale = 100 if each.a.unit == "share" else 1
        change, low, high = (f"{scale * value:+.2f}".replace("-", "−") for value in (each.value, each.low, each.high))
        rows.append((each.a.name, str(each.a), str(each.b), change, f"{low} to {high}", f"{each.p:.2g}"))
    print_table(("metric", "A", "B", "B − A", "95 % interval", "p"), rows)
    print(f"\n{conclusion(list(found.values()))}")
    print(f"({facts['resamples']:,} resamples, seed {facts['seed']}; {next(iter(found.values())).a.signature})")
    if any(where):
        print("\nWhere they differ most, by chrF; [brackets]: not as in the reference, ‸: something is missing")
    for name, given in zip("AB", where, strict=True):
        for contrast in given:
            reference = legible(contrast.reference)
            print(f"\n  {name} is better in sentence {contrast.number:,}")
            print(f"  source     {legible(contrast.source)}")
            print(f"  reference  {reference}")
            print(f"  A {contrast.a_chrf:6.1f}   {bracketed(legible(contrast.a), reference)}")
            print(f"  B {contrast.b_chrf:6.1f}   {bracketed(legible(contrast.b), reference)}")
