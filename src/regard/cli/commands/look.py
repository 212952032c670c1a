"""`regard look`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.commands.translate import HELP, flag, search, text
from regard.cli.options import number
from regard.decoding.options import Options

if TYPE_CHECKING:
    from regard.inspection.collect.exhibit import Exhibit
    from regard.inspection.collect.from_run import Which

FORMATS = ("html", "png", "svg", "pdf")


def look(
    run: Annotated[str, typer.Argument(help="A run folder.", show_default=False)],
    items: Annotated[
        list[str] | None, typer.Argument(metavar="text or file", help="Texts, files of them, or pictures.")
    ] = None,
    target: Annotated[str | None, text("What is said, in place of a search: a text, or a label.")] = None,
    out: Annotated[Path | None, text("File to write, or a folder; default: look.html.")] = None,
    format: Annotated[str | None, text("html, png, svg or pdf; default: as --out ends.")] = None,
    against: Annotated[str | None, text("Another run, shown beside this one.")] = None,
    steps: Annotated[bool, flag("--steps", "Walk one word through its attention in numbers.")] = False,
    word: Annotated[int | None, number("Of --steps: which word, from 1.", least=1, most=1_048_576)] = None,
    view: Annotated[str | None, text("Of --steps, or a picture: which attention, by its name or title.")] = None,
    head: Annotated[
        int | None, number("Of --steps, or a picture: which of its heads, from 1.", least=1, most=1024)
    ] = None,
    ablate: Annotated[bool, flag("--ablate", "Silence every head, and say what that changes.")] = False,
    count: Annotated[int, number("Texts of a file, or pictures, that are shown.", least=1, most=10_000)] = 10,
    beam: Annotated[int, search("beam")] = Options.beam,
    shortest: Annotated[int, search("shortest")] = Options.shortest,
    longest: Annotated[int | None, search("longest")] = Options.longest,
    length_penalty: Annotated[float, search("length_penalty")] = Options.length_penalty,
    coverage_penalty: Annotated[float, search("coverage_penalty")] = Options.coverage_penalty,
    no_repeat: Annotated[int, search("no_repeat")] = Options.no_repeat,
    groups: Annotated[int, search("groups")] = Options.groups,
    diversity: Annotated[float, search("diversity")] = Options.diversity,
    sample: Annotated[bool, flag("--sample", "Draw each token at random in place of searching.")] = False,
    temperature: Annotated[float, search("temperature")] = Options.temperature,
    top_k: Annotated[int, search("top_k")] = Options.top_k,
    top_p: Annotated[float, search("top_p")] = Options.top_p,
    seed: Annotated[int, search("seed")] = Options.seed,
    checkpoint: Annotated[str, typer.Option(help="best, last, or one by its name.")] = "best",
    device: Annotated[str, typer.Option(help="cpu, cuda, mps (Apple), or auto: a GPU where there is one.")] = "auto",
) -> None:
    """Show what a trained run looked at, on a page that opens without a network.

    regard look runs/en-de "A man rides a horse." --out look.html; a file is shown line by line, a page each.
    """
    from regard.decoding.translate_file import search_options
    from regard.errors import CommandError
    from regard.inspection.draw.output_paths import Where

    options = search_options({name: value for name, value in locals().items() if name in HELP})
    where = Where.of(out, format, FORMATS)
    page = where.format == "html"
    for name, value in (("--word", word), ("--view", view), ("--head", head)):
        if value is not None and not steps and (page or name == "--word"):
            raise CommandError(f"{name}: {value} given without --steps, which it is of")
        if isinstance(value, int) and value < 1:
            raise CommandError(f"{name}: {value} given, expected 1 or more")
    if steps and not page:
        raise CommandError(f"--steps: given with {where.format}, and only a page shows them")

    from regard.decoding.processes import Processes
    from regard.inspection.collect.ablation import ablation_table
    from regard.inspection.collect.from_run import Which, exhibit_of
    from regard.inspection.collect.inputs import items_of
    from regard.run import load

    place = Processes().device(device)
    opened = load(run, checkpoint=checkpoint, device=place)
    other = None if against is None else load(against, checkpoint=checkpoint, device=place)
    if other is not None and other.settings.task != opened.settings.task:
        raise CommandError(
            f"--against: {against} is of the task {other.settings.task}, and {run} of {opened.settings.task}"
        )
    found = items_of(opened, items or [], count, lambda said: print(f"regard: {said}", file=sys.stderr))
    which = Which(view, None if head is None else head - 1, None, None if word is None else word - 1)
    for item, path in zip(found, where.paths(len(found), found), strict=True):
        exhibit = exhibit_of(opened, item, target=target, walk=which if steps else False, ablate=ablate, **options)
        beside = None if other is None else exhibit_of(other, item, target=target, **options)
        if exhibit.ablation is not None:
            print(ablation_table(exhibit.ablation, exhibit.views))
        print(drawn(exhibit, beside, path, which))


def drawn(exhibit: "Exhibit", beside: "Exhibit | None", path: Path, which: "Which") -> Path:
    """Write the page, or the picture of one view, and say where."""
    from regard import inspection
    from regard.inspection.collect.walk import chosen

    if path.suffix == ".html":
        return inspection.page(exhibit, against=beside).save(path)
    view = None if which.view is None else chosen(exhibit.views, which.view).name
    if exhibit.ablation is not None:
        view = "ablation"
    return inspection.save(inspection.picture(exhibit, view=view, head=which.head, against=beside), path)
