"""`regard caption`."""

from collections import deque
from collections.abc import Iterator
from typing import Annotated, Any

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
    NbestOption,
    NoRepeatOption,
    OutOption,
    RunArgument,
    SampleOption,
    SampleSeedOption,
    ScoresOption,
    ShortestOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
    flag_option,
    number_option,
)
from regard.decoding.options import Options


def caption(
    run: RunArgument,
    pictures: Annotated[list[str], typer.Argument(metavar="picture", help="Picture files, or folders of them.")],
    beam: BeamOption = Options.beam,
    nbest: NbestOption = Options.nbest,
    out: OutOption = None,
    scores: ScoresOption = False,
    as_json: Annotated[bool, flag_option("--json", "Write one JSON object a picture, a line each.")] = False,
    shortest: ShortestOption = Options.shortest,
    longest: Annotated[
        int | None,
        number_option(
            "Maximum number of tokens in a caption; default: 60.", least=0, most=1_048_576, show_default=False
        ),
    ] = Options.longest,
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
    """Write captions for pictures, with a trained run.

    regard caption runs/flickr8k photo.jpg writes the caption; of several pictures, or a folder, each follows its path
    and a tab. A picture that cannot be read is named on standard error and left out.
    """
    from regard.data.images.caption_files import NAMED, list_names, pictures_in
    from regard.decoding.processes import Processes
    from regard.decoding.translate_file import search_options
    from regard.errors import CommandError, DataError
    from regard.io.formats import caption_lines
    from regard.io.output import check_output, open_output

    options = search_options({name: value for name, value in locals().items() if name in SEARCH})
    paths = pictures_in(pictures, print_message)
    check_output(out, *pictures)

    from regard.data.images.batching import read_for
    from regard.run import load

    opened = load(run, checkpoint=checkpoint, device=Processes().device(device))
    names, lost = deque[str](), 0

    def pixels() -> Iterator[Any]:
        nonlocal lost
        for path in paths:
            try:
                read = read_for(opened.settings.data, path)
            except DataError as error:
                if len(paths) == 1:
                    raise
                lost += 1
                if lost <= NAMED:
                    print_message(list_names([str(error)]))
                continue
            names.append(path)
            yield read

    alone = paths == pictures and len(paths) == 1
    captions = opened.captions(pixels(), **options)
    with open_output(out) as write:
        for each in captions:
            write(caption_lines("" if alone and not as_json else names.popleft(), each, scores or nbest > 1, as_json))
    if lost == len(paths):
        raise CommandError(f"none of {lost:,} pictures can be read")
    if lost:
        print_message(f"{lost:,} of {len(paths):,} pictures cannot be read and are left out")
