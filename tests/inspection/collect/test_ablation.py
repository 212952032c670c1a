"""Silenced heads, against models whose weights are edited by hand so that the head is not heard."""

import copy
from functools import cache

import pytest
import torch
from inspection.subjects import REVIEW, TEXT, ablate, item_of, subject

from regard.data import END, START
from regard.decoding import tokens_of
from regard.errors import ArgumentError
from regard.inspection import exhibit_of
from regard.inspection.collect.forward_pass import force
from regard.inspection.collect.from_run import ablation_table

SHORT = {"beam": 2, "longest": 5}


@cache
def forced_of(name: str):
    return force(subject(name), item_of(name), **SHORT)


@cache
@torch.no_grad()
def before_of(name: str) -> float:
    return forced_of(name).log_prob(subject(name).model)


def by_hand(name: str, edit) -> float:
    """How much the log-probability changes when `edit` has changed a copy of the model."""
    edited = copy.deepcopy(subject(name).model)
    with torch.no_grad():
        edit(edited)
        return forced_of(name).log_prob(edited) - before_of(name)


def zero(*parts) -> None:
    for part in parts:
        part.zero_()


@pytest.mark.parametrize("name", ["transformer", "encoder-classifies", "encoder-writes"])
def test_heads_against_their_columns_of_the_output(name):
    found = ablate(subject(name), item_of(name), **SHORT)
    assert len(found.changes) in (2, 6)
    for view, changes in found.changes.items():
        assert len(changes) == 2
        for head, change in enumerate(changes):
            expected = by_hand(
                name,
                lambda model, view=view, head=head: zero(
                    model.get_submodule(view).output.weight[:, 4 * head : 4 * head + 4]
                ),
            )
            assert change == pytest.approx(expected, abs=2e-4)


EDITS = {
    ("rnnsearch", "attention"): lambda model: zero(
        model.cell.net.weight_ih_l0[:, 4:], model.deep.weight[:, 10:]
    ),  # the context in the cell's input and in the deep output
    ("luong", "attention"): lambda model: zero(model.attentional.weight[:, :6]),
    ("luong-local-p", "attention"): lambda model: zero(model.attentional.weight[:, :6]),
    ("lstmn", "attention"): lambda model: zero(model.attentional.weight[:, :6]),
    ("captioner", "decoder.cross"): lambda model: zero(
        model.decoder.shown.weight, model.decoder.cells.each[0].net.weight_ih_l0[:, 4:]
    ),
    ("captioner-hard", "decoder.cross"): lambda model: zero(
        model.decoder.shown.weight, model.decoder.cells.each[0].net.weight_ih_l0[:, 4:]
    ),
    ("captioner-through", "decoder.cross"): lambda model: zero(
        model.decoder.shown.weight, model.decoder.cells.each[0].net.weight_ih_l0[:, 4:]
    ),
    ("han", "sentences"): lambda model: zero(model.readout.weight),
    ("han", "words"): lambda model: zero(
        *(each[0].net.weight_ih_l0 for each in (model.sentence_states.forwards, model.sentence_states.backwards))
    ),
    ("encoder-pools", "pooling"): lambda model: zero(model.readout.weight),
    ("convnet", "attention"): lambda model: zero(model.attention.output.weight),
}


@pytest.mark.parametrize(("name", "view"), EDITS)
def test_contexts_against_what_reads_them(name, view):
    (change,) = ablate(subject(name), item_of(name), **SHORT).changes[view]
    assert change == pytest.approx(by_hand(name, EDITS[name, view]), abs=2e-4)
    assert abs(change) > 1e-4


def test_a_machine_whose_heads_are_silent():
    """By steps of its own: what is read is put to nothing, or nothing is written, in one half of the work."""
    run = subject("ntm")
    found = ablate(run, TEXT, **SHORT)
    model, forced = run.model, force(run, TEXT, **SHORT)
    source = tokens_of([run.tokenizers.source.encode(TEXT)])
    heads, width = model.heads, model.heads.width

    def mute(head):
        muted = copy.deepcopy(model)
        first = 2 * heads.heads * heads.place
        erase = slice(first + head * width, first + (head + 1) * width)
        add = slice(erase.start + heads.heads * width, erase.stop + heads.heads * width)
        zero(muted.heads.steer.weight[erase], muted.heads.steer.weight[add], muted.heads.steer.bias[add])
        muted.heads.steer.bias[erase] = -1e4
        return muted

    def likely(machine, memory):
        hidden, _ = machine.decode(memory, tokens_of([[START, *forced.target]]))
        scores = machine.output(hidden)[0].log_softmax(-1)
        return float(scores[range(len(scores)), [*forced.target, END]].double().sum())

    with torch.no_grad():
        whole = likely(model, model.encode(source))
        assert found.log_prob == pytest.approx(whole, rel=1e-5)
        for head in range(2):
            muted = mute(head)
            writes = found.changes["heads.source.write"][head], found.changes["heads.target.write"][head]
            assert writes[0] == pytest.approx(likely(model, muted.encode(source)) - whole, abs=2e-4)
            assert writes[1] == pytest.approx(likely(muted, model.encode(source)) - whole, abs=2e-4)
            deaf = copy.deepcopy(model)
            turn = deaf.step_machine

            def turned(*given, turn=turn, head=head):
                machine = turn(*given)
                reads = machine.reads.clone()
                reads[:, head] = 0
                return machine._replace(reads=reads)

            deaf.step_machine = turned
            reads = found.changes["heads.source.read"][head], found.changes["heads.target.read"][head]
            assert reads[0] == pytest.approx(likely(model, deaf.encode(source)) - whole, abs=2e-4)
            assert reads[1] == pytest.approx(likely(deaf, model.encode(source)) - whole, abs=2e-4)


@pytest.mark.parametrize(
    "name", ["rnnsearch", "luong-local-m", "transformer", "lstmn", "ntm", "han", "captioner", "convnet", "lstmn-writes"]
)
def test_all_heads_of_all_views(name, monkeypatch):
    """Together in one batch or one by one, the changes are the same; and nothing is left behind in the model."""
    run = subject(name)
    exhibit = exhibit_of(run, item_of(name), ablate=True, **SHORT)
    changes = exhibit.ablation.changes
    assert {view.name: len(view.weights) for view in exhibit.views} == {key: len(row) for key, row in changes.items()}
    assert exhibit.ablation.log_prob == pytest.approx(exhibit.log_prob, rel=1e-5)
    monkeypatch.setattr("regard.inspection.collect.from_run.BUDGET", 1)
    alone = ablate(run, item_of(name), **SHORT)
    for view, row in changes.items():
        assert alone.changes[view] == pytest.approx(row, abs=2e-4)
    for module in run.model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


def test_the_table_has_a_row_a_view():
    exhibit = exhibit_of(subject("encoder-pools"), REVIEW, ablate=True)
    lines = ablation_table(exhibit.ablation, exhibit.views).splitlines()
    assert lines[0].startswith(f"log-probability {exhibit.log_prob:.3f}")
    assert lines[1].split() == ["head", "1", "head", "2"]
    assert len(lines) == 5
    first = exhibit.ablation.changes["encoder.blocks.0.attention"]
    assert lines[2].split() == ["encoder,", "layer", "1", f"{first[0]:+.3f}", f"{first[1]:+.3f}"]
    assert lines[4].startswith("the document, to its words")


def test_what_cannot_be_silenced():
    with pytest.raises(ArgumentError, match="a pointer network cannot be ablated, because its attention is its output"):
        ablate(subject("pointer"), TEXT, **SHORT)
    for name in ("rnn", "han-mean", "captioner-none"):
        with pytest.raises(ArgumentError, match="no attention to silence"):
            ablate(subject(name), item_of(name), **SHORT)
