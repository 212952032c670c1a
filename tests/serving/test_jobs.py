"""The queue of jobs: requests take turns within a budget, and no job is lost."""

import threading

import pytest

from regard.decoding import Options
from regard.serving.jobs import TURN, Job, JobQueue


def queue_of(**counts):
    """Return a queue with so many jobs of some requests; a name in capitals means bulk jobs."""
    delivered = []
    queue = JobQueue(delivered.extend)
    for request, count in counts.items():
        options = Options(beam=1)
        queue.add(Job([3] * 9, options, (), request, i, bulk=request.isupper()) for i in range(count))
    return queue, delivered


def names(jobs):
    return "".join(job.request for job in jobs)


def test_what_a_job_costs():
    assert Job([3, 4, 5], Options(beam=5)).cost == 20
    assert Job([3, 4, 5], Options(sample=True, nbest=2)).cost == 8
    assert Job(object(), Options(beam=3)).cost == 6  # a picture


def test_requests_take_turns_and_the_oldest_is_first():
    queue, _ = queue_of(a=TURN + 2, b=1, c=TURN + 1)
    assert names(queue.take(False, 10**6, idle=True)) == "a" * TURN + "b" + "c" * TURN + "aa" + "c"
    assert queue.waiting == 0
    assert queue.take(False, 10**6, idle=True) == []


def test_a_budget_ends_a_turn_and_the_first_stays_first():
    queue, _ = queue_of(a=5, b=5)
    assert names(queue.take(False, 35, idle=True)) == "aaa"  # each costs ten
    assert queue.waiting == 7
    assert names(queue.take(False, 35, idle=False)) == "aab"
    assert names(queue.take(False, 9, idle=False)) == ""
    assert names(queue.take(False, 9, idle=True)) == "b"  # an idle worker takes a job that is too large
    assert queue.waiting == 3


def test_long_requests_have_a_line_of_their_own():
    queue, _ = queue_of(A=3, b=2)
    assert names(queue.take(False, 10**6, idle=True)) == "bb"
    assert names(queue.take(True, 10**6, idle=True)) == "AAA"


def test_those_that_wait_leave_at_once_and_a_worker_is_told_of_the_others():
    queue, _ = queue_of(a=3)
    (first,) = queue.take(False, 10, idle=True)
    rest = list(queue.requests[False]["a"])
    queue.cancel([first, rest[0]])
    assert queue.waiting == 1
    assert queue.take_cancelled([first]) == [first]
    assert queue.take_cancelled([first]) == []
    assert queue.take(False, 100, idle=True) == [rest[1]]
    queue.cancel([rest[1]])
    rest.clear()
    assert not queue.cancelled  # the cancellation of a finished job is forgotten


def test_without_a_worker_everything_is_answered_with_the_error():
    queue, delivered = queue_of(a=2, B=1)
    future = queue.call(lambda run: run)
    error = RuntimeError("gone")
    queue.fail(error)
    assert [(job.request, outcome) for job, outcome in delivered] == [("a", error)] * 2 + [("B", error)]
    assert queue.waiting == 0
    with pytest.raises(RuntimeError, match="gone"):
        future.result(1)
    late = Job([3], Options(), request="c")  # admitted just before
    queue.add([late])
    assert delivered[3:] == [(late, error)]
    assert queue.waiting == 0
    with pytest.raises(RuntimeError, match="gone"):
        queue.call(len).result(1)


def test_a_worker_waits_for_a_newer_version():
    """The queue is never empty; the worker waits for a change."""
    queue, _ = queue_of(a=1)
    queue.wait(60, queue.version - 1)  # the version has changed since

    def wait(version, woken):
        queue.wait(60, version)
        woken.set()

    for change in (queue.wake, lambda: queue.add([Job([3], Options(), request="a")])):
        version, woken = queue.version, threading.Event()
        threading.Thread(target=wait, args=(version, woken), daemon=True).start()
        assert not woken.wait(0.05)
        change()
        assert woken.wait(10)
        queue.wait(60, version)  # the version has changed, so this does not wait


def test_calls_come_in_their_order():
    queue, _ = queue_of()
    futures = [queue.call(function) for function in (len, str)]
    assert [queue.take_call() for _ in range(3)] == [(len, futures[0]), (str, futures[1]), None]
