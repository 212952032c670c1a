"""The figures of a server on a GPU, with workers in processes and in threads, and with other constants of the engine.

    python benchmarks/serving_constants.py --out figures.json
    python benchmarks/serving_constants.py --set running_batches.SLACK=0.005 --set "running_batches.SLOTS={16: (4, 1)}"

Each run takes about 100 seconds, the start of the server included. A constant is set by a plugin that is written for
the run, so that the server and its process have it: MODULE.NAME=VALUE, where the module is one of `regard.serving`, or
bursts for `regard.decoding.replay`.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from regard_bench import signature
from regard_bench.serving import BASE, drive_cuda, write_run

PACKAGES = {"bursts": "regard.decoding"}


def write_plugin(folder: Path, constants: list[str]) -> list[str]:
    """Write a plugin that sets constants; the flags that load it."""
    if not constants:
        return []
    lines = []
    for each in constants:
        place, _, value = each.partition("=")
        module, _, name = place.partition(".")
        package = PACKAGES.get(module, "regard.serving")
        lines += [f"import {package}.{module}", f"assert hasattr({package}.{module}, {name!r})"]
        lines.append(f"{package}.{module}.{name} = {value}")
    file = folder / "serving_constants_plugin.py"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return ["--plugin", str(file)]


def main() -> None:
    """Measure each form of workers, print the figures, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", nargs="+", default=["process", "thread"], choices=["process", "thread"])
    parser.add_argument("--set", action="append", default=[], metavar="MODULE.NAME=VALUE", dest="constants")
    parser.add_argument("--out", type=Path, help="JSON file to write the figures to")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as home:
        folder = write_run(Path(home) / "model", BASE, 32_000)
        flags = write_plugin(Path(home), arguments.constants)
        for workers in arguments.workers:
            start = time.perf_counter()
            for result in drive_cuda(folder, workers, flags):
                rows.append({"workers": workers, "constants": arguments.constants, **vars(result)})
                mark = "reached" if result.reached else "NOT REACHED"
                print(
                    f"{workers}: {result.what}: {result.ours} ({result.peer}), {result.ratio:.3f}, {mark}", flush=True
                )
                if arguments.out is not None:
                    arguments.out.write_text(
                        json.dumps({"figures": rows, **signature("cuda", 1)}, indent=1) + "\n",
                        encoding="utf-8",
                        newline="\n",
                    )
            print(f"{workers}: {time.perf_counter() - start:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
