"""Search against a plain one that recomputes every prefix, against all possible outputs, and against itself."""

import itertools
import random
from dataclasses import replace

import pytest
import torch
from decoding.cases import (
    SMALL,
    WORDS,
    Script,
    closest_choice,
    every_target,
    fed_again,
    found_of,
    greedy,
    next_log_probs,
    pair_log_prob,
    sentences,
    small,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.attention import cache, watch
from regard.data import END, PAD, START, collate
from regard.decoding.batches import score_pairs
from regard.decoding.ensemble import Ensemble
from regard.decoding.options import GREEDY, Options
from regard.decoding.scoring import length_penalty, tokens_of
from regard.decoding.sentence_search import THREADED, random_numbers, sample_tokens, search
from regard.errors import ArgumentError
from regard.models import build, read_model_config
from regard.training import inputs

KINDS = [*SMALL, "both"]
every_kind = pytest.mark.parametrize("kind", KINDS)


def check_fed_again(model, sources, beam, alpha):
    """Search equals a search without caches; if two choices are equal up to rounding, either is right."""
    options = Options(beam=beam, nbest=beam, length_penalty=alpha, longest=5)
    for source, found in zip(sources, found_of(model, sources, options, trace=True), strict=True):
        wanted = fed_again(model, source, beam, 5, alpha)
        for output, (_, total, ranked) in zip(found.outputs, wanted, strict=True):
            assert output.log_prob == pytest.approx(total, abs=1e-9)
            assert output.score == pytest.approx(ranked, abs=1e-9)
        if [output.tokens for output in found.outputs] != [tokens for tokens, _, _ in wanted]:
            ranks = [one.score - two.score for one, two in itertools.pairwise(found.outputs)]
            assert min(closest_choice(found.steps, beam), *ranks) < 1e-9


@every_kind
@pytest.mark.parametrize(("beam", "alpha"), [(2, 0.0), (3, 0.6)])
def test_cached_is_fed_again(kind, beam, alpha):
    check_fed_again(small(kind), sentences(2), beam, alpha)


@pytest.mark.parametrize("seed", [129, 337])
def test_a_tie_may_fall_either_way(seed):
    """ALiBi with large weights: some models see only the last word, so a b a a c is as likely as a a b a c."""
    random.seed(seed)
    torch.manual_seed(seed)
    check_fed_again(small("alibi"), sentences(2), 3, 0.6)


@every_kind
def test_a_beam_of_one_is_greedy(kind):
    model, sources = small(kind), sentences(6)
    said = greedy(model, tokens_of(sources), 7)
    for source, tokens in zip(sources, said, strict=True):
        expected = []
        while len(expected) < 7:
            scores = next_log_probs(model, source, expected)
            scores[[PAD, START]] = -torch.inf
            if int(scores.argmax()) == END:
                break
            expected.append(int(scores.argmax()))
        assert tokens == expected
    beam = found_of(model, sources, Options(beam=1, longest=7, length_penalty=1.5))
    assert [found.outputs[0].tokens for found in beam] == said


@pytest.mark.parametrize(("kind", "alpha"), [("rnnsearch", 0.0), ("transformer", 0.6), ("both", 1.0)])
def test_a_wide_beam_finds_what_trying_everything_finds(kind, alpha):
    """Four words and END, up to five words: 1,365 outputs."""
    words, longest = 7, 5
    model, source = small(kind, words, scale=2.0), sentences(1, words=words)[0]
    targets = list(every_target(words, longest))
    told = score_pairs(model, [source] * len(targets), targets)
    penalties = Options(length_penalty=alpha)
    best = sorted(
        (
            (each.log_prob / length_penalty(len(target) + 1, penalties.length_penalty), target)
            for each, target in zip(told, targets, strict=True)
        ),
        key=lambda each: -each[0],
    )[:40]
    options = Options(beam=len(targets), nbest=40, length_penalty=alpha, longest=longest)
    outputs = found_of(model, [source], options)[0].outputs
    assert [output.tokens for output in outputs] == [target for _, target in best]
    assert [output.score for output in outputs] == pytest.approx([value for value, _ in best], abs=1e-9)


OPTIONS = [
    GREEDY,
    Options(beam=3, nbest=3),
    Options(beam=4, nbest=4, groups=2, diversity=0.7),
    Options(beam=3, nbest=2, no_repeat=2, shortest=3),
    Options(sample=True, nbest=3, seed=5),
    Options(sample=True, nbest=2, top_k=3, temperature=1.4),
    Options(sample=True, top_p=0.7),
]


@pytest.mark.parametrize("kind", ["local", "alibi", "both"])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: f"beam{options.beam}{'-sample' * options.sample}")
def test_alone_is_in_any_batch(kind, options):
    """Exactly, in float64: equal tokens, and scores that differ only by the order of a sum."""
    model, sources = small(kind), sentences(4, longest=9)
    options = replace(options, longest=8)
    together = found_of(model, sources, options)
    shuffled = random.sample(range(4), 4)
    again = found_of(model, [sources[i] for i in shuffled], options)
    for place, i in enumerate(shuffled):
        alone = found_of(model, [sources[i]], options)[0]
        for other in (alone, again[place]):
            assert [output.tokens for output in other.outputs] == [output.tokens for output in together[i].outputs]
            for one, two in zip(other.outputs, together[i].outputs, strict=True):
                assert one.score == pytest.approx(two.score, abs=1e-12)
                assert one.finished == two.finished


@pytest.mark.parametrize("kind", ["rnnsearch", "luong", "transformer"])
def test_alone_is_in_a_batch_in_single_precision(kind):
    """Scores to 1e-4, and equal tokens unless two candidates were that close."""
    model, sources = small(kind, dtype=torch.float32), sentences(8, longest=9)
    options = Options(beam=4, nbest=4, longest=6)
    for source, found in zip(sources, found_of(model, sources, options), strict=True):
        alone = found_of(model, [source], options)[0]
        for one, two in zip(alone.outputs, found.outputs, strict=True):
            assert one.score == pytest.approx(two.score, abs=1e-4)
            if one.tokens != two.tokens:
                others = [each.score for each in alone.outputs if each is not one]
                assert min(abs(one.score - other) for other in others) < 1e-4


@pytest.mark.parametrize(("kind", "options"), [(kind, OPTIONS[i % len(OPTIONS)]) for i, kind in enumerate(KINDS)])
def test_an_output_has_the_score_of_its_pair(kind, options):
    model, sources = small(kind), sentences(3)
    options = replace(options, longest=5)
    for source, found in zip(sources, found_of(model, sources, options), strict=True):
        assert found.outputs
        for output, scored in zip(
            found.outputs,
            score_pairs(model, [source] * len(found.outputs), [output.tokens for output in found.outputs]),
            strict=True,
        ):
            assert output.log_prob == pytest.approx(scored.log_prob, abs=1e-9)
            assert output.log_prob == pytest.approx(pair_log_prob(model, source, output.tokens), abs=1e-9)
            assert output.score == pytest.approx(
                output.log_prob / length_penalty(len(output.tokens) + 1, options.length_penalty)
            )
            assert len(scored.tokens) == len(output.tokens) + 1


@settings(max_examples=12, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(0, 4), st.integers(0, 5), st.integers(0, 3), st.integers(0, 2**16)
)
def test_whatever_is_asked_for_holds(size, groups, shortest, more, no_repeat, seed):
    random.seed(seed)
    beam = size * groups
    model = small("rnn", seed=seed)
    options = Options(
        beam=beam, nbest=beam, groups=groups, shortest=shortest, longest=shortest + more, no_repeat=no_repeat
    )
    sources = sentences(3)
    prefixes = [[random.randrange(3, WORDS) for _ in range(random.randint(0, shortest + more))] for _ in sources]
    for prefix, found in zip(prefixes, found_of(model, sources, options, prefixes=prefixes), strict=True):
        outputs = found.outputs
        assert outputs
        assert len(outputs) <= beam
        assert len({tuple(output.tokens) for output in outputs}) == len(outputs)
        assert [output.score for output in outputs] == sorted((output.score for output in outputs), reverse=True)
        for output in outputs:
            assert output.tokens[: len(prefix)] == prefix
            assert shortest <= len(output.tokens) <= shortest + more
            assert not {PAD, START, END} & set(output.tokens)
            assert output.finished == (len(output.tokens) < shortest + more)
            free = [
                tuple(output.tokens[i - no_repeat : i])
                for i in range(no_repeat, len(output.tokens) + 1)
                if no_repeat and i > len(prefix)
            ]
            before = {tuple(prefix[i - no_repeat : i]) for i in range(no_repeat, len(prefix) + 1) if no_repeat}
            assert len(set(free)) == len(free)
            assert not before & set(free)


def test_nothing_is_left_to_say():
    """If more tokens are requested than exist without a repetition, the output ends where it must."""
    model = small("rnn", words=6)
    output = found_of(model, [[3, 4]], Options(beam=2, shortest=9, longest=20, no_repeat=1))[0].outputs[0]
    assert sorted(output.tokens) == [3, 4, 5]


def test_groups_that_pay_nothing_are_one_beam():
    model, sources = small("luong"), sentences(5)
    one = found_of(model, sources, Options(beam=2, nbest=2, longest=6))
    three = found_of(model, sources, Options(beam=6, nbest=6, groups=3, diversity=0.0, longest=6))
    for found, wanted in zip(three, one, strict=True):
        assert [output.tokens for output in found.outputs] == [output.tokens for output in wanted.outputs]


def test_groups_that_pay_much_begin_differently():
    model, sources = small("transformer"), sentences(5)
    for found in found_of(model, sources, Options(beam=3, nbest=3, groups=3, diversity=1e6, longest=6, shortest=1)):
        assert len({output.tokens[0] for output in found.outputs}) == 3
    alike = found_of(model, sources, GREEDY)
    diverse = found_of(model, sources, Options(beam=3, nbest=3, groups=3, diversity=1e6))
    for one, several in zip(alike, diverse, strict=True):  # the first group has no penalty
        assert one.outputs[0].tokens in [output.tokens for output in several.outputs]


@pytest.mark.parametrize("kind", ["rnnsearch", "luong", "transformer"])
def test_coverage_is_the_formula(kind):
    """β Σⱼ log min(Σᵢ aᵢⱼ, 1) over the model's attention, including END's."""
    model, sources = small(kind), sentences(4)
    options = Options(beam=3, nbest=3, coverage_penalty=0.7, longest=6)
    for source, found in zip(sources, found_of(model, sources, options), strict=True):
        for output in found.outputs:
            with torch.no_grad(), watch(model) as looks:
                model(*inputs(collate([(source, output.tokens)])))
            weights = looks[model.cross_attentions[-1]].weights[0].detach()
            weights = weights.mean(0) if weights.ndim == 3 else weights
            penalty = 0.7 * float(weights.sum(0).clamp(1e-6, 1).log().sum())
            assert output.score == pytest.approx(
                output.log_prob / length_penalty(len(output.tokens) + 1, options.length_penalty) + penalty, abs=1e-9
            )


# ---- considered candidates


@pytest.mark.parametrize("options", OPTIONS[:6], ids=lambda options: f"beam{options.beam}{'-sample' * options.sample}")
def test_the_trace_tells_how_outputs_were_found(options):
    model, sources = small("rnn"), sentences(2)
    options = replace(options, longest=5)
    plain = found_of(model, sources, options)
    for source, found, without in zip(sources, found_of(model, sources, options, trace=True), plain, strict=True):
        assert found.outputs == without.outputs
        assert without.steps is None
        rows, ended = {0: []}, {}
        for candidates in found.steps:
            following = {}
            assert sum(candidate.fate == "kept" for candidate in candidates) <= max(options.beam, options.nbest)
            for candidate in candidates:
                said = rows[candidate.parent]
                added = float(next_log_probs(model, source, said)[candidate.token])
                before = sum(float(next_log_probs(model, source, said[:i])[token]) for i, token in enumerate(said))
                assert candidate.log_prob == pytest.approx(before + added, abs=1e-9)
                if candidate.fate == "kept":
                    following[candidate.row] = [*said, candidate.token]
                elif candidate.fate == "finished":
                    assert candidate.token == END
                    ended[tuple(said)] = candidate.log_prob
            rows = following
        for output in found.outputs:
            assert ended[tuple(output.tokens)] == pytest.approx(output.log_prob, abs=1e-9)


def test_rows_of_groups_that_few_candidates_fill():
    """With two words, a group of three has fewer candidates than rows; its rows stay its own."""
    model, sources = small("rnn", words=5), sentences(3, words=5)
    for found in found_of(model, sources, Options(beam=6, nbest=6, groups=2, longest=4), trace=True):
        rows = {0}
        for candidates in found.steps:
            assert {candidate.parent for candidate in candidates} <= rows
            kept = [candidate.row for candidate in candidates if candidate.fate == "kept"]
            assert len(set(kept)) == len(kept)
            rows = set(kept)


def test_steps_do_not_hang_on_the_company():
    model, sources = small("rnn"), sentences(12)
    options = Options(beam=3, nbest=3, longest=9)
    for source, found in zip(sources, found_of(model, sources, options, trace=True), strict=True):
        alone = found_of(model, [source], options, trace=True)[0]
        assert [[each[:2] for each in step] for step in found.steps] == [
            [each[:2] for each in step] for step in alone.steps
        ]
        last = found.steps[-1]  # no step follows it
        assert not any(candidate.fate == "kept" for candidate in last)


@pytest.mark.unchecked
def test_finished_sentences_leave():
    model = Script([[5, 6, 7], [], [8], [9, 9]])
    assert greedy(model, tokens_of([[4]] * 4)) == [[5, 6, 7], [], [8], [9, 9]]
    assert model.asked == [4, 3, 2, 1]
    few = Script([[5] * (1 + i // 2) for i in range(20)])  # two of them end at each step
    assert greedy(few, tokens_of([[4]] * 20)) == few.answers
    assert few.asked == [20, 20, 20, 16, 14, 12, 10, 8, 6, 4, 2]


# ---- other sizes, other models


@pytest.mark.parametrize("kind", ["transformer", "unbiased", "rnnsearch"])
@pytest.mark.parametrize("beam", [1, 3])
def test_a_large_vocabulary_in_single_precision(kind, beam):
    """Packed products, a folded vocabulary and sums by powers of two, against recomputing every prefix."""
    torch.manual_seed(beam)
    sizes = {"size": 128, "heads": 4, "layers": 1, "hidden": 520}
    if kind == "rnnsearch":
        sizes = {"size": 128, "embedding": 96, "hidden": 64, "maxout": 128}
    if kind == "unbiased":
        kind, sizes = "transformer", {**sizes, "output_bias": False, "activation": "gelu"}
    model = build(kind, read_model_config({"kind": kind, **sizes}), 701, 701).eval()
    with torch.no_grad():
        model.readout.weight.mul_(3)
    sources = [[random.randrange(3, 701) for _ in range(random.randint(2, 9))] for _ in range(16)]
    found = found_of(model, sources, Options(beam=beam, nbest=beam, longest=4))
    for source, each in list(zip(sources, found, strict=True))[:3]:
        wanted = fed_again(model, source, beam, 4, 0.6)
        for output, (tokens, total, _) in zip(each.outputs, wanted, strict=True):
            assert output.log_prob == pytest.approx(total, abs=1e-4)
            assert output.tokens == tokens


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi", "learned"])
def test_a_language_model_is_searched_too(positions):
    config = {"kind": "encoder", "job": "language-model", "size": 8, "heads": 2, "layers": 2, "hidden": 12}
    model = build("encoder", read_model_config({**config, "positions": positions}), WORDS, WORDS).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    found = found_of(model, [[3], [4]], Options(beam=3, nbest=3, longest=4))
    wanted = fed_again(model, [3], 3, 4, 0.6)
    for each in found:
        assert [output.tokens for output in each.outputs] == [tokens for tokens, _, _ in wanted]


@pytest.mark.parametrize("kind", ["transformer", "rotary", "rnnsearch"])
def test_alone_with_everything(kind):
    """Prefixes of different lengths, coverage, groups and n-grams, alone and in a batch."""
    model, sources = small(kind), sentences(5)
    prefixes = [[random.randrange(3, WORDS) for _ in range(i)] for i in range(5)]
    for options in (
        Options(beam=4, nbest=4, groups=2, no_repeat=2, coverage_penalty=0.3, longest=7),
        Options(sample=True, nbest=3, longest=7, seed=3),
    ):
        together = found_of(model, sources, options, prefixes=prefixes)
        for source, prefix, found in zip(sources, prefixes, together, strict=True):
            alone = found_of(model, [source], options, prefixes=[prefix])[0]
            assert [output.tokens for output in alone.outputs] == [output.tokens for output in found.outputs]
            for one, two in zip(alone.outputs, found.outputs, strict=True):
                assert one.score == pytest.approx(two.score, abs=1e-10)


def test_a_watched_model_finds_the_same():
    """Rows then have separate caches; a hook registered during a search changes nothing."""
    model, sources = small("transformer"), sentences(3)
    options = Options(beam=3, nbest=3, longest=5)
    wanted = [[output.tokens for output in found.outputs] for found in found_of(model, sources, options)]
    with watch(model):
        assert [[output.tokens for output in found.outputs] for found in found_of(model, sources, options)] == wanted
    taken = model.step

    def step(tokens, state):
        if state.rows > 1:
            model.decoder.blocks[0].attention.register_forward_hook(lambda *_: None)
        return taken(tokens, state)

    model.step = step
    assert [[output.tokens for output in found.outputs] for found in found_of(model, sources, options)] == wanted


@pytest.mark.parametrize("kind", ["transformer", "rotary", "alibi", "both"])
def test_caches_as_on_a_gpu(kind, monkeypatch):
    """Search without a shared past."""
    model, sources = small(kind), sentences(4)
    prefixes = [[3] * i for i in range(4)]
    for options in (
        Options(beam=4, nbest=4, groups=2, longest=6),
        Options(beam=3, nbest=3, coverage_penalty=0.2, longest=6),
        Options(sample=True, nbest=3, longest=6),
    ):
        wanted = found_of(model, sources, options, prefixes=prefixes)
        with monkeypatch.context() as patch:
            patch.setattr(cache.SharedBeamCache, "from_cache", lambda *given: None)
            found = found_of(model, sources, options, prefixes=prefixes)
        for one, two in zip(found, wanted, strict=True):
            assert [output.tokens for output in one.outputs] == [output.tokens for output in two.outputs]


@pytest.mark.parametrize("kind", ["rnn", "both"])
def test_coverage_of_what_has_no_attention(kind):
    model = Ensemble([small("transformer"), small("rnn")]) if kind == "both" else small(kind)
    with pytest.raises(ArgumentError, match="a model without attention covers nothing"):
        found_of(model, [[4]], Options(coverage_penalty=0.5))


# ---- threads, and autograd's records


def spied(model, monkeypatch, note):
    def step(*given, step=model.step):
        note()
        return step(*given)

    monkeypatch.setattr(model, "step", step)


def test_few_rows_are_stepped_by_one_thread(monkeypatch):
    threads, model = [], small("transformer")
    spied(model, monkeypatch, lambda: threads.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for count, beam, expected in ((1, 1, 1), (3, 5, 1), (THREADED, 1, 2), (4, 4, 2)):
            threads.clear()
            search(model, tokens_of(sentences(count)), Options(beam=beam, longest=1))
            assert threads[0] == expected
            assert torch.get_num_threads() == 2
        threads.clear()
        spied(model, monkeypatch, lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            search(model, tokens_of(sentences(1)), GREEDY)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_number_of_threads_that_cannot_change_is_left_alone(monkeypatch):
    """The thread count of torch's own pool, if torch uses it."""
    monkeypatch.setattr("regard.decoding.sentence_search.OPENMP", False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: pytest.fail("they cannot be changed"))
    search(small("transformer"), tokens_of(sentences(1)), Options(longest=2))


class Keeping(nn.Identity):
    """A custom module that keeps a tensor used as a factor in training."""

    def forward(self, x):
        self.kept = x.detach()
        return x


def test_what_a_module_of_ones_own_keeps_may_be_trained_with():
    model = small("transformer")
    search(model, tokens_of(sentences(1)), Options(longest=1))
    model.decoder.final_norm = nn.Sequential(model.decoder.final_norm, Keeping())
    search(model, tokens_of(sentences(1)), Options(longest=1))
    kept = model.decoder.final_norm[1].kept
    leaf = torch.ones_like(kept, requires_grad=True)
    (leaf * kept).sum().backward()
    assert torch.equal(leaf.grad, kept)


def test_only_the_librarys_modules_are_searched_without_autograds_notes(monkeypatch):
    model, modes = small("transformer"), []
    spied(model, monkeypatch, lambda: modes.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled())))
    one, options = tokens_of(sentences(1)), Options(longest=1)
    search(model, one, options)
    with watch(model) as looks:
        search(model, one, options)
    handle = nn.modules.module.register_module_forward_hook(lambda *given: None)
    search(model, one, options)
    handle.remove()
    assert modes[0] == (True, False)
    assert set(modes[2:]) == {(False, False)}
    assert not next(iter(looks.values())).weights.is_inference()


# ---- draws against their expected probabilities


SCORES = torch.tensor([1.0, 3.0, 0.0, 2.0, -torch.inf])


def shares(**options):
    """Return how often each of five tokens is drawn."""
    count = 40_000
    places = (torch.arange(count, dtype=torch.float64) + 0.5) / count  # uniform over [0, 1)
    drawn = sample_tokens(SCORES.expand(1, count, -1), places[None], Options(sample=True, **options))
    return torch.bincount(drawn.flatten(), minlength=5) / count


def test_tokens_are_drawn_by_their_probability():
    torch.testing.assert_close(shares(), SCORES.softmax(-1), atol=1e-4, rtol=0)
    torch.testing.assert_close(shares(temperature=0.5), (2 * SCORES).softmax(-1), atol=1e-4, rtol=0)


def test_the_likeliest_alone():
    two = torch.tensor([0.0, 3.0, 0.0, 2.0, 0.0])
    expected = torch.zeros(5)
    expected[[1, 3]] = two[[1, 3]].softmax(-1)
    torch.testing.assert_close(shares(top_k=2), expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(shares(top_p=0.7), expected, atol=1e-4, rtol=0)  # 0.64 is not enough, 0.87 is
    for certain in ({"top_k": 1}, {"top_p": 0.5}, {"temperature": 1e-39}, {"top_k": 3, "top_p": 0.1}):
        assert shares(**certain).tolist() == [0, 1, 0, 0, 0]


def test_each_sentence_has_numbers_of_its_own():
    first = random_numbers([5, 6], 4, 3, seed=1)
    assert first.shape == (4, 3)
    assert torch.equal(first, random_numbers([5, 6], 4, 3, seed=1))
    assert torch.equal(first[:, :2], random_numbers([5, 6], 4, 2, seed=1))  # the first of many equal those of a few
    for other in (
        random_numbers([5, 6], 4, 3, seed=2),
        random_numbers([5, 6], 4, 3, seed=1 + 2**32),
        random_numbers([6, 5], 4, 3, seed=1),
    ):
        assert not torch.equal(first, other)
    assert first.unique().numel() == 12
    assert 0 <= float(first.min()) <= float(first.max()) < 1


@pytest.mark.parametrize("sources", [[[4, 5], [4, 5]]])
def test_the_same_text_is_drawn_alike(sources):
    assert torch.equal(*(random_numbers(source, 3, 2, 7) for source in sources))


def test_a_nucleus_is_the_fewest_tokens_that_reach_its_share():
    """Of four equally likely tokens two make exactly a half, and the third is not drawn."""
    places = (torch.arange(100, dtype=torch.float64) + 0.5) / 100
    drawn = sample_tokens(torch.zeros(1, 100, 4), places[None], Options(sample=True, top_p=0.5))
    assert torch.bincount(drawn.flatten()).sort().values[-2:].tolist() == [50, 50]
