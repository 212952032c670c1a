"""Workers with a process: they do what threads do, and one that dies leaves nothing unanswered."""

import functools
import logging
import signal
import sys
import threading
import time
from multiprocessing import Pipe

import pytest
from serving.served import settings_of, stored

from regard import plugins
from regard.decoding import Options
from regard.errors import ArgumentError, CheckpointError
from regard.run import Run, load
from regard.serving import process_worker
from regard.serving.engine import HOST_BUDGET
from regard.serving.jobs import Job, JobQueue
from regard.serving.models import open_run
from regard.serving.process_worker import Plan, ProcessWorker, serve
from regard.serving.worker import Counters, ThreadWorker, WorkerError

(FOLDER,) = stored("transformer")
ENDLESS = Options(beam=1, shortest=1000, longest=1000)


def wait_until(reached):
    end = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.005)


def start(form, folder=FOLDER, stopped=lambda: None):
    delivered: list = []
    queue = JobQueue(delivered.extend)
    worker = form(
        "t",
        "cpu",
        functools.partial(open_run, [folder], settings=settings_of()),
        queue,
        Counters(),
        settings_of(),
        stopped,
    )
    worker.start()
    assert worker.started.wait(120)
    return worker, queue, delivered


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """A plugin that this process has imported."""
    file = tmp_path_factory.mktemp("plugin") / "plugin_of_a_worker.py"
    file.write_text("import os\n\ndef step_of(run):\n    return run.step, os.getpid()\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_PLUGINS", "[]")
        plugins.load(str(file))
        yield sys.modules["plugin_of_a_worker"]
        del sys.modules["plugin_of_a_worker"], plugins.LOADED[str(file)]


@pytest.fixture(scope="module")
def served(plugin):
    """A worker with its process, from its start to its end."""
    worker, queue, delivered = start(ProcessWorker)
    yield worker, queue, delivered
    queue.close()
    worker.join(60)
    assert not worker.is_alive()
    assert worker.process.returncode == 0


@pytest.fixture
def process(served):
    """The worker of the module, with nothing left to do."""
    assert served[0].ready
    yield served
    worker, queue, delivered = served
    wait_until(lambda: not worker.under_way)
    assert (queue.waiting, worker.costs, worker.future) == (0, {False: 0, True: 0}, None)
    delivered.clear()


def test_it_finds_what_a_thread_finds(process):
    thread, queue, found = start(ThreadWorker)
    options = [Options(beam=3, nbest=2, longest=5), Options(beam=1, longest=7), Options(sample=True, seed=3, longest=4)]
    tables = [([3, 4, 5 + i], options[i % 3], (6,) * (i % 2), i // 9, i, i < 9) for i in range(12)]
    expected, ours = ([Job(*table) for table in tables] for _ in range(2))
    queue.add(expected)
    queue.close()
    thread.join(60)
    worker, queue, delivered = process
    queue.add(ours)
    wait_until(lambda: len(delivered) == 12)
    theirs = {job.number: outcome for job, outcome in found}
    for job, outcome in delivered:
        assert [output.tokens for output in outcome.outputs] == [o.tokens for o in theirs[job.number].outputs]
        assert job.begun > job.added
    for name in ("sentences", "tokens"):
        assert getattr(worker.counters, name) == getattr(thread.counters, name) > 0
    assert worker.counters.steps_seconds > 0


def test_calls(process):
    worker, queue, _ = process
    before = worker.counters.calls_seconds
    (mine,) = queue.call(functools.partial(Run.score, sources=["the dog"], targets=["der Hund"])).result(60)
    assert worker.counters.calls_seconds > before
    assert mine.log_prob == pytest.approx(load(FOLDER).score(["the dog"], ["der Hund"])[0].log_prob, abs=1e-4)
    with pytest.raises(ArgumentError, match="targets: missing"):
        queue.call(functools.partial(Run.score, sources=["a"])).result(60)
    with pytest.raises(Exception, match=r"pickle|local object"):
        queue.call(lambda run: run.step).result(60)
    many = [queue.call(functools.partial(Run.score, sources=["a"], targets=["b"])) for _ in range(5)]
    assert many[3].cancel()
    assert len({each.result(60)[0].log_prob for each in many if not each.cancelled()}) == 1


def test_plugins_are_imported_there_too(process, plugin):
    worker, queue, _ = process
    assert queue.call(plugin.step_of).result(60) == (100, worker.process.pid)


def test_a_cancelled_job_leaves_its_place(process):
    worker, queue, delivered = process
    jobs = [Job([3, 4], ENDLESS, request=number) for number in range(3)]
    queue.add(jobs)
    wait_until(lambda: worker.under_way == 3)
    queue.cancel(jobs[:2])
    wait_until(lambda: worker.under_way == 1)
    queue.cancel(jobs[2:])
    wait_until(lambda: not worker.under_way)
    assert delivered == []
    assert not queue.cancelled


def test_no_more_is_sent_than_an_engine_takes(process):
    """As a thread does: what has no room waits in the queue, where it is counted and can be refused."""
    worker, queue, delivered = process
    jobs = [Job([3] * 63, Options(beam=8, shortest=20, longest=20), request=number) for number in range(20)]
    assert sum(job.cost for job in jobs) > 2 * HOST_BUDGET[False]
    most = HOST_BUDGET[False] // jobs[0].cost
    queue.add(jobs)
    seen = set()
    while len(delivered) < len(jobs):
        seen.add(worker.under_way)
        time.sleep(0.001)
    assert max(seen) == most
    wide = Job([3] * 63, Options(beam=100, shortest=2, longest=2), request="wide")
    assert wide.cost > HOST_BUDGET[False]
    queue.add([wide])  # alone it is taken
    wait_until(lambda: len(delivered) == len(jobs) + 1)


@pytest.mark.slow
def test_one_that_is_killed_answers_what_it_had(caplog):
    said = threading.Event()
    worker, queue, delivered = start(ProcessWorker, stopped=said.set)
    jobs = [Job([3, 4], ENDLESS, request=number) for number in range(3)]
    queue.add(jobs)
    wait_until(lambda: worker.under_way == 3)
    worker.process.send_signal(signal.SIGTERM)  # not for it to say
    worker.process.send_signal(signal.SIGSTOP)
    call = queue.call(functools.partial(Run.score, sources=["a"], targets=["b"]))
    wait_until(lambda: worker.future is not None)
    worker.process.kill()
    with pytest.raises(WorkerError):
        call.result(60)
    assert said.wait(60)
    worker.join(60)
    assert not worker.ready
    assert {job for job, outcome in delivered if isinstance(outcome, WorkerError)} == set(jobs)
    assert (worker.under_way, worker.process.returncode) == (0, -signal.SIGKILL)
    assert "the worker has stopped: its process has been ended by signal 9" in caplog.text


class InThread(ProcessWorker):
    """One whose other side is a thread of this process, which begins at once."""

    def start_process(self):
        connection, other = Pipe()
        plan = Plan(self.name, self.device, self.open_run, self.settings, 1, logging.WARNING, 0)
        threading.Thread(target=self.serve, args=(other, plan), daemon=True).start()
        return connection

    @staticmethod
    def serve(other, plan):
        with other:
            serve(other, plan)


def test_a_run_that_cannot_be_opened_is_a_failure_of_its_worker(tmp_path, caplog):
    worker, _, _ = start(InThread, folder=str(tmp_path))
    worker.join(60)
    assert not worker.ready
    assert isinstance(worker.failure, CheckpointError)
    assert caplog.text == ""  # whoever started it says what is wrong


def test_a_process_that_ends_before_it_is_ready(monkeypatch, caplog):
    monkeypatch.setattr(process_worker, "PROGRAM", "raise SystemExit(7)")
    worker, _, _ = start(ProcessWorker)
    worker.join(60)
    assert str(worker.failure) == "regard t cpu: its process has ended with status 7"
    assert "the worker has stopped" in caplog.text
