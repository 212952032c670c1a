"""Measure the inside of Regard: what a reader walks through, what it computes, how fast it starts, how its files lie.

    PYTHONPATH=src OMP_NUM_THREADS=1 .venv/bin/python docs/inside/measure.py all --json after.json
    PYTHONPATH=OTHER/src … docs/inside/measure.py files|losses|import|tree --json before.json
    PYTHONPATH=src … docs/inside/measure.py page     # the counts of the tree, as they are now, into house.md
    PYTHONPATH=src … docs/inside/measure.py walk     # walk.md, and what was measured by running, into house.md

It measures whichever checkout `PYTHONPATH` leads to, by built-in corpora alone, and adds to a file that is there.
`before.json` was written at 8ff4b59, on one thread.

- `files`: files of the package of which a function ran (`sys.setprofile`, "call" events; what runs while a module is
  imported does not count, and everything was imported and run once before), for `regard train`, one update,
  `translate`, `look` and a call of `Heads`. Calls: how often functions of the package were entered on the main
  thread; comprehensions, generator expressions and lambdas are their function's. Changes: how often two of these, one
  after the other, stand in different files; returns do not count. An update is all between the ends of two steps of the
  optimiser.
- `walk`: the same of a fixed set of text files, with an update for two kinds of positions, a translation in parts, and
  a request to `regard serve`, whose threads are counted too; where each file is first entered, and how often.
- `losses`: the loss of each of 50 steps of three tiny configurations, as `float.hex()`.
- `import`: seconds of `regard --help`, `import regard` and the answer to a wrong key, medians of new processes: on the
  clock, and of the processor's work, which hangs less on what else the machine does.
- `tree`: folders, files, their lengths, names of files in several folders, names of classes in several files.
"""

import argparse
import ast
import collections
import contextlib
import http.client
import importlib
import io
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
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
    """The functions of the package that were entered, while `running`: on the main thread, or on every one."""

    def __init__(self, threads: bool = False) -> None:
        self.running, self.importing, self.threads = False, 0, threads
        self.codes: list[CodeType] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "return"):
            return
        main = threading.get_ident() == threading.main_thread().ident
        code = frame.f_code
        if code.co_name == "<module>" and main:
            self.importing += 1 if event == "call" else -1
        if event == "return" or not self.running or self.importing or not (main or self.threads):
            return
        if code.co_filename.startswith(f"{SOURCE}{os.sep}") and not code.co_name.startswith("<"):
            self.codes.append(code)

    def found(self) -> dict[str, Any]:
        return {**figures(self.codes), "names": sorted(set(map(file_of, self.codes)))}


def file_of(code: CodeType) -> str:
    """The file of a function, in the package."""
    return Path(code.co_filename).relative_to(SOURCE).as_posix()


def figures(codes: Sequence[CodeType]) -> dict[str, int]:
    """How many functions were entered, in how many files, and how often the next was in another."""
    files = [code.co_filename for code in codes]
    changes = sum(one != other for one, other in itertools.pairwise(files))
    return {"files": len(set(files)), "changes": changes, "calls": len(files)}


def traced(work: Callable[[], Any], running: bool = True, trace: Trace | None = None) -> Trace:
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
    return trace


def trace_update(training: Callable[[], Any]) -> Trace:
    """One update of a training: from the end of the optimiser's fifth step to that of its sixth."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    trace, steps = Trace(), itertools.count(1)

    def after(*_: Any) -> None:
        trace.running = next(steps) == 5
        sys.setprofile(trace if trace.running else None)  # which makes all that is called four times slower

    hook = register_optimizer_step_post_hook(after)
    try:
        training()
    finally:
        hook.remove()
    return trace


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
        traces = {
            "train": traced(lambda: train(folder, "transformer", steps=4, validate_every=2)),
            "update": trace_update(lambda: train(folder, "transformer", steps=8, log_every=100)),
            "translate": traced(lambda: command("translate", run, given=text)),
            "look": traced(lambda: command("look", run, text.strip(), "--out", folder / "look.html")),
            "Heads": traced(lambda: heads(x, x)),
        }
        return {name: trace.found() for name, trace in traces.items()}


# ---- walk

WORDS = (
    "the",
    "a",
    "dog",
    "cat",
    "man",
    "woman",
    "sees",
    "likes",
    "hears",
    "big",
    "small",
    "red",
    "old",
    "and",
    "with",
    "near",
    "house",
    "tree",
)
WALKED = ("layers=2", "size=32", "heads=2", "hidden=64", "norm=pre")  # the model's
REQUESTS = 6  # of which the shortest path is shown: a worker that waits looks up now and then
SETTLED = 0.1  # seconds in which threads of a server come to rest


def run_line(*words: Any) -> None:
    """A command line in this process, as the shell's entry point runs it."""
    cli = importlib.import_module("regard.cli")
    before, sys.argv = sys.argv, ["regard", *map(str, words)]
    try:
        with (
            contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.suppress(SystemExit),
        ):
            cli.main()
    finally:
        sys.argv = before


def train_words(folder: Path, positions: str, steps: int) -> Path:
    """A run that has learned for some steps to turn sentences around."""
    source, target = folder / "source.txt", folder / "target.txt"
    if not source.exists():
        for path, step in ((source, 1), (target, -1)):
            path.write_text(
                "".join(" ".join(each[::step]) + "\n" for each in sentences()), encoding="utf-8", newline="\n"
            )
    run = folder / f"run-{len(list(folder.iterdir()))}"
    settings = (word for key in (*WALKED, f"positions={positions}") for word in ("--set", f"model.{key}"))
    run_line("train", "--source", source, "--target", target, "--seed", 1, *settings, "--steps", steps, "--out", run)
    if not (run / "config.toml").exists():
        raise RuntimeError("regard train has failed")
    return run


def sentences() -> list[list[str]]:
    """Made-up sentences of four to nine words."""
    return [[WORDS[(i * 7 + j * 5) % len(WORDS)] for j in range(4 + i % 6)] for i in range(400)]


def trace_requests(run: Path, text: str) -> list[CodeType]:
    """One request to a server of a run, on all of its threads: from the connection to the end of the answer."""
    from regard.config import parse
    from regard.serving.server import run_server
    from regard.serving.service import Service
    from regard.serving.settings import ServeSettings, parse_runs

    trace, paths, problems = Trace(threads=True), [], []

    def ask(address: str) -> None:
        try:
            for _ in range(REQUESTS):
                time.sleep(SETTLED)
                trace.codes, trace.running = [], True
                connection = http.client.HTTPConnection(address, timeout=60)
                connection.request("POST", "/v1/translate", json.dumps({"texts": [text]}), {"Connection": "close"})
                answer = connection.getresponse()
                assert answer.status == 200, answer.read()
                answer.read()
                connection.close()
                time.sleep(SETTLED)
                trace.running = False
                paths.append(trace.codes)
        except Exception as error:
            problems.append(error)
        finally:
            signal.raise_signal(signal.SIGTERM)

    def say(line: str) -> None:
        if line.startswith("ready: "):
            address = line.split()[1].removeprefix("http://")
            threading.Thread(target=ask, args=(address,), daemon=True).start()

    settings = parse(ServeSettings, {"device": "cpu", "port": 0})
    traced(lambda: run_server(Service(settings, parse_runs([str(run)], settings.engine)), say), False, trace)
    if problems:
        raise problems[0]
    return min(paths[1:], key=len)  # the first one has found caches empty


def split_steps(codes: Sequence[CodeType]) -> dict[str, int]:
    """The calls of a search before its first step, of a step (the median) and after the last, which begin with one
    that a model takes.
    """
    steps = [i for i, code in enumerate(codes) if code.co_name == "step" and file_of(code).startswith("models/")]
    each = statistics.median_low([two - one for one, two in itertools.pairwise(steps)])
    return {"before": steps[0], "step": each, "steps": len(steps), "after": max(0, len(codes) - steps[-1] - each)}


def measure_walk() -> dict[str, Any]:
    """What an update, a call of `Heads`, a translation and a request run through, each after it was done once."""
    import torch

    from regard import Heads

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        paths = {}
        for positions in ("rotary", "sinusoidal"):
            train_words(folder, positions, 4)
            paths[f"update, {positions}"] = trace_update(partial(train_words, folder, positions, 8)).codes
        heads, x = Heads(16, heads=2).eval(), torch.randn(2, 5, 16)
        heads(x)
        paths["Heads"] = traced(lambda: heads(x)).codes
        run, text = train_words(folder, "rotary", 4), " ".join(sentences()[0])
        run_line("translate", run, text)
        paths["translate"] = traced(lambda: run_line("translate", run, text)).codes
        paths["request"] = trace_requests(run, text)
    found: dict[str, Any] = {name: {**figures(codes), "walk": walk_of(codes)} for name, codes in paths.items()}
    for name in ("translate", "request"):
        found[name] |= split_steps(paths[name])
    return found


def walk_of(codes: Sequence[CodeType]) -> list[tuple[str, str, str, int]]:
    """Each file, in the order in which they are first entered: the function, what it does, and calls in the file."""
    counts, first = collections.Counter(map(file_of, codes)), {}
    for code in codes:
        first.setdefault(file_of(code), code)
    return [
        (file, code.co_qualname.replace(".<locals>", ""), about(code), counts[file]) for file, code in first.items()
    ]


def about(code: CodeType) -> str:
    """The first sentences of a function's docstring; where it has none, of its class's, or else of its file's."""
    tree, line, own = ast.parse(Path(code.co_filename).read_text(encoding="utf-8")), code.co_firstlineno, None
    text = ast.get_docstring(tree)
    for node in ast.walk(tree):  # from outside in
        if isinstance(node, ast.ClassDef) and node.lineno <= line <= (node.end_lineno or 0):
            text = ast.get_docstring(node) or text
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            begins = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            own = ast.get_docstring(node) if begins == line else own
    return (own or text or "").partition("\n\n")[0].replace("\n", " ").replace("|", r"\|")


WALKS = {  # what the page calls each path
    "update, rotary": "one update, rotary positions",
    "update, sinusoidal": "one update, sinusoidal positions",
    "Heads": "a call of `Heads`",
    "translate": "`regard translate RUN TEXT`, one sentence",
    "request": "a request, one sentence",
}
SECTIONS = {
    "update, rotary": (
        "An update",
        "One update of `regard train`, from the end of one step of the optimiser to that of the next.",
    ),
    "translate": ("A translation", "`regard translate RUN TEXT`: one sentence, loading included."),
    "request": (
        "A request",
        "One text sent to `/v1/translate` of `regard serve RUN`, on the thread of its event loop and on its worker's.",
    ),
}
PREAMBLE = """# Walks: the files that work runs through

Three paths through `src/regard`, a line per file in the order in which they are first entered: the function that is
entered first and what it does, and how many calls there are in the file, later ones included. A tracer wrote this page
(`docs/inside/measure.py walk`); a test walks again, and holds the files, their order and the numbers of calls. They are
counted on a CPU with a Transformer of two layers, after everything was done once; [layers, folders, files](house.md)
says what a call and a change are. A search takes as many steps as its outputs are long.
"""


def walk_page(found: dict[str, Any]) -> str:
    """walk.md."""
    lines = [PREAMBLE, "| | calls | changes of file | files |", "|---|---|---|---|"]
    for name, title in WALKS.items():
        each = found[name]
        lines.append(f"| {title} | {each['calls']:,} | {each['changes']:,} | {each['files']} |")
        if "step" in each:
            lines.append(f"| … before the first step of the search | {each['before']:,} | | |")
            lines.append(f"| … a step, the median of {each['steps']} | {each['step']:,} | | |")
            lines.append(f"| … after the last step | {each['after']:,} | | |")
    for name, (title, text) in SECTIONS.items():
        lines += ["", f"## {title}", "", text, ""]
        lines += ["| file | first entered | what that does | calls |", "|---|---|---|---|"]
        for file, function, what, calls in found[name]["walk"]:
            lines.append(f"| `{file}` | `{function}` | {what} | {calls:,} |")
    return "\n".join(lines) + "\n"


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
    return with_rows(page, counts, r"(?:[\w/]+\.py, )?\d+")


PATHS = {
    "train": "training by the command: files, calls",
    "update": "one update: files, changes, calls",
    "translate": "translating: files, calls",
    "look": "looking: files, calls",
    "Heads": "a call of `Heads`: files, changes, calls",
}


def with_paths(page: str, files: dict[str, Any]) -> str:
    """Return house.md with what was measured by running in the last column of its table."""
    counts = {
        title: ", ".join(str(files[name][each]) for each in title.rpartition(": ")[2].split(", "))
        for name, title in PATHS.items()
    }
    return with_rows(page, counts, r"\d+(?:, \d+)*")


def with_rows(page: str, counts: dict[str, Any], cell: str) -> str:
    """Return a page with other counts at the beginning of the last column of some rows."""
    for row, count in counts.items():
        first = re.compile(rf"^(\| {re.escape(row)} \| [^|]* \| ){cell}", re.MULTILINE)
        page, rows = first.subn(rf"\g<1>{count}", page)
        if rows != 1:
            raise RuntimeError(f"house.md: {rows} rows begin with {row!r}, expected one")
    return page


def write_counts() -> None:
    """Count the tree and write house.md."""
    rewrite(lambda page: with_counts(page, measure_tree()))


def write_walks(walks: dict[str, Any]) -> None:
    """Write walk.md, and the rows of house.md that were measured by running."""
    page = walk_page(walks["walk"])
    Path(__file__).with_name("walk.md").write_text(page, encoding="utf-8", newline="\n")
    rewrite(lambda page: with_paths(page, walks["files"]))


def rewrite(change: Callable[[str], str]) -> None:
    """Change house.md."""
    home = Path(__file__).with_name("house.md")
    home.write_text(change(home.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")


MEASURES: dict[str, Callable[[], dict[str, Any]]] = {
    "files": measure_files,
    "losses": measure_losses,
    "import": measure_import,
    "tree": measure_tree,
}


def main() -> None:
    """Measure what is asked for, print it in short, and add it to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*MEASURES, "all", "page", "walk"])
    parser.add_argument("--json", type=Path, help="the file to add the results to")
    given = parser.parse_args()
    if given.what == "page":
        write_counts()
        return
    os.environ |= {"REGARD_CACHE": "", "REGARD_NO_TYPECHECK": "1", "CUDA_VISIBLE_DEVICES": ""}
    if given.what == "walk":
        walks = {"walk": measure_walk(), "files": measure_files()}
        if given.json:
            write_json(given.json, walks)
        else:
            write_walks(walks)
        return
    results = json.loads(given.json.read_text(encoding="utf-8")) if given.json and given.json.exists() else {}
    for name in MEASURES if given.what == "all" else [given.what]:
        results[name] = MEASURES[name]()
        short = results[name]
        if name == "files":
            short = {each: [found["files"], found["changes"], found["calls"]] for each, found in short.items()}
        print(name, short if name != "losses" else {each: found[-1:] for each, found in list(short.items())[1:]})
    if given.json:
        write_json(given.json, results)


def write_json(path: Path, results: dict[str, Any]) -> None:
    """Write results."""
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
