"""`regard sample`."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.commands.translate import flag, search, text
from regard.cli.options import number
from regard.decoding.options import Options


def sample(
    runs: Annotated[list[str], typer.Argument(metavar="run", help="A run folder; several make an ensemble.")],
    count: Annotated[int, number("Texts to write.", least=1, most=1_000_000)] = 1,
    prefix: Annotated[str, text("A text that each goes on from.")] = "",
    temperature: Annotated[float, search("temperature")] = Options.temperature,
    top_k: Annotated[int, search("top_k")] = Options.top_k,
    top_p: Annotated[float, search("top_p")] = Options.top_p,
    seed: Annotated[int, search("seed")] = Options.seed,
    longest: Annotated[
        int | None, number("Tokens of a text at most; default: 100.", least=0, most=1_048_576, show_default=False)
    ] = None,
    scores: Annotated[bool, flag("--scores", "Write the log-probability behind a tab.")] = False,
    as_json: Annotated[bool, flag("--json", "Write a JSON object a line.")] = False,
    out: Annotated[Path | None, text("File to write, in place of standard output.")] = None,
    checkpoint: Annotated[str, typer.Option(help="best, last, or one by its name.")] = "best",
    device: Annotated[str, typer.Option(help="cpu, cuda, mps (Apple), or auto: a GPU where there is one.")] = "auto",
) -> None:
    """Write texts with a language model, drawn at random, a line each.

    regard sample runs/german --count 5 --prefix "der Hund"; the same seed draws the same texts.
    """
    from regard.decoding.processes import Processes
    from regard.decoding.translate_file import search_options
    from regard.errors import CommandError
    from regard.io.formats import sample_line
    from regard.io.output import check_out, open_output

    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    options = search_options(options | ({} if longest is None else {"longest": longest}))
    check_out(out)

    from regard.run import load

    run = load(*runs, checkpoint=checkpoint, device=Processes().device(device))
    if run.settings.task == "translate":
        raise CommandError(
            f"{run.folder}: it translates; draw translations with: regard translate {run.folder} --sample"
        )
    with open_output(out) as write:
        write("".join(sample_line(each, scores, as_json) for each in run.sample(count, prefix=prefix, **options)))
