"""The parts of `regard look`: options checked, runs opened, pages and pictures written, tables printed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.runs import open_beside, open_run
from regard.errors import CommandError

if TYPE_CHECKING:
    from regard.inspection import Which, dependency_trees
    from regard.run import Run

FORMATS = ("html", "png", "svg", "pdf")


def check_alone(options: dict[str, Any]) -> None:
    """Refuse options of what a text is looked at with, where a graph is all that is asked for."""
    for name, value in options.items():
        if value:
            raise CommandError(f"{name}: --graph without a text draws only the model; add a text")


def check_walk(form: str, walk: bool, word: int | None, view: str | None, head: int | None) -> None:
    """Refuse what the format cannot show, and options of --walk without it."""
    for name, value in (("--word", word), ("--view", view), ("--head", head)):
        if value is not None and not walk and (form == "html" or name == "--word"):
            raise CommandError(f"{name}: {value} given without --walk; add --walk")
        if isinstance(value, int) and value < 1:
            raise CommandError(f"{name}: {value} given, expected 1 or more")
    if walk and form != "html":
        raise CommandError(f"--walk: {form} cannot show it; write a page, such as look.html")


def print_graph(run: str, checkpoint: str, out: Path | None, format: str | None) -> None:
    """Draw the model of a run, without a text, and print where."""
    from regard.inspection import look_files

    path = look_files.graph_path(out, format)

    from regard.decoding import first_model
    from regard.inspection import model_graph

    print(model_graph(first_model(open_run(run, checkpoint=checkpoint, device="cpu").model)).save(path))


def open_both(
    run: str, against: str | None, checkpoint: str, device: str, languages: Mapping[str, str | None]
) -> "tuple[Run, Run]":
    """Open a run, and the one to show beside it where `against` is a run folder; else the same run twice."""
    from regard.inspection import look_inputs

    opened = open_run(run, checkpoint=checkpoint, device=device, languages=languages)
    folder = against if against is not None and look_inputs.is_run(against) else None
    other = open_beside(opened, folder, checkpoint=checkpoint) or opened
    if other.settings.task != opened.settings.task:
        raise CommandError(
            f"--against: {against} has the task {other.settings.task}, but {run} has {opened.settings.task}"
        )
    return opened, other


def write_exhibits(
    run: "Run",
    inputs: Sequence[str],
    places: "Sequence[tuple[Path, dependency_trees.ParsedTree | None]]",
    which: "Which",
    search: dict[str, Any],
    shown: dict[str, Any],
    beside: "tuple[Run, Sequence[str]] | None" = None,
    *,
    stretch: bool = False,
    relations: bool = False,
) -> None:
    """Write what a run looked at in each input, to its path and with its tree, and print where.

    `search` holds the options of the search, and of `beside`, another run or the same with an input for each; `shown`
    holds what only the first is asked for. With `relations` the table of heads that follow the trees is printed, too.
    """
    from regard.inspection import ablation_table, dependency_trees, exhibit_of, look_files

    dependencies = []
    for number, (item, (path, tree)) in enumerate(zip(inputs, places, strict=True)):
        exhibit = exhibit_of(run, item, dependencies=tree, **shown, **search)
        against = None
        if beside is not None:
            other, seconds = beside
            against = exhibit_of(other, seconds[number], graph=shown["graph"] and other is not run, **search)
        if exhibit.ablation is not None:
            print(ablation_table(exhibit.ablation, exhibit.views))
        if exhibit.dependencies is not None:
            dependencies.append(exhibit.dependencies)
        print(
            look_files.write_exhibit(exhibit, path, against=against, view=which.view, head=which.head, stretch=stretch)
        )
    if relations and any(each.follows for each in dependencies):
        print(dependency_trees.relation_table(dependencies, exhibit.views))
