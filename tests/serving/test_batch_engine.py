"""The engine of batches, and a server whose models are searched by CTranslate2."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from serving.served import Served, stored

from regard.decoding import Options, Output, SearchResult
from regard.errors import ArgumentError, CommandError
from regard.serving.engine import BatchEngine
from regard.serving.jobs import Job


@dataclass
class Echo:
    """A run whose engine gives back what it reads, and notes the batches that it was given."""

    batches: list[list[list[int]]] = field(default_factory=list)

    @property
    def engine(self) -> Any:
        return self

    def search(self, sources, options, *, prefixes=None, budget=None):
        self.batches.append(list(sources))
        if [13] in sources:
            raise ArgumentError("13: unlucky")
        if [14] in sources:
            raise ValueError("a fault")
        return [
            SearchResult([Output([*(prefixes[i] if prefixes else []), *s], 0.0, 0.0, True)])
            for i, s in enumerate(sources)
        ]


def all_of(engine):
    updates = []
    while engine.active:
        updates += engine.advance()
    return updates


def test_jobs_of_the_same_options_go_together_and_others_take_turns():
    run = Echo()
    engine = BatchEngine(run)
    one, two = Options(beam=1), Options(beam=2)
    jobs = [Job([i], one if i % 2 else two, bulk=i > 5) for i in range(10)]
    engine.add(jobs)
    assert engine.places == 10
    assert not engine.idle(False)
    room = engine.room(False)
    found = dict(all_of(engine))
    assert {job: outcome.outputs[0].tokens for job, outcome in found.items()} == {job: job.source for job in jobs}
    assert run.batches == [[[0], [2], [4]], [[1], [3], [5]], [[6], [8]], [[7], [9]]]
    assert engine.idle(False)
    assert engine.room(False) > room


def test_batches_are_bounded_and_none_is_left_out():
    run = Echo()
    engine = BatchEngine(run)
    jobs = [Job([4] * 200, Options(beam=5)) for _ in range(7)] + [Job([4] * 3000, Options(beam=5))]
    engine.add(jobs)
    assert len(all_of(engine)) == 8
    assert [len(batch) for batch in run.batches] == [2, 2, 2, 1, 1]


def test_what_is_cancelled_leaves():
    run = Echo()
    engine = BatchEngine(run)
    jobs = [Job([i], Options()) for i in range(3)]
    engine.add(jobs)
    engine.cancel(jobs[1])
    engine.cancel(jobs[1])
    assert [job for job, _ in all_of(engine)] == [jobs[0], jobs[2]]
    assert engine.idle(False)
    assert not engine.active


def test_one_job_that_is_refused_does_not_spoil_the_others():
    engine = BatchEngine(Echo())
    jobs = [Job([12], Options(), prefix=[5]), Job([13], Options()), Job([11], Options())]
    engine.add(jobs)
    found = dict(all_of(engine))
    assert found[jobs[0]].outputs[0].tokens == [5, 12]
    assert isinstance(found[jobs[1]], ArgumentError)
    assert found[jobs[2]].outputs[0].tokens == [11]
    engine.add([Job([14], Options()), Job([15], Options())])
    assert [type(outcome) for _, outcome in all_of(engine)] == [ValueError, ValueError]


# ---- a server


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        served = Served(stored("transformer"), engine="ctranslate2")
        served.start()
        yield served
        served.close()


@pytest.fixture(scope="module")
def plain():
    served = Served(stored("transformer"))
    served.start()
    yield served
    served.close()


def test_answers_are_those_of_regards_own_engine(served, plain):
    for body in (
        {"texts": ["who are you ?", "the man", ""], "beam": 3, "alignment": True},
        {"texts": ["who"], "beam": 1, "scores": True},
        {"texts": ["who are you"], "prefixes": ["wer"]},
    ):
        one, two = (each.post("/v1/translate", body).json() for each in (plain, served))
        for right, found in zip(one["results"], two["results"], strict=True):
            assert found["text"] == right["text"]
            assert found["outputs"][0].get("alignment") == right["outputs"][0].get("alignment")
            assert found["outputs"][0].get("scores") == pytest.approx(right["outputs"][0].get("scores"), abs=1e-4)
    for path in ("/v1/score", "/v1/align"):
        body = {"texts": ["who are you"], "targets": ["wer bist du"]}
        one, two = (each.post(path, body).json()["results"][0] for each in (plain, served))
        assert two.get("alignment") == one.get("alignment")
        assert two.get("tokens") == pytest.approx(one.get("tokens"), abs=1e-4)


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        ("/v1/translate", {"texts": ["a"], "sample": True}, "sample"),
        ("/v1/translate", {"texts": ["a"], "groups": 5}, "groups"),
        ("/v1/translate", {"texts": ["a"], "coverage_penalty": 0.1}, "coverage_penalty"),
        ("/v1/translate", {"texts": ["a"], "no_repeat": 2}, "no_repeat"),
        ("/v1/look", {"text": "a b"}, "model"),
    ],
)
def test_what_it_does_not_serve_is_422_with_the_field(served, path, body, name):
    answer = served.post(path, body)
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == name


def test_an_exported_folder_needs_its_engine(tmp_path, monkeypatch):
    from regard.interop import export_model

    export_model(stored("transformer")[0], tmp_path / "out", to="ctranslate2")
    with pytest.raises(CommandError, match="out: an exported folder, which another engine opens; add --engine"):
        Served([str(tmp_path / "out")])
    served = Served([f"de={tmp_path / 'out'}"], engine="ctranslate2", quantize="int8")
    served.start()
    try:
        assert served.post("/v1/translate", {"texts": ["who"]}).status_code == 200
        assert not served.service.models["de"].has_moved()
    finally:
        served.close()
