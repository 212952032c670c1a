"""`regard look`."""

from pathlib import Path
from typing import Annotated

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

FORMATS = ("html", "png", "svg", "pdf")


def look(
    run: RunArgument,
    items: Annotated[
        list[str] | None,
        typer.Argument(metavar="text or file", help="Texts, files of texts (one a line), or pictures."),
    ] = None,
    target: Annotated[
        str | None, text_option("Output to show, instead of searching for one: a text, or a label.")
    ] = None,
    out: Annotated[Path | None, text_option("File to write, or a folder; default: look.html.")] = None,
    format: Annotated[str | None, text_option("Format: html, png, svg or pdf; default: as --out ends.")] = None,
    against: Annotated[str | None, text_option("Run folder of another model, shown beside this one.")] = None,
    steps: Annotated[bool, flag_option("--steps", "Show one word's way through its attention in numbers.")] = False,
    word: Annotated[
        int | None, number_option("Word to show with --steps, counted from 1.", least=1, most=1_048_576)
    ] = None,
    view: Annotated[
        str | None, text_option("Attention to show with --steps, or in a picture: its name or title.")
    ] = None,
    head: Annotated[
        int | None, number_option("Head to show with --steps, or in a picture, counted from 1.", least=1, most=1024)
    ] = None,
    ablate: Annotated[
        bool, flag_option("--ablate", "Silence every head in turn, and print what that changes.")
    ] = False,
    count: Annotated[
        int, number_option("Number of texts of a file, or of pictures, to show.", least=1, most=10_000)
    ] = 10,
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
    from regard.inspection.draw.files import OutputPaths, write_exhibit

    options = search_options({name: value for name, value in locals().items() if name in SEARCH})
    paths = OutputPaths.parse(out, format, FORMATS)
    page = paths.format == "html"
    for name, value in (("--word", word), ("--view", view), ("--head", head)):
        if value is not None and not steps and (page or name == "--word"):
            raise CommandError(f"{name}: {value} given without --steps; add --steps")
        if isinstance(value, int) and value < 1:
            raise CommandError(f"{name}: {value} given, expected 1 or more")
    if steps and not page:
        raise CommandError(
            f"--steps: given with {paths.format}, which cannot show them; write a page, such as look.html"
        )

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
    inputs = read_inputs(opened, items or [], count, print_message)
    which = Which(view, None if head is None else head - 1, None, None if word is None else word - 1)
    for item, path in zip(inputs, paths.list_paths(len(inputs), inputs), strict=True):
        exhibit = exhibit_of(opened, item, target=target, walk=which if steps else False, ablate=ablate, **options)
        beside = None if other is None else exhibit_of(other, item, target=target, **options)
        if exhibit.ablation is not None:
            print(ablation_table(exhibit.ablation, exhibit.views))
        print(write_exhibit(exhibit, path, against=beside, view=view, head=which.head))
