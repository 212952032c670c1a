"""Walks: which word is walked, and the states that come with it."""

import pytest
import torch
from inspection.subjects import TEXT, TRANSLATORS, recorded, subject, walk
from oracles import agree

from regard.data import START
from regard.decoding import tokens_of
from regard.errors import ArgumentError
from regard.inspection import Which, exhibit_of
from regard.inspection.collect.walk import stages_of, walk_of


def column(stage):
    assert stage.values.shape[1] == 1
    return stage.values[:, 0]


@pytest.mark.parametrize("name", ["ntm", "ntm-lstm"])
def test_a_machines_step_ends_where_its_head_stood(name):
    seen, views = recorded(name)
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


def test_a_document_is_walked_from_its_words_over_its_sentences_to_its_label():
    seen, views = recorded("han")
    of = {view.name: view for view in views}
    stages = {each.symbol: each for each in walk_of(seen, views, Which("words")).stages}
    assert [each.part for each in stages.values() if each.symbol.startswith("a")] == [
        "The words of each sentence",
        "The sentences",
    ]
    agree(column(stages["a of sentences"]), of["sentences"].weights[0, 0], rtol=1e-5, atol=1e-6)
    sentences = stages["a of sentences"].names
    assert sentences == seen.sides["sentences"].pieces == stages["Σ a v"].names
    assert stages["a"].words == "weights: they sum to one in each sentence"
    assert column(stages["a"]).sum().item() == pytest.approx(len(sentences), abs=1e-4)
    assert column(stages["a of sentences"]).sum().item() == pytest.approx(1, abs=1e-5)
    document = stages["Σ a v of sentences"].values[0]
    agree(column(stages["a of sentences"]) @ stages["v of sentences"].values, document, rtol=1e-4, atol=1e-5)
    agree(document, stages["document vector v"].values[0], rtol=1e-5, atol=1e-6)


def test_a_pointers_stages_have_the_symbols_of_its_paper():
    formulas = {each.symbol: each.formula for each in walk_of(*recorded("pointer")).stages}
    assert formulas["W q"] == "W₂ d_i"
    assert formulas["U k + b"] == "W₁ e_j + b"
    assert formulas["e masked"] == "u_j, −∞ where it may not look"
    assert formulas["p"] == "p(y) = Σ p(C_i = j), x_j = y"


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
        ({"view": "nowhere"}, "view: 'nowhere' given, expected one of: encoder, layer 1"),
        ({"head": 2}, "head 3: decoder, layer 2, to the source has 2 heads, numbered 1 to 2"),
        ({"row": 90}, "row 91: decoder, layer 2, to the source has"),
        ({"row": -1}, "row 0: decoder, layer 2, to the source has"),
        ({"word": 17}, "word 18: decoder, layer 2, to the source has only 6 words"),
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
    seen, _ = recorded(name)
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
    seen, views = recorded(name)
    states = walk_of(seen, views).states
    if name.startswith("transformer"):
        assert states == ()
        return
    written = len(seen.sides["read"].pieces) if "read" in seen.sides else 0
    reads = "source" in seen.sides and name != "rnnsearch-blocks"  # blocks go from layer to layer, and have no steps
    count = len(seen.memory.states[0]) if reads else 0
    assert len(states) == count + written
    assert all(len(state.values) == subject(name).settings.model.size for state in states if state.side == "target")
    assert all(state.values.isfinite().all() for state in states)


def test_lstmn_states_are_its_hidden_tape():
    seen, views = recorded("lstmn")
    states = [state for state in walk_of(seen, views).states if state.side == "target"]
    with torch.no_grad():
        read = torch.tensor([[START, *seen.forced.target]])
        tapes = seen.model.decoder(seen.model.target(read))
    agree(torch.stack([state.values for state in states]), tapes[0, :, :6], rtol=1e-4, atol=1e-5)
