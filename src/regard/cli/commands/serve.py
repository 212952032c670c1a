"""`regard serve`: trained runs behind HTTP."""

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.messages import print_message
from regard.cli.options import file_option, flag_option, name_option, number_option, text_option
from regard.cli.runs import check_engine

EXAMPLES = ("regard serve runs/en-de", "regard serve de=runs/en-de best=runs/a+runs/b --port 8000 --device cuda")
RunsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN",
        help="Run folders. Each is a model with its folder's name; NAME=RUN gives it another, and NAME=RUN+RUN is an "
        "ensemble.",
    ),
]


def serve(
    runs: RunsArgument,
    *,
    host: Annotated[str | None, name_option("Address to listen on; default: 127.0.0.1.", metavar="ADDRESS")] = None,
    port: Annotated[
        int | None, number_option("Port to listen on; default: 8080; 0: any free port.", least=0, most=65_535)
    ] = None,
    device: Annotated[
        str | None,
        name_option("Devices, separated by commas, with a worker for each; default: auto.", metavar="DEVICES"),
    ] = None,
    engine: Annotated[
        str | None,
        name_option("Engine to search with: regard (default) or ctranslate2, which also takes exported folders."),
    ] = None,
    quantize: Annotated[
        str | None,
        name_option("Number format with --engine ctranslate2: float32 (default), float16, int8 or int8_float16."),
    ] = None,
    precision: Annotated[str | None, name_option("Number format on a GPU: bf16 (default) or fp32.")] = None,
    grace: Annotated[
        float | None,
        number_option(
            "Seconds that requests have to finish after SIGTERM; default: 20.", kind="fraction", least=0, most=3600
        ),
    ] = None,
    languages: Annotated[
        list[str] | None, text_option("Languages of a model, such as NAME=en-de; may be repeated.", metavar="NAME=PAIR")
    ] = None,
    config: Annotated[Path | None, file_option("TOML file of limits and other settings (serve.toml).")] = None,
    log_texts: Annotated[bool, flag_option("--log-texts", "Also write texts into the log.")] = False,
    quiet: Annotated[bool, flag_option("--quiet", "Print no line for each request.")] = False,
    open_page: Annotated[bool, flag_option("--open", "Open the page in a browser once it is ready.")] = False,
) -> None:
    """Serve trained runs over HTTP: a page, and an API for programs.

    Each RUN is a separate model; NAME=RUN+RUN makes an ensemble, as `regard translate RUN RUN` does. SIGTERM and
    Ctrl-C let requests finish that were admitted; SIGHUP reloads runs whose best checkpoint has changed.
    """
    import logging
    import webbrowser

    from regard.serving import LOG_FORMAT

    given: dict[str, Any] = {"host": host, "port": port, "device": device, "precision": precision, "grace": grace}
    given |= {"engine": engine, "quantize": quantize}
    given |= {"languages": languages or None, "log_texts": log_texts or None}
    settings = read_settings(config, {name: value for name, value in given.items() if value is not None})
    logging.basicConfig(**LOG_FORMAT)
    logging.getLogger("regard.serving").setLevel(logging.WARNING if quiet else logging.INFO)
    service, run_server = open_service(settings, runs)
    run_server(service, print_message, webbrowser.open if open_page else None)


def read_settings(path: Path | None, given: dict[str, Any]) -> Any:
    """Read serve.toml, and what flags say beside it."""
    from regard.config import parse, read
    from regard.errors import ConfigError
    from regard.serving import ServeSettings

    table = {} if path is None else read(path)
    try:
        return parse(ServeSettings, {**table, **given})
    except ConfigError as error:
        place = f"--{error.key}" if error.key in given else f"{path}: {error.key}"
        raise ConfigError(place, error.problem) from None


def open_service(settings: Any, runs: list[str]) -> tuple[Any, Any]:
    """Make the service; what it needs comes with the extra `serve`."""
    from regard.errors import MissingExtraError
    from regard.serving import parse_runs

    check_engine(settings.engine, settings.quantize)
    folders = parse_runs(runs, settings.engine)  # before torch is imported, which takes seconds
    try:
        from regard.serving import Service, run_server
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "serve") from None
    return Service(settings, folders), run_server
