"""`regard demo`."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the picture.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the sentences and of the training.")] = 0,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Training steps for each attention.")] = 500,
) -> None:
    """Train a small translator with five attentions, and show what each looked at."""
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    out.mkdir(parents=True, exist_ok=True)  # a folder that cannot be written to is known before the work, not after
    error, console = Console(stderr=True), Console(highlight=False)
    error.print("training one translator with five attentions, from nothing (under a minute)", highlight=False)
    with Progress(console=error, disable=not error.is_terminal, transient=True) as progress:
        from regard.demo import demonstrate
        from regard.inspection import bars

        tasks = {}

        def tell(mechanism: str, step: int, total: int) -> None:
            if mechanism not in tasks:
                tasks[mechanism] = progress.add_task(mechanism, total=total)
                if not error.is_terminal:
                    print(mechanism, file=sys.stderr)
            progress.update(tasks[mechanism], completed=step)

        shown = demonstrate(out, seed=seed, steps=steps, tell=tell)

    table = Table("attention", "paper", box=None, pad_edge=False, header_style="bold")
    for name in ("held-out exact", "alignment right", "seconds"):
        table.add_column(name, justify="right")
    for r in shown.results:
        table.add_row(r.mechanism, r.paper, f"{r.exact:.1%}", f"{r.aligned:.1%}", f"{r.seconds:.1f}")
    console.print(table)
    print(
        f"\n{shown.test} sentences never trained on ({shown.train} were), each translated in full by the model "
        "itself.\nAlignment: the source word with the largest weight, counted as right where the grammar links it;\n"
        f"looking at the same position every time would be right {shown.unmoved:.1%} of the time.\n"
    )
    for result in (shown.results[0], shown.results[-1]):
        right = "right" if result.translation == shown.example.target else f"should be {' '.join(shown.example.target)}"
        print(f"{result.mechanism}: {' '.join(shown.example.source)} → {' '.join(result.translation)} ({right})\n")
        print(bars(result.weights, shown.example.source, shown.example.target) + "\n")
    print("Next: regard study --list · regard study gradient · regard bench attention · docs/index.md")
    print(f"picture: {shown.picture}", file=sys.stderr)
