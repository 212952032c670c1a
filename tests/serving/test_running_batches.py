"""Batches: new jobs begin together, and join running ones."""

import torch
from decoding.cases import sentences, small

from regard.decoding import WRITES, BurstSearch, Options
from regard.serving.jobs import Job
from regard.serving.running_batches import CROWD, HostBatch, SlotBatch

CPU = torch.device("cpu")


def jobs_of(count, **options):
    return [Job(source, Options(beam=2, **options), request=i) for i, source in enumerate(sentences(count, 6))]


@torch.no_grad()
def test_newcomers_wait_for_others_but_not_for_long():
    batch = HostBatch(small("transformer"), CPU)
    for job in jobs_of(2 * CROWD, shortest=20, longest=20):
        batch.add(job)
    batch.advance()
    assert len(batch.under_way) == 2 * CROWD
    (late,) = jobs_of(1, shortest=20, longest=20)
    late.added += 3600
    batch.add(late)
    batch.advance()
    assert late in batch.waiting  # one new job is too few beside 2 × CROWD running jobs
    late.added -= 7200
    batch.advance()
    assert late in batch.under_way.values()


@torch.no_grad()
def test_all_are_one_search_after_a_step():
    batch = HostBatch(small("transformer"), CPU)
    for job in jobs_of(6, shortest=12, longest=12):
        batch.add(job)
        batch.advance()
    batch.advance()
    assert len(batch.searches) == 1
    assert len(batch.under_way) == 6


@torch.no_grad()
def test_a_search_whose_last_job_is_stopped_is_let_go():
    batch = HostBatch(small("transformer"), CPU)
    one, two = jobs_of(2, shortest=9, longest=9)
    batch.add(one)
    batch.advance()
    batch.add(two)
    batch.cancel(two)  # the job has not begun
    assert not batch.waiting
    batch.cancel(one)
    assert not batch.waiting
    assert not batch.under_way
    assert batch.searches == []


def slot_batch(count, together):
    return SlotBatch(BurstSearch(small("transformer"), count, 16, 30, 2, together=together))


def turn(batch):
    """Advance a batch by a burst of steps, and return the jobs that had ended before."""
    ended = batch.advance()
    if batch.ordered:
        batch.wait()
    return ended


@torch.no_grad()
def test_no_more_begin_together_than_are_written_quickly():
    batch = slot_batch(12, together=2)
    for job in jobs_of(11, shortest=8, longest=8):
        batch.add(job)
    turn(batch)
    assert len(batch.free) == 12 - WRITES * 2
    turn(batch)
    assert len(batch.free) == 1
    assert batch.waiting == []


@torch.no_grad()
def test_slots_are_taken_in_order_and_freed():
    batch = slot_batch(3, together=1)
    jobs = jobs_of(5, shortest=8, longest=8)
    for job in jobs:
        batch.add(job)
    assert (batch.room, batch.sentences) == (-2, 5)
    turn(batch)
    assert batch.inside == jobs[:3]
    assert batch.waiting == jobs[3:]
    batch.cancel(jobs[1])
    assert (batch.free, batch.inside) == ([1], [jobs[0], None, jobs[2]])
    turn(batch)
    assert batch.inside[1] is jobs[3]
    ended = []
    while batch.active:
        ended += [job for job, _ in turn(batch)]
    assert sorted(job.request for job in ended) == [0, 2, 3, 4]
    assert batch.free == [0, 1, 2]


@torch.no_grad()
def test_what_is_done_is_written_after_the_next_steps_are_ordered():
    """The device computes while the host writes results: the batch first fills its free slots."""
    batch, calls = slot_batch(2, together=1), []
    order, wait = batch.slots.order, batch.slots.wait
    batch.slots.order = lambda: (calls.append("order"), order())
    batch.slots.wait = lambda: (calls.append("wait"), wait())[1]
    short, long, late = jobs_of(3, shortest=2, longest=3)
    long.options = Options(beam=2, shortest=9, longest=9)
    for job in (short, long, late):
        batch.add(job)
    turn(batch)
    assert calls == ["order", "wait"]
    assert batch.unwritten[0] == [short]
    assert (batch.inside, batch.free) == ([None, long], [0])
    ended = batch.advance()
    assert calls == ["order", "wait", "order"]
    assert [job for job, _ in ended] == [short]
    assert batch.inside == [late, long]


@torch.no_grad()
def test_a_newcomer_is_not_ended_by_a_burst_that_was_ordered_before_it_came():
    """With two bursts under way, the first ends a sentence, and a new job takes its slot before the second is read."""
    batch = SlotBatch(BurstSearch(small("transformer"), 1, 16, 30, 2, depth=2))
    first, second = jobs_of(2, shortest=3, longest=3)
    batch.add(first)
    batch.add(second)
    batch.advance()
    assert batch.takes_orders
    batch.advance()
    assert not batch.takes_orders
    batch.wait()
    assert [job for job, _ in batch.advance()] == [first]
    assert batch.inside == [second]
    batch.wait()
    assert batch.inside == [second]  # the new job was not part of that burst
    batch.wait()
    assert batch.unwritten[0] == [second]
    assert batch.free == [0]


@torch.no_grad()
def test_a_batch_whose_jobs_are_all_done_is_waited_for_and_orders_nothing():
    """The second of two bursts is ordered in vain: the batch must not keep the turn with nothing to do."""
    batch = SlotBatch(BurstSearch(small("transformer"), 2, 16, 30, 2, depth=2))
    (job,) = jobs_of(1, shortest=3, longest=3)
    batch.add(job)
    batch.advance()
    batch.advance()
    batch.wait()
    assert batch.takes_orders  # to write the results
    assert [each for each, _ in batch.advance()] == [job]
    assert len(batch.ordered) == 1
    assert not batch.takes_orders
    batch.wait()
    assert not batch.ordered
