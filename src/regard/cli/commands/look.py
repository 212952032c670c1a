"""`regard look`: pages of what a run looked at."""

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.messages import print_message
from regard.cli.options import (
    CheckpointOption,
    DeviceOption,
    RunArgument,
    TextOption,
    file_option,
    flag_option,
    number_option,
    out_option,
    text_option,
    with_search,
)
from regard.cli.runs import open_beside, open_run, print_unknown_words
from regard.errors import CommandError

FORMATS = ("html", "png", "svg", "pdf")
ItemsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TEXT or FILE", help="Texts, text files (one text per line), or pictures; default: standard input."
    ),
]
AgainstOption = Annotated[
    str | None,
    text_option(
        "Run folder of another model, or another text, file or picture, to show side by side.",
        metavar="RUN or TEXT",
    ),
]


EXAMPLES = (
    'regard look runs/en-de "A man rides a horse." -o look.html',
    'regard look runs/en-de "A man rides a horse." --against runs/older --walk',
)


@with_search(without=["nbest", "precision"])
def look(
    run: RunArgument,
    items: ItemsArgument = None,
    *,
    target: Annotated[
        str | None, text_option("Output to show, instead of searching for one: a text, or a label.")
    ] = None,
    as_text: TextOption = False,
    out: Annotated[Path | None, out_option("File to write, or a folder; default: look.html.")] = None,
    format: Annotated[
        str | None,
        text_option("Format to write: html, png, svg or pdf; default: by the ending of --out.", metavar="NAME"),
    ] = None,
    against: AgainstOption = None,
    walk: Annotated[
        bool,
        flag_option("--walk", "Show the numbers behind one word, from its input to the most likely outputs."),
    ] = False,
    word: Annotated[
        int | None, number_option("Word to show with --walk, counted from 1.", least=1, most=1_048_576)
    ] = None,
    view: Annotated[
        str | None, text_option("Attention to show with --walk, or in a picture: its title or name.", metavar="NAME")
    ] = None,
    head: Annotated[
        int | None, number_option("Head to show with --walk, or in a picture, counted from 1.", least=1, most=1024)
    ] = None,
    ablate: Annotated[bool, flag_option("--ablate", "Ablate every head in turn, and print what that changes.")] = False,
    graph: Annotated[
        bool, flag_option("--graph", "Draw the parts of the model: to graph.svg, or with a text on its page.")
    ] = False,
    tree: Annotated[
        str | None,
        file_option("File of the texts' dependency trees: CoNLL-U, or heads by word, one line per text."),
    ] = None,
    count: Annotated[
        int, number_option("Number of texts of a file, or of pictures, to show.", least=1, most=10_000)
    ] = 10,
    search: dict[str, Any],
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
) -> None:
    """Show what a trained run looked at, on a page or in a picture.

    Pages need no network. Each line of a file gets its own page; without a text or a file, standard input is read.
    --graph without a text draws the model itself, from the parts that ran.
    """
    from regard.inspection.draw.files import OutputPaths, graph_path, write_exhibit

    if graph and not items:
        check_alone({"--walk": walk, "--ablate": ablate, "--against": against, "--target": target, "--view": view})
        check_alone({"--tree": tree})
        path = graph_path(out, format)

        from regard.decoding.ensemble import first_model
        from regard.inspection.draw.graph import model_graph

        print(model_graph(first_model(open_run(run, checkpoint=checkpoint, device="cpu").model)).save(path))
        return
    paths = OutputPaths.parse(out, format, FORMATS)
    check_walk(paths.format, walk, word, view, head)
    if graph and paths.format != "html":
        raise CommandError(f"--graph: {paths.format} cannot show it with a text; write a page, such as look.html")

    from regard.inspection.collect.ablation import ablation_table
    from regard.inspection.collect.dependency_trees import find_trees, relation_table
    from regard.inspection.collect.from_run import Which, exhibit_of
    from regard.inspection.collect.inputs import is_run, read_against, read_inputs

    opened = open_run(run, checkpoint=checkpoint, device=device)
    other_run = against if against is not None and is_run(against) else None
    other = open_beside(opened, other_run, checkpoint=checkpoint) or opened
    if other.settings.task != opened.settings.task:
        raise CommandError(
            f"--against: {against} has the task {other.settings.task}, but {run} has {opened.settings.task}"
        )
    inputs = read_inputs(opened, items or [], count, print_message, as_text)
    seconds = inputs if other is not opened or against is None else read_against(opened, against, len(inputs), as_text)
    which = Which(view, None if head is None else head - 1, None, None if word is None else word - 1)
    trees, dependencies = find_trees(tree, items or [], inputs, opened), []
    names = paths.list_paths(len(inputs), inputs + seconds)
    for item, second, path, each in zip(inputs, seconds, names, trees, strict=True):
        more = {"ablate": ablate, "graph": graph, "dependencies": each, **search}
        exhibit = exhibit_of(opened, item, target=target, walk=which if walk else False, **more)
        beside = (
            None
            if against is None
            else exhibit_of(other, second, target=target, graph=graph and other is not opened, **search)
        )
        if exhibit.ablation is not None:
            print(ablation_table(exhibit.ablation, exhibit.views))
        if exhibit.dependencies is not None:
            dependencies.append(exhibit.dependencies)
        print(write_exhibit(exhibit, path, against=beside, view=view, head=which.head))
    if any(each.follows for each in dependencies):
        print(relation_table(dependencies, exhibit.views))
    print_unknown_words(opened)


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
