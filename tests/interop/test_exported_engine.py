"""The engine CTranslate2 against Regard's search: the same outputs, limits, scores and links for the same options."""

import pytest
import torch
from interop.random_models import TOKENIZERS, both_engines, draw_model, draw_sources

from regard.alignment import AlignmentSettings
from regard.data import END, PAD, START
from regard.decoding import Options
from regard.errors import ArgumentError, ConfigError, RegardError
from regard.interop.exported import STRONGEST


def sure_model(seed=0, end=5.0):
    """Return a model whose output depends on step and source, and which writes END after a while.

    Queries and keys are large. Every other weight of the last norm changes its sign, so outputs do not copy inputs.
    """
    model = draw_model(seed, spread=0.05, norm="post", size=48, heads=4)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("projection.weight"):
                parameter[: 2 * 48].mul_(3)
            elif name.endswith("tokens.weight"):
                parameter.mul_(3)
        model.get_parameter("decoder.blocks.1.feed_norm.weight")[::2] = -1
        model.target.tokens.weight[[PAD, START, END]] = 0
        model.readout.bias[END] = end
        model.readout.bias[[PAD, START]] = -20
    return model


def compare(mine, other, sources, **options):
    """Search with both; the best outputs are equal or equally good."""
    found = [engine.search(sources, Options(**options)) for engine in (mine, other)]
    for one, two in zip(*found, strict=True):
        assert [each.tokens for each in two.outputs[:1]] == [each.tokens for each in one.outputs[:1]]
        assert two.outputs[0].finished == one.outputs[0].finished
        assert two.outputs[0].log_prob == pytest.approx(one.outputs[0].log_prob, abs=1e-3)
        assert two.outputs[0].score == pytest.approx(one.outputs[0].score, abs=1e-3)
    return found


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    return both_engines(tmp_path_factory.mktemp("export"), sure_model())


@pytest.mark.parametrize(
    "options",
    [
        {"beam": 1},
        {"beam": 1, "longest": 4},
        {"beam": 1, "longest": 0},
        {"beam": 1, "shortest": 12},
        {"beam": 1, "shortest": 40},
        {"beam": 5, "length_penalty": 0.0},
        {"beam": 5, "length_penalty": 0.0, "longest": 3},
        {"beam": 5, "longest": 1},
        {"beam": 5, "longest": 6},
        {"beam": 5, "longest": 0},
        {"beam": 25, "longest": 5},
    ],
    ids=str,
)
def test_the_same_options_give_the_same_output(engines, options):
    found, _ = compare(*engines, draw_sources(11), **options)
    ends = [each.outputs[0].finished for each in found[1:]]
    assert options.get("longest") in (0, 1) or len({tuple(each.outputs[0].tokens) for each in found}) > 5
    if set(options) <= {"beam", "length_penalty"}:
        assert 3 < sum(ends) < len(ends)  # otherwise ends and limits would not be tested


@pytest.mark.parametrize("options", [{"beam": 2}, {"beam": 5}, {"beam": 5, "length_penalty": 1.0}], ids=str)
def test_with_a_length_penalty_only_what_is_found_late_may_be_missing(engines, options):
    """Regard's search continues where CTranslate2's stops, and rarely finds a better output."""
    one, two = (engine.search(draw_sources(23, 100), Options(**options)) for engine in engines)
    different = [
        (a.outputs[0], b.outputs[0]) for a, b in zip(one, two, strict=True) if a.outputs[0][:1] != b.outputs[0][:1]
    ]
    assert len(different) <= 10
    assert all(a.score > b.score - 1e-4 for a, b in different)


@pytest.mark.parametrize("end", [-3.0, 2.0])
def test_outputs_that_reach_their_own_limit_have_their_end_counted(tmp_path, end):
    """The limit is twenty tokens plus two for each source token; in a batch each sentence has its own limit."""
    mine, other = both_engines(tmp_path, sure_model(3, end=end))
    for options in ({"beam": 1}, {"beam": 4}, {"beam": 4, "length_penalty": 0.0}):
        found, _ = compare(mine, other, draw_sources(12, 12, 6), **options)
        limited = [len(each.outputs[0].tokens) for each in found if not each.outputs[0].finished]
        assert len(set(limited)) > 3


def test_n_best_lists(engines):
    one, two = (engine.search(draw_sources(13), Options(beam=4, nbest=4)) for engine in engines)
    both = zip(one, two, strict=True)
    same = [[each.tokens for each in a.outputs] == [each.tokens for each in b.outputs] for a, b in both]
    assert sum(same) >= len(same) * 0.8, "only what is found late may be missing"
    for each in two:
        scores = [output.score for output in each.outputs]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(output.tokens) for output in each.outputs}) == len(each.outputs)


@pytest.mark.parametrize(("beam", "end"), [(1, 3.0), (4, 3.0), (4, 5.0)])
def test_outputs_begin_with_their_prefix_and_its_probability_counts(tmp_path, beam, end):
    engines, sources = both_engines(tmp_path, sure_model(end=end)), draw_sources(14)
    prefixes = [source[:2] if i % 3 else [] for i, source in enumerate(sources)]
    options = Options(beam=beam, length_penalty=0.0)
    one, two = (engine.search(sources, options, prefixes=prefixes) for engine in engines)
    for prefix, a, b in zip(prefixes, one, two, strict=True):
        assert b.outputs[0].tokens[: len(prefix)] == (prefix if b.outputs[0].tokens else [])
        assert b.outputs[0].tokens == a.outputs[0].tokens
        assert b.outputs[0].log_prob == pytest.approx(a.outputs[0].log_prob, abs=1e-3)
    ended = [a.outputs[0].tokens == prefix for prefix, a in zip(prefixes, one, strict=True) if prefix]
    assert any(ended) if end == 5.0 else not all(ended)


def test_tokens_that_no_output_has_are_not_written(tmp_path):
    model = sure_model(4)
    with torch.no_grad():
        model.readout.bias[[PAD, START]] = 6
    mine, other = both_engines(tmp_path, model)
    sources = draw_sources(15)
    raw = other.translator.translate_batch([other.spell(source, other.source) for source in sources[1:]])
    assert any("<pad>" in each.hypotheses[0] or "<s>" in each.hypotheses[0] for each in raw), "or nothing is tested"
    compare(mine, other, sources, beam=1)
    found = other.search(sources, Options(beam=3, nbest=3))
    assert all(len(each.outputs) == 3 for each in found[1:])
    assert all(token > START for each in found for output in each.outputs for token in output.tokens)


def test_alone_as_in_a_batch_and_in_the_order_given(engines):
    _, other = engines
    sources, options = draw_sources(16), Options(beam=3)
    alone = [other.search([source], options)[0].outputs[0].tokens for source in sources]
    for budget in (1, 40, None):
        together = other.search(sources, options, budget=budget)
        assert [each.outputs[0].tokens for each in together] == alone
    assert other.search([], options) == []


def test_batches_have_as_many_tokens_as_regards(engines, monkeypatch):
    _, other = engines
    sizes = []
    real = other.decode

    def decode(sources, *rest, **how):
        sizes.append(sources)
        return real(sources, *rest, **how)

    monkeypatch.setattr(other, "decode", decode)
    other.search(draw_sources(17, 40), Options(beam=4), budget=100)
    assert len(sizes) > 3
    assert all(len(rows) == 1 or len(rows) * 4 * (max(map(len, rows)) + 1) <= 100 for rows in sizes)


@pytest.mark.parametrize(
    ("options", "key", "problem"),
    [
        ({"sample": True}, "sample", "given, which the engine ctranslate2 does not serve"),
        ({"seed": 3}, "seed", "3 given"),
        ({"groups": 5}, "groups", "5 given"),
        ({"diversity": 0.1}, "diversity", "0.1 given"),
        ({"coverage_penalty": 0.2}, "coverage_penalty", "0.2 given"),
        ({"no_repeat": 3}, "no_repeat", "3 given"),
        ({"precision": "fp32"}, "precision", "fp32 given"),
        ({"shortest": 2}, "shortest", "2 given with a beam of 5"),
        ({"length_penalty": STRONGEST + 0.5}, "length_penalty", "1.5 given, expected at most 1"),
    ],
)
def test_what_it_does_not_serve_is_refused_by_its_name(engines, options, key, problem):
    with pytest.raises(ConfigError, match=problem) as error:
        engines[1].search(draw_sources(18), Options(**options))
    assert error.value.key == key
    engines[0].check(Options(**options))


def test_positions_that_the_export_does_not_have(tmp_path):
    _, other = both_engines(tmp_path, draw_model(positions="learned", length=20))
    with pytest.raises(ConfigError, match="20 given, expected less than 20, the export's positions"):
        other.check(Options(longest=20))
    with pytest.raises(ArgumentError, match="20 tokens given, expected fewer than 20"):
        other.score([[4]], [[5] * 20])
    found = other.search([[4, 5, 6] * 5], Options(beam=1))
    assert len(found[0].outputs[0].tokens) <= 19


def test_prefixes_and_targets_that_do_not_fit(engines):
    _, other = engines
    for call in (
        lambda: other.search([[4]], Options(), prefixes=[]),
        lambda: other.search([[4]], Options(longest=1), prefixes=[[5, 6]]),
        lambda: other.search([[4]], Options(), prefixes=[[END]]),
        lambda: other.score([[4]], []),
    ):
        with pytest.raises(RegardError):
            call()


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("threshold", [None, 0.2])
def test_links_are_those_of_the_model(tmp_path, offset, threshold):
    settings = AlignmentSettings("decoder.blocks.0.cross", 1, offset, threshold=threshold, join=None)
    mine, other = both_engines(tmp_path, draw_model(6, spread=0.5), settings)
    pairs = list(zip(draw_sources(19)[1:], draw_sources(20)[1:], strict=True))
    assert other.link_words(pairs, settings) == mine.link_words(pairs, settings)
    elsewhere = AlignmentSettings("decoder.blocks.1.cross", 1)
    with pytest.raises(ArgumentError, match="the export has layer 1, head 2.*; export the run again"):
        other.link_words(pairs, elsewhere)


def test_what_stands_around_a_text_is_of_no_word(tmp_path):
    around = TOKENIZERS.surround(before=("w1",), after=("</s>",), first=("w2",))
    mine, other = both_engines(tmp_path, draw_model(7, spread=0.5))
    mine, other.tokenizers = type(mine)(mine.model, around, mine.device), around
    sources = around.source.encode_batch(["w5 w6 w7", "w8"])
    assert sources[0][0] != sources[0][1]
    assert sources[0][-1] == END
    settings = other.alignment
    pairs = list(zip(sources, around.target.encode_batch(["w9 w10", "w11 w12 w13"]), strict=True))
    for one, two in zip(mine.word_weights(pairs, settings), other.word_weights(pairs, settings), strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=0)
    assert [tuple(each.shape) for each in other.word_weights(pairs, settings)] == [(2, 3), (3, 1)]
    first = [[*around.target.before]] * 2
    one, two = (engine.search(sources, Options(beam=3), prefixes=first) for engine in (mine, other))
    assert [each.outputs[0].tokens for each in one] == [each.outputs[0].tokens for each in two]


@pytest.mark.parametrize("quantize", ["float16", "int8", "int8_float16"])
def test_rounded_weights_are_near(tmp_path, quantize):
    mine, other = both_engines(tmp_path, draw_model(8), quantize=quantize)
    sources, targets = draw_sources(21)[1:], draw_sources(22)[1:]
    pairs = zip(mine.score(sources, targets), other.score(sources, targets), strict=True)
    gaps = [abs(a - b) for one, two in pairs for a, b in zip(one.tokens, two.tokens, strict=True)]
    assert 0 < max(gaps) < (0.01 if quantize == "float16" else 0.5)
