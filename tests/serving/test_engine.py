"""The engine: each sentence gets the same answer as alone, whatever else starts and ends beside it."""

import random
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch
from decoding.cases import WORDS, sentences, small
from serving.served import Served, stored

from regard.data import PAD
from regard.decoding import BurstSearch, Options, Output, SearchResult, search, tokens_of
from regard.errors import ArgumentError, CommandError, NotFiniteError
from regard.serving.jobs import Job
from regard.serving.running_batches import CREDIT, SLACK, Engine, HostBatch, SlotBatch, share_prefix

VARIED = (
    {"beam": 1},
    {"beam": 3, "nbest": 2},
    {"beam": 5, "length_penalty": 0.0},
    {"beam": 3, "shortest": 4, "longest": 9},
    {"beam": 6},
    {"sample": True, "nbest": 2, "seed": 5, "longest": 9},
    {"beam": 4, "coverage_penalty": 0.3},
    {"beam": 2, "no_repeat": 2},
    {"beam": 4, "groups": 2, "nbest": 3},
)


def slots_of(model, classes=(16,), beams=(1, 5), counts=(2, 5)):
    """Return slots as on a GPU, stepped without graphs."""
    return {
        (keys, beam): [
            SlotBatch(BurstSearch(model, count, keys, 2 * keys + 21, beam, 8, together=2, depth=1 + count // 5))
            for count in counts
        ]
        for keys in classes
        for beam in beams
    }


def engine_of(model, slots=False, longest=30):
    engine = Engine(model, longest)
    if slots:
        with torch.no_grad():
            engine.slots = slots_of(model)
    return engine


def drawn_jobs(count, streams=False):
    jobs = []
    for number, source in enumerate(sentences(count, 9)):
        options = Options(**{"longest": 8, **random.choice(VARIED)})
        prefix = [random.randrange(3, WORDS) for _ in range(random.choice([0, 0, 2]))]
        request = number // 3
        jobs.append(Job(source, options, prefix, request, number, bulk=request % 3 == 0, streams=streams))
    return jobs


def all_of(engine):
    """Return all updates of an engine until it is idle."""
    updates = []
    while engine.active:
        updates += engine.advance()
    return updates


def expect(model, job):
    return search(model, tokens_of([job.source]), job.options, prefixes=[job.prefix])[0]


def same(found, expected):
    assert [output.tokens for output in found.outputs] == [output.tokens for output in expected.outputs]
    for mine, theirs in zip(found.outputs, expected.outputs, strict=True):
        assert mine.finished == theirs.finished
        assert mine.score == pytest.approx(theirs.score, abs=1e-9)


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize("kind", ["transformer", "rnnsearch", "both"])
def test_answers_are_those_of_a_search_alone(kind, slots):
    """Jobs of every kind arrive a few at a time, while others are running."""
    model, jobs, found = small(kind), drawn_jobs(30), {}
    if kind == "both":
        jobs = [job for job in jobs if not job.options.coverage_penalty]
    engine, waiting = engine_of(model, slots), list(jobs)
    while waiting or engine.active:
        some = random.randint(0, 4)
        engine.add(waiting[:some])
        waiting = waiting[some:]
        found |= dict(engine.advance())
    assert len(engine.batches) == 0
    assert engine.costs == {False: 0, True: 0}
    assert engine.host == engine.busy == {}
    for job in jobs:
        same(found[job], expect(model, job))


def test_searches_are_in_the_context_of_the_library_settled_once():
    """Regard's own modules run in inference mode; a user's module may keep a tensor for training."""

    class Own(torch.nn.Linear):
        pass

    options = Options(shortest=9, longest=9)
    for own in (False, True):
        model = small("transformer")
        if own:
            model.kept = Own(2, 2)
        engine, seen = engine_of(model), []
        step = model.step
        model.step = lambda *given, step=step, seen=seen: (
            seen.append(torch.is_inference_mode_enabled()),
            step(*given),
        )[1]
        first, late, left = (Job(source, options, request=number) for number, source in enumerate(sentences(3, 5)))
        engine.add([first, left])
        engine.advance()
        engine.add([late])
        engine.advance()
        engine.cancel(left)
        found = dict(all_of(engine))
        assert set(seen) == {not own}
        assert set(found) == {first, late}
        model.step = step
        for job in found:
            same(found[job], expect(model, job))
    with torch.enable_grad():  # the model is unchanged for a caller who trains it
        logits, _ = model.step(torch.tensor([3]), model.start(model.encode(tokens_of([[3, 4]])), 1, 4))
        logits.sum().backward()


@pytest.mark.parametrize("slots", [False, True])
def test_what_streams_only_grows_and_is_how_the_answer_begins(slots):
    model, jobs = small("transformer"), drawn_jobs(12, streams=True)
    steady = [Job(source, Options(beam=1, shortest=7, longest=8), streams=True) for source in sentences(4, 9)]
    jobs += steady
    engine, so_far, found = engine_of(model, slots), {job: [] for job in jobs}, {}
    engine.add(jobs)
    while engine.active:
        for job, outcome in engine.advance():
            if isinstance(outcome, list):
                assert outcome[: len(so_far[job])] == so_far[job]
                assert job not in found
                assert PAD not in outcome
                so_far[job] = outcome
            else:
                found[job] = outcome
    for job in jobs:
        tokens = found[job].outputs[0].tokens
        if not job.options.sample or job.options.nbest == 1:
            assert tokens[: len(so_far[job])] == so_far[job]
    assert all(len(so_far[job]) >= 4 for job in steady)  # at least one burst of steps
    greedy = [job for job in jobs if job.options.beam == 1 and not job.options.sample and not slots]
    assert all(len(so_far[job]) >= len(found[job].outputs[0].tokens) - 1 for job in greedy)


@pytest.mark.parametrize("slots", [False, True])
def test_a_cancelled_job_frees_its_place_and_the_others_go_on(slots):
    options = Options(shortest=20, longest=20)  # longer than three turns
    model, jobs = small("transformer"), [Job(source, options) for source in sentences(9, 5)]
    engine, found = engine_of(model, slots), {}
    engine.add(jobs)
    for turn in range(3):
        found |= dict(engine.advance())
        engine.cancel(jobs[turn])
        engine.cancel(jobs[turn])  # cancelling twice is like once
    assert len(engine.batches) == 6 - len(found)
    found |= dict(all_of(engine))
    assert set(found) == set(jobs[3:])
    for job in jobs[3:]:
        same(found[job], expect(model, job))
    assert engine.costs == {False: 0, True: 0}


def test_one_that_fails_does_not_fail_the_others():
    """The errors are a prefix that does not fit, and a source with non-finite scores."""
    model = small("transformer")
    with torch.no_grad():
        model.source.tokens.weight[9] = torch.nan
    engine = engine_of(model)
    for wrong, error, words in (
        (Job([5, 9], Options(beam=2, longest=5, shortest=3)), NotFiniteError, "not finite"),
        (Job([4, 4], Options(beam=2, longest=5), prefix=[3] * 7), ArgumentError, "prefix: 7 tokens"),
    ):
        jobs = [Job(source, Options(beam=2, longest=5, shortest=3)) for source in ([3, 4], [6], [7, 8, 3])]
        engine.add([jobs[0], wrong, *jobs[1:]])
        found = dict(all_of(engine))
        assert isinstance(found[wrong], error)
        assert words in str(found[wrong])
        for job in jobs:
            same(found[job], expect(model, job))


def test_an_empty_source_has_an_empty_output():
    engine = engine_of(small("transformer"))
    engine.add([Job([], Options())])
    ((_, outcome),) = engine.advance()
    assert outcome.outputs[0].tokens == []
    assert not engine.active


def test_batches_take_turns_by_time(monkeypatch):
    """A short request beside a long one gets half of the time, which is more turns, as its turns are shorter."""
    clock, advance = [0.0], HostBatch.advance

    def advance_and_count(batch):
        clock[0] += len(batch.under_way) or len(batch.waiting)  # one second for each sentence
        return advance(batch)

    monkeypatch.setattr(HostBatch, "advance", advance_and_count)
    monkeypatch.setattr("regard.serving.running_batches.time", SimpleNamespace(perf_counter=lambda: clock[0]))
    options = Options(beam=5, shortest=30, longest=30)
    engine = engine_of(small("transformer", scale=0.5))
    engine.add([Job(source, options, request="long", bulk=True) for source in sentences(40, 9)])
    for _ in range(5):
        engine.advance()
    short = Job([3, 4, 5], options, request="short")
    engine.add([short])
    turns, ended = 0, []
    while short not in ended:
        turns += 1
        ended += [job for job, _ in engine.advance()]
    assert turns <= 31 + 3  # of forty seconds each; the long request had two or three turns
    assert len(engine.batches) == 40


def test_what_slots_serve():
    engine = engine_of(small("transformer"), slots=True)
    for options in (Options(beam=1), Options(), Options(beam=3, nbest=2, shortest=2, longest=9, length_penalty=1.0)):
        assert engine.in_slots(Job([3, 4], options)), options
    others = {"sample": True}, {"coverage_penalty": 0.2}, {"no_repeat": 3}, {"groups": 5}, {"beam": 6}
    for each in (*others, {"longest": 53}, {"precision": "bf16"}):
        assert not engine.in_slots(Job([3, 4], Options(**each))), each
    assert engine.in_slots(Job([3, 4], Options(longest=52)))
    assert not engine.in_slots(Job([3] * 17, Options()))  # no class has so many keys
    assert not engine.in_slots(Job([3, 4], Options(longest=5), prefix=[3] * 6))


def test_a_few_sentences_take_the_small_graph():
    engine = engine_of(small("transformer"), slots=True)
    small_batch, large_batch = engine.slots[16, 5]
    jobs = [Job([3, 4], Options()) for _ in range(4)]
    engine.add(jobs)
    assert [engine.batches[job] for job in jobs] == [small_batch, small_batch, large_batch, large_batch]
    bulk = Job([3], Options(), bulk=True)
    engine.add([bulk])
    assert engine.batches[bulk] is large_batch
    for job in (*jobs[:2], bulk):
        engine.cancel(job)
    late = Job([3], Options())
    engine.add([late])
    assert engine.batches[late] is large_batch  # where other short requests run
    for job in (late, *jobs[2:]):
        engine.cancel(job)
    engine.add([late])
    assert engine.batches[late] is small_batch


def test_a_long_request_goes_where_all_of_it_has_room():
    engine = engine_of(small("transformer"))
    with torch.no_grad():
        engine.slots = slots_of(engine.model, counts=(2, 5, 30))
    few, many = ([Job([3], Options(), request=n, bulk=True) for _ in range(n)] for n in (4, 9))
    engine.add(few)
    engine.add(many)
    assert {engine.batches[job].count for job in few} == {5}
    assert {engine.batches[job].count for job in many} == {30}


def test_greedy_requests_are_searched_beside_many_of_a_beam(monkeypatch):
    monkeypatch.setattr("regard.serving.running_batches.STEADY", 4)
    engine = engine_of(small("transformer"))
    with torch.no_grad():
        engine.slots = slots_of(engine.model, counts=(2, 12))
    own, beams = engine.slots[16, 1][1], engine.slots[16, 5][1]

    def batch_of(beam, bulk=True):
        job = Job([3], Options(beam=beam, longest=6), request=object(), bulk=bulk)
        engine.add([job])
        return engine.batches[job]

    assert batch_of(1) is own  # the engine has no other request
    for job in list(engine.batches):
        engine.cancel(job)
    assert [batch_of(5) for _ in range(4)] == [beams] * 4
    assert batch_of(1) is beams
    assert batch_of(1, bulk=False) is engine.slots[16, 1][0]  # a short request has a faster graph of its own
    assert [batch_of(3) for _ in range(7)] == [beams] * 7
    assert batch_of(1) is own  # there is no room
    jobs = list(engine.batches)
    found = dict(all_of(engine))
    for job in jobs:
        same(found[job], expect(engine.model, job))


def test_newcomers_come_before_the_next_steps_of_a_long_request():
    """One turn waits and the next one orders: in between, a short request takes the turn of a long one."""
    engine = engine_of(small("transformer"), slots=True)
    engine.add([Job([3, 4], Options(shortest=30, longest=30), request="long", bulk=True) for _ in range(5)])
    long = engine.slots[16, 5][1]
    engine.advance()
    assert len(long.ordered) == 1
    long.time = 1.0
    short = Job([3], Options(shortest=2, longest=2), request="short")
    engine.add([short])
    batch = engine.batches[short]
    assert batch is engine.slots[16, 5][0]
    assert engine.next_turn() == (batch, True)  # although the steps of the other batch are running
    engine.advance()
    steps, order = [], long.slots.order
    long.slots.order = lambda: (steps.append(1), order())
    updates = []
    for _ in range(8):
        updates += engine.advance()
        if updates:
            break
    assert [job for job, _ in updates] == [short]
    assert steps == []


def test_a_long_request_orders_nothing_between_two_turns_of_a_short_one():
    """This also holds at nearly equal times, when batches of one kind queue their orders."""
    engine = engine_of(small("transformer"), slots=True)
    short, long = engine.slots[16, 5]
    engine.add([Job([3, 4], Options(shortest=30, longest=30), request="short")])
    engine.add([Job([3, 4], Options(shortest=30, longest=30), request="long", bulk=True) for _ in range(4)])
    assert set(engine.batches.values()) == {short, long}
    short.time, long.time = 1.0, 1.0 + SLACK / 2
    engine.advance()
    assert short.ordered
    assert engine.next_turn() == (short, False)  # the device idles so that the short request need not wait
    long.time = 0.9
    assert engine.next_turn() == (long, True)
    engine.advance()
    assert len(long.ordered) == 1 < long.slots.depth
    assert engine.next_turn() == (short, False)  # one burst beside short requests
    for job in [job for job in engine.batches if not job.bulk]:
        engine.cancel(job)
    assert engine.next_turn() == (long, True)  # two without them


def test_a_short_request_has_its_credit_each_time():
    engine = engine_of(small("transformer"), slots=True)
    engine.add([Job([3, 4], Options(shortest=30, longest=30), request="long", bulk=True)])
    (long,) = engine.busy
    for number in range(3):
        job = Job([3], Options(longest=2), request=number)
        engine.add([job])
        batch = engine.batches[job]
        assert batch.time == long.time - CREDIT
        batch.time += 1.0  # any duration
        engine.cancel(job)
    other = Job([3] * 3, Options(beam=1, longest=2), request="another document", bulk=True)
    batch = engine.batch_of(other)
    batch.time = long.time + 5.0
    engine.add([other])
    assert batch.time == long.time + 5.0  # a long one does not


def test_a_job_that_is_cancelled_after_its_end_is_not_delivered():
    engine = engine_of(small("transformer"), slots=True)
    one, two = (Job([3, 4], Options(shortest=n, longest=n)) for n in (2, 30))
    engine.add([one, two])
    engine.advance()
    engine.advance()
    batch = engine.batches[one]
    assert batch.unwritten[0] == [one]
    engine.cancel(one)
    found = dict(all_of(engine))
    assert set(found) == {two}
    assert engine.costs == {False: 0, True: 0}


def test_a_batch_that_is_done_does_not_keep_others_waiting():
    """Its last steps were ordered in vain and nobody waits for them; the other batch has used more time."""
    engine = engine_of(small("transformer"), slots=True)
    first = Job([3, 4], Options(shortest=3, longest=3), bulk=True)
    engine.add([first])
    deep = engine.batches[first]
    assert deep.slots.depth == 2
    found = {}
    while len(engine.batches):
        found |= dict(engine.advance())
    assert deep.ordered
    assert engine.active
    other = Job([3, 4], Options(beam=1, shortest=3, longest=3))
    engine.add([other])
    engine.batches[other].time = deep.time + 1.0
    for _ in range(10):
        found |= dict(engine.advance())
    assert set(found) == {first, other}
    assert not engine.active


def test_the_tokens_that_texts_share():
    assert share_prefix([[1, 2, 3], [1, 2], [1, 2, 4]]) == [1, 2]
    assert share_prefix([[1], [2]]) == []
    assert share_prefix([]) == []
    assert share_prefix([[5, 6]]) == [5, 6]


@pytest.mark.gpu
def test_slots_of_a_gpu_are_captured_once_and_find_what_a_search_finds(monkeypatch, without_tf32):
    """Beams, limits, penalties and prefixes run side by side in float32; ties may break either way."""
    monkeypatch.setattr("regard.serving.running_batches.SLOTS", {4: (2, 1), 16: (8, 2)})
    model = small("transformer", words=60, dtype=torch.float32).to("cuda")
    engine = Engine(model, 40, "fp32")
    engine.warm([3, 4, 5])
    captures, jobs = engine.captures, []
    for number, source in enumerate(sentences(120, 40, 60)):
        options = Options(**{"longest": 20, **VARIED[number % 4], "length_penalty": 0.1 * (number % 8)})
        prefix = [random.randrange(3, 60) for _ in range(number % 3)]
        jobs.append(Job(source, options, prefix, number // 20, number, bulk=number // 20 % 2 == 0))
    assert all(engine.in_slots(job) for job in jobs)
    found, waiting = {}, list(jobs)
    while waiting or engine.active:
        engine.add(waiting[:5])
        waiting = waiting[5:]
        found |= dict(engine.advance())
    assert engine.captures == captures
    equal = 0
    for job in jobs:
        expected = search(model, tokens_of([job.source], "cuda"), job.options, prefixes=[job.prefix])[0].outputs[0]
        mine = found[job].outputs[0]
        equal += mine.tokens == expected.tokens
        if mine.tokens == expected.tokens:
            assert mine.score == pytest.approx(expected.score, abs=1e-3)
    assert equal >= 115


@pytest.mark.gpu
def test_what_slots_do_not_serve_is_searched_on_the_host_of_a_gpu(monkeypatch):
    monkeypatch.setattr("regard.serving.running_batches.SLOTS", {4: (2, 1)})
    model = small("transformer", words=60, dtype=torch.float32).to("cuda")
    engine = Engine(model, 16, "fp32")
    engine.warm([3, 4, 5])
    jobs = [
        Job(source, Options(**{"longest": 9, **VARIED[4 + n % 5]})) for n, source in enumerate(sentences(10, 9, 60))
    ]
    engine.add(jobs)
    found = dict(all_of(engine))
    equal = [
        found[job].outputs[0].tokens == search(model, tokens_of([job.source], "cuda"), job.options)[0].outputs[0].tokens
        for job in jobs
    ]
    assert sum(equal) >= 9


@dataclass
class Echo:
    """An engine of another library that returns its input, and records its batches."""

    batches: list[list[list[int]]] = field(default_factory=list)

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


def test_jobs_of_the_same_options_go_together_and_others_take_turns():
    run = Echo()
    engine = Engine(small("transformer"), 30, search=run.search)
    one, two = Options(beam=1), Options(beam=2)
    jobs = [Job([i], one if i % 2 else two, bulk=i > 5) for i in range(10)]
    engine.add(jobs)
    assert len(engine.batches) == 10
    assert engine.costs[False]
    room = engine.room(False)
    found = dict(all_of(engine))
    assert {job: outcome.outputs[0].tokens for job, outcome in found.items()} == {job: job.source for job in jobs}
    assert run.batches == [[[1], [3], [5]], [[0], [2], [4]], [[6], [8]], [[7], [9]]]
    assert not engine.costs[False]
    assert engine.room(False) > room


def test_batches_are_bounded_and_none_is_left_out():
    run = Echo()
    engine = Engine(small("transformer"), 30, search=run.search)
    jobs = [Job([4] * 200, Options(beam=5)) for _ in range(7)] + [Job([4] * 3000, Options(beam=5))]
    engine.add(jobs)
    assert len(all_of(engine)) == 8
    assert [len(batch) for batch in run.batches] == [2, 2, 2, 1, 1]


def test_what_is_cancelled_leaves():
    run = Echo()
    engine = Engine(small("transformer"), 30, search=run.search)
    jobs = [Job([i], Options()) for i in range(3)]
    engine.add(jobs)
    engine.cancel(jobs[1])
    engine.cancel(jobs[1])
    assert [job for job, _ in all_of(engine)] == [jobs[0], jobs[2]]
    assert not engine.costs[False]
    assert not engine.active


def test_one_job_that_is_refused_does_not_spoil_the_others():
    engine = Engine(small("transformer"), 30, search=Echo().search)
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
