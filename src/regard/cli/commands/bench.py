"""`regard bench`: speed and memory against other toolkits, on this machine."""

import inspect
from pathlib import Path
from typing import Annotated

import typer

from regard import plugins
from regard.cli.options import name_option, number_option, out_option
from regard.errors import CommandError
from regard.machine import most_threads

EXAMPLES = ("regard bench attention", "regard bench training --rounds 3 -o training.json")


def bench(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Name of the benchmark: attention, training, decoding, serving or lstmn."),
    ],
    rounds: Annotated[int, number_option("Number of interleaved rounds; medians are shown.", least=3, most=1000)] = 9,
    threads: Annotated[int, number_option("Number of CPU threads.", least=1, most=most_threads())] = 2,
    device: Annotated[
        str,
        name_option(
            "Device to measure on: cpu, or cuda for benchmarks that run on a GPU.", "--device", metavar="DEVICE"
        ),
    ] = "cpu",
    out: Annotated[Path | None, out_option("JSON file to write the figures to.")] = None,
) -> None:
    """Benchmark speed and memory against other toolkits.

    Results must agree before anything is timed. `training` and `decoding` also compare with Transformers and
    CTranslate2 (pip install 'regard[peers]') and JoeyNMT 2.3 (pip install --no-deps joeynmt sentencepiece subword-nmt
    sacremoses 'importlib_metadata<9' zipp), `serving` with CTranslate2 behind a small server. A toolkit that is not
    installed is named and skipped.
    """
    benches = plugins.home("bench")
    run = benches.find(name)
    if device not in ("cpu", "cuda"):
        raise CommandError(f"bench: --device {device} given, expected cpu or cuda")
    import torch
    from rich.console import Console
    from rich.markup import escape

    if device != "cpu" and "device" not in inspect.signature(run).parameters:
        raise CommandError(f"bench: --device {device} given, but {name} runs only on a CPU")
    where = {} if device == "cpu" else {"device": device}

    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)  # fail before the measurements, not after
    torch.set_num_threads(threads)
    console, notes = Console(highlight=False), Console(stderr=True)
    results = []
    with notes.status("measuring …"):
        for result in run(rounds, **where):
            results.append(result)
            mark = "reached" if result.reached else "NOT REACHED"
            mark = "not measured" if result.ratio is None else "for comparison" if result.goal == "none" else mark
            ratio = "none" if result.ratio is None else f"{result.ratio:.3f}"
            console.print(f"[bold]{escape(result.what)}[/bold]", soft_wrap=True)
            console.print(escape("  " + " · ".join(filter(None, (result.ours, result.peer)))), soft_wrap=True)
            console.print(f"  ratio {ratio} · goal: {result.goal} · {mark}", soft_wrap=True)
    facts = benches.signature(device, threads)
    console.print(" · ".join(f"{key} {value}" for key, value in facts.items()), soft_wrap=True)
    if out is not None:
        benches.save(out, results, facts)
        notes.print(f"written to {out}")
