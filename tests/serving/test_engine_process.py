"""The far side of a worker's process: orders come in over a connection, and reports go out. Here it is in a thread."""

import functools
import gc
import os
import pickle
import threading
import time
from multiprocessing import Pipe

import pytest
from serving.served import settings_of, stored

from regard.decoding import Options, search, tokens_of
from regard.errors import ArgumentError, CheckpointError, ConfigError, MissingExtraError
from regard.run import Run, load
from regard.serving.engine import HOST_BUDGET
from regard.serving.models import open_run
from regard.serving.process_worker import Plan, Report, portable, serve, watch_parent
from regard.serving.worker import Order

(FOLDER,) = stored("transformer")
ENDLESS = Options(beam=1, shortest=1000, longest=1000)


def row(number, source, options, *, prefix=(), request=0, bulk=False, streams=False):
    return number, source, options, prefix, request, bulk, streams, time.perf_counter()


@pytest.fixture
def connect():
    """Start the far side in threads; what is left of them ends with the test."""
    ends = []
    frozen = gc.get_freeze_count()
    threshold = gc.get_threshold()

    def make(folder=FOLDER):
        near, far = Pipe()
        plan = Plan(
            "t", "cpu", functools.partial(open_run, [folder], settings=settings_of()), settings_of(), 1, 30, os.getpid()
        )
        thread = threading.Thread(target=serve, args=(far, plan), daemon=True)
        thread.start()
        ends.append((near, far, thread))
        return near, near.recv(), thread

    yield make
    for near, far, thread in ends:
        near.close()
        thread.join(60)
        assert not thread.is_alive()
        far.close()
    gc.set_threshold(*threshold)
    if not frozen:
        gc.unfreeze()


def send(near, *jobs, cancelled=(), call=None):
    near.send_bytes(pickle.dumps(tuple(Order(jobs, cancelled, None if call is None else pickle.dumps(call)))))


def reports(near, count):
    """What has ended, until so many jobs have; and the reports."""
    ended, each = {}, []
    while len(ended) < count:
        assert near.poll(60)
        each.append(Report(*pickle.loads(near.recv_bytes())))
        ended |= {number: (begun, outcome) for number, begun, outcome in each[-1].ended}
    return ended, each


def test_what_comes_back_is_what_a_search_gives(connect):
    near, ready, _ = connect()
    assert ready == (HOST_BUDGET, 0)
    model = load(FOLDER).model
    sources = [[3, 4, 5], [7], [5, 6, 9, 4]]
    given = [
        row(number, source, Options(beam=3, nbest=2, longest=6), prefix=prefix, request=number)
        for number, (source, prefix) in enumerate(zip(sources, [(), (5,), ()], strict=True), 10)
    ]
    before = time.perf_counter()
    send(near, *given, row(13, [], Options()))
    ended, each = reports(near, 4)
    for number, source, options, prefix, *_ in given:
        begun, outputs = ended[number]
        expected = search(model, tokens_of([source]), options, prefixes=[prefix])[0].outputs
        assert [output[0] for output in outputs] == [output.tokens for output in expected]
        assert [output[2] for output in outputs] == pytest.approx([output.score for output in expected], abs=1e-4)
        assert before < begun < time.perf_counter()
    assert ended[13] == (None, [([], 0.0, 0.0, True)])
    assert 0 < sum(report.seconds for report in each) < time.perf_counter() - before


def test_what_is_wrong_with_one_job_is_its_own(connect):
    near, _, _ = connect()
    send(near, row(1, [3, 4], Options(longest=3), prefix=(5,) * 9), row(2, [3, 4], Options(longest=3)))
    ended, _ = reports(near, 2)
    assert isinstance(ended[1][1], ArgumentError)
    assert len(ended[2][1]) == 1


def test_a_stream_grows(connect):
    near, _, _ = connect()
    send(near, row(1, [3, 4], Options(beam=1, shortest=6, longest=6), streams=True))
    ended, each = reports(near, 1)
    (outputs,) = (outcome for _, outcome in ended.values())
    written = [tokens for report in each for _, tokens in report.written]
    assert [len(tokens) for tokens in written] == sorted(len(tokens) for tokens in written)
    assert len(written) > 2
    assert all(outputs[0][0][: len(tokens)] == tokens for tokens in written)


def test_cancelled_jobs_are_reported_and_their_search_ends(connect):
    near, _, _ = connect()
    send(near, row(1, [3, 4], ENDLESS), row(2, [3, 4], ENDLESS))
    send(near, cancelled=[1, 2, 99])  # 99 has ended long ago
    cancelled = []
    while len(cancelled) < 2:
        assert near.poll(60)
        report = Report(*pickle.loads(near.recv_bytes()))
        assert not report.ended
        cancelled += report.cancelled
    assert cancelled == [1, 2]
    assert not near.poll(0.3)  # it rests


def test_calls_and_their_errors(connect):
    near, _, _ = connect()
    for call, expected in (
        (functools.partial(Run.score, sources=["a"], targets=["b"]), None),
        (functools.partial(Run.score, sources=["a"]), ArgumentError),
        (functools.partial(Run.score, none=1), TypeError),
    ):
        send(near, call=call)
        assert near.poll(60)
        outcome = Report(*pickle.loads(near.recv_bytes())).call
        assert (type(outcome.error) if outcome.error else None) is expected
        assert outcome.seconds > 0
        if expected is TypeError:  # nobody's mistake but ours: where it came from is told
            assert "Traceback" in outcome.error.__notes__[0]
    near.send_bytes(pickle.dumps(((), (), b"no pickle")))
    assert near.poll(60)
    assert Report(*pickle.loads(near.recv_bytes())).call.error is not None


def test_it_ends_when_it_is_told_to_or_the_other_end_is_closed(connect):
    near, _, thread = connect()
    near.send_bytes(b"")
    thread.join(60)
    assert not thread.is_alive()
    near, _, thread = connect()
    send(near, row(1, [3, 4], ENDLESS))
    near.close()  # while it works
    thread.join(60)
    assert not thread.is_alive()


def test_a_run_that_cannot_be_opened_is_sent_as_its_error(connect, tmp_path):
    _, answer, thread = connect(str(tmp_path))
    assert isinstance(answer, CheckpointError)
    thread.join(60)
    assert not thread.is_alive()


class Odd(Exception):
    """An error that cannot be made anew from its message."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


@pytest.mark.parametrize(
    "error", [ConfigError("a.b", "wrong"), MissingExtraError("fastapi", "serve"), ArgumentError("x: 1"), Odd(1, 2)]
)
def test_errors_cross_with_their_message(error):
    found = pickle.loads(pickle.dumps(portable(error)))
    assert str(error) in str(found)
    if not isinstance(error, Odd):
        assert (type(found), vars(found)) == (type(error), vars(error))


def test_a_process_whose_parent_is_gone_ends(monkeypatch):
    ended = []

    def leave(status):
        ended.append(status)
        raise SystemExit

    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(SystemExit):
        watch_parent(os.getppid() + 1)
    assert ended == [1]
