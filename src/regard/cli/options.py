"""What the commands share: numbers that are read within limits, and mistakes that are told in one sentence."""

import re
import sys
from collections.abc import Sequence
from typing import Any, Literal

import typer
from typer.core import TyperGroup

from regard.config import value_of, visible
from regard.errors import ConfigError, RegardError

__all__ = ["SEED", "OneLine", "number", "one_line", "read"]

SEED = 2**31 - 1  # of what several generators are seeded by
LONGEST = 2000  # characters of a message
WHOLE = re.compile(r"[+-]?[0-9]{1,4000}")


def number(
    help: str,
    *,
    least: float | None = None,
    most: float,
    above: float | None = None,
    kind: Literal["whole", "fraction"] = "whole",
    show_default: bool = True,
) -> Any:
    """An option that is a number within limits, which its help says, too."""
    limits = {name: limit for name, limit in (("least", least), ("above", above), ("most", most)) if limit is not None}
    low = f"{least:,}" if least is not None else f"above {above}"
    span = f"{low} to {most:,}" if most < SEED else f"from {low}"

    def parser(given: Any) -> Any:
        """The number of a text; a default is one already."""
        if not isinstance(given, str):
            return given
        try:
            return value_of(int if kind == "whole" else float, read(given, kind), "", limits)
        except ConfigError as error:
            raise typer.BadParameter(error.problem) from None

    parser.__name__ = "INTEGER" if kind == "whole" else "NUMBER"  # what help calls it
    return typer.Option(help=f"{help} [{span}]", parser=parser, show_default=show_default)


def read(text: str, kind: str) -> int | float | str:
    """The number that a text is; the text itself where it is none."""
    if WHOLE.fullmatch(text.strip()):
        return int(text)
    try:
        return float(text) if kind == "fraction" and text.isascii() and len(text) < 1000 else text
    except ValueError:
        return text


class OneLine(TyperGroup):
    """The commands: whoever types a wrong one is told in one sentence what is wrong, and where to read more."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """As any group, but for mistakes."""
        given: dict[str, Any] = {"args": args, "prog_name": prog_name, "complete_var": complete_var, **extra}
        given |= {"standalone_mode": False, "windows_expand_args": windows_expand_args}
        if not standalone_mode:
            return super().main(**given)
        try:
            status = super().main(**given)
        except RegardError as error:
            print(f"regard: {one_line(str(error))}", file=sys.stderr)
            sys.exit(2)
        except Exception as error:  # what typer raises has another home in each of its versions
            if not hasattr(error, "format_message"):
                raise
            print(f"regard: {sentence(error)}", file=sys.stderr)
            sys.exit(2)
        sys.exit(status if isinstance(status, int) else 0)


def sentence(error: Any) -> str:
    """A mistake in one line: the flag and what is wrong with it, or else where to read more."""
    flag = next((name for name in getattr(getattr(error, "param", None), "opts", ()) if name.startswith("-")), None)
    if flag is not None and error.message:
        return one_line(f"{flag}: {error.message}")
    text = one_line(error.format_message().strip().rstrip("."))
    path = getattr(getattr(error, "ctx", None), "command_path", "regard")
    return f"{text[:1].lower()}{text[1:]}; see {path} --help"


def one_line(text: str) -> str:
    """A message that can be seen whole: what was typed, or what a file is called, may be as long as a page."""
    return visible(text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}…{text[-LONGEST // 2 :]}")
