"""Workers with a process: they behave like threads, and if one dies, every job still gets an answer."""

import functools
import gc
import os
import pickle
import signal
import sys
import threading
import time
from multiprocessing import Pipe

import pytest
from serving.served import settings_of, stored, wait_until

from regard import plugins
from regard.decoding import Options, search, tokens_of
from regard.errors import ArgumentError, CheckpointError, ConfigError, MissingExtraError
from regard.run import Run, load
from regard.serving.jobs import Job, JobQueue
from regard.serving.models import open_run
from regard.serving.running_batches import HOST_BUDGET
from regard.serving.worker import (
    Counters,
    Order,
    ProcessWorker,
    Report,
    ThreadWorker,
    WorkerError,
    portable,
    serve,
    watch_parent,
)

(FOLDER,) = stored("transformer")
ENDLESS = Options(beam=1, shortest=1000, longest=1000)


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
    """Write a plugin, and import it into this process."""
    file = tmp_path_factory.mktemp("plugin") / "plugin_of_a_worker.py"
    file.write_text("import os\n\ndef step_of(run):\n    return run.step, os.getpid()\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_PLUGINS", "[]")
        plugins.load(str(file))
        yield sys.modules["plugin_of_a_worker"]
        del sys.modules["plugin_of_a_worker"], plugins.LOADED[str(file)]


@pytest.fixture(scope="module")
def served(plugin):
    """Start a worker with its process, and stop it at the end."""
    worker, queue, delivered = start(ProcessWorker)
    yield worker, queue, delivered
    queue.close()
    worker.join(60)
    assert not worker.is_alive()
    assert worker.process.returncode == 0


@pytest.fixture
def process(served):
    """Yield the module's worker, and check that it ends idle."""
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
    """As with a thread, excess jobs wait in the queue, which counts them and can refuse more."""
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
    queue.add([wide])  # it is taken alone
    wait_until(lambda: len(delivered) == len(jobs) + 1)


@pytest.mark.slow
def test_one_that_is_killed_answers_what_it_had(caplog):
    said = threading.Event()
    worker, queue, delivered = start(ProcessWorker, stopped=said.set)
    jobs = [Job([3, 4], ENDLESS, request=number) for number in range(3)]
    queue.add(jobs)
    wait_until(lambda: worker.under_way == 3)
    worker.process.send_signal(signal.SIGTERM)  # the server decides about the signal, not the worker
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
    """A worker whose far side is a thread of this process and starts at once."""

    def start_process(self):
        connection, other = Pipe()
        threading.Thread(target=self.serve, args=(other,), daemon=True).start()
        return connection

    def serve(self, other):
        with other:
            serve(other, self.name, self.device, self.open_run, self.settings)


def test_a_run_that_cannot_be_opened_is_a_failure_of_its_worker(tmp_path, caplog):
    worker, _, _ = start(InThread, folder=str(tmp_path))
    worker.join(60)
    assert not worker.ready
    assert isinstance(worker.failure, CheckpointError)
    assert caplog.text == ""  # the caller of start reports the error


def test_a_process_that_ends_before_it_is_ready(monkeypatch, caplog):
    monkeypatch.setattr("regard.serving.worker.PROGRAM", "raise SystemExit(7)")
    worker, _, _ = start(ProcessWorker)
    worker.join(60)
    assert str(worker.failure) == "regard t cpu: its process has ended with status 7"
    assert "the worker has stopped" in caplog.text


# ---- the far side: it receives orders over a connection, and sends reports; here it is a thread


def row(number, source, options, *, prefix=(), request=0, bulk=False, streams=False):
    return number, source, options, prefix, request, bulk, streams, time.perf_counter()


@pytest.fixture
def connect():
    """Start far sides in threads, and end the remaining ones with the test."""
    ends = []
    frozen = gc.get_freeze_count()
    threshold = gc.get_threshold()

    def make():
        near, far = Pipe()
        opened = functools.partial(open_run, [FOLDER], settings=settings_of())
        thread = threading.Thread(target=serve, args=(far, "t", "cpu", opened, settings_of()), daemon=True)
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
    """Return the results of `count` jobs, and all reports."""
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
    send(near, cancelled=[1, 2, 99])  # 99 ended long ago
    cancelled = []
    while len(cancelled) < 2:
        assert near.poll(60)
        report = Report(*pickle.loads(near.recv_bytes()))
        assert not report.ended
        cancelled += report.cancelled
    assert cancelled == [1, 2]
    assert not near.poll(0.3)  # the far side is idle


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
        if expected is TypeError:  # an internal error: the report has its origin
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
    near.close()  # while the far side works
    thread.join(60)
    assert not thread.is_alive()


class Odd(Exception):
    """An error that cannot be reconstructed from its message."""

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
