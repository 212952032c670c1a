"""A server's answer equals that of `regard translate`, whatever options, lengths, prefixes and texts share a batch."""

import json
import random

import pytest
from child import regard
from serving.served import STORED, serve, stored

from regard.run import load

NAMES = ("transformer", "rnnsearch")
WORDS = ["the", "dog", "child", "eats", "sleeps", "is", "here", "we", "are", "i", "see", "not", "a", ",", "."]
STARTS = ("das", "wir sind", "")
VARIED = (
    {"beam": 1},
    {"beam": 5},
    {"beam": 3, "nbest": 3},
    {"beam": 8, "length_penalty": 0.0},
    {"beam": 5, "shortest": 5, "longest": 9},
    {"beam": 2, "no_repeat": 2},
    {"beam": 4, "groups": 2, "diversity": 0.7},
    {"beam": 4, "coverage_penalty": 0.2},
    {"sample": True, "seed": 11, "nbest": 2},
    {"sample": True, "seed": 5, "temperature": 0.7, "top_k": 9},
)
EXACT = 1e-4  # the tolerance of scores


def draw_request(rng):
    """Draw a request."""
    texts = [" ".join(rng.choices(WORDS, k=rng.choice([1, 3, 7, 20]))) for _ in range(rng.choice([1, 1, 2, 12]))]
    options = {"longest": 15, **rng.choice(VARIED)}
    prefixes = [rng.choice(STARTS) for _ in texts] if rng.random() < 0.3 else []
    table = {"texts": texts, "split": False, "alignment": rng.random() < 0.2, **options}
    return {**table, **({"prefixes": prefixes} if prefixes else {}), "model": rng.choice(NAMES)}


def expect(runs, table):
    """Yield the outputs of a run, text by text."""
    options = {name: value for name, value in table.items() if name not in ("texts", "split", "model", "prefixes")}
    for number, text in enumerate(table["texts"]):
        prefixes = [table["prefixes"][number]] if "prefixes" in table else None
        yield next(iter(runs[table["model"]].stream([text], prefixes=prefixes, **options)))


def check(served, runs, count):
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    tables = [draw_request(rng) for _ in range(count)]
    answers = served.all_at_once([("/v1/translate", table) for table in tables])
    for table, answer in zip(tables, answers, strict=True):
        assert answer.status_code == 200, answer.text
        for result, expected in zip(answer.json()["results"], expect(runs, table), strict=True):
            assert [each["text"] for each in result["outputs"]] == [each.text for each in expected], table
            for mine, theirs in zip(result["outputs"], expected, strict=True):
                assert mine["score"] == pytest.approx(theirs.score, abs=EXACT)
                assert mine["log_prob"] == pytest.approx(theirs.log_prob, abs=EXACT)
                if table["alignment"]:
                    assert mine["alignment"] == [list(link) for link in theirs.alignment]


@pytest.fixture(scope="module")
def runs():
    return {name: load(STORED / name) for name in NAMES}


@pytest.mark.parametrize("device", ["cpu", "cpu,cpu"])
@pytest.mark.parametrize("count", [16, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_requests_at_once(runs, device, count):
    with serve(*stored(*NAMES), device=device, waiting=100_000, seconds=600) as served:
        for _ in range(0, count, 100):
            check(served, runs, min(count, 100))


def test_the_command_answers_the_same(tmp_path):
    rng = random.Random(3)
    lines = [". ".join(" ".join(rng.choices(WORDS[:-2], k=4)).capitalize() for _ in range(3)) for _ in range(6)]
    (tmp_path / "text").write_text("".join(f"{line}.\n" for line in lines))
    options = ("--beam", 3, "--nbest", 2, "--longest", 8, "--split", "--alignment", "--json", "--device", "cpu")
    shown = regard("translate", STORED / "rnnsearch", tmp_path / "text", *options)
    assert shown.status == 0, shown.stderr
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    table = {"texts": [f"{line}." for line in lines], "beam": 3, "nbest": 2, "longest": 8, "alignment": True}
    with serve(*stored("rnnsearch")) as served:
        results = served.results("/v1/translate", table)
    assert len(rows) == len(results) == 6
    for row, result in zip(rows, results, strict=True):
        found = [{name: each[name] for name in ("text", "tokens", "alignment")} for each in result["outputs"]]
        assert found == [{name: each[name] for name in found[0]} for each in row["translations"]]
        for mine, theirs in zip(result["outputs"], row["translations"], strict=True):
            assert mine["score"] == pytest.approx(theirs["score"], abs=EXACT)
