"""The command `regard`: help in sections with examples, old names of options, mistakes in one sentence.

A file `regard/cli/commands/NAME.py` with a function NAME in it is the subcommand NAME; a
name that Python keeps for itself ends in "_" there. Its EXAMPLES, two lines as a person types them, are the end of its
help.

Those files import nothing heavy at the top (torch, matplotlib and the library come inside the function), so that
`regard --help` is instant.
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

# Before torch is loaded: threads that wait by spinning make a machine that has something else to do, too, several times
# slower (eight, with two cores and a second program). Those that sleep at once make a search a third slower, as it has
# many short operations: a thread spins for some 30 µs, and then sleeps.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

STANDARD_OUTPUT = "standard output"
SECTIONS = {  # of `regard --help`, in the order of a person's work
    "Train": ("demo", "train"),
    "Use": ("translate", "caption", "classify", "sample", "serve"),
    "Measure": ("eval", "compare", "score"),
    "Look inside": ("look", "align"),
    "In and out": ("import", "export", "pack"),
    "Data": ("data",),
    "More": ("runs", "show", "models", "configs", "study", "bench"),
}
OLD_NAMES = {  # options that were called otherwise, by command: they keep working, and no help lists them
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
    """A command whose help names values as people do and ends with examples, one per line of the `epilog`."""

    def make_parser(self, ctx: Any) -> Any:
        """Make the parser, which knows the old names of options, too."""
        parser = super().make_parser(ctx)
        for old, new in OLD_NAMES.get(self.name or "", {}).items():
            option = copy.copy(next(each for each in self.params if new in each.opts))
            option.opts = [old]
            option.add_to_parser(parser, ctx)
        return parser

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """List the pieces of the line of usage: options, and then each argument, in brackets where it may be absent."""
        pieces = [self.options_metavar or "[OPTIONS]"]
        for each in self.arguments():
            name = argument_name(each)
            repeated = "..." * (each.nargs != 1)
            pieces.append(name if name[0] == "[" else (name if each.required else f"[{name}]") + repeated)
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and options, each with the name of its value and never with a type of Python."""
        rows = [(argument_name(each), getattr(each, "help", None) or "") for each in self.arguments()]
        options = [each for each in self.get_params(ctx) if each.param_type_name == "option"]
        sections: dict[str, list[Any]] = {"Arguments": rows, "Options": [each.get_help_record(ctx) for each in options]}
        for title, records in sections.items():
            visible = [record for record in records if record is not None]
            if visible:
                with formatter.section(title):
                    formatter.write_dl(visible)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples as they are typed, however narrow the window is."""
        if self.epilog:
            with formatter.section("Examples"):
                formatter.write("".join(f"{'':{formatter.current_indent}}{line}\n" for line in self.epilog.split("\n")))

    def arguments(self) -> list[Any]:
        """List the arguments that stand behind the command without a flag."""
        return [each for each in self.params if each.param_type_name == "argument"]


def argument_name(argument: Any) -> str:
    """Name an argument as help shows it."""
    return str(argument.metavar or argument.name.upper())


class CommandGroup(TyperGroup):
    """A group of commands in sections, which answers a mistake with one sentence: what is wrong, where to read more."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in their sections, a line each."""
        width = max(map(len, self.commands))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), self.commands[name].short_help or "") for name in names])

    def main(  # type: ignore[override]  # the others are passed on by their names
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **options: Any
    ) -> Any:
        """Run as any group does, but print a mistake in one sentence."""
        options["obj"] = sys.argv[1:] if args is None else list(args)  # for `typed_command`
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **options)
        try:
            status = super().main(args, standalone_mode=False, **options)
        except Exception as error:  # what typer raises has another home in each of its versions
            if not hasattr(error, "format_message"):
                raise
            print_message(describe_mistake(error))
            sys.exit(2)
        sys.exit(status if isinstance(status, int) else 0)


def describe_mistake(error: Any) -> str:
    """Describe a mistake in one line: the flag and what is wrong with it, or else where to read more."""
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
    """Suggest an option or a command for a name that is wrong, where one is near."""
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
