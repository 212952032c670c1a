"""`regard serve`: trained runs behind HTTP."""

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.messages import print_message
from regard.cli.options import field_option, file_option, flag_option, with_options
from regard.cli.runs import check_engine
from regard.serving import ServeSettings

EXAMPLES = ("regard serve runs/en-de", "regard serve de=runs/en-de best=runs/a+runs/b --port 8000 --device cuda")
RunsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN",
        help="Run folders. Each is a model with its folder's name; NAME=RUN gives it another, and NAME=RUN+RUN is an "
        "ensemble.",
    ),
]


METAVARS = {"host": "ADDRESS", "device": "DEVICES", "languages": "NAME=PAIR"}
FLAGS = ("host", "port", "device", "engine", "quantize", "precision", "grace", "languages", "log_texts")


@with_options(
    "given",
    {name: field_option(ServeSettings, name, metavar=METAVARS.get(name, "NAME"), default=None) for name in FLAGS},
)
def serve(
    runs: RunsArgument,
    *,
    given: dict[str, Any],
    config: Annotated[Path | None, file_option("TOML file of limits and other settings (serve.toml).")] = None,
    quiet: Annotated[bool, flag_option("--quiet", "Print no line for each request.")] = False,
    open_page: Annotated[bool, flag_option("--open", "Open the page in a browser once it is ready.")] = False,
) -> None:
    """Serve trained runs over HTTP: a page, and an API for programs.

    Each RUN is a separate model; NAME=RUN+RUN makes an ensemble, as `regard translate RUN RUN` does. SIGTERM and
    Ctrl-C let requests finish that were admitted; SIGHUP reloads runs whose best checkpoint has changed.
    """
    import logging
    import webbrowser

    from regard.errors import MissingExtraError
    from regard.serving import LOG_FORMAT, parse_runs

    settings = read_settings(config, {name: value for name, value in given.items() if value not in (None, [])})
    logging.basicConfig(**LOG_FORMAT)
    logging.getLogger("regard.serving").setLevel(logging.WARNING if quiet else logging.INFO)
    check_engine(settings.engine, settings.quantize)
    folders = parse_runs(runs, settings.engine)  # before importing torch, which takes seconds
    try:
        from regard.serving import Service, run_server
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "serve") from None
    run_server(Service(settings, folders), print_message, webbrowser.open if open_page else None)


def read_settings(path: Path | None, given: dict[str, Any]) -> Any:
    """Read serve.toml; flags override its keys."""
    from regard.config import parse, read
    from regard.errors import ConfigError

    table = {} if path is None else read(path)
    try:
        return parse(ServeSettings, {**table, **given})
    except ConfigError as error:
        place = f"--{error.key}" if error.key in given else f"{path}: {error.key}"
        raise ConfigError(place, error.problem) from None
