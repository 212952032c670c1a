"""`regard sample`."""

from typing import Annotated

from regard.cli.options import (
    CheckpointOption,
    DeviceOption,
    JsonLinesOption,
    OutOption,
    RunsArgument,
    SampleSeedOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
    flag_option,
    number_option,
    text_option,
)
from regard.decoding.options import Options


def sample(
    runs: RunsArgument,
    count: Annotated[int, number_option("Number of texts to write.", least=1, most=1_000_000)] = 1,
    prefix: Annotated[str, text_option("Text that each of them continues.")] = "",
    temperature: TemperatureOption = Options.temperature,
    top_k: TopKOption = Options.top_k,
    top_p: TopPOption = Options.top_p,
    seed: SampleSeedOption = Options.seed,
    longest: Annotated[
        int | None,
        number_option("Maximum number of tokens in a text; default: 100.", least=0, most=1_048_576, show_default=False),
    ] = None,
    scores: Annotated[bool, flag_option("--scores", "Write the log-probability as well, after a tab.")] = False,
    as_json: JsonLinesOption = False,
    out: OutOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
) -> None:
    """Sample texts from a language model, a line each.

    regard sample runs/german --count 5 --prefix "der Hund"; the same seed gives the same texts.
    """
    from regard.decoding.processes import Processes
    from regard.decoding.translate_file import search_options
    from regard.errors import CommandError
    from regard.io.formats import sample_line
    from regard.io.output import check_output, open_output

    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    options = search_options(options | ({} if longest is None else {"longest": longest}))
    check_output(out)

    from regard.run import load

    run = load(*runs, checkpoint=checkpoint, device=Processes().device(device))
    if run.settings.row.command == "regard translate":
        raise CommandError(
            f"{run.folder}: it translates; draw translations with: regard translate {run.folder} --sample"
        )
    with open_output(out) as write:
        write("".join(sample_line(each, scores, as_json) for each in run.sample(count, prefix=prefix, **options)))
