"""Exhibits of every kind: their shapes and sides, their alignment, odd inputs, and time."""

import copy
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from inspection.subjects import (
    ALL,
    ATTENTIVE,
    CAPTIONERS,
    PAIRS,
    REVIEW,
    SHORT,
    TEXT,
    TRANSLATORS,
    ablate,
    exhibit_of_subject,
    item_of,
    recorded,
    subject,
)

from regard.config import parse
from regard.data import END, START, document_texts
from regard.decoding import Ensemble, Options, batches, documents_of, tokens_of
from regard.errors import ArgumentError, DataError
from regard.inspection import exhibit_of, page
from regard.inspection.collect.exhibit import Addressing, Numbers
from regard.inspection.collect.forward_pass import force
from regard.inspection.collect.from_run import ablation_table, numbers_of
from regard.models import Pictures, build
from regard.run import Run


@pytest.mark.parametrize("name", ALL)
def test_every_kind_is_collected(name):
    exhibit = exhibit_of_subject(name)
    assert exhibit.kind == ALL[name]["kind"]
    assert exhibit.run == f"{name}, step 40"
    assert bool(exhibit.views) == (name in ATTENTIVE)
    assert len({view.name for view in exhibit.views}) == len({view.title for view in exhibit.views})
    for view in exhibit.views:
        rows, columns = exhibit.sides[view.rows], exhibit.sides[view.columns]
        heads, n, m = view.weights.shape
        assert (n, m) == (len(rows.pieces), len(columns.pieces))
        assert view.weights.isfinite().all()
        assert (view.weights >= 0).all()
        for extra in (view.entropy, view.centre, view.picked):
            assert extra is None or extra.shape == (heads, n)
        if view.entropy is not None and view.centre is None and not view.name.endswith("intra"):
            by_sentence = isinstance(view.numbers, Numbers) and view.numbers.groups is not None
            total = len(exhibit.sides["sentences"].pieces) if by_sentence else 1  # the words of a sentence sum to one
            torch.testing.assert_close(view.weights.sum(-1), torch.full((heads, n), float(total)))
            assert (view.entropy >= -1e-6).all()
            assert (view.entropy <= math.log(m) + 1e-5).all()
        assert view.how
        assert isinstance(view.numbers, Addressing if name.startswith("ntm") else Numbers)
    for side in exhibit.sides.values():
        assert len(side.words) == len(side.pieces)
        assert {word for word in side.words if word is not None} == set(range(len(side.texts)))
        assert all(side.texts) or not exhibit.output.strip()  # an untrained model may write only white space
    assert "<html" in str(page(exhibit))


# ---- attention that serves as an alignment


def test_the_choice_of_the_run_is_taken(tmp_path):
    run = subject("transformer")
    own = Run(tmp_path, run.settings, run.tokenizers, run.model, 3)
    first = exhibit_of(own, TEXT, **SHORT)
    assert (first.aligned, first.head, first.offset) == ("decoder.blocks.1.cross", None, 0)
    (tmp_path / "alignment.json").write_text(json.dumps({"view": "decoder.blocks.0.cross", "head": 1, "offset": 1}))
    chosen = exhibit_of(own, TEXT, **SHORT)
    assert (chosen.aligned, chosen.head, chosen.offset) == ("decoder.blocks.0.cross", 1, 1)
    (tmp_path / "alignment.json").write_text(json.dumps({"view": "decoder.blocks.0.cross", "head": 7}))
    with pytest.raises(DataError, match="head 7, expected 0 to 1"):
        exhibit_of(own, TEXT, **SHORT)
    for name in ("rnn", "han", "convnet", "encoder-writes", "ntm"):
        assert exhibit_of_subject(name).aligned is None


def test_of_an_ensemble_the_first_is_looked_at():
    one, other = subject("rnnsearch"), subject("luong")
    both = Run(one.folder, one.settings, one.tokenizers, Ensemble([one.model, other.model]).eval(), 1)
    given, alone = (exhibit_of(run, TEXT, target=PAIRS[3].target) for run in (both, one))
    torch.testing.assert_close(given.views[0].weights, alone.views[0].weights)
    assert given.log_prob == pytest.approx(both.score([TEXT], [PAIRS[3].target])[0].log_prob, rel=1e-4)
    exhibit = exhibit_of(both, TEXT, **SHORT)
    (found,) = batches.search_in_batches(both.model, [one.tokenizers.source.encode(TEXT)], parse(Options, SHORT))
    assert exhibit.log_prob == pytest.approx(found.outputs[0].log_prob, rel=1e-4)


# ---- odd inputs


WITH_TARGET = ["rnnsearch", "luong-local-p", "transformer", "lstmn", "pointer", "ntm"]
ALONE = ["encoder-writes", "lstmn-writes", "lstmn-classifies", "han", "encoder-pools"]


@pytest.mark.parametrize("name", WITH_TARGET + ALONE)
def test_one_word(name):
    options = {"ablate": True} if name in ALONE else {"target": "when"}
    exhibit = exhibit_of(subject(name, "word"), "when", walk=True, **options)
    assert exhibit.sides["read" if name.endswith("writes") else "source"].texts == ("when",)
    assert all(view.weights.isfinite().all() for view in exhibit.views)


def test_unknown_words_are_shown_as_they_were_typed():
    side = exhibit_of(subject("luong", "word"), "when did Zanzibar wake up ?", **SHORT).sides["source"]
    assert side.texts == ("when", "did", "Zanzibar", "wake", "up", "?")
    assert side.pieces[2] == "<unk>"
    side = exhibit_of(subject("luong"), "wake 🦊 <script>alert('ü')</script> ?", **SHORT).sides["source"]
    assert side.texts == ("wake", "🦊", "<script>alert('ü')</script>", "?")
    assert len(side.pieces) > 10


@pytest.mark.parametrize("name", ["rnnsearch", "transformer"])
def test_long_texts(name):
    text = " ".join(TEXT.split() * 40)
    exhibit = exhibit_of(subject(name, "word"), text, target=text)
    assert exhibit.views[-1].weights.shape[1:] == (len(text.split()) + 1, len(text.split()))


@pytest.mark.unchecked
def test_what_cannot_be_looked_at():
    run = subject("transformer")
    for text in ("", "  \n "):
        with pytest.raises(ArgumentError, match="text: nothing in it"):
            exhibit_of(run, text)
    with pytest.raises(ArgumentError, match="target: nothing in it"):
        exhibit_of(run, TEXT, target=" ")
    with pytest.raises(ArgumentError, match="text: 1,200 tokens given, expected at most 1,024"):
        exhibit_of(subject("transformer", "word"), "up " * 1200)
    with pytest.raises(ArgumentError, match="'fine' given, expected a label .*: bad, good, neither"):
        exhibit_of(subject("han"), REVIEW, target="fine")
    with pytest.raises(ArgumentError, match="target: given to a language model"):
        exhibit_of(subject("encoder-writes"), TEXT, target=TEXT)
    with pytest.raises(ArgumentError, match="expected a text: .* reads no pictures"):
        exhibit_of(run, torch.zeros(3, 8, 8, dtype=torch.uint8))
    with pytest.raises(ArgumentError, match=r"float32 of \[3, 8, 8\] given, expected bytes"):
        exhibit_of(subject("captioner"), torch.zeros(3, 8, 8))
    limited = subject("transformer", "word")
    settings = replace(limited.settings, model=replace(limited.settings.model, positions="learned", length=5))
    size = limited.tokenizers.target.size
    short = Run(limited.folder, settings, limited.tokenizers, build("transformer", settings.model, size, size), 1)
    with pytest.raises(ArgumentError, match="target: 6 tokens given, expected fewer than 5"):
        exhibit_of(short, "up up", target="up " * 6)


@pytest.mark.parametrize("name", ["captioner-hard", "captioner-through"])
def test_a_model_in_training_is_looked_at_as_it_would_decode(name):
    run = subject(name)
    before = exhibit_of_subject(name).views[0].weights
    run.model.train()
    exhibit = exhibit_of(run, item_of(name), **SHORT)
    torch.testing.assert_close(exhibit.views[0].weights, before)


QUICK = """
import sys, time, torch
from dataclasses import replace
from inspection.subjects import PAIRS, subject, tokenizers
from regard.inspection import exhibit_of
from regard.models.kinds import build
from regard.models.config import TransformerConfig
from regard.run import Run

torch.set_num_threads(1)
words, toy = tokenizers("word"), subject("transformer", "word")
config = TransformerConfig(size=512, heads=8, layers=6, hidden=2048)
model = build("transformer", config, words.source.size, words.target.size).eval()
run = Run(toy.folder, replace(toy.settings, model=config), words, model, 1)
text = " ".join([word for pair in PAIRS for word in pair.source.split()][:40])
times = []
for _ in range(3):
    before = time.process_time()
    exhibit = exhibit_of(run, text, beam=5, shortest=40, longest=40)
    times.append(time.process_time() - before)
assert [view.weights.shape[0] for view in exhibit.views] == [8] * 18
assert len(exhibit.sides["written"].pieces) == 41
print(min(times))
"""


@pytest.mark.slow
def test_six_layers_of_eight_heads_are_quick():
    """40 words with a beam of five take less than two seconds on one core, without shape checks."""
    home = {"PYTHONPATH": str(Path(__file__).parents[2])}
    seconds = float(subprocess.check_output([sys.executable, "-c", QUICK], env={**os.environ, **home}, text=True))
    assert seconds < 2


BRIEF = {"beam": 2, "longest": 5}


@cache
def forced_of(name: str):
    return force(subject(name), item_of(name), **BRIEF)


@cache
@torch.no_grad()
def before_of(name: str) -> float:
    return forced_of(name).log_prob(subject(name).model)


def by_hand(name: str, edit) -> float:
    """Return the change of the log-probability after `edit` has changed a copy of the model."""
    edited = copy.deepcopy(subject(name).model)
    with torch.no_grad():
        edit(edited)
        return forced_of(name).log_prob(edited) - before_of(name)


def zero(*parts) -> None:
    for part in parts:
        part.zero_()


@pytest.mark.parametrize("name", ["transformer", "encoder-classifies", "encoder-writes"])
def test_heads_against_their_columns_of_the_output(name):
    found = ablate(subject(name), item_of(name), **BRIEF)
    assert len(found.changes) in (2, 6)
    for view, changes in found.changes.items():
        assert len(changes) == 2
        for head, change in enumerate(changes):
            columns = view, slice(4 * head, 4 * head + 4)
            expected = by_hand(name, lambda model, at=columns: zero(model.get_submodule(at[0]).output.weight[:, at[1]]))
            assert change == pytest.approx(expected, abs=2e-4)


EDITS = {
    ("rnnsearch", "attention"): lambda model: zero(
        model.cell.net.weight_ih_l0[:, 4:], model.deep.weight[:, 10:]
    ),  # the context in the cell's input and in the deep output
    **dict.fromkeys(
        [(name, "attention") for name in ("luong", "luong-local-p", "lstmn")],
        lambda model: zero(model.attentional.weight[:, :6]),
    ),
    **dict.fromkeys(
        [(name, "decoder.cross") for name in ("captioner", "captioner-hard", "captioner-through")],
        lambda model: zero(model.decoder.shown.weight, model.decoder.cells.each[0].net.weight_ih_l0[:, 4:]),
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
    (change,) = ablate(subject(name), item_of(name), **BRIEF).changes[view]
    assert change == pytest.approx(by_hand(name, EDITS[name, view]), abs=2e-4)
    assert abs(change) > 1e-4


def test_a_machine_whose_heads_are_silent():
    """Compare with steps written here: a silent head reads zeros or writes nothing in one half of the work."""
    run = subject("ntm")
    found = ablate(run, TEXT, **BRIEF)
    model, forced = run.model, force(run, TEXT, **BRIEF)
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
    """The changes are equal in one batch and one by one, and the model keeps no trace of them."""
    run = subject(name)
    exhibit = exhibit_of(run, item_of(name), ablate=True, **BRIEF)
    changes = exhibit.ablation.changes
    assert {view.name: len(view.weights) for view in exhibit.views} == {key: len(row) for key, row in changes.items()}
    assert exhibit.ablation.log_prob == pytest.approx(exhibit.log_prob, rel=1e-5)
    monkeypatch.setattr("regard.inspection.collect.from_run.BUDGET", 1)
    alone = ablate(run, item_of(name), **BRIEF)
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
        ablate(subject("pointer"), TEXT, **BRIEF)
    for name in ("rnn", "han-mean", "captioner-none"):
        with pytest.raises(ArgumentError, match="no attention to silence"):
            ablate(subject(name), item_of(name), **BRIEF)


# ---- views


CROSSING = [name for name in (*TRANSLATORS, *CAPTIONERS) if name in ATTENTIVE and not name.startswith("ntm")]


@pytest.mark.parametrize("name", CROSSING)
def test_what_is_written_looks_as_steps_say(name):
    """At each step, coverage in the cache grows by the row of the last view of the source."""
    run, exhibit = subject(name), exhibit_of_subject(name)
    ids = run.tokenizers.source.encode(TEXT)
    source = Pictures(item_of(name)[None]) if name in CAPTIONERS else tokens_of([ids])
    said = [run.tokenizers.target.library.token_to_id(piece) for piece in exhibit.sides["read"].pieces]
    model = run.model
    with torch.no_grad():
        state = model.start(model.encode(source), 1, 20, coverage=True)
        before, rows = state.coverage.clone(), []
        for token in said:
            model.step(torch.tensor([token]), state)
            rows.append((state.coverage - before)[0])
            before = state.coverage.clone()
    view = [each for each in exhibit.views if each.role == "cross"][-1]
    found = view.weights.mean(0)
    torch.testing.assert_close(found[:, : rows[0].shape[-1]], torch.stack(rows), rtol=1e-4, atol=1e-5)
    if ALL[name]["kind"] == "pointer":  # the source's END is one of its positions, too
        assert exhibit.sides["source"].pieces[-1] == "</s>"


def test_the_first_layer_by_hand():
    """Compute the weights of the first layer by hand: encoder, decoder self-attention, and a language model."""
    run, exhibit = subject("transformer"), exhibit_of_subject("transformer")
    ids = run.tokenizers.source.encode(TEXT)

    def weights(block, x, causal):
        normed = block.attention_norm(x)
        q, k, _ = block.attention.projection(normed).split(8, -1)
        heads = [
            (q[:, h * 4 : h * 4 + 4] @ k[:, h * 4 : h * 4 + 4].T / 2).masked_fill(
                torch.ones(len(x), len(x)).triu(1).bool() if causal else torch.zeros(len(x), len(x)).bool(), -torch.inf
            )
            for h in range(2)
        ]
        return torch.stack(heads).softmax(-1)

    views = {view.name: view for view in exhibit.views}
    with torch.no_grad():
        x = run.model.source(torch.tensor([ids]))[0]
        expected = weights(run.model.encoder.blocks[0], x, False)
        torch.testing.assert_close(views["encoder.blocks.0.attention"].weights, expected)
        read = [run.tokenizers.target.library.token_to_id(piece) for piece in exhibit.sides["read"].pieces]
        x = run.model.target(torch.tensor([read]))[0]
        expected = weights(run.model.decoder.blocks[0], x, True)
        torch.testing.assert_close(views["decoder.blocks.0.attention"].weights, expected)
        writer = subject("encoder-writes")
        x = writer.model.tokens(torch.tensor([[START, *writer.tokenizers.target.encode(TEXT)]]))[0]
        expected = weights(writer.model.encoder.blocks[0], x, True)
    found = exhibit_of(writer, TEXT)
    torch.testing.assert_close(found.views[0].weights, expected)


def test_titles_are_for_people():
    titles = [view.title for view in exhibit_of_subject("transformer").views]
    assert titles == [
        "encoder, layer 1",
        "encoder, layer 2",
        "decoder, layer 1",
        "decoder, layer 1, to the source",
        "decoder, layer 2",
        "decoder, layer 2, to the source",
    ]
    assert [view.layer for view in exhibit_of_subject("transformer").views] == [0, 1, 0, 0, 1, 1]
    assert exhibit_of_subject("captioner").views[0].title == "decoder, to the picture"
    assert exhibit_of_subject("encoder-writes").views[1].title == "layer 2"


def test_documents_are_weighed_by_words_and_sentences():
    run, exhibit = subject("han"), exhibit_of_subject("han")
    (row,), _ = document_texts.encode_documents([REVIEW], run.tokenizers.source, run.settings.data)
    documents = documents_of([row])
    words, sentences = run.model.weigh_documents(documents)
    lengths = documents.words.lengths.tolist()
    flat = torch.cat([words[i, :length] for i, length in enumerate(lengths)])
    first, second = exhibit.views
    torch.testing.assert_close(first.weights[0, 0], flat)
    torch.testing.assert_close(second.weights[0, 0], sentences[0])
    spread = [float(torch.special.entr(words[i, :length].double()).sum()) for i, length in enumerate(lengths)]
    assert first.entropy.tolist() == [[pytest.approx(sum(spread) / len(spread), rel=1e-4)]]  # in a sentence, on average
    assert [exhibit.sides["source"].sentences.count(i) for i in range(len(lengths))] == lengths
    assert " ".join(exhibit.sides["sentences"].texts) == " ".join(REVIEW.split())
    assert exhibit.sides["source"].texts == tuple(REVIEW.split())
    (said,) = run.classify([REVIEW])
    assert said is not None
    assert exhibit.labels == pytest.approx(said.probabilities)
    assert exhibit.output == said.label
    assert math.exp(exhibit.log_prob) == pytest.approx(said.probability, rel=1e-5)


def test_line_breaks_of_a_document_are_stripped_once():
    sentences = REVIEW.split(" . ")
    exhibit = exhibit_of(subject("han"), "<br />".join(f"{each} . " for each in sentences) + "<BR><br/>")
    assert "<" not in exhibit.title
    assert "br" not in "".join(exhibit.sides["source"].pieces)
    assert exhibit.title.split() == list(exhibit.sides["source"].texts)


def test_places_of_a_picture():
    exhibit = exhibit_of_subject("convnet")
    assert exhibit.sides["places"].grid == (8, 12)
    model, pixels = subject("convnet").model, item_of("convnet")
    with torch.no_grad():
        x = model.norm(model.resnet.stages[0](model.resnet.start(pixels[None]))).relu()
        look = model.attention.look(x)
    torch.testing.assert_close(exhibit.views[0].weights[0], look.weights[0].flatten(2).flatten(0, 1))
    assert torch.equal(exhibit.picture, pixels)
    assert exhibit_of_subject("captioner").sides["places"].grid == (4, 6)
    assert exhibit_of_subject("captioner").sides["places"].pieces[7] == "2,2"


def test_windows_are_told():
    (monotonic,) = exhibit_of_subject("luong-local-m").views
    assert monotonic.radius == 2
    assert monotonic.centre.tolist() == [list(range(monotonic.weights.shape[1]))]
    (predicted,) = exhibit_of_subject("luong-local-p").views
    places = torch.arange(predicted.weights.shape[-1])
    outside = (places - predicted.centre[0][:, None]).abs() > predicted.radius
    assert (predicted.weights[0][outside] == 0).all()
    assert outside.any()
    assert (predicted.weights.sum(-1) <= 1 + 1e-6).all()
    assert "local-p, D = 2" in predicted.how


@pytest.mark.parametrize("name", ["captioner-hard", "captioner-through"])
def test_hard_attention_takes_the_likeliest(name):
    (view,) = exhibit_of_subject(name).views
    assert view.picked.dtype == torch.int64
    assert torch.equal(view.weights.argmax(-1), view.picked)
    assert ((view.weights == 0) | (view.weights == 1)).all()
    assert (view.entropy > 0).any()  # the entropy of the probabilities, not of the chosen keys


CHOSEN = [
    name for name in ATTENTIVE if not name.startswith(("ntm", "transformer-post", "transformer-no", "rnnsearch-b"))
]
FORMS = {"luong-location": "stored", **dict.fromkeys(("transformer", "han", "convnet"), "dot")}
FORMS |= dict.fromkeys(("luong-concat", "rnnsearch", "lstmn"), "additive")


def weights_from(numbers):
    """Compute the softmax of the scores again with torch alone."""
    if numbers.score == "dot":
        scores = numbers.scale * torch.einsum("hnd,hmd->hnm", numbers.query, numbers.keys)
    elif numbers.score == "additive":
        sums = torch.tanh(numbers.query[:, :, None] + numbers.keys[:, None])
        scores = torch.einsum("hnmd,hd->hnm", sums, numbers.vector.expand(len(sums), -1))
    else:
        scores = numbers.scores
    if numbers.bias is not None:
        scores = scores + numbers.bias
    mask = torch.ones_like(scores, dtype=torch.bool) if numbers.mask is None else numbers.mask.expand_as(scores)
    scores = (scores / numbers.temperature).masked_fill(~mask, -torch.inf)
    if numbers.groups is None:
        weights = scores.softmax(-1)
    else:
        groups = torch.tensor(numbers.groups)
        weights = torch.cat([scores[..., groups == each].softmax(-1) for each in groups.unique()], -1)
    weights = weights.nan_to_num(0.0)  # a row may have every key masked
    return weights if numbers.gate is None else weights * numbers.gate


@pytest.mark.parametrize("name", CHOSEN)
def test_weights_follow_from_the_numbers(name):
    forward, views = recorded(name)
    for view in views:
        numbers = numbers_of(forward, view)
        if numbers.weights is not None:  # hard attention takes one key
            assert (numbers.weights - view.weights).abs().max() == 0
            assert torch.equal(weights_from(numbers).argmax(-1), view.picked)
        else:
            assert (weights_from(numbers) - view.weights).abs().max() < 1e-5
    if name in FORMS:
        assert {numbers_of(forward, view).score for view in views} == {FORMS[name]}


@pytest.mark.parametrize("name", ["transformer", "rnnsearch", "lstmn", "han"])
def test_contexts_follow_from_the_values(name):
    forward, views = recorded(name)
    for view in views:
        numbers = numbers_of(forward, view)
        look = forward.looks[view.name]
        if numbers.groups is not None:
            groups = torch.tensor(numbers.groups)
            context = torch.stack([(view.weights * (groups == each)) @ numbers.values for each in groups.unique()])
            assert (context[:, 0] - look.context).abs().max() < 1e-5
        elif numbers.query.shape[0] == 1:
            assert ((view.weights @ numbers.values)[0] - look.context[0]).abs().max() < 1e-5
        assert numbers.values.shape[:2] == (len(view.weights), view.weights.shape[2])
