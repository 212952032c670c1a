"""Do the defaults hold up? The plain command, no other flag, on real corpora.

python -m regard_bench.defaults prepare FOLDER data/defaults     real corpora, as the plain command takes them
python -m regard_bench.defaults train --device cuda              train each with `regard train`, and test it
python -m regard_bench.defaults test NAME RUN                    test one run again

FOLDER holds multi30k/, cmudict/, inflection/, scan/, imdb/, flickr8k/ and europarl/ as their owners give them; nothing
of it is part of this project. The floor is the score of the most frequent answer given to every question. A run that is
there already is not trained again.
"""

import argparse
import collections
import json
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard_bench.quality import group, inflection, lines, scan, table_of
from regard_bench.quality import put as put_file


@dataclass(frozen=True)
class Corpus:
    """A corpus, the kind of its data, and the metric of its test."""

    metric: str  # BLEU, exact, accuracy or CIDEr
    lowercase: bool = False
    longest: int | None = None
    reads: str = "text"


CORPORA = {
    "multi30k-en-de": Corpus("BLEU", lowercase=True),
    "multi30k-de-en": Corpus("BLEU", lowercase=True),
    "cmudict": Corpus("exact"),
    "inflection": Corpus("exact"),
    "scan": Corpus("exact", longest=100),
    "scan-length": Corpus("exact", longest=100),
    "imdb": Corpus("accuracy", reads="documents"),
    "flickr8k": Corpus("CIDEr", reads="pictures"),
    "europarl": Corpus("BLEU"),
}


# ---- data


def put(folder: Path, name: str, pairs: Iterable[Sequence[str]]) -> None:
    """Write pairs as two text files, line by line."""
    for side, texts in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        put_file(folder / f"{name}.{side}", table_of((text,) for text in texts))


def prepare(folder: Path, out: Path) -> None:
    """Write the corpora of a folder as files for the plain command."""
    for name in ("train", "test_2016_flickr"):
        sides = [lines(folder / f"multi30k/{name}.{side}.gz") for side in ("en", "de")]
        pairs, part = [*zip(*sides, strict=True)], name.split("_")[0]
        put(out / "multi30k-en-de", part, pairs)
        put(out / "multi30k-de-en", part, [(german, english) for english, german in pairs])
    for part in ("train", "test"):
        put(out / "cmudict", part, (line.split("\t") for line in lines(folder / f"cmudict/{part}.tsv.gz")))
        rows = (line.split("\t") for line in lines(folder / f"inflection/deu.{part}.tsv.gz"))
        put(out / "inflection", part, (inflection(*row) for row in rows))
        for name, own in (("scan", "simple"), ("scan-length", "length")):
            put(out / name, part, scan(folder / f"scan/{own}.{part}.txt.gz"))
        sides = [lines(folder / f"europarl/{part}.{side}.gz") for side in ("de", "en")]
        put(out / "europarl", part, [*zip(*sides, strict=True)][:50_000])
        rows = (line.split("\t") for line in lines(folder / f"imdb/{part}.tsv.gz"))
        put_file(out / "imdb" / f"{part}.tsv", table_of((row[0], row[3]) for row in rows))
    flickr(folder / "flickr8k", out / "flickr8k")


def flickr(folder: Path, out: Path) -> None:
    """Write training and test pictures into two folders, each with a file of captions."""
    captions = collections.defaultdict(list)
    for line in lines(folder / "Flickr8k.token.txt.gz"):
        name, caption = line.split("\t")
        captions[name.split("#")[0]].append(caption)
    with tarfile.open(folder / "images.tar") as archive:
        members = {Path(member.name).name: member for member in archive.getmembers() if member.isfile()}
        for part in ("train", "test"):
            names = [name for name in lines(folder / f"Flickr_8k.{part}Images.txt") if name in members]
            for name in names:
                content = archive.extractfile(members[name])
                assert content is not None
                put_file(out / part / name, content.read())
            put_file(out / f"{part}.tsv", table_of((name, caption) for name in names for caption in captions[name]))


# ---- runs


def plain(name: str, data: Path) -> list[str]:
    """Return the arguments of the plain command that name a corpus's files."""
    folder, reads = data / name, CORPORA[name].reads
    if reads == "documents":
        return ["--documents", str(folder / "train.tsv")]
    if reads == "pictures":
        return ["--images", str(folder / "train"), "--captions", str(folder / "train.tsv")]
    return ["--source", str(folder / "train.source"), "--target", str(folder / "train.target")]


def evaluate_run(name: str, data: Path, run: Path, device: str) -> dict[str, float]:
    """Measure the score of a run on the test set, and that of the most frequent answer."""
    import regard

    corpus, folder = CORPORA[name], data / name
    loaded = regard.load(run, device=device)
    if corpus.reads == "documents":
        rows = [line.split("\t") for line in lines(folder / "test.tsv")]
        predictions = loaded.classify([row[1] for row in rows])
        labels = [row[0] for row in rows]
        common = collections.Counter(line.split("\t")[0] for line in lines(folder / "train.tsv")).most_common(1)[0][0]
        correct = sum(each is not None and each.label == label for each, label in zip(predictions, labels, strict=True))
        return {"score": 100 * correct / len(rows), "floor": 100 * labels.count(common) / len(rows)}
    if corpus.reads == "pictures":
        pictures, right = group((line.split("\t") for line in lines(folder / "test.tsv")), False)
        outputs = loaded.caption([folder / "test" / picture for picture in pictures], beam=5)
        answers = [line.split("\t")[1] for line in lines(folder / "train.tsv")]
    else:
        pairs = zip(lines(folder / "test.source"), lines(folder / "test.target"), strict=True)
        sources, right = group(pairs, corpus.metric == "BLEU")
        options = {} if corpus.longest is None else {"longest": corpus.longest}
        outputs, answers = loaded.translate(sources, beam=5, **options), [*lines(folder / "train.target")]
    from regard.evaluation import caption_scores, text_scores

    def score(hypotheses: list[str]) -> dict[str, float]:
        if corpus.metric == "CIDEr":
            scores = caption_scores(hypotheses, right)
            return {"score": scores["cider"], "bleu": scores["bleu"]}
        if corpus.metric == "BLEU":
            return {"score": text_scores.measure_bleu(hypotheses, right, lowercase=corpus.lowercase).score().value}
        return {"score": 100 * text_scores.measure_exact(hypotheses, right).score().value}

    common = collections.Counter(answers).most_common(1)[0][0]
    return {**score(outputs), "floor": score([common] * len(outputs))["score"]}


def one(name: str, data: Path, runs: Path, device: str, settings: Sequence[str], label: str) -> dict[str, Any]:
    """Train and test one corpus."""
    run = runs / f"{name}{label}"
    log = run.with_suffix(".log")
    runs.mkdir(parents=True, exist_ok=True)
    extra = [part for each in (*settings, f"training.device={device}") for part in ("--set", each)]
    command = [sys.executable, "-m", "regard", "train", *plain(name, data), "--out", str(run), *extra]
    began = time.monotonic()
    if not (run / "report.html").exists():
        shutil.rmtree(run, ignore_errors=True)
        with open(log, "w", encoding="utf-8", newline="\n") as file:
            if subprocess.run(command, stdout=file, stderr=file).returncode:
                return {"name": name + label, "failed": log.read_text(encoding="utf-8")[-300:]}
    seconds = time.monotonic() - began
    # Test in a separate process: CUDA graph captures of several threads disturb each other.
    test = ["-m", "regard_bench.defaults", "test", name, str(run), "--data", str(data), "--device", device]
    output = subprocess.run([sys.executable, *test], check=True, capture_output=True, encoding="utf-8").stdout
    scores = json.loads(output.splitlines()[-1])
    records = [json.loads(row) for row in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = max(row["step"] for row in records)
    return {"name": name + label, **scores, "seconds": round(seconds), "steps": steps, "device": device,
            "metric": CORPORA[name].metric}  # fmt: skip


def train(options: argparse.Namespace) -> None:
    """Train several corpora in parallel, and append each result to results.jsonl when it is ready."""

    def do(name: str) -> None:
        try:
            result = one(name, options.data, options.runs, options.device, options.set, options.label)
        except Exception as error:  # let the others continue
            result = {"name": name + options.label, "failed": repr(error)[:300]}
        with open(options.runs / "results.jsonl", "a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(result) + "\n")
        print(json.dumps(result), flush=True)

    options.runs.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.together) as pool:
        for job in [pool.submit(do, name) for name in options.names]:
            job.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("prepare")
    verb.add_argument("folder", type=Path)
    verb.add_argument("out", type=Path)
    verb = verbs.add_parser("train")
    verb.add_argument(
        "names", nargs="*", default=[*CORPORA], help=f"corpora to train on: {', '.join(CORPORA)}; default: all"
    )
    verb.add_argument("--data", type=Path, default=Path("data/defaults"))
    verb.add_argument("--runs", type=Path, default=Path("runs/defaults"))
    verb.add_argument("--together", type=int, default=1, help="number of trainings to run at the same time")
    verb.add_argument("--device", default="auto", help="device to train on")
    verb.add_argument("--set", nargs="*", default=[], help="KEY=VALUE for every training, to compare with the defaults")
    verb.add_argument("--label", default="", help="suffix of each run's name")
    verb = verbs.add_parser("test")
    verb.add_argument("name")
    verb.add_argument("run", type=Path)
    verb.add_argument("--data", type=Path, default=Path("data/defaults"))
    verb.add_argument("--device", default="auto")
    options = parser.parse_args()
    if options.verb == "prepare":
        prepare(options.folder, options.out)
    elif options.verb == "test":
        print(json.dumps(evaluate_run(options.name, options.data, options.run, options.device)))
    else:
        train(options)


if __name__ == "__main__":
    main()
