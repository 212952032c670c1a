"""The command `regard`. A file `regard/cli/commands/NAME.py` with a function NAME in it is the subcommand NAME.
A name that Python keeps for itself ends in "_" there.

Its EXAMPLES, two lines as a person types them, are the end of its help.

Those files import nothing heavy at the top (torch, matplotlib and the library come inside the function), so that
`regard --help` is instant.
"""

import contextlib
import functools
import importlib
import inspect
import io
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

import regard.cli.commands
from regard import plugins
from regard.cli.command import Command, CommandGroup
from regard.cli.messages import print_message, shorten
from regard.errors import ArgumentError, CommandError, RegardError

# Before torch is loaded: threads that wait by spinning make a machine that has something else to do, too, several times
# slower (eight, with two cores and a second program). Those that sleep at once make a search a third slower, as it has
# many short operations: a thread spins for some 30 µs, and then sleeps.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

STANDARD_OUTPUT = "standard output"
PluginOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Module, .py file or installed short name of a plugin to import; may be repeated.",
        show_default=False,
    ),
]

app = typer.Typer(
    cls=CommandGroup,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@contextlib.contextmanager
def handle_errors() -> Iterator[None]:
    """Print a person's mistake as one sentence and exit with 2; a broken pipe is silent, and a traceback is a bug."""
    try:
        yield
    except RegardError as error:
        print_message(shorten(str(error)))
        sys.exit(error.status if isinstance(error, CommandError) else 2)
    except (MemoryError, RuntimeError) as error:  # of torch's own kinds one is for GPUs, and none for CPUs
        if not is_out_of_memory(error):
            raise
        print_message("out of memory; lower --batch-tokens, --beam, --longest or --count")
        sys.exit(2)
    except KeyboardInterrupt:
        print_message("stopped")
        sys.exit(130)
    except OSError as error:
        if error.strerror is None:
            raise
        if error.filename in (None, STANDARD_OUTPUT):  # what is left in its buffer has nowhere to go
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(error, BrokenPipeError):
            sys.exit(1)
        print_message(shorten(": ".join(filter(None, [str(error.filename or ""), error.strerror]))))
        sys.exit(2)


def is_out_of_memory(error: Exception) -> bool:
    """Tell whether an error means that there was no room for a tensor."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "DefaultCPUAllocator: can't allocate memory" in str(error)
        or "DefaultCPUAllocator: not enough memory" in str(error)
    )


def show_version(flag: bool) -> None:
    if flag:
        print(f"regard {regard.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def regard_(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Train, run and inspect sequence-to-sequence models with attention."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def with_plugins(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option that imports plugins before anything else."""

    @functools.wraps(command)
    def run(*, plugin: list[str] | None = None, **arguments: Any) -> None:
        plugins.load_environment()
        plugins.load(*(plugin or ()))
        try:
            command(**arguments)
        except ArgumentError as error:  # of the library: it is called by the option that a person typed, --view
            name, _, problem = str(error).partition(": ")
            if problem and isinstance(arguments.get(name), str | float):
                raise CommandError(f"--{name.replace('_', '-')}: {problem}") from None
            raise

    option = inspect.Parameter("plugin", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=PluginOption)
    signature = inspect.signature(command)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), option])  # type: ignore[attr-defined]
    run.__annotations__ = {**command.__annotations__, "plugin": PluginOption}
    return run


for info in pkgutil.iter_modules(regard.cli.commands.__path__):
    module = importlib.import_module(f"regard.cli.commands.{info.name}")
    command = getattr(module, info.name)
    summary = (command.__doc__ or "").partition("\n")[0]
    texts: dict[str, Any] = {"short_help": summary.removesuffix("."), "epilog": "\n".join(module.EXAMPLES)}
    app.command(info.name.removesuffix("_"), cls=Command, **texts)(handle_errors()(with_plugins(command)))


def write_utf8() -> None:
    """Read and write UTF-8 with plain line feeds, whatever the locale or the code page.

    A terminal that shows something else keeps its own letters for messages: what it has no √ for gets a question mark.
    """
    if sys.getfilesystemencoding() == "ascii":  # words of the command line and names of files would be torn: begin anew
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(encoding=None if sys.stderr.isatty() else "utf-8", errors="replace")


class Output(io.FileIO):
    """Standard output: what cannot be written to it is an error with its name."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise


class Messages(io.FileIO):
    """Standard error: what cannot be written to it is lost, and nothing else; results and status stay what they are."""

    def write(self, data: Any, /) -> int:
        with contextlib.suppress(OSError):
            super().write(data)
        return len(data)


def prepare_streams() -> None:
    """Open standard output and error so that no person sees a traceback where one is closed or broken.

    What was closed (`>&-`) is opened: else the first file that is written would take its place, and what a library
    prints would stand in that file. Nothing can be written to such a standard output, and that is an error where
    something is to be written.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, mode), number)
    for name, number, kind in (("stdout", 1, Output), ("stderr", 2, Messages)):
        stream = getattr(sys, name)
        buffer = getattr(stream, "buffer", None)
        if stream is not None and type(getattr(buffer, "raw", buffer)) is not io.FileIO:
            continue  # a console of Windows, or somebody's own
        if stream is not None:
            stream.flush()
        new = io.BufferedWriter(kind(number, "w", closefd=False))
        lines = number == 2 or os.isatty(number)
        text = io.TextIOWrapper(new, encoding="utf-8", errors="replace", newline="\n", line_buffering=lines)
        if stream is not None:
            text.reconfigure(encoding=stream.encoding)  # of which `write_utf8` has the last word
        setattr(sys, name, text)


def main() -> None:
    """Run the command line."""
    prepare_streams()
    write_utf8()
    with handle_errors():
        try:
            app(prog_name="regard")
        finally:
            sys.stdout.flush()
