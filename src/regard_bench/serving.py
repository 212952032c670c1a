"""Benchmarks of `regard serve`: clients in separate processes send HTTP requests to the started command.

The models have random weights, and each request sets the number of tokens of its outputs, so that the work is the same
for all systems. On a CPU, a Transformer of the size of Multi30k's (width 256, 3 and 3 layers, 8,000 words) is compared
with `run.stream` and `run.translate` of the same sentences in this process, in turn with the server; the answers must
be the same. On a GPU, a Transformer base with 32,000 words is measured on its own. If CTranslate2 is installed, it
serves the same model to the same clients behind a minimal server (`regard_bench.peer_server`).
"""

import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from regard.data import Tokenizers
from regard.data import train as train_vocabulary
from regard.errors import RegardError
from regard.run import Run, load
from regard.tasks import build_model, read_settings, write_config
from regard.training import Checkpoints, Counters, Prediction, weight_files
from regard_bench.measure import Result, obstacle

SMALL = {"preset": "small"}
BASE = {"preset": "base"}
TURN = 6.0  # seconds of requests for one figure
DOCUMENT = (100, 20)  # sentences and words of a long document
PLACE = "/v1/translate"
MANY = 4  # processes of many clients


def run(rounds: int = 9, device: str = "cpu") -> Iterator[Result]:
    """Start the server, and measure latency and throughput for its clients."""
    with tempfile.TemporaryDirectory() as home:
        yield from run_cpu(Path(home), rounds) if device == "cpu" else run_cuda(Path(home))


# ---- two cores


def run_cpu(home: Path, rounds: int) -> Iterator[Result]:
    """Compare throughput with a whole list, latency with a call, and short requests with those beside a document."""
    folder = write_run(home / "model", SMALL, 8000)
    opened, words = load(folder), Words(8000)
    search: dict[str, Any] = {"beam": 5, "shortest": 14, "longest": 14}
    texts = [words.sentence(12) for _ in range(256)]
    bodies = [{"texts": [text], **search} for text in texts]
    with server(folder, "cpu") as address:
        answers = drive(address, bodies[:16], 16, 2, keep=16)["answers"]
        compare_answers(opened, answers, search)
        rates = []
        for _ in range(max(3, rounds // 3)):
            start = time.perf_counter()
            list(opened.stream(texts, **search))
            alone = len(texts) / (time.perf_counter() - start)
            rates.append((rate_of(drive(address, bodies, 32, TURN)), alone))
        throughput, alone, ratio = medians(rates)
        what = "32 clients, a sentence each, beam 5"
        ours = f"{throughput:.1f} sentences per second"
        yield result(what, ours, f"regard translate {alone:.1f}", ratio, 0.7)
        times = []
        for turn in range(max(3, rounds // 3)):
            alone_times = []
            for text in texts[turn * 8 : turn * 8 + 8]:
                start = time.perf_counter()
                opened.translate([text], **search)
                alone_times.append(time.perf_counter() - start)
            served = median(drive(address, bodies[turn * 8 :], 1, TURN / 2)["seconds"])
            times.append((served, median(alone_times)))
        served, alone, ratio = medians(times)
        ours, peer = f"{1e3 * served:.1f} ms", f"run.translate {1e3 * alone:.1f} ms"
        yield result("one client, median", ours, peer, ratio, 1.3, less=True)
        yield beside_document(address, words, 4.0)
    yield from compare_peer(folder, "cpu", what, bodies, 32, throughput, answers)


def compare_answers(opened: Run, answers: Sequence[Any], search: dict[str, Any]) -> None:
    """Raise an error if the server's answers differ from the library's."""
    for body, answer in answers:
        expected = next(iter(opened.stream(body["texts"], **search)))[0]
        output = answer["results"][0]["outputs"][0]
        if output["text"] != expected.text or abs(output["score"] - expected.score) > 1e-4:
            raise RegardError(f"bench: {body['texts'][0]!r} is answered with {output['text']!r}, not {expected.text!r}")


# ---- a GPU


def run_cuda(home: Path) -> Iterator[Result]:
    """Measure a Transformer base: latency, throughput, mixed requests, and a long document; compare it with a peer."""
    folder = write_run(home / "model", BASE, 32_000)
    sentences, lists, answers = yield from drive_cuda(folder)
    yield from compare_peer(folder, "cuda", "64 clients, 32 texts each, beam 5", lists, 64, sentences, answers)


def drive_cuda(
    folder: Path, workers: str = "auto", flags: Sequence[str] = ()
) -> Generator[Result, None, tuple[float, list[dict[str, Any]], list[Any]]]:
    """Yield the results of a server on a GPU; return sentences per second, requests and answers for a peer."""
    words = Words(32_000)
    greedy = {"beam": 1, "shortest": 27, "longest": 27}
    beam = {"beam": 5, "shortest": 27, "longest": 27}
    with server(folder, "cuda", workers, flags) as address:
        captures = figure(address, "regard_captures")
        bodies = [{"texts": [words.sentence(24)], **greedy} for _ in range(256)]
        drive(address, bodies, 4, 2)
        one = drive(address, bodies, 1, TURN)
        alone = median(one["seconds"])
        what = "one client, greedy, 28 tokens, median"
        yield result(what, f"{1e3 * alone:.2f} ms", "goal 20 ms", alone / 0.02, 1.0, less=True)
        many = rate_of(drive(address, bodies, 64, TURN, processes=MANY))
        rate = rate_of(one)
        yield result("64 clients, greedy", f"{many:.0f} a second", f"one client {rate:.0f}", many / rate, 10.0)
        lists = [{"texts": [words.sentence(24) for _ in range(32)], **beam} for _ in range(64)]
        answers = drive(address, lists, 16, 2, keep=64)["answers"]
        drive(address, lists, 64, 2, processes=MANY)
        sentences = 32 * rate_of(drive(address, lists, 64, TURN, processes=MANY))
        ours = f"{sentences:.0f} sentences per second"
        yield result("64 clients, 32 texts each, beam 5", ours, "goal 8,000", sentences / 8000, 1.0)
        mixed = [{**body, **varied(words, number)} for number, body in enumerate(lists)]
        rates = []
        for _ in range(3):
            equal = rate_of(drive(address, lists, 64, TURN / 2, processes=MANY))
            rates.append((rate_of(drive(address, mixed, 64, TURN / 2, processes=MANY)), equal))
        differing, equal, ratio = medians(rates)
        ours, peer = f"{32 * differing:.0f} sentences per second", f"equal ones {32 * equal:.0f}"
        yield result("requests whose beam, limits and prefixes differ", ours, peer, ratio, 0.8)
        yield beside_document(address, words, 2.0)
        more = figure(address, "regard_captures") - captures
        yield result("graphs captured after the start", f"{more:.0f}", f"{captures:.0f} before", more, 0.0, less=True)
    return sentences, lists, answers


def varied(words: "Words", number: int) -> dict[str, Any]:
    """Return options that differ between requests, for outputs of about the same length."""
    tokens = 27 + number % 5 - 2
    table: dict[str, Any] = {"beam": 1 + number % 5, "shortest": tokens, "longest": tokens}
    table |= {"length_penalty": 0.1 * (number % 10), "nbest": 1 + number % (1 + number % 5)}
    if number % 2:
        table["prefixes"] = [words.sentence(1 + number % 3) for _ in range(32)]
    return table


# ---- on both devices


def beside_document(address: str, words: "Words", goal: float) -> Result:
    """Measure short requests while the server translates a long document again and again."""
    short = [{"texts": [words.sentence(8)], "beam": 5, "shortest": 9, "longest": 9} for _ in range(64)]
    document = " ".join(words.sentence(DOCUMENT[1]).capitalize() + "." for _ in range(DOCUMENT[0]))
    body = {"texts": [document], "beam": 5, "shortest": 22, "longest": 22}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address + PLACE, json.dumps(body).encode(), headers)
    stop = threading.Event()

    def repeat() -> None:
        while not stop.is_set():
            with urllib.request.urlopen(request, timeout=300) as response:
                response.read()

    pairs = []
    for _ in range(3):
        before = late(drive(address, short, 1, TURN / 2)["seconds"])
        stop.clear()
        thread = threading.Thread(target=repeat, daemon=True)
        thread.start()
        time.sleep(0.3)
        pairs.append((late(drive(address, short, 1, TURN)["seconds"]), before))
        stop.set()
        thread.join()
    beside, before, ratio = medians(pairs)
    what = f"8 words beside a document of {DOCUMENT[0] * DOCUMENT[1]:,}, 95th percentile"
    return result(what, f"{1e3 * beside:.1f} ms", f"without it {1e3 * before:.1f} ms", ratio, goal, less=True)


def drive(
    address: str, bodies: Sequence[Any], clients: int, seconds: float, keep: int = 0, processes: int = 1
) -> dict[str, Any]:
    """Send requests from clients in separate processes; raise an error for any status but 200."""
    plan = {"address": address, "path": PLACE, "clients": clients // processes, "seconds": seconds, "keep": keep}
    shares = [json.dumps({**plan, "bodies": list(bodies[number::processes])}) for number in range(processes)]
    command = [sys.executable, "-m", "regard_bench.http_load"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "encoding": "utf-8"}
    running = [subprocess.Popen(command, **pipes) for _ in shares]
    figures: dict[str, Any] = {"seconds": [], "answers": [], "elapsed": seconds}
    outputs: list[str] = [""] * len(running)

    def talk(number: int) -> None:
        outputs[number] = running[number].communicate(shares[number])[0]

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(len(running))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for output in outputs:
        part = json.loads(output)
        if set(part["statuses"]) - {"200"}:
            raise RegardError(f"bench: the server answered with {part['statuses']}, expected 200")
        figures["seconds"] += part["seconds"]
        figures["answers"] += part["answers"]
    return figures


def rate_of(figures: dict[str, Any]) -> float:
    """Return the requests per second."""
    return len(figures["seconds"]) / figures["elapsed"]


def late(seconds: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return statistics.quantiles(seconds, n=20)[-1]


def median(values: Any) -> float:
    """Return the median of an iterable."""
    return statistics.median(list(values))


def medians(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Return the medians of both sides of pairs, and of their ratios."""
    return median(one for one, _ in pairs), median(other for _, other in pairs), median(a / b for a, b in pairs)


def result(what: str, ours: str, peer: str, ratio: float, goal: float, less: bool = False) -> Result:
    """Build one line of the benchmark."""
    reached = ratio <= goal if less else ratio >= goal
    return Result(what, ours, peer, ratio, f"{'at most' if less else 'at least'} {goal:g}", reached)


@contextmanager
def server(folder: Path, device: str, workers: str = "auto", flags: Sequence[str] = ()) -> Iterator[str]:
    """Start `regard serve` for a run, and yield its address."""
    config = folder.parent / f"serve-{workers}.toml"
    limits = "waiting = 100000\nseconds = 300\ntexts = 1000\ncharacters = 1000000\n"
    config.write_text(f'{limits}workers = "{workers}"\n', encoding="utf-8", newline="\n")
    command = ["regard", "serve", f"model={folder}", "--port", "0", "--quiet", "--device", device]
    with start([*command, "--config", str(config), *flags]) as address:
        yield address


@contextmanager
def start(module: Sequence[str]) -> Iterator[str]:
    """Start a Python module that serves, and yield the address that it prints when it is ready."""
    command = [sys.executable, "-m", *module]
    lines: list[str] = []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8") as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if line.startswith("regard: ready: "):
                break
        else:
            raise RegardError(f"bench: the server did not start: {''.join(lines)}")
        reading = threading.Thread(target=process.stderr.read, daemon=True)  # a full pipe would block the server
        reading.start()
        try:
            yield lines[-1].split()[2]
        finally:
            process.terminate()
            process.wait(60)
            reading.join()


# ---- CTranslate2


def compare_peer(
    folder: Path, device: str, what: str, bodies: Sequence[Any], clients: int, ours: float, mine: Sequence[Any]
) -> Iterator[Result]:
    """Send the same requests to CTranslate2 behind a minimal server, if it is installed, and compare the throughput.

    Its search ends an output at the limit without scoring END, so that a few answers may differ; the result says how
    many are equal.
    """
    if hindrance := obstacle("ctranslate2"):
        advice = f"CTranslate2 {hindrance}: pip install 'regard[peers]'"
        yield Result(f"{what}, beside CTranslate2", "", advice, None, "", True)
        return
    with start(["regard_bench.peer_server", str(folder), device]) as address:
        answers = {json.dumps(body): answer for body, answer in drive(address, bodies[:16], 16, 2, keep=64)["answers"]}
        pairs = [
            (one["text"], other["text"])
            for body, answer in mine
            if (peer := answers.get(json.dumps(body))) is not None
            for one, other in zip(answer["results"], peer["results"], strict=True)
        ]
        equal = sum(one == other for one, other in pairs)
        drive(address, bodies, clients, 2, processes=MANY)
        rate = len(bodies[0]["texts"]) * rate_of(drive(address, bodies, clients, TURN, processes=MANY))
    peer = f"CTranslate2 {rate:.1f}; {equal} of {len(pairs)} answers equal"
    yield Result(f"{what}, beside CTranslate2", f"{ours:.1f} sentences per second", peer, ours / rate, "none", True)


# ---- figures and texts


def figure(address: str, name: str) -> float:
    """Return one of the server's metrics, summed over its labels."""
    with urllib.request.urlopen(address + "/metrics", timeout=60) as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + "{", name + " ")))


class Words:
    """A generator of sentences of random words from the vocabulary."""

    def __init__(self, count: int):
        self.words = word_list(count)
        self.random = random.Random(0)

    def sentence(self, words: int) -> str:
        """Return a sentence of this many words."""
        return " ".join(self.random.choice(self.words) for _ in range(words))


def word_list(count: int) -> list[str]:
    """Return `count` - 10 words that sentence splitting ignores; a vocabulary also has pieces of its own."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [
        letters[i % 26] + letters[i // 26 % 26] + letters[i // 676 % 26] + letters[i // 17576]
        for i in range(count - 10)
    ]


def write_run(folder: Path, model: dict[str, Any], words: int) -> Path:
    """Write a run folder with random weights and a vocabulary of this many words."""
    table = {
        "task": "translate",
        "data": {"source": "train.en", "target": "train.de", "longest": 64},
        "tokenizer": {"kind": "word", "joint": True, "size": words},
        "model": {"kind": "transformer", **model},
    }
    settings = read_settings(table)
    tokenizers = Tokenizers(train_vocabulary(word_list(words), "word", words))
    torch.manual_seed(0)
    built = build_model(settings, tokenizers, [])
    folder.mkdir(parents=True)
    write_config(folder / "config.toml", settings)
    tokenizers.save(folder / "tokenizer.json")
    facts = {"task": "translate", "model": settings.table()["model"], "tokenizer": tokenizers.hash}
    manifest = {"step": 1, "counters": Counters(1).table(), "task": facts}
    Checkpoints(folder).write("step-000001", weight_files.weights_of(Prediction(built)), {}, manifest)
    return folder
