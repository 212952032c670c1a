"""Batches loaded ahead: in order, on a thread of their own, and errors when their turn comes."""

import itertools
import threading
import time

import pytest
from tiny import Line

from regard.training.prefetch import Prefetch
from regard.training.task import Position

START = Position(0, 0)


class Numbered(Line):
    """Batches are their own position; they may take a while, or fail."""

    ahead = True

    def __init__(self, seconds=0.0, fails=None):
        super().__init__()
        self.seconds, self.fails, self.threads = seconds, fails, set()

    def count(self, plan):
        return 3

    def batch(self, plan, position):
        self.threads.add(threading.current_thread())
        time.sleep(self.seconds)
        if position == self.fails:
            raise RuntimeError("this one cannot be loaded")
        return position


def taken(task, count, position=START, accumulate=1, rank=0, world=1):
    with Prefetch(task, position, accumulate, rank, world, pin=False) as ahead:
        return list(itertools.islice(ahead, count))


def test_shares_come_in_the_order_of_the_stream_each_with_where_it_ends():
    task = Numbered()
    shares = taken(task, 4, Position(1, 3))
    assert [share.batches for share in shares] == [
        [Position(1, 3)],
        [Position(1, 4)],
        [Position(2, 0)],
        [Position(2, 1)],
    ]
    assert [share.end for share in shares] == [Position(1, 4), Position(1, 5), Position(2, 1), Position(2, 2)]
    assert threading.main_thread() not in task.threads
    assert len(task.threads) == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_processes_share_an_update_and_count_it_whole(rank):
    (share,) = taken(Numbered(), 1, accumulate=2, rank=rank, world=2)
    assert share.batches == [Position(0, rank), Position(0, rank + 2)]
    assert share.count == 12
    assert share.end == Position(0, 4)


def test_what_was_loaded_in_time_is_not_waited_for():
    with Prefetch(Numbered(0.3), Position(0, 0), 1, 0, 1, pin=False) as ahead:
        next(ahead)
        first = ahead.waited
        time.sleep(1.0)  # the loop is busy
        before = time.monotonic()
        next(ahead)
        assert time.monotonic() - before < 0.15
        assert first >= 0.15
        assert ahead.waited - first < 0.15


def test_an_error_comes_when_its_update_is_asked_for():
    with Prefetch(Numbered(fails=Position(0, 1)), Position(0, 0), 1, 0, 1, pin=False) as ahead:
        assert next(ahead).batches == [Position(0, 0)]
        with pytest.raises(RuntimeError, match="cannot be loaded"):
            next(ahead)


def test_what_is_not_said_to_be_fit_for_it_is_loaded_when_its_step_comes():
    class Here(Numbered):
        ahead = False

    task = Here()
    assert [share.batches for share in taken(task, 2)] == [[Position(0, 0)], [Position(0, 1)]]
    assert task.threads == {threading.main_thread()}


def test_nothing_runs_on_after_the_end():
    task = Numbered(0.01)
    taken(task, 2)
    assert not any(thread.is_alive() for thread in task.threads)
