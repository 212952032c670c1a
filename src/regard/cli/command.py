"""The commands as typer runs them: help in sections with examples, old names of options, mistakes in one sentence."""

import copy
import re
import sys
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

from regard.cli.messages import print_message, shorten
from regard.errors import RegardError
from regard.messages import did_you_mean

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
TYPED: list[str] = []  # the words behind `regard`, of the command that runs


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
        """Write the commands in their sections, a line each; one that no section names stands in the last."""
        named = {name for names in SECTIONS.values() for name in names}
        others = tuple(name for name in self.list_commands(ctx) if name not in named)
        width = max(map(len, self.list_commands(ctx)))
        for title, names in SECTIONS.items():
            rows = []
            for name in (*names, *(others if title == "More" else ())):
                command = self.get_command(ctx, name)
                if command is not None and not command.hidden:
                    rows.append((name.ljust(width), command.short_help or ""))
            with formatter.section(title):
                formatter.write_dl(rows)

    def main(  # type: ignore[override]  # the others are passed on by their names
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **options: Any
    ) -> Any:
        """Run as any group does, but print a mistake in one sentence."""
        TYPED[:] = sys.argv[1:] if args is None else args
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **options)
        try:
            status = super().main(args, standalone_mode=False, **options)
        except RegardError as error:
            print_message(shorten(str(error)))
            sys.exit(2)
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
