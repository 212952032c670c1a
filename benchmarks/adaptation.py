"""Adapting a model to another domain: what fine-tuning gains there, what it forgets, and how long it takes.

    python benchmarks/adaptation.py DATA --out figures.json                   # on a GPU
    python benchmarks/adaptation.py DATA --out figures.json --device cpu --small      # does it run?

DATA has the folders europarl/ and multi30k/ with gzipped text files. A Transformer learns German to English from
Europarl, and is fine-tuned with 10,000 pairs of Multi30k in several ways, by the commands that a user types. Each run
is measured on the test sets of both domains. Seconds are those of the whole command `regard train`, start included;
`--together` is how many ways run at a time, and share the GPU.
"""

import argparse
import gzip
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from regard_bench import signature

BASE = {"training.steps": 4500, "training.batch_tokens": 24_576, "training.rate": 1e-3, "training.warmup": 800,
        "model.norm": "pre", "tokenizer.size": 16_000, "training.validate_every": 1500}  # fmt: skip
TUNING = {"training.steps": 600, "training.batch_tokens": 8192, "training.rate": 2e-4, "training.warmup": 60,
          "training.schedule": "cosine", "training.validate_every": 150}  # fmt: skip
SMALL = {"training.steps": 4, "training.batch_tokens": 512, "training.validate_every": 4, "training.validate_rows": 8}
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rehearsal 0.25": {"data.rehearsal": 0.25},
    "rehearsal 0.5": {"data.rehearsal": 0.5},
    "rehearsal 0.75": {"data.rehearsal": 0.75},
    "adapter 16": {"model.adapter": 16, "training.rate": 1e-3},
    "adapter 16, rehearsal 0.5": {"model.adapter": 16, "training.rate": 1e-3, "data.rehearsal": 0.5},
}


def regard(*words: object) -> str:
    """Run a command, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "regard", *map(str, words)], capture_output=True, text=True, encoding="utf-8"
    )
    if done.returncode:
        raise SystemExit(f"regard {' '.join(map(str, words))}\n{done.stderr[-3000:]}")
    return done.stdout


def train(out: Path, data: dict[str, Path], keys: dict[str, Any], *more: object) -> float:
    """Train a run, and return the seconds that it took."""
    files = [part for name, path in data.items() for part in (f"--{name}", path)]
    sets = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
    start = time.perf_counter()
    regard("train", *files, *sets, "--out", out, "--quiet", *more)
    return time.perf_counter() - start


def unpack(source: Path, target: Path, lines: int | None = None) -> Path:
    """Unpack a file of lines, or its first ones."""
    with gzip.open(source, "rt", encoding="utf-8", newline="\n") as file:
        content = [line for line, _ in zip(file, range(lines or 10**9), strict=False)]
    target.write_text("".join(content), encoding="utf-8", newline="\n")
    return target


def measure(run: Path, tests: dict[str, tuple[Path, Path]], device: str) -> dict[str, float]:
    """BLEU of a run on each test set."""
    scores = {}
    for name, (source, reference) in tests.items():
        words = ("eval", run, "--source", source, "--reference", reference, "--device", device, "--json")
        table = json.loads(regard(*words))
        scores[name] = table["scores"]["bleu"]["value"]
    return scores


def main() -> None:
    """Train the base, adapt it in each way, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for runs and unpacked files")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--together", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    small = SMALL if given.small else {}
    keys = {"training.device": given.device, **small}
    rows = {"europarl": 300 if given.small else None, "multi30k": 100 if given.small else 10_000}
    tests_rows = 20 if given.small else None
    files: dict[str, dict[str, Path]] = {}
    tests: dict[str, tuple[Path, Path]] = {}
    for corpus, valid, test in (("europarl", "dev", "test"), ("multi30k", "val", "test_2016_flickr")):
        parts = [("source", "train", "de", rows[corpus]), ("target", "train", "en", rows[corpus]),
                 ("valid-source", valid, "de", tests_rows), ("valid-target", valid, "en", tests_rows),
                 ("test-source", test, "de", tests_rows), ("test-target", test, "en", tests_rows)]  # fmt: skip
        unpacked = {
            name: unpack(given.data / corpus / f"{part}.{side}.gz", given.work / f"{corpus}.{part}.{side}", count)
            for name, part, side, count in parts
        }
        tests[corpus] = (unpacked.pop("test-source"), unpacked.pop("test-target"))
        files[corpus] = unpacked
    base = given.work / "base"
    model = ("--preset", "small") if given.small else ("--preset", "base")
    figures: dict[str, Any] = {"signature": signature(given.device, torch.get_num_threads()), "base": {}, "ways": {}}
    figures["base"]["seconds"] = train(base, files["europarl"], {**BASE, **keys}, *model)
    figures["base"]["bleu"] = measure(base, tests, given.device)
    print("no adaptation", figures["base"], flush=True)

    def adapt(way: str) -> None:
        run = given.work / way.replace(", ", "-").replace(" ", "-")
        seconds = train(run, files["multi30k"], {**TUNING, **WAYS[way], **keys}, "--from", base)
        size = sum(each.stat().st_size for each in (run / "checkpoints").glob("step-*/model.safetensors"))
        figures["ways"][way] = {"keys": WAYS[way], "seconds": seconds, "checkpoints_bytes": size}
        figures["ways"][way]["bleu"] = measure(run, tests, given.device)
        print(way, figures["ways"][way], flush=True)
        given.out.write_text(json.dumps(figures, indent=1), encoding="utf-8", newline="\n")

    with ThreadPoolExecutor(given.together) as pool:
        list(pool.map(adapt, given.ways))


if __name__ == "__main__":
    main()
