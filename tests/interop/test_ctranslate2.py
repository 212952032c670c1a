"""The converter: CTranslate2 has the model's scores and attention, for every option that it supports."""

import sys

import pytest
import torch
from interop.random_models import SIZE, TOKENIZERS, both_engines, draw_model, draw_sources

from regard.alignment import AlignmentSettings
from regard.data import Tokenizers, train
from regard.errors import ArgumentError, MissingExtraError
from regard.interop import ctranslate2
from regard.interop.ctranslate2 import AlignmentHead, check_model, convert, pieces_of, position_count
from regard.models import TransformerConfig, kinds

OPTIONS = [
    {"norm": norm, "positions": positions} for norm in ("pre", "post") for positions in ("sinusoidal", "learned")
]
OPTIONS += [{"positions": "rotary"}, {"positions": "rotary", "norm": "post"}, {"positions": "none"}]
OPTIONS += [{"scaled": False}, {"scaled": False, "positions": "rotary"}, {"tied": "all"}, {"tied": "none"}]
OPTIONS += [{"activation": "gelu"}, {"activation": "silu"}, {"sines": "halves"}, {"sines": "fairseq"}]
OPTIONS += [{"scale_embeddings": False}, {"output_bias": False}, {"decoder_layers": 1}, {"heads": 1}, {"depth": 8}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_tokens_are_as_likely_as_in_the_model(tmp_path, options):
    model = draw_model(**options)
    view = f"decoder.blocks.{len(model.decoder.blocks) - 1}.cross"
    mine, other = both_engines(tmp_path, model, AlignmentSettings(view, 0))
    sources, targets = draw_sources(1, 12)[1:], draw_sources(2, 12)[:-1]
    for one, two in zip(mine.score(sources, targets), other.score(sources, targets), strict=True):
        assert two.tokens == pytest.approx(one.tokens, abs=1e-4)
        assert two.log_prob == pytest.approx(one.log_prob, abs=1e-3)


@pytest.mark.parametrize("head", [None, 0, 1, 2])
@pytest.mark.parametrize("layer", [0, 1])
def test_the_head_that_is_chosen_comes_first_and_changes_nothing(tmp_path, layer, head):
    model = draw_model(5, spread=0.5)
    sources, targets = draw_sources(3, 8)[1:], draw_sources(4, 8)[1:]
    settings = AlignmentSettings(f"decoder.blocks.{layer}.cross", head)
    mine, other = both_engines(tmp_path, model, settings)
    pairs = list(zip(sources, targets, strict=True))
    for one, two in zip(mine.word_weights(pairs, settings), other.word_weights(pairs, settings), strict=True):
        assert one.shape == two.shape
        torch.testing.assert_close(one, two, atol=1e-5, rtol=0)
    if head is not None:  # without a head, an export has only the mean of all heads
        both = (engine.word_attention(pairs, settings) for engine in (mine, other))
        for one, two in zip(*both, strict=True):
            torch.testing.assert_close(one.received, two.received, atol=1e-4, rtol=0)
    for one, two in zip(mine.score(sources, targets), other.score(sources, targets), strict=True):
        assert two.tokens == pytest.approx(one.tokens, abs=1e-4)


def test_heads_differ_so_that_the_test_above_can_fail(tmp_path):
    model = draw_model(5, spread=0.5)
    pairs = [(draw_sources(3, 8)[3], draw_sources(4, 8)[3])]
    mine, _ = both_engines(tmp_path, model)
    heads = [mine.word_weights(pairs, AlignmentSettings("decoder.blocks.1.cross", head))[0] for head in (0, 1, 2)]
    assert all((heads[i] - heads[j]).abs().max() > 0.01 for i, j in ((0, 1), (0, 2), (1, 2)))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"mixing": "convolution"}, "model.mixing: convolution given, expected attention"),
        ({"score": "additive"}, "model.score: additive given, expected dot"),
        ({"split": "input"}, "model.split: input given, expected projection"),
        ({"join": "concatenate"}, "model.join: concatenate given, expected add"),
        ({"positions": "alibi"}, "model.positions: alibi given, expected sinusoidal or learned or rotary or none"),
        ({"norm": "none"}, "model.norm: none given, expected pre or post"),
        ({"residual": False}, "model.residual: false given, expected true"),
        ({"feed_forward": False}, "model.feed_forward: false given, expected true"),
        ({"depth": 6}, "model.depth: 6 given, expected 4, the width of a head"),
    ],
)
def test_what_it_has_no_form_for_is_refused_by_its_key(tmp_path, options, problem):
    config = TransformerConfig(size=8, heads=2, layers=1, hidden=8, **options)
    model = kinds.build("transformer", config, SIZE, SIZE)
    with pytest.raises(ArgumentError, match=problem):
        convert(model, tmp_path, pieces_of(TOKENIZERS.source), pieces_of(TOKENIZERS.target))
    assert list(tmp_path.iterdir()) == []


def test_another_kind_is_refused():
    model = kinds.build("rnnsearch", kinds.KINDS["rnnsearch"].config(size=8, embedding=8, hidden=8), SIZE, SIZE)
    with pytest.raises(ArgumentError, match="runs/x: model.kind: rnnsearch given, expected transformer"):
        check_model(model, "runs/x")


def test_two_vocabularies(tmp_path):
    other = Tokenizers(train(["a b c d e f"] * 2, "word"))
    model = kinds.build("transformer", TransformerConfig(size=8, heads=2, layers=1, hidden=8), SIZE, other.target.size)
    source, target = pieces_of(TOKENIZERS.source), pieces_of(other.target)
    convert(model, tmp_path, source, target, alignment=AlignmentHead(0, None))
    translator = ctranslate2.library().Translator(str(tmp_path))
    (scored,) = translator.score_batch([source[4:9]], [target[4:6]])
    ids = torch.arange(4, 9)[None], torch.tensor([[1, 4, 5]])
    from regard.models import Tokens

    logits = model.eval()(*(Tokens.of(rows, torch.tensor([rows.shape[1]])) for rows in ids))
    right = logits.log_softmax(-1)[0, torch.arange(3), [4, 5, 2]]
    assert scored.log_probs == pytest.approx(right.tolist(), abs=1e-4)


def test_positions_are_as_many_as_a_run_needs():
    def count(**options):
        return position_count(TransformerConfig(**options), 3000)

    assert [count(positions=each) for each in ("sinusoidal", "none", "rotary")] == [3000, 3000, None]
    assert count(positions="learned", length=77) == 77
    assert position_count(TransformerConfig(positions="sinusoidal"), 10) == 1024


def test_pieces_have_names_of_their_own():
    pieces = pieces_of(TOKENIZERS.source)
    assert pieces[:4] == ["<pad>", "<s>", "</s>", "<unk>"]
    assert len(set(pieces)) == SIZE


def test_the_extra_is_named_where_the_library_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(MissingExtraError, match=r"ctranslate2 is not installed.*regard\[export\]"):
        ctranslate2.library()
