"""Lanes: newcomers begin together, and join those that are under way."""

import torch
from decoding.cases import sentences, small

from regard.decoding import Options, bursts
from regard.serving.jobs import Job
from regard.serving.lanes import CROWD, HostLane, SlotLane

CPU = torch.device("cpu")


def jobs_of(count, **options):
    return [Job(source, Options(beam=2, **options), request=i) for i, source in enumerate(sentences(count, 6))]


@torch.no_grad()
def test_newcomers_wait_for_others_but_not_for_long():
    lane = HostLane(small("transformer"), CPU)
    for job in jobs_of(2 * CROWD, shortest=20, longest=20):
        lane.add(job)
    lane.advance()
    assert len(lane.under_way) == 2 * CROWD
    (late,) = jobs_of(1, shortest=20, longest=20)
    late.added += 3600
    lane.add(late)
    lane.advance()
    assert late in lane.waiting  # one in eight begins, and it is alone
    late.added -= 7200
    lane.advance()
    assert late in lane.under_way.values()


@torch.no_grad()
def test_all_are_one_search_after_a_step():
    lane = HostLane(small("transformer"), CPU)
    for job in jobs_of(6, shortest=12, longest=12):
        lane.add(job)
        lane.advance()
    lane.advance()
    assert len(lane.searches) == 1
    assert len(lane.under_way) == 6


@torch.no_grad()
def test_a_search_whose_last_job_is_stopped_is_let_go():
    lane = HostLane(small("transformer"), CPU)
    one, two = jobs_of(2, shortest=9, longest=9)
    lane.add(one)
    lane.advance()
    lane.add(two)
    lane.cancel(two)  # it has not begun
    assert not lane.waiting
    lane.cancel(one)
    assert not lane.waiting
    assert not lane.under_way
    assert lane.searches == []


def slot_lane(count, together):
    return SlotLane(bursts.BurstSearch(small("transformer"), count, 16, 30, 2, together=together))


def turn(lane):
    """A burst of steps, and what had ended before it."""
    ended = lane.advance()
    if lane.ordered:
        lane.wait()
    return ended


@torch.no_grad()
def test_no_more_begin_together_than_are_written_quickly():
    lane = slot_lane(12, together=2)
    for job in jobs_of(11, shortest=8, longest=8):
        lane.add(job)
    turn(lane)
    assert len(lane.free) == 12 - bursts.WRITES * 2
    turn(lane)
    assert len(lane.free) == 1
    assert lane.waiting == []


@torch.no_grad()
def test_slots_are_taken_in_order_and_freed():
    lane = slot_lane(3, together=1)
    jobs = jobs_of(5, shortest=8, longest=8)
    for job in jobs:
        lane.add(job)
    assert (lane.room, lane.sentences) == (-2, 5)
    turn(lane)
    assert lane.inside == jobs[:3]
    assert lane.waiting == jobs[3:]
    lane.cancel(jobs[1])
    assert (lane.free, lane.inside) == ([1], [jobs[0], None, jobs[2]])
    turn(lane)
    assert lane.inside[1] is jobs[3]
    ended = []
    while lane.active:
        ended += [job for job, _ in turn(lane)]
    assert sorted(job.request for job in ended) == [0, 2, 3, 4]
    assert lane.free == [0, 1, 2]


@torch.no_grad()
def test_what_is_done_is_written_after_the_next_steps_are_ordered():
    """The device has work while the host writes: the slots that are free are filled before."""
    lane, calls = slot_lane(2, together=1), []
    order, wait = lane.slots.order, lane.slots.wait
    lane.slots.order = lambda: (calls.append("order"), order())
    lane.slots.wait = lambda: (calls.append("wait"), wait())[1]
    short, long, late = jobs_of(3, shortest=2, longest=3)
    long.options = Options(beam=2, shortest=9, longest=9)
    for job in (short, long, late):
        lane.add(job)
    turn(lane)
    assert calls == ["order", "wait"]
    assert lane.unwritten[0] == [short]
    assert (lane.inside, lane.free) == ([None, long], [0])
    ended = lane.advance()
    assert calls == ["order", "wait", "order"]
    assert [job for job, _ in ended] == [short]
    assert lane.inside == [late, long]


@torch.no_grad()
def test_a_newcomer_is_not_ended_by_a_burst_that_was_ordered_before_it_came():
    """Two bursts are under way, the first ends a sentence, and another takes its slot before the second is read."""
    lane = SlotLane(bursts.BurstSearch(small("transformer"), 1, 16, 30, 2, depth=2))
    first, second = jobs_of(2, shortest=3, longest=3)
    lane.add(first)
    lane.add(second)
    lane.advance()
    assert lane.takes_orders
    lane.advance()
    assert not lane.takes_orders
    lane.wait()
    assert [job for job, _ in lane.advance()] == [first]
    assert lane.inside == [second]
    lane.wait()
    assert lane.inside == [second]  # that burst knew nothing of it
    lane.wait()
    assert lane.unwritten[0] == [second]
    assert lane.free == [0]


@torch.no_grad()
def test_a_lane_whose_jobs_are_all_done_is_waited_for_and_orders_nothing():
    """The second of two bursts was ordered in vain: the lane must not keep the turn with nothing to do."""
    lane = SlotLane(bursts.BurstSearch(small("transformer"), 2, 16, 30, 2, depth=2))
    (job,) = jobs_of(1, shortest=3, longest=3)
    lane.add(job)
    lane.advance()
    lane.advance()
    lane.wait()
    assert lane.takes_orders  # to write down what is done
    assert [each for each, _ in lane.advance()] == [job]
    assert len(lane.ordered) == 1
    assert not lane.takes_orders
    lane.wait()
    assert not lane.ordered
