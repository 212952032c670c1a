"""Workers: a thread opens a run and works until its queue is closed; if it dies, every job still gets an answer."""

import asyncio
import functools
import pickle
import sys
import threading

import pytest
from serving.served import serve, settings_of, stored, wait_until

from regard.decoding import Options, Output, SearchResult, search, tokens_of
from regard.errors import ArgumentError
from regard.run import Run, load
from regard.serving import worker as module
from regard.serving.jobs import Job, JobQueue
from regard.serving.worker import (
    Counters,
    ThreadWorker,
    WorkerError,
    collect_page,
    list_all,
    longest_source,
    score_tokens,
)
from regard.tasks import translate

(FOLDER,) = stored("transformer")
TEXTS, TARGETS = ["the dog eats", "a cat"], ["sie wer", "wer"]


class Stop(BaseException):
    """An exception that ends a worker."""


def stop(run):
    raise Stop


@pytest.fixture
def start():
    """Start workers, which end with the test."""
    queues = []

    def make(open_run=lambda device: load(FOLDER, device=device), stopped=lambda: None):
        delivered: list = []
        queue = JobQueue(delivered.extend)
        queues.append(queue)
        worker = ThreadWorker("t", "cpu", open_run, queue, Counters(), settings_of(), stopped)
        worker.start()
        assert worker.started.wait(60)
        return worker, queue, delivered

    yield make
    for queue in queues:
        queue.close()


def test_jobs_and_calls_are_done(start):
    worker, queue, delivered = start()
    assert worker.ready
    assert queue.call(lambda run: run.step).result(60) == 100
    with pytest.raises(ArgumentError, match="wrong"):
        queue.call(lambda run: (_ for _ in ()).throw(ArgumentError("wrong"))).result(60)
    queue.add([Job([3, 4], Options(longest=2), request=number) for number in range(3)])
    queue.close()
    worker.join(60)
    assert not worker.ready
    assert [len(outcome.outputs) for _, outcome in delivered] == [1, 1, 1]
    assert (worker.counters.sentences, worker.under_way) == (3, 0)
    assert worker.counters.steps_seconds > 0


def test_a_cancelled_job_leaves_its_place(start):
    worker, queue, delivered = start()
    job = Job([3, 4], Options(beam=1, shortest=1000, longest=1000), request="a")
    queue.add([job])
    wait_until(lambda: worker.under_way)
    queue.cancel([job])
    wait_until(lambda: not worker.under_way)
    assert delivered == []
    assert not queue.cancelled


def test_a_run_that_cannot_be_opened_is_a_failure_of_its_worker(start, caplog):
    def refuse(device):
        raise ArgumentError("no such run")

    worker, _, _ = start(refuse)
    worker.join(60)
    assert not worker.ready
    assert str(worker.failure) == "no such run"
    assert caplog.text == ""  # the caller of start reports the error


def test_one_that_dies_answers_what_it_had(start, caplog):
    said = threading.Event()
    worker, queue, delivered = start(stopped=said.set)
    jobs = [Job([3, 4], Options(beam=1, shortest=1000, longest=1000), request=number) for number in range(3)]
    queue.add(jobs)
    wait_until(lambda: worker.under_way == 3)
    call = queue.call(stop)
    worker.join(60)
    assert said.is_set()
    assert not worker.ready
    assert {job for job, outcome in delivered if isinstance(outcome, WorkerError)} == set(jobs)
    assert "the worker has stopped" in caplog.text
    with pytest.raises(WorkerError):  # the caller that waits also gets an error
        call.result(60)


def test_a_server_whose_only_worker_died_says_so(caplog):
    long = {"texts": ["the dog"] * 3, "beam": 1, "shortest": 1000, "longest": 1000}
    with serve(FOLDER, waiting=100) as found:
        model = found.service.models["transformer"]

        async def die_under_way():
            asked = [asyncio.create_task(found.client.post("/v1/translate", json=long)) for _ in range(3)]
            while model.under_way < 9:
                await asyncio.sleep(0.005)
            model.queue.call(stop)
            return await asyncio.gather(*asked)

        for answer in (*found.call(die_under_way()), found.post("/v1/translate", long)):
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "worker_stopped"
        assert found.post("/v1/score", {"texts": ["a"], "targets": ["b"]}).status_code == 503
        assert (found.get("/readyz").status_code, found.get("/livez").status_code) == (503, 200)
        assert found.get("/readyz").json()["models"] == {"transformer": "a worker has stopped"}
        assert found.figure("regard_workers_ready") == 0
    assert "the worker has stopped" in caplog.text


def test_another_worker_goes_on(caplog):
    with serve(FOLDER, device="cpu,cpu") as found:
        model = found.service.models["transformer"]
        model.queue.call(stop)
        wait_until(lambda: model.ready_workers == 1)
        assert found.post("/v1/translate", {"texts": ["a"], "beam": 1, "longest": 3}).status_code == 200
        assert found.get("/readyz").status_code == 503  # one of two workers: the operator should notice


def test_the_rate_is_that_of_late(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    counters = Counters()
    assert counters.rate == 0
    result = SearchResult([Output([3, 4], -1.0, -1.0, True)])
    for _ in range(4):
        now[0] += 1
        counters.add([result, result])
    now[0] += 1
    assert counters.rate == 8 / 4
    assert (counters.sentences, counters.tokens) == (8, 24)
    now[0] += 60
    assert counters.rate == 0
    counters.add([result])
    assert counters.rate == 1 / 0.5
    assert len(counters.recent) == 1  # older steps are forgotten


def test_figures_are_read_while_several_workers_count():
    counters, result = Counters(), SearchResult([Output([3], -1.0, -1.0, True)])
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # let threads switch at any moment
    try:

        def count():
            for _ in range(3000):
                counters.add([result])
                counters.add(steps=1.0)

        threads = [threading.Thread(target=count) for _ in range(3)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert counters.rate >= 0
    finally:
        sys.setswitchinterval(interval)
    assert (counters.sentences, counters.tokens, counters.steps_seconds) == (9000, 18_000, 9000.0)


def test_the_longest_source_is_the_shorter_of_two_limits():
    assert longest_source(load(FOLDER)) == 200


@pytest.fixture(scope="module")
def run():
    return load(*stored("transformer"))


def call(function, run, /, **given):
    """Return a function's result after pickling, as another process would send it."""
    return pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(functools.partial(function, **given)))(run)))


def test_alignments_are_those_of_the_run(run):
    ids = run.tokenizers.source.encode_batch(TEXTS)
    outputs = [search(run.model, tokens_of([each]), Options(longest=4))[0].outputs for each in ids]
    expected = list(run.stream(TEXTS, longest=4, alignment=True))
    given = {"texts": TEXTS, "sources": ids, "outputs": outputs, "alignment": True, "replace_unknown": False}
    found = call(list_all, run, function=translate.add_alignments, **given)
    assert [[each.alignment for each in row] for row in found] == [[each.alignment for each in row] for row in expected]
    assert [row[0].text for row in found] == [row[0].text for row in expected]


def test_links_are_those_of_the_run(run):
    pairs = list(zip(TEXTS, TARGETS, strict=True))
    assert call(list_all, run, function=Run.links, pairs=pairs) == list(run.links(pairs))


def test_scores_are_those_of_the_run(run):
    ids = [side.encode_batch(each) for side, each in ((run.tokenizers.source, TEXTS), (run.tokenizers.target, TARGETS))]
    found = call(score_tokens, run, sources=ids[0], targets=ids[1])
    for mine, theirs in zip(found, run.score(TEXTS, TARGETS), strict=True):
        assert mine.tokens == pytest.approx(theirs.tokens, abs=1e-5)


def test_a_page_is_plain_data(run):
    page = call(collect_page, run, item=TEXTS[0], target=TARGETS[0], table={})
    assert page == collect_page(run, TEXTS[0], TARGETS[0], {})
    assert "sie" in repr(page)
