"""Write a tiny run of each kind and task beside this file, and what the code answers with it in expected.json.

    PYTHONPATH=src OMP_NUM_THREADS=1 .venv/bin/python tests/stored_runs/write.py [NAME …]

It is run at the commit whose runs are wanted: those that are stored were written by the code of 8ff4b59, so that every
later version proves that it loads them, answers the same and resumes them (tests/promises/test_stored_runs.py). Do not
run it to make a failing test pass. It uses nothing but `regard.load` and the command line, which every version has.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from typer.testing import CliRunner

HOME = Path(__file__).parent
STEPS, MORE = 100, 2
ENGLISH = ["she sleeps .", "Martin cries .", "they were rich ."]
GERMAN = ["sie schläft .", "Martin weint .", "sie waren reich ."]
NUMBERS, SORTED = ["3 1 2", "4 0 2 1", "2 4 1 0 3"], ["1 2 3", "0 1 2 4", "0 1 2 3 4"]
LETTERS = ["c a b", "e d a b", "b d a c e"]
REVIEWS = [
    "I did find the bread delicious . There were four of us .",
    "Nobody in my whole family thought that the ending was impressive .",
    "We did think that the band was bad , all in all .",
]
PAIRS = {"phrasebook": (ENGLISH, GERMAN), "sort": (NUMBERS, SORTED), "copy": (LETTERS, LETTERS)}
PICTURES = ["0.png", "1.png", "2.png"]

SENTENCES = ["data.builtin=phrasebook", 'data.builtin_options=["longest=4"]', "data.count=150", "tokenizer.kind=word"]
WRITES = [*SENTENCES, "task=language-model"]
DOCUMENTS = ["data.builtin=reviews", "data.count=60", "tokenizer.kind=word", "tokenizer.size=80", "task=classify"]
SCENES = ["data.builtin=scenes", "data.count=40", "data.image_size=32", "data.workers=1"]
SYMBOLS = ['data.builtin_options=["shortest=3","longest=5","symbols=5"]', "data.count=100", "tokenizer.kind=word"]
NARROW = ["model.size=8", "model.embedding=8", "model.hidden=8"]
STACK = ["model.size=8", "model.heads=2", "model.layers=1", "model.hidden=16"]
# A run's name: what its kind and its task are, and the keys that are set.
RUNS: dict[str, tuple[str, str, list[str]]] = {
    "rnn": ("rnn", "translate", [*SENTENCES, *NARROW[:2], "model.dropout=0.1"]),
    "rnnsearch": ("rnnsearch", "translate", [*SENTENCES, *NARROW, "model.maxout=4", "tokenizer.joint=false"]),
    "luong": (
        "luong",
        "translate",
        [*SENTENCES, *NARROW[:2], "model.layers=1", "model.span=local-p", "model.radius=2"],
    ),
    "transformer": ("transformer", "translate", [*SENTENCES, *STACK, "model.tied=all", "model.dropout=0.1"]),
    "encoder": ("encoder", "classify", [*DOCUMENTS, *STACK]),
    "encoder-language-model": ("encoder", "language-model", [*WRITES, *STACK]),
    "lstmn": ("lstmn", "translate", [*SENTENCES, *NARROW]),
    "lstmn-language-model": ("lstmn", "language-model", [*WRITES, *NARROW]),
    "lstmn-classify": ("lstmn", "classify", [*DOCUMENTS, *NARROW]),
    "pointer": ("pointer", "translate", ["data.builtin=sort", *SYMBOLS, *NARROW]),
    "ntm": ("ntm", "translate", ["data.builtin=copy", *SYMBOLS, *NARROW[:2], "model.slots=8", "model.width=4"]),
    "captioner": (
        "captioner",
        "caption",
        [*SCENES, *NARROW, "tokenizer.kind=word", "model.channels=4", "model.stages=2", "model.blocks=1"],
    ),
    "han": ("han", "classify", [*DOCUMENTS, "model.size=4", *NARROW[1:]]),
    "convnet": (
        "convnet",
        "classify",
        [
            *SCENES,
            'data.builtin_options=["question=which-size"]',
            "model.channels=8",
            "model.stages=2",
            "model.after=1",
        ],
    ),
}
TRAINING = ["rate=0.02", "schedule=constant", "warmup=2", "batch_tokens=256", "batch_rows=16", "metric=loss", "ema=0.8"]
TRAINING += [f"steps={STEPS}", f"validate_every={STEPS}", "validate_rows=4", "log_every=1", "keep=1", "device=cpu"]


def signature() -> dict[str, str]:
    """What the last bits of a result hang on."""
    names = (line.partition(":")[2].strip() for line in processor_lines() if line.startswith("model name"))
    return {
        "torch": torch.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "processor": next(names, "unknown"),
    }


def processor_lines() -> list[str]:
    """What Linux tells of the processor; nothing elsewhere."""
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def train(*words: str | Path) -> None:
    """`regard train` in this process."""
    from regard.cli import app

    done = CliRunner().invoke(app, ["train", *map(str, words)])
    if done.exit_code:
        raise RuntimeError(done.output) from done.exception


def settings(keys: list[str]) -> Iterator[str]:
    """Keys as options of the command."""
    for key in keys:
        yield from ("--set", key)


def answer(folder: Path) -> dict[str, Any]:
    """What a stored run answers to three inputs; each number as its bits."""
    from regard import load

    run = load(folder)
    _, task, keys = RUNS[folder.name]
    if task == "classify":
        inputs: list[Any] = REVIEWS if "data.builtin=reviews" in keys else [folder.parent / name for name in PICTURES]
        return {"labels": [[each.label, hexed(each.probabilities)] for each in run.classify(inputs)]}
    if task == "caption":
        pictures = [folder.parent / name for name in PICTURES]
        return {f"beam {beam}": written(run.captions(pictures, beam=beam, nbest=beam, longest=12)) for beam in (1, 3)}
    if task == "language-model":
        sampled = run.sample(3, prefix="sie", seed=5, longest=8)
        return {"scores": scored(run.score(GERMAN)), "samples": written([[each] for each in sampled])}
    (sources, targets) = next(pair for corpus, pair in PAIRS.items() if f"data.builtin={corpus}" in keys)
    answers: dict[str, Any] = {
        f"beam {beam}": written(run.stream(sources, beam=beam, nbest=beam, longest=12)) for beam in (1, 3)
    }
    answers["scores"] = scored(run.score(sources, targets))
    if run.settings.kind not in ("rnn", "ntm"):  # which have no attention to the source
        answers["links"] = [[list(link) for link in links] for links in run.links(zip(sources, targets, strict=True))]
        answers["weights"] = run.align(sources[0], targets[0]).weights.flatten().tolist()
        answers["weights"] = [float(weight).hex() for weight in answers["weights"]]
    return answers


def written(outputs: Any) -> list[list[list[Any]]]:
    """Outputs of a search: pieces, score, log-probability, and whether each ended by itself."""
    return [
        [[list(each.tokens), each.score.hex(), each.log_prob.hex(), each.finished] for each in some] for some in outputs
    ]


def scored(scores: Any) -> list[list[Any]]:
    """Log-probabilities of given texts, and of each of their tokens."""
    return [[each.log_prob.hex(), [token.hex() for token in each.tokens]] for each in scores]


def hexed(probabilities: dict[str, float]) -> dict[str, str]:
    return {label: each.hex() for label, each in probabilities.items()}


def resume(run: Path, steps: int = STEPS + MORE) -> dict[str, Any]:
    """Train a copy of a run for two more steps: the loss of each, and of the validation after them."""
    train("--resume", run, "--set", f"training.steps={steps}")
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    later = [record for record in records if record["step"] > STEPS]
    return {
        "steps": [record["loss"].hex() for record in later if record["kind"] == "step"],
        "valid": [record["loss"].hex() for record in later if record["kind"] == "valid"],
    }


def write(name: str) -> None:
    """One run: trained, stripped of what is not needed to load and resume, asked, and resumed in a copy."""
    kind, task, keys = RUNS[name]
    folder = HOME / name
    shutil.rmtree(folder, ignore_errors=True)
    given = [*keys, f"task={task}", *(f"training.{key}" for key in TRAINING)]
    train("--model", kind, "--out", folder, *settings(list(dict.fromkeys(given))))
    for each in ("report.html", "log.txt", "metrics.jsonl", ".lock"):
        (folder / each).unlink(missing_ok=True)
    shutil.rmtree(folder / "tensorboard", ignore_errors=True)
    for link in ("best", "last"):
        (folder / "checkpoints" / link).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as other:
        resumed = resume(Path(shutil.copytree(folder, Path(other) / name)))
    expected = {"signature": signature(), "answers": answer(folder), "resumed": resumed}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_pictures() -> None:
    """Three pictures that the kinds which see are asked about."""
    from PIL import Image

    from regard.data import generate

    for name, example in zip(PICTURES, generate("scenes", 3, seed=9, size=32), strict=True):
        Image.fromarray(example.picture()).save(HOME / name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["REGARD_CACHE"] = cache
        write_pictures()
        for each in sys.argv[1:] or RUNS:
            write(each)
            print(each)
