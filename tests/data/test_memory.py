"""Preparation does not hold the corpus in memory: five times the pairs take no more."""

import multiprocessing
import threading
import time

import numpy as np
import pytest

from regard.data import batching, preparation, tokenizer
from regard.data.batching import Order, load
from regard.data.preparation import prepare
from regard.data.settings import DataSettings


def write(folder, count, seed=0):
    """Write short pairs of words whose frequencies fall as in natural language."""
    draw = np.random.default_rng(seed)
    words = np.array([bytes(row).decode() for row in draw.integers(97, 115, (20_000, 6), np.uint8)])
    paths = [folder / f"{count}.{side}" for side in ("source", "target")]
    for path in paths:
        with open(path, "w") as file:
            for start in range(0, count, 50_000):
                size = min(50_000, count - start), 5
                drawn = words[np.minimum(draw.zipf(1.3, size) - 1, len(words) - 1)]
                file.writelines(f"{' '.join(row)}\n" for row in drawn)
    return [str(path) for path in paths]


def memory():
    """Return this process's anonymous memory in KiB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))


def measure(source, target, cache, answer):
    """Prepare and iterate over an epoch in a new process; return the number of pairs and the peak of added KiB."""
    start, peaks, done = memory(), [0], threading.Event()

    def watch():
        while not done.wait(0.01):
            peaks.append(max(peaks.pop(), memory()))

    thread = threading.Thread(target=watch)
    thread.start()
    prepared = prepare(DataSettings(source=source, target=target, cache=cache))
    order = Order(prepared.train.lengths, 4096, window=batching.WINDOW)
    pairs = sum(len(load(prepared.train, batch)) for batch in order.epoch(0))
    done.set()
    thread.join()
    answer.send((pairs, len(prepared.train), max(peaks[0], memory()) - start))


def taken(folder, count):
    """Return the MiB that `count` pairs take."""
    fork = multiprocessing.get_context("fork")  # torch is already loaded
    mine, theirs = fork.Pipe()
    began = time.perf_counter()
    child = fork.Process(target=measure, args=(*write(folder, count), str(folder / f"cache{count}"), theirs))
    child.start()
    theirs.close()
    pairs, expected, kib = mine.recv()
    child.join()
    assert pairs == expected >= 0.95 * count
    print(f"{count:,} pairs: {kib // 1024} MiB, {time.perf_counter() - began:.0f} s")
    return kib // 1024


def test_five_times_the_pairs_take_no_more_memory(tmp_path, monkeypatch):
    """A short version: sample, words and windows are small, so that few pairs fill them."""
    monkeypatch.setattr(preparation, "SAMPLE", 100_000)
    monkeypatch.setattr(tokenizer, "REMEMBERED", 5_000)
    monkeypatch.setattr(batching, "WINDOW", 2_000)
    few, many = taken(tmp_path, 8_000), taken(tmp_path, 40_000)
    assert many <= few + 12


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_five_million_pairs_take_no_more_memory_than_one(tmp_path):
    one, five = taken(tmp_path, 1_000_000), taken(tmp_path, 5_000_000)
    assert five <= one + 64
