"""Measure the inside of Regard: what a reader walks through, what it computes, how fast it starts, how its files lie.

    PYTHONPATH=src OMP_NUM_THREADS=1 .venv/bin/python docs/inside/measure.py all --json after.json
    PYTHONPATH=OTHER/src … docs/inside/measure.py files|losses|import|tree --json before.json
    PYTHONPATH=src … docs/inside/measure.py page     # the counts of the tree, as they are now, into house.md

It measures whichever checkout `PYTHONPATH` leads to, by built-in corpora alone, and adds to a file that is there.
`before.json` was written at 8ff4b59, on one thread.

- `files`: files of the package of which a function ran (`sys.setprofile`, "call" events; what runs while a module is
  imported does not count, and everything was imported and run once before), for `regard train`, one update,
  `translate`, `look` and a call of `Heads`. Changes: how often two functions of the package that were entered one after
  the other stand in different files; returns do not count. An update is all between the ends of two steps of the
  optimiser.
- `losses`: the loss of each of 50 steps of three tiny configurations, as `float.hex()`.
- `import`: seconds of `regard --help`, `import regard` and the answer to a wrong key, medians of new processes: on the
  clock, and of the processor's work, which hangs less on what else the machine does.
- `tree`: folders, files, their lengths, names of files in several folders, names of classes in several files.
"""

import argparse
import ast
import collections
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import regard
from regard.data import DataSettings

SOURCE = Path(regard.__file__).parent
REPEATS = 7
STACK = {"kind": "transformer", "size": 16, "heads": 2, "layers": 2, "hidden": 32, "dropout": 0.1, "tied": "all"}
# Corpora as they were before there were editions of them, of which an earlier checkout knows nothing.
FIRST = {"builtin_edition": 1} if "builtin_edition" in DataSettings.__dataclass_fields__ else {}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "transformer": {
        "data": {"builtin": "phrasebook", "count": 300, **FIRST},
        "tokenizer": {"kind": "bpe", "size": 300},
        "model": STACK,
    },
    "rnnsearch": {
        "data": {"builtin": "phrasebook", "count": 300, **FIRST},
        "tokenizer": {"kind": "word"},
        "model": {"kind": "rnnsearch", "size": 12, "embedding": 8, "hidden": 8, "maxout": 6, "dropout": 0.2},
    },
    "han": {
        "task": "classify",
        "data": {"builtin": "reviews", "count": 120, **FIRST},
        "tokenizer": {"kind": "word"},
        "model": {"kind": "han", "size": 6, "embedding": 8, "hidden": 8, "dropout": 0.1},
    },
}
TRAINING = {"batch_tokens": 256, "rate": 3e-3, "warmup": 10, "validate_rows": 4, "device": "cpu", "seed": 3}


def signature() -> dict[str, str]:
    """What the last bits of a loss depend on."""
    import torch

    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "torch": torch.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "processor": next(names, "unknown"),
    }


def command(*words: Any, given: str = "") -> str:
    """A command in this process, and what it prints."""
    from typer.testing import CliRunner

    from regard.cli import app

    done = CliRunner().invoke(app, [str(word) for word in words], input=given)
    if done.exit_code:
        raise RuntimeError(done.output) from done.exception
    return done.stdout


def train(folder: Path, name: str, **training: Any) -> Path:
    """`regard train` with one of the configurations."""
    import tomli_w

    table = {**CONFIGURATIONS[name], "training": {**TRAINING, **training}}
    table["data"] = {**table["data"], "cache": str(folder / "cache")}
    config = folder / "config.toml"
    config.write_text(tomli_w.dumps(table), encoding="utf-8", newline="\n")
    run = folder / f"run-{len(list(folder.iterdir()))}"
    command("train", config, "--out", run)
    return run


# ---- files


class Trace:
    """Which files of the package functions were entered in, while `running`."""

    def __init__(self) -> None:
        self.running, self.importing = False, 0
        self.files: set[str] = set()
        self.changes, self.last = 0, ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "return"):
            return
        if frame.f_code.co_name == "<module>":
            self.importing += 1 if event == "call" else -1
        if event == "return" or not self.running or self.importing:
            return
        file = frame.f_code.co_filename
        if file.startswith(str(SOURCE)):
            self.files.add(file)
            if threading.current_thread() is threading.main_thread():
                self.changes += bool(self.last) and file != self.last
                self.last = file

    def found(self) -> dict[str, Any]:
        names = sorted(str(Path(file).relative_to(SOURCE)) for file in self.files)
        return {"files": len(names), "changes": self.changes, "names": names}


def traced(work: Callable[[], Any], running: bool = True, trace: Trace | None = None) -> dict[str, Any]:
    """What some work ran through."""
    trace = trace or Trace()
    trace.running = running
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return trace.found()


def trace_update(folder: Path) -> dict[str, Any]:
    """One update of training: from the end of the optimiser's fifth step to that of its sixth."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    trace, steps = Trace(), itertools.count(1)

    def after(*_: Any) -> None:
        trace.running = next(steps) == 5

    hook = register_optimizer_step_post_hook(after)
    try:
        return traced(lambda: train(folder, "transformer", steps=8, log_every=100), False, trace)
    finally:
        hook.remove()


def measure_files() -> dict[str, Any]:
    """Files run through by five things that people do."""
    import torch

    from regard import Heads

    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        run = train(folder, "transformer", steps=4, validate_every=2)
        text = "I ate pizza yesterday .\n"
        command("translate", run, given=text)
        command("look", run, text.strip(), "--out", folder / "first.html")
        heads = Heads(16, 2).eval()
        x = torch.randn(2, 5, 16)
        heads(x, x)
        return {
            "train": traced(lambda: train(folder, "transformer", steps=4, validate_every=2)),
            "update": trace_update(folder),
            "translate": traced(lambda: command("translate", run, given=text)),
            "look": traced(lambda: command("look", run, text.strip(), "--out", folder / "look.html")),
            "Heads": traced(lambda: heads(x, x)),
        }


# ---- losses


def losses(name: str, steps: int = 50) -> list[str]:
    """The loss of each step of a configuration."""
    with tempfile.TemporaryDirectory() as home:
        run = train(Path(home), name, steps=steps, log_every=1, validate_every=steps)
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return [record["loss"].hex() for record in records if record["kind"] == "step"]


def measure_losses() -> dict[str, Any]:
    """The losses of all three, and what their last bits depend on."""
    import torch

    torch.set_num_threads(1)
    return {"signature": signature(), **{name: losses(name) for name in CONFIGURATIONS}}


# ---- import


def seconds(*words: str, status: int = 0) -> dict[str, float]:
    """The median of the time of new processes; the first, which fills caches, is not counted."""
    times, processor = [], []
    for _ in range(REPEATS + 1):
        begun, used = time.perf_counter(), children()
        done = subprocess.run([sys.executable, *words], capture_output=True, check=False)
        times.append(time.perf_counter() - begun)
        processor.append(children() - used)
        assert done.returncode == status, done.stderr
    return {"wall": round(statistics.median(times[1:]), 3), "processor": round(statistics.median(processor[1:]), 3)}


def children() -> float:
    """Seconds that the processor worked for processes that were started here and have ended."""
    used = os.times()
    return used.children_user + used.children_system


def measure_import() -> dict[str, Any]:
    """How long it takes to begin, in seconds."""
    with tempfile.TemporaryDirectory() as home:
        config = Path(home) / "config.toml"
        config.write_text('[model]\nkind = "transformer"\nheds = 3\n', encoding="utf-8", newline="\n")
        return {
            "regard --help": seconds("-m", "regard", "--help"),
            "import regard": seconds("-c", "import regard"),
            "from regard import Heads": seconds("-c", "from regard import Heads"),
            "a wrong key": seconds("-m", "regard", "train", str(config), "--out", f"{home}/run", status=2),
        }


# ---- tree


def classes(path: Path) -> Iterator[str]:
    """Names of the classes of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            yield node.name


def measure_tree() -> dict[str, Any]:
    """Folders, files and their lengths, and names that occur twice or more."""
    paths = sorted(SOURCE.rglob("*.py"))
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    longest = max(paths, key=lambda path: lines[path])
    names = collections.Counter(path.name for path in paths if path.name != "__init__.py")
    homes = collections.defaultdict(set)
    for path in paths:
        for name in classes(path):
            homes[name].add(path)
    return {
        "folders": len({path.parent for path in paths}),
        "files": len(paths),
        "lines": sum(lines.values()),
        "median": statistics.median(lines.values()),
        "longest": [str(longest.relative_to(SOURCE)), lines[longest]],
        "over 420": [str(path.relative_to(SOURCE)) for path in paths if lines[path] > 420],
        "same file name": sorted(name for name, count in names.items() if count > 1),
        "same class name": sorted(name for name, where in homes.items() if len(where) > 1),
    }


def with_counts(page: str, tree: dict[str, Any]) -> str:
    """Return house.md with the counts of the tree in the last column of its table; the words beside them stay."""
    counts = {
        "folders": tree["folders"],
        "files": tree["files"],
        "median length of a file, lines": round(tree["median"]),
        "longest file": ", ".join(map(str, tree["longest"])),
        "files over 420 lines": len(tree["over 420"]),
        "file names in two or more folders": len(tree["same file name"]),
        "class names in two or more files": len(tree["same class name"]),
    }
    for row, count in counts.items():
        first = re.compile(rf"^(\| {re.escape(row)} \| [^|]* \| )(?:[\w/]+\.py, )?\d+", re.MULTILINE)
        page, rows = first.subn(rf"\g<1>{count}", page)
        if rows != 1:
            raise RuntimeError(f"house.md: {rows} rows begin with {row!r}, expected one")
    return page


def write_counts() -> None:
    """Count the tree and write house.md."""
    home = Path(__file__).with_name("house.md")
    text = with_counts(home.read_text(encoding="utf-8"), measure_tree())
    home.write_text(text, encoding="utf-8", newline="\n")


MEASURES: dict[str, Callable[[], dict[str, Any]]] = {
    "files": measure_files,
    "losses": measure_losses,
    "import": measure_import,
    "tree": measure_tree,
}


def main() -> None:
    """Measure what is asked for, print it in short, and add it to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*MEASURES, "all", "page"])
    parser.add_argument("--json", type=Path, help="the file to add the results to")
    given = parser.parse_args()
    if given.what == "page":
        write_counts()
        return
    os.environ["REGARD_CACHE"] = ""
    results = json.loads(given.json.read_text(encoding="utf-8")) if given.json and given.json.exists() else {}
    for name in MEASURES if given.what == "all" else [given.what]:
        results[name] = MEASURES[name]()
        short = results[name]
        if name == "files":
            short = {each: [found["files"], found["changes"]] for each, found in short.items()}
        print(name, short if name != "losses" else {each: found[-1:] for each, found in list(short.items())[1:]})
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
