"""`regard look`: pages of what a run looked at."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli import options
from regard.cli.messages import print_message
from regard.cli.options import (
    file_option,
    flag_option,
    number_option,
    out_option,
    text_option,
    with_languages,
    with_search,
)
from regard.cli.runs import check_folders, open_beside, open_run, print_unknown_words
from regard.errors import CommandError

if TYPE_CHECKING:
    from regard.inspection import Which, dependency_trees
    from regard.run import Run

ItemsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TEXT or FILE", help="Texts, text files (one text per line), or pictures; default: standard input."
    ),
]
TargetOption = Annotated[str | None, text_option("Output to show, instead of searching for one: a text, or a label.")]
OutOption = Annotated[Path | None, out_option("File to write, or a folder; default: look.html.")]
FormatOption = Annotated[
    str | None, text_option("Format to write: html, png, svg or pdf; default: by the ending of --out.", metavar="NAME")
]
AgainstOption = Annotated[
    str | None,
    text_option(
        "Run folder of another model, or another text, file or picture, to show side by side.", metavar="RUN or TEXT"
    ),
]
WalkOption = Annotated[
    bool, flag_option("--walk", "Show the numbers behind one word, from its input to the most likely outputs.")
]
WordOption = Annotated[int | None, number_option("Word to show with --walk, counted from 1.", least=1, most=1_048_576)]
ViewOption = Annotated[
    str | None, text_option("Attention to show with --walk, or in a picture: its title or name.", metavar="NAME")
]
HeadOption = Annotated[
    int | None, number_option("Head to show with --walk, or in a picture, counted from 1.", least=1, most=1024)
]
AblateOption = Annotated[bool, flag_option("--ablate", "Ablate every head in turn, and print what that changes.")]
GraphOption = Annotated[
    bool, flag_option("--graph", "Draw the parts of the model: to graph.svg or, with a text, on its page.")
]
StretchOption = Annotated[
    bool, flag_option("--stretch", "Colour relative to the largest weight of each map, not on the scale from 0 to 1.")
]
TreeOption = Annotated[
    str | None,
    file_option(
        "File of the texts' dependency trees: CoNLL-U, or heads by word, one line per text; also prints which head "
        "follows which relation."
    ),
]
CountOption = Annotated[int, number_option("Number of texts of a file, or of pictures, to show.", least=1, most=10_000)]
EXAMPLES = (
    'regard look runs/en-de "A man rides a horse." -o look.html',
    'regard look runs/en-de "A man rides a horse." --against runs/older --walk',
)
FORMATS = ("html", "png", "svg", "pdf")


@with_languages
@with_search(without=["nbest", "precision"])
def look(
    run: options.RunArgument,
    items: ItemsArgument = None,
    *,
    target: TargetOption = None,
    as_text: options.TextOption = False,
    out: OutOption = None,
    format: FormatOption = None,
    against: AgainstOption = None,
    walk: WalkOption = False,
    word: WordOption = None,
    view: ViewOption = None,
    head: HeadOption = None,
    ablate: AblateOption = False,
    graph: GraphOption = False,
    tree: TreeOption = None,
    stretch: StretchOption = False,
    count: CountOption = 10,
    languages: dict[str, str | None],
    search: dict[str, Any],
    checkpoint: options.CheckpointOption = "best",
    device: options.DeviceOption = "auto",
) -> None:
    """Show what a trained run looked at, on a page or in a picture.

    Pages need no network. Each line of a file gets its own page; without a text or a file, standard input is read.
    --graph without a text draws the model itself, from the parts that ran.
    """
    check_folders(run)
    if graph and not items:
        check_alone({"--walk": walk, "--ablate": ablate, "--against": against, "--target": target, "--view": view})
        check_alone({"--tree": tree, "--stretch": stretch})
        print_graph(run, checkpoint, out, format)
        return

    from regard.inspection import look_files

    paths = look_files.OutputPaths.parse(out, format, FORMATS)
    check_walk(paths.format, walk, word, view, head, against)
    if graph and paths.format != "html":
        raise CommandError(f"--graph: {paths.format} cannot show it with a text; write a page, such as look.html")

    from regard.inspection import Which, dependency_trees

    opened, other = open_both(run, against, checkpoint, device, languages)
    inputs = look_files.read_inputs(opened, items or [], count, print_message, as_text)
    seconds = inputs
    if other is opened and against is not None:
        seconds = look_files.read_against(opened, against, len(inputs), as_text)
    which = Which(view, None if head is None else head - 1, None, None if word is None else word - 1)
    trees = dependency_trees.find_trees(tree, items or [], inputs, opened)
    places = list(zip(paths.list_paths(len(inputs), inputs + seconds), trees, strict=True))
    shown: dict[str, Any] = {"walk": which if walk else False, "ablate": ablate, "graph": graph}
    beside = None if against is None else (other, seconds)
    options = {"target": target, **search}
    write_exhibits(opened, inputs, places, which, options, shown, beside, stretch=stretch, relations=tree is not None)
    print_unknown_words(opened)


def check_alone(options: dict[str, Any]) -> None:
    """Raise an error for options that need a text, if the command draws only the graph."""
    for name, value in options.items():
        if value:
            raise CommandError(f"{name}: --graph without a text draws only the model; add a text")


def check_walk(
    form: str, walk: bool, word: int | None, view: str | None, head: int | None, against: str | None
) -> None:
    """Raise an error for options that the format cannot show, and for options of --walk without it."""
    for name, value in (("--word", word), ("--view", view), ("--head", head)):
        if value is not None and not walk and (form == "html" or name == "--word"):
            raise CommandError(f"{name}: {value} given without --walk; add --walk")
    for name, value in (("--walk", walk), ("--against", against)):
        if value and form != "html":
            raise CommandError(f"{name}: {form} cannot show it; write a page, such as look.html")


def print_graph(run: str, checkpoint: str, out: Path | None, format: str | None) -> None:
    """Draw the graph of a run's model, without a text, and print the path."""
    from regard.inspection import look_files

    path = look_files.graph_path(out, format)

    from regard.decoding import first_model
    from regard.inspection import model_graph

    print(model_graph(first_model(open_run(run, checkpoint=checkpoint, device="cpu").model)).save(path))


def open_both(
    run: str, against: str | None, checkpoint: str, device: str, languages: Mapping[str, str | None]
) -> "tuple[Run, Run]":
    """Open a run, and the run `against` to show beside it; if that is not a run folder, return the first run twice."""
    from regard.inspection import look_files

    opened = open_run(run, checkpoint=checkpoint, device=device, languages=languages)
    folder = against if against is not None and look_files.is_run(against) else None
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
    """Write the exhibit of each input to its path, with its dependency tree if it has one, and print the paths.

    `search` holds the search options of `run` and of `beside` (the same or another run, with one input for each);
    `shown` holds options of `run` alone. With `relations`, print the table of heads that follow the trees.
    """
    from regard.inspection import ablation_table, dependency_trees, exhibit_of, find_view, page, picture, save

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
        if path.suffix == ".html":
            print(page(exhibit, against=against, stretch=stretch).save(path))
            continue
        # As in the guide, draw the attention closest to an alignment, with all of its heads.
        view = exhibit.aligned if which.view is None else find_view(exhibit.views, which.view).name
        print(save(picture(exhibit, view=view, head=which.head, stretch=stretch), path))
    if relations and any(each.follows for each in dependencies):
        print(dependency_trees.relation_table(dependencies, exhibit.views))
