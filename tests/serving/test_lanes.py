"""Lanes: newcomers begin together, and join those that are under way."""

import torch
from decoding.cases import sentences, small

from regard.decoding.options import Options
from regard.decoding.replay import WRITES, SlotSearch
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
    assert late in lane.jobs


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
    assert not lane.active
    assert lane.searches == []


@torch.no_grad()
def test_no_more_begin_together_than_are_written_quickly():
    lane = SlotLane(SlotSearch(small("transformer"), 12, 16, 30, 2, together=2))
    for job in jobs_of(11, shortest=8, longest=8):
        lane.add(job)
    lane.advance()
    assert len(lane.free) == 12 - WRITES * 2
    lane.advance()
    assert len(lane.free) == 1
    assert lane.waiting == []


@torch.no_grad()
def test_slots_are_taken_in_order_and_freed():
    lane = SlotLane(SlotSearch(small("transformer"), 3, 16, 30, 2))
    jobs = jobs_of(5, shortest=8, longest=8)
    for job in jobs:
        lane.add(job)
    assert lane.room == -2
    lane.advance()
    assert lane.inside == jobs[:3]
    assert lane.waiting == jobs[3:]
    lane.cancel(jobs[1])
    assert (lane.free, lane.inside) == ([1], [jobs[0], None, jobs[2]])
    lane.advance()
    assert lane.inside[1] is jobs[3]
    ended = []
    while lane.active:
        ended += [job for job, _ in lane.advance()]
    assert sorted(job.request for job in ended) == [0, 2, 3, 4]
    assert lane.free == [0, 1, 2]
