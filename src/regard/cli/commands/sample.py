"""`regard sample`: texts from a language model."""

import shlex
from typing import Annotated, Any

from regard.cli import options
from regard.cli.options import flag_option, number_option, text_option, with_search
from regard.cli.runs import open_run

EXAMPLES = ("regard sample runs/german --count 5", 'regard sample runs/german --prefix "der Hund" --temperature 0.8')


@with_search(
    "temperature", "top_k", "top_p", "seed", "longest", longest="Maximum number of tokens in a text; default: 100."
)
def sample(
    runs: options.RunsArgument,
    *,
    count: Annotated[int, number_option("Number of texts to write.", least=1, most=1_000_000)] = 1,
    prefix: Annotated[str, text_option("Text that every output continues.")] = "",
    search: dict[str, Any],
    scores: Annotated[bool, flag_option("--scores", "Also write the log-probability, after a tab.")] = False,
    as_json: options.JsonLinesOption = False,
    out: options.OutOption = None,
    checkpoint: options.CheckpointOption = "best",
    device: options.DeviceOption = "auto",
) -> None:
    """Sample texts from a language model, one per line.

    The same seed gives the same texts.
    """
    from regard.errors import CommandError
    from regard.io import check_output, formats, open_output

    if search["longest"] is None:
        del search["longest"]  # the run has its own default
    check_output(out)
    run = open_run(*runs, checkpoint=checkpoint, device=device)
    if run.can("translate"):
        raise CommandError(
            f"{run.folder}: it translates; sample translations with: "
            f"regard translate {shlex.quote(str(run.folder))} --sample"
        )
    with open_output(out) as write:
        write(
            "".join(formats.sample_line(each, scores, as_json) for each in run.sample(count, prefix=prefix, **search))
        )
