"""The command `regard`: help in sections with examples, old names of options, errors in one sentence.

A file `regard/cli/commands/NAME.py` with a function NAME is the subcommand NAME; a name that is a Python keyword ends
in "_" there. The file's EXAMPLES, two lines as they are typed, come at the end of its help.

Those files import nothing heavy at the top (torch, matplotlib and the library are imported inside the function), so
that `regard --help` is instant.
"""

import contextlib
import copy
import functools
import importlib
import inspect
import io
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import regard.cli.commands
from regard import plugins
from regard.cli.messages import print_message, shorten
from regard.errors import ArgumentError, CommandError, RegardError
from regard.messages import did_you_mean

# These must be set before torch is loaded. Spinning threads slow a machine down several times if it has other work, too
# (eight times with two cores and a second program). Threads that sleep at once make a search a third slower, because it
# consists of many short operations: so a thread spins for some 30 µs, and then sleeps.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

STANDARD_OUTPUT = "standard output"
SECTIONS = {  # of `regard --help`, in the order of a user's work
    "Train": ("demo", "train"),
    "Use": ("translate", "caption", "classify", "sample", "serve"),
    "Measure": ("eval", "compare", "score"),
    "Look inside": ("look", "align"),
    "In and out": ("import", "export", "pack"),
    "Data": ("data",),
    "More": ("runs", "show", "models", "configs", "study", "bench"),
}
OLD_NAMES = {  # former names of options, by command: they still work, but the help does not list them
    "align": {"--output": "--out", "--alignment": "--gold"},
    "eval": {"--output": "--out", "--alignment": "--gold"},
    "look": {"--steps": "--walk"},
}
PluginOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Module, .py file or installed short name of a plugin to import; may be repeated.",
        show_default=False,
    ),
]


class Command(TyperCommand):
    """A command whose help names values readably and ends with examples, one per line of the `epilog`."""

    def make_parser(self, ctx: Any) -> Any:
        """Make the parser, which also knows the old names of options."""
        parser = super().make_parser(ctx)
        for old, new in OLD_NAMES.get(self.name or "", {}).items():
            option = copy.copy(next(each for each in self.params if new in each.opts))
            option.opts = [old]
            option.add_to_parser(parser, ctx)
        return parser

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """List the parts of the usage line: options, then each argument, in brackets if it is optional."""
        pieces = [self.options_metavar or "[OPTIONS]"]
        for each in self.arguments():
            name = argument_name(each)
            repeated = "..." * (each.nargs != 1)
            pieces.append(name if name[0] == "[" else (name if each.required else f"[{name}]") + repeated)
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and options, each with the name of its value and never with a Python type."""
        rows = [(argument_name(each), getattr(each, "help", None) or "") for each in self.arguments()]
        options = [each for each in self.get_params(ctx) if each.param_type_name == "option"]
        sections: dict[str, list[Any]] = {"Arguments": rows, "Options": [each.get_help_record(ctx) for each in options]}
        for title, records in sections.items():
            visible = [record for record in records if record is not None]
            if visible:
                with formatter.section(title):
                    formatter.write_dl(visible)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples as they are typed, without wrapping."""
        if self.epilog:
            with formatter.section("Examples"):
                formatter.write("".join(f"{'':{formatter.current_indent}}{line}\n" for line in self.epilog.split("\n")))

    def arguments(self) -> list[Any]:
        """List the positional arguments."""
        return [each for each in self.params if each.param_type_name == "argument"]


def argument_name(argument: Any) -> str:
    """Return the name of an argument as help shows it."""
    return str(argument.metavar or argument.name.upper())


class CommandGroup(TyperGroup):
    """A group of commands in sections, which reports errors in one sentence: the problem, and where to read more."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by section, one per line."""
        width = max(map(len, self.commands))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), self.commands[name].short_help or "") for name in names])

    def main(  # type: ignore[override]  # the other arguments are passed on by name
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **options: Any
    ) -> Any:
        """Run the group, but print an error in one sentence."""
        options["obj"] = sys.argv[1:] if args is None else list(args)  # for `typed_command`
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **options)
        try:
            status = super().main(args, standalone_mode=False, **options)
        except Exception as error:  # Typer moves its exceptions between versions
            if not hasattr(error, "format_message"):
                raise
            print_message(describe_mistake(error))
            sys.exit(2)
        sys.exit(status if isinstance(status, int) else 0)


def describe_mistake(error: Any) -> str:
    """Describe an error in one line: the flag and its problem, or else where to read more."""
    flag = next((name for name in getattr(getattr(error, "param", None), "opts", ()) if name.startswith("-")), None)
    if flag is not None and error.message:
        return shorten(f"{flag}: {error.message}")
    text, hint = shorten(error.format_message().strip().rstrip(".")), ""
    if wrong := re.fullmatch(r"No such (option:? '?([^' ]+)'?|command '(.+?)').*", text):
        text = f"no such {wrong[1]}"
        hint = suggest(wrong[2] or wrong[3], error)
    elif extra := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", text):
        text = f"more arguments than expected: {extra[1]}"
    path = getattr(getattr(error, "ctx", None), "command_path", "regard")
    return f"{text[:1].lower()}{text[1:]}{hint or f'; see {path} --help'}"


def suggest(name: str, error: Any) -> str:
    """Suggest an option or a command similar to an unknown name, if there is one."""
    context = getattr(error, "ctx", None)
    if name.startswith("-"):
        known = [flag for each in context.command.params for flag in each.opts if not each.hidden] if context else []
    else:
        known = [each for names in SECTIONS.values() for each in names]
    return did_you_mean(name, known, quoted=False)


app = typer.Typer(
    cls=CommandGroup,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@contextlib.contextmanager
def handle_errors() -> Iterator[None]:
    """Print a user's error as one sentence and exit with 2; stay silent on a broken pipe; do not catch bugs."""
    try:
        yield
    except RegardError as error:
        print_message(shorten(str(error)))
        sys.exit(error.status if isinstance(error, CommandError) else 2)
    except (MemoryError, RuntimeError) as error:  # torch raises OutOfMemoryError on a GPU, but RuntimeError on a CPU
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
        if error.filename in (None, STANDARD_OUTPUT):  # the rest of its buffer cannot be written
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(error, BrokenPipeError):
            sys.exit(1)
        print_message(shorten(": ".join(filter(None, [str(error.filename or ""), error.strerror]))))
        sys.exit(2)


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error means that memory for a tensor could not be allocated."""
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
        except ArgumentError as error:  # from the library: name the option as it was typed, --view
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
    """Read and write UTF-8 with line feeds, whatever the locale or the code page.

    A terminal with another encoding keeps it for messages; characters that it lacks, such as √, become question marks.
    """
    if sys.getfilesystemencoding() == "ascii":  # arguments and file names would be garbled: restart Python
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(encoding=None if sys.stderr.isatty() else "utf-8", errors="replace")


class Output(io.FileIO):
    """Standard output: a failed write raises an error that names it."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise


class Messages(io.FileIO):
    """Standard error: a failed write is ignored, so that results and the exit status do not change."""

    def write(self, data: Any, /) -> int:
        with contextlib.suppress(OSError):
            super().write(data)
        return len(data)


def prepare_streams() -> None:
    """Open standard output and error so that a closed or broken one never causes a traceback.

    Reopen a closed stream (`>&-`) on the null device; otherwise the next file to be opened would take its descriptor,
    and a library's prints would go into that file. Such a standard output cannot be written to, so writing results
    raises an error.
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
            continue  # a Windows console, or a stream that another program set
        if stream is not None:
            stream.flush()
        new = io.BufferedWriter(kind(number, "w", closefd=False))
        lines = number == 2 or os.isatty(number)
        text = io.TextIOWrapper(new, encoding="utf-8", errors="replace", newline="\n", line_buffering=lines)
        if stream is not None:
            text.reconfigure(encoding=stream.encoding)  # `write_utf8` sets the final encoding
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
