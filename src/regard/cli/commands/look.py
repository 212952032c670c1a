"""`regard look`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.messages import print_message
from regard.cli.options import (
    SEARCH,
    BeamOption,
    CheckpointOption,
    CoveragePenaltyOption,
    DeviceOption,
    DiversityOption,
    GroupsOption,
    LengthPenaltyOption,
    LongestOption,
    NoRepeatOption,
    RunArgument,
    SampleOption,
    SampleSeedOption,
    ShortestOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
    flag_option,
    number_option,
    text_option,
)
from regard.decoding.options import Options

if TYPE_CHECKING:
    from regard.inspection.collect.exhibit import Exhibit
    from regard.inspection.collect.from_run import Which

FORMATS = ("html", "png", "svg", "pdf")


def look(
    run: RunArgument,
    items: Annotated[
        list[str] | None, typer.Argument(metavar="text or file", help="Texts, files of them, or pictures.")
    ] = None,
    target: Annotated[str | None, text_option("What is said, in place of a search: a text, or a label.")] = None,
    out: Annotated[Path | None, text_option("File to write, or a folder; default: look.html.")] = None,
    format: Annotated[str | None, text_option("html, png, svg or pdf; default: as --out ends.")] = None,
    against: Annotated[str | None, text_option("Another run, shown beside this one.")] = None,
    steps: Annotated[bool, flag_option("--steps", "Walk one word through its attention in numbers.")] = False,
    word: Annotated[int | None, number_option("Of --steps: which word, from 1.", least=1, most=1_048_576)] = None,
    view: Annotated[str | None, text_option("Of --steps, or a picture: which attention, by its name or title.")] = None,
    head: Annotated[
        int | None, number_option("Of --steps, or a picture: which of its heads, from 1.", least=1, most=1024)
    ] = None,
    ablate: Annotated[bool, flag_option("--ablate", "Silence every head, and say what that changes.")] = False,
    count: Annotated[int, number_option("Texts of a file, or pictures, that are shown.", least=1, most=10_000)] = 10,
    beam: BeamOption = Options.beam,
    shortest: ShortestOption = Options.shortest,
    longest: LongestOption = Options.longest,
    length_penalty: LengthPenaltyOption = Options.length_penalty,
    coverage_penalty: CoveragePenaltyOption = Options.coverage_penalty,
    no_repeat: NoRepeatOption = Options.no_repeat,
    groups: GroupsOption = Options.groups,
    diversity: DiversityOption = Options.diversity,
    sample: SampleOption = False,
    temperature: TemperatureOption = Options.temperature,
    top_k: TopKOption = Options.top_k,
    top_p: TopPOption = Options.top_p,
    seed: SampleSeedOption = Options.seed,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
) -> None:
    """Show what a trained run looked at, on a page that opens without a network.

    regard look runs/en-de "A man rides a horse." --out look.html; a file is shown line by line, a page each.
    """
    from regard.decoding.translate_file import search_options
    from regard.errors import CommandError
    from regard.inspection.draw.output_paths import OutputPaths

    options = search_options({name: value for name, value in locals().items() if name in SEARCH})
    where = OutputPaths.of(out, format, FORMATS)
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
    from regard.inspection.collect.inputs import read_inputs
    from regard.run import load

    place = Processes().device(device)
    opened = load(run, checkpoint=checkpoint, device=place)
    other = None if against is None else load(against, checkpoint=checkpoint, device=place)
    if other is not None and other.settings.task != opened.settings.task:
        raise CommandError(
            f"--against: {against} is of the task {other.settings.task}, and {run} of {opened.settings.task}"
        )
    found = read_inputs(opened, items or [], count, print_message)
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
    from regard.inspection.collect.walk import find_view

    if path.suffix == ".html":
        return inspection.page(exhibit, against=beside).save(path)
    view = None if which.view is None else find_view(exhibit.views, which.view).name
    if exhibit.ablation is not None:
        view = "ablation"
    return inspection.save(inspection.picture(exhibit, view=view, head=which.head, against=beside), path)
