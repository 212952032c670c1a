"""The command `regard`. A file `regard/cli/NAME.py` with a function NAME in it is the subcommand NAME.

Those files import nothing heavy at the top (torch, matplotlib and the library come inside the function), so that
`regard --help` is instant.
"""

import contextlib
import importlib
import io
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

import regard.cli
from regard.errors import RegardError

# Before torch is loaded: threads that wait by spinning make a machine that has something else to do, too, several times
# slower (eight, with two cores and a second program). Those that sleep at once make a search a third slower, as it has
# many short operations: a thread spins for some 30 µs, and then sleeps.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

app = typer.Typer(
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """A person's mistake is one sentence and status 2, a broken pipe is silent; a traceback is a bug."""
    try:
        yield
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        sys.exit(2)
    except (MemoryError, RuntimeError) as error:  # of torch's own kinds one is for GPUs, and none for CPUs
        if not out_of_memory(error):
            raise
        print("regard: out of memory; set --batch-tokens, --beam or --count lower", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("regard: stopped", file=sys.stderr)
        sys.exit(130)
    except OSError as error:
        if error.strerror is None:
            raise
        if error.filename is None:  # it was standard output: what is left in its buffer has nowhere to go
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(error, BrokenPipeError):
            sys.exit(1)
        print(": ".join(filter(None, ["regard", error.filename, error.strerror])), file=sys.stderr)
        sys.exit(2)


def out_of_memory(error: Exception) -> bool:
    """Whether there was no room for a tensor."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "DefaultCPUAllocator: can't allocate memory" in str(error)
        or "DefaultCPUAllocator: not enough memory" in str(error)
    )


def show_version(asked: bool) -> None:
    if asked:
        print(f"regard {regard.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def regard_(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Sequence-to-sequence models with attention."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def summary(command: Callable[..., None]) -> str:
    """The first line of a command's help, cut at a comma or colon where the list of commands has no room for it."""
    line = (command.__doc__ or "").partition("\n")[0].removesuffix(".")
    while len(line) > 60 and (cut := max(line.rfind(sign) for sign in ",:;")) > 0:
        line = line[:cut]
    return line


for module in pkgutil.iter_modules(regard.cli.__path__):
    if module.name != "main":
        command = getattr(importlib.import_module(f"regard.cli.{module.name}"), module.name)
        app.command(module.name, short_help=summary(command))(plainly()(command))


def write_utf8() -> None:
    """Let what comes in and goes out be UTF-8 with plain line feeds, whatever the locale or the code page.

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


def main() -> None:
    """Run the command line."""
    write_utf8()
    with plainly():
        try:
            app(prog_name="regard")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
