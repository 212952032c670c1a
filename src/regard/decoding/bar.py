"""How far it is: a bar on standard error with lines a second and the time left."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

__all__ = ["bar"]


@contextlib.contextmanager
def bar(total: int | None, out: bool, first: bool = True) -> Iterator[Callable[[int], None]]:
    """Call what this gives with the number of lines that were done.

    Drawn only where the number of all is known and standard error is a terminal that the results do not go to as well
    (`out`: they go to a file), by the first of several processes.
    """
    terminal = sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    if total is None or not first or not terminal or (sys.stdout.isatty() and not out):
        yield lambda lines: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
    from rich.text import Text

    class Pace(ProgressColumn):
        """Lines a second."""

        def render(self, task: Task) -> Text:
            speed = task.completed / task.elapsed if task.elapsed else 0
            return Text(f"{speed:,.{0 if speed >= 10 else 1}f} lines/s" if speed else "")

    columns = BarColumn(), MofNCompleteColumn(), Pace(), TimeRemainingColumn()
    console = Console(stderr=True, highlight=False)
    with Progress(*columns, console=console, redirect_stdout=False, speed_estimate_period=120) as shown:
        task = shown.add_task("", total=total)
        yield lambda lines: shown.advance(task, lines)
