"""Do the defaults hold up? The plain command, no other flag, on real corpora and on made ones.

python -m regard_bench.defaults prepare FOLDER data/defaults     real corpora, as the plain command takes them
python -m regard_bench.defaults make data/defaults               six made corpora: small, long, odd scripts
python -m regard_bench.defaults train --device cuda              train each with `regard train`, and test it
python -m regard_bench.defaults test NAME RUN                    test one run again

FOLDER holds multi30k/, cmudict/, inflection/, scan/, imdb/, flickr8k/ and europarl/ as their owners give them; nothing
of it is part of this project. The floor is the score of the most frequent answer given to every question. A run that is
there already is not trained again.
"""

import argparse
import collections
import json
import random
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard_bench.quality import inflection, lines

Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Corpus:
    """A corpus, what is trained on it, and how the result is judged."""

    metric: str  # BLEU, exact, accuracy or CIDEr
    shipped: str | None = None  # the configuration that it is compared with
    lowercase: bool = False
    longest: int | None = None
    reads: str = "text"
    device: str = "cuda"


REAL = {
    "multi30k-en-de": Corpus("BLEU", "multi30k", lowercase=True),
    "multi30k-de-en": Corpus("BLEU", "multi30k", lowercase=True),
    "cmudict": Corpus("exact", "cmudict"),
    "inflection": Corpus("exact", "inflection"),
    "scan": Corpus("exact", "scan", longest=100),
    "scan-length": Corpus("exact", "scan", longest=100),
    "imdb": Corpus("accuracy", "imdb", reads="documents"),
    "flickr8k": Corpus("CIDEr", "flickr8k", reads="pictures"),
    "europarl": Corpus("BLEU"),
}
MADE = {
    "pairs-1000": Corpus("BLEU", device="cpu"),
    "pairs-100": Corpus("BLEU", device="cpu"),
    "one-word": Corpus("exact", device="cpu"),
    "no-spaces": Corpus("exact", device="cpu"),
    "right-to-left": Corpus("BLEU", device="cpu"),
    "long-lines": Corpus("BLEU", device="cpu"),
}
CORPORA = REAL | MADE


# ---- real corpora


def put(folder: Path, name: str, pairs: Iterable[Sequence[str]]) -> None:
    """Two text files, line by line."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = list(pairs)
    for side, texts in zip(("source", "target"), zip(*rows, strict=True), strict=True):
        (folder / f"{name}.{side}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8", newline="\n")


def prepare(folder: Path, out: Path) -> None:
    """Write the corpora of a folder as the plain command takes them."""
    both = {name: [*zip(*(lines(folder / f"multi30k/{name}.{side}.gz") for side in ("en", "de")), strict=True)]
            for name in ("train", "test_2016_flickr")}  # fmt: skip
    for name, pairs in both.items():
        part = name.split("_")[0]
        put(out / "multi30k-en-de", part, pairs)
        put(out / "multi30k-de-en", part, [(german, english) for english, german in pairs])
    for part in ("train", "test"):
        put(out / "cmudict", part, (line.split("\t") for line in lines(folder / f"cmudict/{part}.tsv.gz")))
        rows = (line.split("\t") for line in lines(folder / f"inflection/deu.{part}.tsv.gz"))
        put(out / "inflection", part, (inflection(*row) for row in rows))
        for name, own in (("scan", "simple"), ("scan-length", "length")):
            matches = (
                re.fullmatch(r"IN: (.*) OUT: (.*)", line.strip())
                for line in lines(folder / f"scan/{own}.{part}.txt.gz")
            )
            put(out / name, part, (each.groups() for each in matches if each))
        sides = [list(lines(folder / f"europarl/{part}.{side}.gz")) for side in ("de", "en")]
        put(out / "europarl", part, [*zip(*sides, strict=True)][:50_000])
        (out / "imdb").mkdir(parents=True, exist_ok=True)
        rows = (line.split("\t") for line in lines(folder / f"imdb/{part}.tsv.gz"))
        (out / "imdb" / f"{part}.tsv").write_text(
            "".join(f"{row[0]}\t{row[3]}\n" for row in rows), encoding="utf-8", newline="\n"
        )
    flickr(folder / "flickr8k", out / "flickr8k")


def flickr(folder: Path, out: Path) -> None:
    """Pictures to train on in one folder and those of the test in another, each with its captions."""
    captions = collections.defaultdict(list)
    for line in lines(folder / "Flickr8k.token.txt.gz"):
        name, caption = line.split("\t")
        captions[name.split("#")[0]].append(caption)
    with tarfile.open(folder / "images.tar") as archive:
        members = {Path(member.name).name: member for member in archive.getmembers() if member.isfile()}
        for part in ("train", "test"):
            names = [name for name in lines(folder / f"Flickr_8k.{part}Images.txt") if name in members]
            (out / part).mkdir(parents=True, exist_ok=True)
            for name in names:
                content = archive.extractfile(members[name])
                assert content is not None
                (out / part / name).write_bytes(content.read())
            rows = "".join(f"{name}\t{caption}\n" for name in names for caption in captions[name])
            (out / f"{part}.tsv").write_text(rows, encoding="utf-8", newline="\n")


# ---- made corpora


def make(out: Path) -> None:
    """Six corpora from nothing: few pairs, one word, no spaces, right to left, long lines."""
    from regard.data import generate

    def phrasebook(count: int, seed: int) -> Pairs:
        return [(each.source, each.target) for each in generate("phrasebook", count, seed=seed, edition=1)]

    def write_pairs(name: str, pairs: Pairs, test: int) -> None:
        """Train and test without a pair in common."""
        training = set(pairs[test:])
        put(out / name, "train", pairs[test:])
        put(out / name, "test", [pair for pair in pairs[:test] if pair not in training])

    write_pairs("pairs-1000", phrasebook(1_500, 11), 500)
    write_pairs("pairs-100", phrasebook(600, 12), 500)
    draw = random.Random(13)
    write_pairs("one-word", unique(lambda: draw_transliteration(draw), 6_000), 500)
    write_pairs("no-spaces", unique(lambda: chinese_date(draw), 4_000), 500)
    write_pairs("right-to-left", unique(lambda: hebrew(draw), 3_000), 300)
    sentences = iter(phrasebook(40_000, 14))
    write_pairs("long-lines", [long_pair(sentences) for _ in range(1_600)], 100)


def unique(one: Callable[[], tuple[str, str]], count: int) -> Pairs:
    """Draw pairs until `count` different ones are there, in the order they were drawn."""
    pairs: dict[tuple[str, str], None] = {}
    while len(pairs) < count:
        pairs[one()] = None
    return [*pairs]


LETTERS = dict(zip("abcdefghijklmnopqrstuvwxyz", "абкдефгхийклмнопкрстуввхиз", strict=True))
SOUNDS = {"sh": "ш", "ch": "ч", "th": "т", "ph": "ф", "ts": "ц", "ya": "я", "yu": "ю", "zh": "ж", "oo": "у", "ee": "и"}


def draw_transliteration(draw: random.Random) -> tuple[str, str]:
    """A name in Latin letters, and in Cyrillic ones; some sounds take two letters."""
    onsets = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", *list(SOUNDS)[:5], "zh"]
    vowels = ["a", "e", "i", "o", "u", "oo", "ee", "ya", "yu"]
    name = "".join(draw.choice(onsets) + draw.choice(vowels) for _ in range(draw.randint(2, 4)))
    name += draw.choice(["", "n", "s", "r", "k"])
    pattern = re.compile("|".join([*SOUNDS, "."]))
    return name.title(), pattern.sub(lambda m: SOUNDS.get(m[0]) or LETTERS[m[0]], name).title()


MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
DIGITS = "〇一二三四五六七八九"


def chinese_date(draw: random.Random) -> tuple[str, str]:
    """An English date, and a Chinese one without spaces."""
    year, month, day = draw.randint(1900, 2060), draw.randint(1, 12), draw.randint(1, 28)

    def number(value: int) -> str:
        tens, ones = divmod(value, 10)
        return ("" if tens == 0 else "十" if tens == 1 else DIGITS[tens] + "十") + (DIGITS[ones] if ones else "")

    where = draw.choice([("in Beijing", "在北京"), ("in Shanghai", "在上海"), ("at home", "在家里"), ("", "")])
    who = draw.choice(
        [("We met", "我们见面了"), ("She arrived", "她到了"), ("He was born", "他出生了"), ("It rained", "下雨了")]
    )
    what = f"{who[0]} {where[0]} on {MONTHS[month - 1]} {day}, {year}".replace("  ", " ")
    return what, "".join(DIGITS[int(d)] for d in str(year)) + f"年{number(month)}月{number(day)}日{where[1]}{who[1]}。"


PEOPLE = {"the boy": "הילד", "the teacher": "המורה", "the king": "המלך", "the doctor": "הרופא", "my brother": "אחי"}
VERBS = {"saw": "ראה", "found": "מצא", "bought": "קנה", "sold": "מכר", "lost": "איבד", "wanted": "רצה"}
NOUNS = {"house": "בית", "book": "ספר", "horse": "סוס", "garden": "גן", "bread": "לחם", "door": "דלת", "song": "שיר"}
ADJECTIVES = {"big": "גדול", "small": "קטן", "new": "חדש", "old": "ישן", "good": "טוב", "white": "לבן"}
TIMES = {"yesterday": "אתמול", "today": "היום", "in the morning": "בבוקר", "in the evening": "בערב", "": ""}


def hebrew(draw: random.Random) -> tuple[str, str]:
    """An English sentence, and a Hebrew one: the adjective comes after its noun, the time first."""
    person, verb, when = (draw.choice([*table]) for table in (PEOPLE, VERBS, TIMES))
    things = []
    for _ in range(draw.choice([1, 1, 2])):
        noun, adjective = draw.choice([*NOUNS]), draw.choice(["", *ADJECTIVES])
        things.append(
            (f"a {adjective} {noun}".replace("  ", " "), f"{NOUNS[noun]} {ADJECTIVES.get(adjective, '')}".strip())
        )
    english = f"{person} {verb} {' and '.join(thing[0] for thing in things)} {when}".strip()
    target = f"{TIMES[when]} {PEOPLE[person]} {VERBS[verb]} {' ו'.join(thing[1] for thing in things)}".strip()
    return english + " .", target + " ."


def long_pair(sentences: Iterator[tuple[str, str]]) -> tuple[str, str]:
    """Sentences one after the other, until there are 150 words."""
    source, target = list[str](), list[str]()
    while len(source) < 150:
        one = next(sentences)
        source += one[0].split()
        target += one[1].split()
    return " ".join(source), " ".join(target)


# ---- runs


def plain(name: str, data: Path) -> list[str]:
    """The files of the plain command."""
    folder, reads = data / name, CORPORA[name].reads
    if reads == "documents":
        return ["--documents", str(folder / "train.tsv")]
    if reads == "pictures":
        return ["--images", str(folder / "train"), "--captions", str(folder / "train.tsv")]
    return ["--source", str(folder / "train.source"), "--target", str(folder / "train.target")]


def evaluate_run(name: str, data: Path, run: Path, device: str) -> dict[str, float]:
    """The score of a run on the test set, and of the most frequent answer."""
    import regard

    corpus, folder = CORPORA[name], data / name
    loaded = regard.load(run, device=device)
    if corpus.reads == "documents":
        rows = [line.split("\t") for line in lines(folder / "test.tsv")]
        predictions = loaded.classify([row[1] for row in rows])
        labels = [row[0] for row in rows]
        common = collections.Counter(line.split("\t")[0] for line in lines(folder / "train.tsv")).most_common(1)[0][0]
        right = sum(each is not None and each.label == label for each, label in zip(predictions, labels, strict=True))
        return {"score": 100 * right / len(rows), "floor": 100 * labels.count(common) / len(rows)}
    if corpus.reads == "pictures":
        grouped = collections.defaultdict(list)
        for line in lines(folder / "test.tsv"):
            picture, caption = line.split("\t")
            grouped[picture].append(caption)
        outputs = loaded.caption([folder / "test" / picture for picture in grouped], beam=5)
        answers = [line.split("\t")[1] for line in lines(folder / "train.tsv")]
        return measure_outputs(corpus, outputs, [*grouped.values()], answers)
    items = collections.defaultdict(list)
    for source, target in zip(lines(folder / "test.source"), lines(folder / "test.target"), strict=True):
        items[source].append(target)
    cases = list(items.items())
    if corpus.metric == "BLEU":  # of each line, its own translation
        cases = [(s, [t]) for s, t in zip(lines(folder / "test.source"), lines(folder / "test.target"), strict=True)]
    options = {} if corpus.longest is None else {"longest": corpus.longest}
    outputs = loaded.translate([source for source, _ in cases], beam=5, **options)
    return measure_outputs(corpus, outputs, [targets for _, targets in cases], [*lines(folder / "train.target")])


def measure_outputs(corpus: Corpus, outputs: list[str], right: list[list[str]], answers: list[str]) -> dict[str, float]:
    """The score, and that of the most frequent answer in training."""
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
    where = "cpu" if CORPORA[name].device == "cpu" else device
    extra = [part for each in (*settings, f"training.device={where}") for part in ("--set", each)]
    command = [sys.executable, "-m", "regard", "train", *plain(name, data), "--out", str(run), *extra]
    began = time.monotonic()
    if not (run / "report.html").exists():
        shutil.rmtree(run, ignore_errors=True)
        with open(log, "w", encoding="utf-8", newline="\n") as file:
            if subprocess.run(command, stdout=file, stderr=file).returncode:
                return {"name": name + label, "failed": log.read_text(encoding="utf-8")[-300:]}
    seconds = time.monotonic() - began
    # In a process of its own: captured graphs of several threads get in each other's way.
    tester = [
        sys.executable,
        "-m",
        "regard_bench.defaults",
        "test",
        name,
        str(run),
        "--data",
        str(data),
        "--device",
        where,
    ]
    output = subprocess.run(tester, check=True, capture_output=True, encoding="utf-8").stdout
    scores = json.loads(output.splitlines()[-1])
    records = [json.loads(row) for row in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = max(row["step"] for row in records)
    return {"name": name + label, **scores, "seconds": round(seconds), "steps": steps, "device": where,
            "metric": CORPORA[name].metric}  # fmt: skip


def train(options: argparse.Namespace) -> None:
    """Train several side by side, and write what each reached as it is done."""

    def do(name: str) -> None:
        try:
            result = one(name, options.data, options.runs, options.device, options.set, options.label)
        except Exception as error:  # the others go on
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
    verb = verbs.add_parser("make")
    verb.add_argument("out", type=Path)
    verb = verbs.add_parser("train")
    verb.add_argument(
        "names", nargs="*", default=[*CORPORA], help=f"corpora to train on: {', '.join(CORPORA)}; default: all"
    )
    verb.add_argument("--data", type=Path, default=Path("data/defaults"))
    verb.add_argument("--runs", type=Path, default=Path("runs/defaults"))
    verb.add_argument("--together", type=int, default=1, help="number of trainings to run at the same time")
    verb.add_argument(
        "--device", default="auto", help="device for the real corpora; generated ones are trained on a CPU"
    )
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
    elif options.verb == "make":
        make(options.out)
    elif options.verb == "test":
        print(json.dumps(evaluate_run(options.name, options.data, options.run, options.device)))
    else:
        train(options)


if __name__ == "__main__":
    main()
