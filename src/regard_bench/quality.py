"""Quality on real corpora: what the shipped configurations reach, over seeds, beside what was published.

python -m regard_bench.quality prepare FOLDER data         the corpora of a folder, as `regard train` reads them
python -m regard_bench.quality train                       every configuration and seed, and its test set translated
python -m regard_bench.quality evaluate runs/quality/*     scores of the test sets, into benchmarks/results
python -m regard_bench.quality table                       docs/results.md

FOLDER holds multi30k/, cmudict/, inflection/ and scan/ as their owners give them (see `prepare`); nothing of it is part
of this project. `train` runs several trainings side by side, each in its own folder; what is there already is not done
again, so that it can be stopped and called again.
"""

import argparse
import datetime
import gzip
import json
import platform
import re
import shlex
import statistics
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]  # of a clone
RUNS = Path("runs/quality")
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "results.md"
MAX_ACTIONS = 100  # a SCAN command has up to six times as many actions as words


@dataclass(frozen=True)
class Line:
    """A line of the table: a configuration, its test set, its metrics and their goals."""

    corpus: str
    config: str
    test: tuple[str, ...]  # two text files, or one TSV
    metrics: tuple[str, ...]
    goals: tuple[float | None, ...] = (None,)  # lower limits, but upper limits of error rates
    published: str = ""
    settings: tuple[str, ...] = ()  # override the configuration
    search: tuple[tuple[str, int], ...] = ()


FLICKR = ("multi30k/test_2016_flickr.en.gz", "multi30k/test_2016_flickr.de.gz")
LENGTH = ('data.corpora=[{file="data/scan/length.train.tsv"}]',)
MULTI30K, SEARCH = "Multi30k en-de, test 2016", (("longest", MAX_ACTIONS),)
TINY, TEXT_RNN = "41.0 (fairseq's Transformer-tiny, tokenised text)", "38.1 (text-only RNN, tokenised text)"
BILSTM = "5.45 / 23.55 (bidirectional LSTM that reads alignments, Yao and Zweig 2015)"
SHARED = "97.43 (the shared task's baseline); 97.98 (its best submission, rescored on the same items)"
ACTIONS = "13.8 (LSTM); 20.8 (the best model of Lake and Baroni 2018)"
LINES = {
    "multi30k": Line(MULTI30K, "multi30k", FLICKR, ("BLEU",), (39.5,), TINY),
    "multi30k-rnnsearch": Line(MULTI30K, "multi30k-rnnsearch", FLICKR, ("BLEU",), (36.0,), TEXT_RNN),
    "multi30k-luong": Line(MULTI30K, "multi30k-luong", FLICKR, ("BLEU",), (36.0,), TEXT_RNN),
    "multi30k-rnn": Line(MULTI30K, "multi30k-rnn", FLICKR, ("BLEU",)),
    "cmudict": Line("CMUdict", "cmudict", ("cmudict/test.tsv.gz",), ("PER", "WER"), (5.5, 24.0), BILSTM),
    "inflection": Line("SIGMORPHON 2021 German", "inflection", ("inflection/test.tsv",), ("exact",), (97.4,), SHARED),
    "scan": Line(
        "SCAN simple",
        "scan",
        ("scan/simple.test.tsv",),
        ("exact",),
        (99.8,),
        "99.8 (LSTM, Lake and Baroni 2018)",
        (),
        SEARCH,
    ),
    "scan-length": Line("SCAN length", "scan", ("scan/length.test.tsv",), ("exact",), (None,), ACTIONS, LENGTH, SEARCH),
}


# ---- data


def prepare(folder: Path, out: Path) -> None:
    """Write the corpora of a folder as files that `regard train` reads."""
    for path in sorted([*folder.glob("multi30k/*.gz"), *folder.glob("cmudict/t*.tsv.gz")]):
        put(out / path.parent.name / path.name, path.read_bytes())  # unchanged
    trained_words = {line.split("\t")[0] for line in lines(folder / "cmudict" / "train.tsv.gz")}
    # Drop words that training has with another pronunciation: all words of the test set are new.
    dev = (line.split("\t") for line in lines(folder / "cmudict" / "dev.tsv.gz"))
    put(out / "cmudict" / "dev.tsv", table_of(row for row in dev if row[0] not in trained_words))
    for path in sorted(folder.glob("inflection/deu.*.tsv.gz")):
        rows = (inflection(*line.split("\t")) for line in lines(path))
        put(out / "inflection" / path.name.removeprefix("deu.").removesuffix(".gz"), table_of(rows))
    for path in sorted(folder.glob("scan/*.txt.gz")):
        put(out / "scan" / path.name.replace(".txt.gz", ".tsv"), table_of(scan(path)))


def inflection(lemma: str, form: str, features: str) -> tuple[str, str]:
    """Return the lemma's letters and the features, and the form's letters; a space in a word becomes _."""
    tags = " ".join(f"<{feature}>" for feature in features.split(";"))
    return f"{' '.join(lemma.replace(' ', '_'))} {tags}", " ".join(form.replace(" ", "_"))


def scan(path: Path) -> list[tuple[str, ...]]:
    """Return the commands of a SCAN file, each with its actions."""
    matches = (re.fullmatch(r"IN: (.*) OUT: (.*)", line.strip()) for line in lines(path))
    return [each.groups() for each in matches if each]


def lines(path: Path) -> Iterator[str]:
    """Return the non-empty lines of a text file, which may be compressed with gzip."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode()
    return (line.rstrip("\r") for line in text.split("\n") if line.strip())


def table_of(rows: Iterable[Iterable[str]]) -> bytes:
    return "".join("\t".join(row) + "\n" for row in rows).encode()


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_set(line: Line, data: Path) -> tuple[list[str], list[list[str]]]:
    """Return the test set's sources, and all correct outputs of each; of a line tested by BLEU, row by row."""
    columns = [list(lines(data / name)) for name in line.test]
    pairs = zip(*columns, strict=True) if len(columns) == 2 else (row.split("\t") for row in columns[0])
    return group(pairs, line.metrics == ("BLEU",))


def group(pairs: Iterable[Sequence[str]], by_line: bool) -> tuple[list[str], list[list[str]]]:
    """Return the distinct sources, each with all its targets; or with `by_line` every line's source and target."""
    if by_line:
        sources, targets = map(list, zip(*pairs, strict=True))
        return sources, [[target] for target in targets]
    right = defaultdict(list)
    for source, target in pairs:
        right[source].append(target)
    return list(right), list(right.values())


# ---- runs


def command(name: str, seed: int, out: Path, minutes: float | None = None) -> list[str]:
    """Build the command that trains a line of the table."""
    line, limit = LINES[name], () if minutes is None else (f"training.minutes={minutes}",)
    settings = [part for each in (*line.settings, f"training.seed={seed}", *limit) for part in ("--set", each)]
    return ["regard", "train", f"configs/{line.config}.toml", *settings, "--out", str(out)]


def train(names: list[str], seeds: list[int], runs: Path, together: int, minutes: float | None = None) -> int:
    """Train every line with every seed, and translate its test set; return the number of failures."""

    def one(name: str, seed: int) -> bool:
        run = runs / f"{name}-{seed}"
        run.mkdir(parents=True, exist_ok=True)
        begun = any(run.glob("checkpoints/step-*"))
        words = ["regard", "train", "--resume", str(run)] if begun else command(name, seed, run, minutes)
        with open(run.with_suffix(".log"), "a", encoding="utf-8", newline="\n") as log:
            done = (run / "trained").exists() or not subprocess.run(
                [sys.executable, "-m", *words], stdout=log, stderr=log
            ).returncode
            if done:  # training has neither failed nor stopped early
                (run / "trained").touch()
                done = not subprocess.run(
                    [sys.executable, "-m", "regard_bench.quality", "translate", run], stderr=log
                ).returncode
        print(f"{run}: {'done' if done else 'failed, see ' + str(run.with_suffix('.log'))}", flush=True)
        return done

    with ThreadPoolExecutor(together) as pool:
        jobs = [pool.submit(one, name, seed) for seed in seeds for name in names]
    return sum(not job.result() for job in jobs)


def translate(run: Path, data: Path) -> None:
    """Translate a run's test set with beam 5 into test.txt, and write the facts of the run into test.json."""
    if (run / "test.json").exists():
        return
    import torch

    import regard

    name, seed = run.name.rsplit("-", 1)
    line = LINES[name]
    loaded = regard.load(run, device="cuda" if torch.cuda.is_available() else "cpu")
    began = time.monotonic()
    batch = 16_384 if loaded.device.type == "cuda" else 4096
    outputs = loaded.translate(test_set(line, data)[0], beam=5, chunk=10_000, batch_tokens=batch, **dict(line.search))
    decoding = time.monotonic() - began
    lines = "".join(f"{' '.join(output.split())}\n" for output in outputs)
    (run / "test.txt").write_text(lines, encoding="utf-8", newline="\n")
    records = [json.loads(row) for row in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    seconds = [row["seconds"] for row in records if "seconds" in row]
    config = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
    facts = {
        "name": name,
        "seed": int(seed),
        "parameters": sum(weight.numel() for weight in loaded.model.parameters()),
        "steps": records[-1]["step"],
        "best_step": loaded.step,
        "seconds": round(seconds[-1]) if seconds else 0,
        "decoding_seconds": round(decoding, 1),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "versions": {"regard": regard.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "config": {part: config[part] for part in ("tokenizer", "model", "training")},
        "search": {"beam": 5, **dict(line.search)},
    }
    (run / "test.json").write_text(json.dumps(facts, indent=1), encoding="utf-8", newline="\n")


# ---- scores


def scores(line: Line, outputs: list[str], right: list[list[str]]) -> tuple[dict[str, float], str]:
    """Compute the metrics of a line in points or per cent; also return the first one's signature."""
    from regard.evaluation import text_scores

    if line.metrics == ("BLEU",):
        score = text_scores.measure_bleu(outputs, right, lowercase=True).score()
        return {"BLEU": score.value}, score.signature
    exact = text_scores.measure_exact(outputs, right).score()
    if line.metrics == ("exact",):
        return {"exact": 100 * exact.value}, exact.signature
    phonemes = text_scores.error_rate(outputs, right)
    return {"PER": 100 * phonemes.value, "WER": 100 * (1 - exact.value)}, phonemes.signature


def evaluate(runs: list[Path], data: Path, out: Path | None) -> None:
    """Score runs, and write the scores into a file of results, replacing earlier scores of the same runs."""
    records = []
    for run in sorted(run for run in runs if (run / "config.toml").exists()):
        translate(run, data)
        facts: dict[str, Any] = json.loads((run / "test.json").read_text(encoding="utf-8"))
        outputs = (run / "test.txt").read_text(encoding="utf-8").split("\n")[:-1]
        values, signature = scores(LINES[facts["name"]], outputs, test_set(LINES[facts["name"]], data)[1])
        training = facts["config"]["training"]
        limited = training.get("fit") or facts["steps"] < training["steps"]  # by a limit that ended training earlier
        limit = training.get("minutes") if limited else None
        command_line = shlex.join(command(facts["name"], facts["seed"], RUNS / run.name, limit))
        rounded = {key: round(value, 3) for key, value in values.items()}
        records.append({**facts, "command": command_line, "scores": rounded, "signature": signature})
        print(f"{run}: " + ", ".join(f"{key} {value:.2f}" for key, value in values.items()))
    device = re.sub(r"\W+", "-", records[0]["device"].removeprefix("NVIDIA ")).lower() if records else "none"
    out = out or RESULTS / f"quality-{device}-{datetime.date.today()}.json"
    earlier = json.loads(out.read_text(encoding="utf-8"))["runs"] if out.exists() else []
    new = {(record["name"], record["seed"]) for record in records}
    earlier = [record for record in earlier if (record["name"], record["seed"]) not in new]
    everything = sorted([*earlier, *records], key=lambda r: (r["name"], r["seed"]))
    out.write_text(json.dumps({"runs": everything}, indent=1) + "\n", encoding="utf-8", newline="\n")


# ---- the page


def table(results: Path, page: Path) -> None:
    """Write the newest results into the page, between its marks."""
    newest: dict[tuple[str, int], dict[str, Any]] = {}
    for path in sorted(results.glob("quality-*.json"), key=lambda path: path.stem[-10:]):  # by date
        newest |= {(each["name"], each["seed"]): each for each in json.loads(path.read_text(encoding="utf-8"))["runs"]}
    records = [newest[key] for key in sorted(newest)]
    rows = [["corpus", "model", "metric", "reached", "goal", "published", "parameters", "steps", "seconds"]]
    rows += [["---"] * len(rows[0])]
    commands, signatures = [], {}
    for name, line in LINES.items():
        runs = [record for record in records if record["name"] == name]
        if not runs:
            continue
        first, metric = runs[0], " / ".join(line.metrics)
        values = " / ".join(spread([run["scores"][each] for run in runs]) for each in line.metrics)
        sign = "≤" if "PER" in line.metrics else "≥"
        goal = " / ".join(f"{sign} {goal:g}" for goal in line.goals if goal is not None) or "to compare"
        cells = [line.corpus, f"`{first['config']['model']['kind']}`", metric, values, goal, line.published]
        cells += [f"{first['parameters']:,}", between([run["steps"] for run in runs])]
        rows.append([*cells, between([run["seconds"] for run in runs])])
        commands.append(f"{first['command']}    # and seeds {', '.join(str(run['seed']) for run in runs[1:])}")
        signatures[metric] = first["signature"]
    versions = {", ".join(f"{key} {value}" for key, value in run["versions"].items()) for run in records}
    parts = {
        "table": "\n".join("| " + " | ".join(row) + " |" for row in rows),
        "made with": f"{'; '.join(sorted({run['device'] for run in records}))}; {'; '.join(sorted(versions))}.",
        "signatures": "\n".join(f"- {metric}: `{signature}`" for metric, signature in signatures.items()),
        "commands": "\n".join(["```sh", *commands, "```"]),
    }
    marks = re.compile(r"(<!-- ([a-z ]+) -->\n).*?(\n<!-- end -->)", re.DOTALL)
    text = marks.sub(lambda mark: f"{mark[1]}\n{parts[mark[2]]}\n{mark[3]}", page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8", newline="\n")


def between(values: list[int]) -> str:
    """Format the smallest and the largest value."""
    return f"{min(values):,}" + (f" to {max(values):,}" if len({*values}) > 1 else "")


def spread(values: list[float]) -> str:
    """Format the mean and the standard deviation of the values."""
    return f"{statistics.mean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("prepare")
    verb.set_defaults(run_verb=lambda options: prepare(options.folder, options.out))
    verb.add_argument("folder", type=Path)
    verb.add_argument("out", type=Path)
    verb = verbs.add_parser("train")
    verb.set_defaults(
        run_verb=lambda options: train(options.names, options.seeds, options.runs, options.together, options.minutes)
    )
    verb.add_argument("names", nargs="*", default=[*LINES], help=f"rows of the table: {', '.join(LINES)}; default: all")
    verb.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    verb.add_argument("--runs", type=Path, default=RUNS)
    verb.add_argument("--together", type=int, default=4, help="number of trainings to run at the same time")
    verb.add_argument("--minutes", type=float, help="maximum minutes for each training")
    verb = verbs.add_parser("translate")
    verb.set_defaults(run_verb=lambda options: translate(options.run, Path("data")))
    verb.add_argument("run", type=Path)
    verb = verbs.add_parser("evaluate")
    verb.set_defaults(run_verb=lambda options: evaluate(options.runs, Path("data"), options.out))
    verb.add_argument("runs", type=Path, nargs="+")
    verb.add_argument("--out", type=Path)
    verbs.add_parser("table").set_defaults(run_verb=lambda options: table(RESULTS, PAGE))
    options = parser.parse_args()
    sys.exit(options.run_verb(options))


if __name__ == "__main__":
    main()
