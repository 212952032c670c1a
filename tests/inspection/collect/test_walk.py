"""Walks: each stage from the one before it by the formula, and the end against what the model itself computed."""

from functools import cache

import pytest
import torch
from inspection.subjects import ATTENTIVE, TEXT, TRANSLATORS, item_of, subject
from oracles import agree

from regard.data.tokenizer import START
from regard.decoding.sources import tokens_of
from regard.errors import ArgumentError
from regard.inspection import Which, exhibit_of
from regard.inspection.collect.teacher_forcing import force, watch_forward
from regard.inspection.collect.views import views_of
from regard.inspection.collect.walk import stages_of, walk, walk_of

ATTENTIONS = [name for name in ATTENTIVE if not name.startswith("ntm")]


@cache
def seen_by(name: str):
    """A pass, and its views."""
    run = subject(name)
    seen = watch_forward(run.model, force(run, item_of(name), beam=2, longest=5))
    return seen, views_of(seen, run.settings.kind)


def column(stage):
    assert stage.values.shape[1] == 1
    return stage.values[:, 0]


@pytest.mark.parametrize("name", ATTENTIONS)
def test_each_stage_follows_from_the_one_before(name):
    seen, views = seen_by(name)
    model = seen.model
    for view in views:
        heads, n, _ = view.weights.shape
        rows = sorted({n // 3, n - 1})
        for head, row in [(head, row) for head in range(heads) for row in rows]:
            made = stages_of(seen, views, Which(view.name, head, row))
            assert (made.view, made.head, made.row) == (view.name, head, row)
            stages = {stage.symbol: stage for stage in made.stages}
            for stage in made.stages:
                assert stage.words
                assert len(stage.names) == len(stage.values)
            if "a" not in stages:  # the first word of a tape
                assert view.weights[head, row].sum() == 0
                assert (stages["Σ a v"].values == 0).all()
                continue
            weights, shown = column(stages["a"]), view.weights[head, row]
            kept = shown[shown > 0]
            agree(weights[weights > 0], kept, rtol=1e-5, atol=1e-7)
            if "softmax(e)" in stages:
                agree(torch.softmax(column(stages["e"]), 0), column(stages["softmax(e)"]), rtol=1e-4, atol=1e-6)
            else:
                last = next(stages[symbol] for symbol in ("e + b", "e/√d", "e") if symbol in stages)
                by_sentence = len(stages["Σ a v"].values) > 1
                if not by_sentence:
                    agree(torch.softmax(column(last), 0), weights, rtol=1e-4, atol=1e-6)
            e = column(stages["e"])
            if "tanh(W q + U k + b)" in stages:
                attention = seen.module(view.name)
                agree(stages["tanh(W q + U k + b)"].values @ attention.score.v.detach(), e, rtol=1e-4, atol=1e-5)
                summed = stages["W q"].values + stages["U k + b"].values
                agree(torch.tanh(summed), stages["tanh(W q + U k + b)"].values)
                agree(attention.score.query(stages["q"].values).detach(), stages["W q"].values, rtol=1e-4, atol=1e-5)
            elif "W k" in stages or "k" in stages:
                keys = stages.get("W k", stages.get("k"))
                agree(keys.values @ stages["q"].values[0], e, rtol=1e-4, atol=1e-5)
            if "e/√d" in stages:
                agree(e / stages["q"].values.shape[1] ** 0.5, column(stages["e/√d"]), rtol=1e-4, atol=1e-6)
            if len(stages["Σ a v"].values) == 1:
                agree(weights @ stages["v"].values, stages["Σ a v"].values[0], rtol=1e-4, atol=1e-5)
    assert not model.training


@pytest.mark.parametrize("name", ["transformer-rotary", "transformer-alibi", "captioner-transformer"])
def test_heads_together_are_what_the_model_computed(name):
    """[Σ a v of every head] W^O is the output of the attention in the pass itself."""
    run = subject(name)
    forced = force(run, item_of(name), beam=2, longest=5)
    outputs, hooks = {}, []
    seen = watch_forward(run.model, forced)
    for view in seen.looks:
        module = seen.module(view)
        hooks.append(module.register_forward_hook(lambda m, given, made, view=view: outputs.update({view: made})))
    with torch.no_grad():
        forced.log_probs(run.model)
    for hook in hooks:
        hook.remove()
    views = views_of(seen, run.settings.kind)
    for view in views:
        row = view.weights.shape[1] - 1
        contexts = [stages_of(seen, views, Which(view.name, head, row)).stages[-1].values for head in range(2)]
        merged = seen.module(view.name).output(torch.cat(contexts, 1)).detach()
        agree(merged[0], outputs[view.name][0, row], rtol=1e-4, atol=1e-5)


def test_alibi_takes_away_by_distance():
    made = walk(subject("transformer-alibi"), TEXT, view="encoder.blocks.0.attention", head=1, row=3, longest=4)
    stages = {stage.symbol: stage for stage in made.stages}
    taken = column(stages["e + b"]) - column(stages["e/√d"])
    agree(taken, -(2.0**-8) * (torch.arange(len(taken)) - 3).abs(), rtol=1e-3, atol=1e-5)


def test_only_what_is_in_reach_is_shown():
    seen, views = seen_by("transformer")
    made = walk_of(seen, views, Which("decoder.blocks.0.attention", 0, 2))
    keys = next(stage for stage in made.stages if stage.symbol == "k")
    assert keys.names == seen.sides["read"].pieces[:3]
    seen, views = seen_by("luong-local-m")
    made = walk_of(seen, views, Which("attention", 0, 4))
    assert next(stage for stage in made.stages if stage.symbol == "a").names == seen.sides["source"].pieces[2:7]


def test_a_document_has_a_context_a_sentence():
    seen, views = seen_by("han")
    made = walk_of(seen, views, Which("words"))
    stages = {stage.symbol: stage for stage in made.stages}
    belongs = torch.tensor(seen.sides["source"].sentences)
    weights, values = column(stages["a"]), stages["v"].values
    sentences = seen.sides["sentences"].pieces
    assert stages["Σ a v"].names == sentences
    for number in range(len(sentences)):
        own = belongs == number
        agree(weights[own].sum(), torch.tensor(1.0), rtol=1e-5, atol=1e-6)
        agree(torch.softmax(column(stages["e"])[own], 0), weights[own], rtol=1e-4, atol=1e-6)
        agree(weights[own] @ values[own], stages["Σ a v"].values[number], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["ntm", "ntm-lstm"])
def test_a_machines_step_ends_where_its_head_stood(name):
    seen, views = seen_by(name)
    for view in views:
        for head in range(len(view.weights)):
            for row in (0, view.weights.shape[1] - 1):
                stages = {each.symbol: each for each in stages_of(seen, views, Which(view.name, head, row)).stages}
                agree(column(stages["w"]), view.weights[head, row], rtol=1e-4, atol=1e-6)
                agree(column(stages["w^c"]), torch.softmax(column(stages["β cos(k, M)"]), 0), rtol=1e-4, atol=1e-6)
                assert ("Σ w M" in stages) == view.name.endswith("read")
    last = {each.symbol: each for each in walk_of(seen, views, Which("heads.source.read", 0, view_rows(views))).stages}
    agree(last["Σ w M"].values[0], seen.memory.sentence["reads"][0, 0], rtol=1e-4, atol=1e-5)


def view_rows(views) -> int:
    return next(view for view in views if view.name == "heads.source.read").weights.shape[1] - 1


# ---- which word


def test_words_and_titles():
    run = subject("transformer")
    exhibit = exhibit_of(run, TEXT, target=TEXT, walk=Which("encoder, layer 2", head=1, word=2))
    side = exhibit.sides["source"]
    assert exhibit.walk.view == "encoder.blocks.1.attention"
    assert side.words[exhibit.walk.row] == 2
    assert side.words[exhibit.walk.row - 1] == 1
    assert exhibit_of(run, TEXT, target=TEXT, walk=True).walk.view == exhibit.aligned
    made = walk(run, TEXT, target=TEXT, view="decoder.blocks.0.attention")
    assert made.row == 1  # START stands before the first word
    assert walk(subject("lstmn"), TEXT, target=TEXT, view="encoder.layers.0.intra").row == 1  # the first sees nothing


def test_what_cannot_be_walked():
    run = subject("transformer")
    for given, said in [
        ({"view": "nowhere"}, "view: 'nowhere' given, expected one of encoder.blocks.0.attention"),
        ({"head": 2}, "head: number 3 asked for, and decoder.blocks.1.cross has 2"),
        ({"row": 90}, "row: number 91 asked for, and decoder.blocks.1.cross has"),
        ({"row": -1}, "row: number 0 asked for"),
        ({"word": 17}, "word: number 18 asked for, and there are 6 that look in decoder.blocks.1.cross"),
    ]:
        with pytest.raises(ArgumentError, match=said):
            walk(run, TEXT, target=TEXT, **given)
    with pytest.raises(ArgumentError, match="no attention to walk through"):
        walk(subject("rnn"), TEXT, view="attention", longest=3)


# ---- states


@pytest.mark.parametrize("name", ["rnn", "rnn-sutskever", "luong-dot-unfed", "pointer"])
def test_states_are_those_of_the_whole_sentence(name):
    """The decoder's states of one pass over all words, beside those that arrived step by step."""
    run = subject(name)
    seen, _ = seen_by(name)
    made = walk(run, TEXT, beam=2, longest=5)
    model, (target,) = run.model, [seen.forced.target]
    with torch.no_grad():
        memory = model.encode(tokens_of([run.tokenizers.source.encode(TEXT)]))
        ids = torch.tensor([[START, *target]])
        x = (model.words if name == "pointer" else model.target)(ids)
        if getattr(run.settings.model, "context", "") == "every":
            x = torch.cat([x, memory.sentence["context"][:, None].expand(-1, ids.shape[1], -1)], -1)
        states, _ = model.decoder(x, memory.sentence["start"])
    read = [state for state in made.states if state.side == "source"]
    written = [state for state in made.states if state.side == "target"]
    if name == "rnn-sutskever":  # it was read from behind
        read.reverse()
        assert made.states[0].piece == seen.sides["source"].pieces[-1]
    agree(torch.stack([state.values for state in read]), memory.states[0], rtol=1e-5, atol=1e-6)
    agree(torch.stack([state.values for state in written]), states[0], rtol=1e-4, atol=1e-5)
    assert tuple(state.piece for state in written) == seen.sides["read"].pieces


@pytest.mark.parametrize("name", [*TRANSLATORS, "captioner", "captioner-none", "lstmn-writes", "lstmn-classifies"])
def test_states_arrive_one_by_one(name):
    seen, views = seen_by(name)
    states = walk_of(seen, views).states
    if name.startswith("transformer"):
        assert states == ()
        return
    written = len(seen.sides["read"].pieces) if "read" in seen.sides else 0
    reads = "source" in seen.sides
    count = len(seen.memory.states[0]) if reads else 0
    assert len(states) == count + written
    assert all(len(state.values) == subject(name).settings.model.size for state in states if state.side == "target")
    assert all(state.values.isfinite().all() for state in states)


def test_lstmn_states_are_its_hidden_tape():
    seen, views = seen_by("lstmn")
    states = [state for state in walk_of(seen, views).states if state.side == "target"]
    with torch.no_grad():
        read = torch.tensor([[START, *seen.forced.target]])
        tapes = seen.model.decoder(seen.model.target(read))
    agree(torch.stack([state.values for state in states]), tapes[0, :, :6], rtol=1e-4, atol=1e-5)
