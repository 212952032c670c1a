"""Benchmarks: Regard compared with its peers in one run, on the same inputs; no speed-up is reported if results differ.

They fill the table of benches: `Bench` is a row, `find` returns a benchmark's function. `save` and `signature` write
results.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from regard import plugins
from regard.door import door
from regard.errors import CommandError

if TYPE_CHECKING:
    from regard_bench.measure import save, signature
    from regard_bench.training_cuda import PairTask, RegardLoop

__all__ = [
    "Bench",
    "PairTask",
    "RegardLoop",
    "find",
    "save",
    "signature",
]

__getattr__, __dir__ = door(__name__)


class Bench(NamedTuple):
    """A row of the table: a description, and `run(rounds, [device])`, or its dotted name, which yields results."""

    about: str
    run: Callable[..., Any] | str


for row_name, row in {
    "attention": Bench("every mechanism beside torch's own", "regard_bench.attention.run"),
    "training": Bench("updates beside other toolkits'", "regard_bench.training.run"),
    "decoding": Bench("searches beside other toolkits'", "regard_bench.decoding.run"),
    "serving": Bench("the server beside one around CTranslate2", "regard_bench.serving.run"),
    "lstmn": Bench("the LSTMN's kernels beside plain steps", "regard_bench.lstmn.run"),
}.items():
    plugins.register(row_name, bench=row)


def find(name: str) -> Callable[..., Any]:
    """Import and return the function that runs a benchmark."""
    benches = plugins.table("bench")
    if name not in benches:
        raise CommandError(f"bench: {name!r} is no benchmark; choose one of {', '.join(benches)}")
    target: Callable[..., Any] = plugins.resolve(benches[name].run)
    return target
