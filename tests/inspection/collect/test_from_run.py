"""Exhibits of every kind: shapes and sides, weights against passes of their own, trees against the search."""

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
    CLASSIFIERS,
    PAIRS,
    REVIEW,
    TEXT,
    TRANSLATORS,
    WRITERS,
    item_of,
    subject,
)

from regard.config import parse
from regard.data.documents import encode_documents
from regard.data.tokenizer import START, UNKNOWN
from regard.decoding.batches import score_pairs, search_in_batches
from regard.decoding.ensemble import Ensemble
from regard.decoding.options import Options
from regard.decoding.sources import documents_of, tokens_of
from regard.errors import ArgumentError, DataError
from regard.inspection import exhibit_of, page
from regard.models.contract import Pictures
from regard.models.kinds import build
from regard.run import Run

CROSSING = [name for name in (*TRANSLATORS, *CAPTIONERS) if name in ATTENTIVE and not name.startswith("ntm")]
SHORT = {"longest": 7, "beam": 3}


@cache
def looked(name: str, **options):
    return exhibit_of(subject(name), item_of(name), **{**SHORT, **options})


@pytest.mark.parametrize("name", ALL)
def test_every_kind_is_collected(name):
    exhibit = looked(name)
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
            torch.testing.assert_close(view.weights.sum(-1), torch.ones(heads, n))
            assert (view.entropy >= -1e-6).all()
            assert (view.entropy <= math.log(m) + 1e-5).all()
        assert view.how
    for side in exhibit.sides.values():
        assert len(side.words) == len(side.pieces)
        assert {word for word in side.words if word is not None} == set(range(len(side.texts)))
        assert all(side.texts)
    assert "<html" in str(page(exhibit))


@pytest.mark.parametrize("name", CROSSING)
def test_what_is_written_looks_as_steps_say(name):
    """Coverage, summed step by step over caches, grows by what each row of the last view to the source shows."""
    run, exhibit = subject(name), looked(name)
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
    if ALL[name]["kind"] == "pointer":  # its END is a place of the source, too
        assert exhibit.sides["source"].pieces[-1] == "</s>"


def test_the_first_layer_by_hand():
    """Heads of the encoder, of the decoder's own past, and of a language model."""
    run, exhibit = subject("transformer"), looked("transformer")
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
    titles = [view.title for view in looked("transformer").views]
    assert titles == [
        "encoder, layer 1",
        "encoder, layer 2",
        "decoder, layer 1",
        "decoder, layer 1, to the source",
        "decoder, layer 2",
        "decoder, layer 2, to the source",
    ]
    assert [view.layer for view in looked("transformer").views] == [0, 1, 0, 0, 1, 1]
    assert looked("captioner").views[0].title == "decoder, to the picture"
    assert looked("encoder-writes").views[1].title == "layer 2"


@pytest.mark.parametrize("name", [*TRANSLATORS, *WRITERS])
def test_the_log_probability_is_that_of_the_pair(name):
    run, exhibit = subject(name), looked(name)
    said = run.tokenizers.target.library
    target = [said.token_to_id(piece) for piece in exhibit.sides["written"].pieces[:-1]]
    source = [UNKNOWN] if name in WRITERS else run.tokenizers.source.encode(TEXT)
    (expected,) = score_pairs(run.model, [source], [target])
    assert exhibit.log_prob == pytest.approx(expected.log_prob, rel=1e-4)
    assert exhibit.output == run.tokenizers.target.decode(target)
    assert exhibit.sides["read"].pieces[0] == "<s>"
    assert exhibit.sides["read"].pieces[1:] == exhibit.sides["written"].pieces[:-1]


def test_a_language_model_reads_its_text():
    exhibit = looked("lstmn-writes")
    assert exhibit.output == TEXT
    assert exhibit.sides["written"].texts == tuple(TEXT.split())
    assert exhibit.tree is None
    assert exhibit.aligned is None


# ---- documents and pictures


def test_documents_are_weighed_by_words_and_sentences():
    run, exhibit = subject("han"), looked("han")
    (row,), _ = encode_documents([REVIEW], run.tokenizers.source, run.settings.data)
    documents = documents_of([row])
    words, sentences = run.model.weigh_documents(documents)
    lengths = documents.words.lengths.tolist()
    flat = torch.cat([words[i, :length] for i, length in enumerate(lengths)])
    first, second = exhibit.views
    torch.testing.assert_close(first.weights[0, 0], flat)
    torch.testing.assert_close(second.weights[0, 0], sentences[0])
    assert [exhibit.sides["source"].sentences.count(i) for i in range(len(lengths))] == lengths
    assert " ".join(exhibit.sides["sentences"].texts) == " ".join(REVIEW.split())
    assert exhibit.sides["source"].texts == tuple(REVIEW.split())
    (said,) = run.classify([REVIEW])
    assert said is not None
    assert exhibit.labels == pytest.approx(said.probabilities)
    assert exhibit.output == said.label
    assert math.exp(exhibit.log_prob) == pytest.approx(said.probability, rel=1e-5)


@pytest.mark.parametrize("name", [*CLASSIFIERS, "convnet"])
def test_a_label_can_be_given(name):
    exhibit = looked(name, target="neither")
    assert exhibit.output == "neither"
    assert math.exp(exhibit.log_prob) == pytest.approx(exhibit.labels["neither"], rel=1e-4)
    assert sum(exhibit.labels.values()) == pytest.approx(1)


def test_a_text_classifier_reads_the_end_of_each_sentence():
    side = looked("encoder-pools").sides["source"]
    ends = [i for i, piece in enumerate(side.pieces) if piece == "</s>"]
    assert [side.words[i] for i in ends] == [None] * len(ends)
    assert len(ends) == max(side.sentences) + 1 > 1
    assert side.texts == tuple(REVIEW.split())


def test_places_of_a_picture():
    exhibit = looked("convnet")
    assert exhibit.sides["places"].grid == (8, 12)
    model, pixels = subject("convnet").model, item_of("convnet")
    with torch.no_grad():
        x = model.norm(model.resnet.stages[0](model.resnet.start(pixels[None]))).relu()
        look = model.attention.look(x)
    torch.testing.assert_close(exhibit.views[0].weights[0], look.weights[0].flatten(2).flatten(0, 1))
    assert torch.equal(exhibit.picture, pixels)
    assert looked("captioner").sides["places"].grid == (4, 6)
    assert looked("captioner").sides["places"].pieces[7] == "2,2"


def test_a_picture_is_read_from_its_file(tmp_path):
    from PIL import Image

    from regard.data.images.batching import read_for

    path = tmp_path / "drawn.png"
    Image.fromarray(item_of("captioner").movedim(0, -1).numpy()).save(path)
    run = subject("captioner")
    for given in (path, str(path)):
        exhibit = exhibit_of(run, given, **SHORT)
        assert exhibit.title == "drawn.png"
        assert torch.equal(exhibit.picture, torch.from_numpy(read_for(run.settings.data, path)))


# ---- local and hard attention


def test_windows_are_told():
    (monotonic,) = looked("luong-local-m").views
    assert monotonic.radius == 2
    assert monotonic.centre.tolist() == [list(range(monotonic.weights.shape[1]))]
    (predicted,) = looked("luong-local-p").views
    places = torch.arange(predicted.weights.shape[-1])
    outside = (places - predicted.centre[0][:, None]).abs() > predicted.radius
    assert (predicted.weights[0][outside] == 0).all()
    assert outside.any()
    assert (predicted.weights.sum(-1) <= 1 + 1e-6).all()
    assert "local-p, D = 2" in predicted.how


@pytest.mark.parametrize("name", ["captioner-hard", "captioner-through"])
def test_hard_attention_takes_the_likeliest(name):
    (view,) = looked(name).views
    assert view.picked.dtype == torch.int64
    assert torch.equal(view.weights.argmax(-1), view.picked)
    assert ((view.weights == 0) | (view.weights == 1)).all()
    assert (view.entropy > 0).any()  # of the probabilities, not of what was taken


def test_a_machine_moves_in_its_memory():
    """The weights of the last step are those that the machine has then, and the first of it stands where it began."""
    run, exhibit = subject("ntm"), looked("ntm")
    views = {view.name: view for view in exhibit.views}
    read = [run.tokenizers.target.library.token_to_id(piece) for piece in exhibit.sides["read"].pieces]
    with torch.no_grad():
        memory = run.model.encode(tokens_of([run.tokenizers.source.encode(TEXT)]))
        reading, writing = memory.sentence["weights"][0].chunk(2)
        torch.testing.assert_close(views["heads.source.read"].weights[:, -1], reading)
        torch.testing.assert_close(views["heads.source.write"].weights[:, -1], writing)
        state = run.model.start(memory, 1, 20)
        for token in read:
            run.model.step(torch.tensor([token]), state)
    torch.testing.assert_close(views["heads.target.read"].weights[:, -1], state.row["weights"][0, :2])
    torch.testing.assert_close(views["heads.target.write"].weights[:, -1], state.row["weights"][0, 2:])
    assert exhibit.sides["source"].pieces[-1] == "</s>"


# ---- the search


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rnnsearch", {"beam": 1}),
        ("rnnsearch", {"beam": 4, "groups": 2}),
        ("rnnsearch", {"beam": 3, "length_penalty": 0.0, "shortest": 3}),
        ("rnnsearch", {"beam": 3, "coverage_penalty": 0.2}),
        ("rnn", {"sample": True, "seed": 5}),
        ("transformer", {"beam": 4}),
    ],
    ids=str,
)
def test_the_tree_is_what_the_search_considered(name, options):
    run, given = subject(name), {"longest": 9, **options}
    exhibit = exhibit_of(run, TEXT, **given)
    (found,) = search_in_batches(run.model, [run.tokenizers.source.encode(TEXT)], parse(Options, given), trace=True)
    best = found.outputs[0]
    assert exhibit.output == run.tokenizers.target.decode(best.tokens)
    assert exhibit.log_prob == pytest.approx(best.log_prob, rel=1e-4)
    tree = exhibit.tree
    assert tree.beam == (1 if options.get("sample") else options["beam"])
    assert len(tree.steps) == len(found.steps)
    totals = {0: 0.0}
    for step, noted in zip(tree.steps, found.steps, strict=True):
        assert [each.total for each in step] == [each.log_prob for each in noted]
        assert [each.fate for each in step] == [each.fate for each in noted]
        for each in step:
            assert each.total == pytest.approx(totals[each.parent] + each.log_prob, abs=1e-6)
            assert each.log_prob <= 1e-6
        totals = {each.row: each.total for each in step if each.row is not None}
        assert len(totals) <= tree.beam
    way = [each for step in tree.steps for each in step if each.best]
    assert tuple(each.piece for each in way) == exhibit.sides["written"].pieces
    assert way[-1].fate == "finished"
    assert way[-1].total == pytest.approx(best.log_prob)
    assert sum(each.log_prob for each in way) == pytest.approx(best.log_prob, rel=1e-5)
    assert [each.row for each in way[:-1]] == [each.parent for each in way[1:]]


def test_a_tree_can_be_left_out():
    assert looked("rnn", tree=False).tree is None
    assert looked("rnn").tree.steps
    assert looked("captioner", tree=False).tree is None


def test_a_target_is_forced():
    run, text = subject("luong"), PAIRS[3].target
    exhibit = exhibit_of(run, TEXT, target=text)
    assert exhibit.output == text
    assert exhibit.tree is None
    assert exhibit.log_prob == pytest.approx(run.score([TEXT], [text])[0].log_prob, rel=1e-4)
    weights = run.align(TEXT, text).weights
    from regard.inspection.collect.words import merge

    rows, columns = exhibit.sides["written"].words, exhibit.sides["source"].words
    torch.testing.assert_close(merge(exhibit.views[0].weights.mean(0), rows, columns), weights)


# ---- what reads as an alignment


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
        assert looked(name).aligned is None


def test_of_an_ensemble_the_first_is_looked_at():
    one, other = subject("rnnsearch"), subject("luong")
    both = Run(one.folder, one.settings, one.tokenizers, Ensemble([one.model, other.model]).eval(), 1)
    given, alone = (exhibit_of(run, TEXT, target=PAIRS[3].target) for run in (both, one))
    torch.testing.assert_close(given.views[0].weights, alone.views[0].weights)
    assert given.log_prob == pytest.approx(both.score([TEXT], [PAIRS[3].target])[0].log_prob, rel=1e-4)
    exhibit = exhibit_of(both, TEXT, **SHORT)
    (found,) = search_in_batches(both.model, [one.tokenizers.source.encode(TEXT)], parse(Options, SHORT))
    assert exhibit.log_prob == pytest.approx(found.outputs[0].log_prob, rel=1e-4)


# ---- odd inputs


@pytest.mark.parametrize("name", ["rnnsearch", "luong-local-p", "transformer", "lstmn", "pointer", "ntm"])
def test_one_word(name):
    exhibit = exhibit_of(subject(name, "word"), "when", target="when", walk=True)
    assert exhibit.sides["source"].texts == ("when",)
    assert all(view.weights.isfinite().all() for view in exhibit.views)


@pytest.mark.parametrize("name", ["encoder-writes", "lstmn-writes", "lstmn-classifies", "han", "encoder-pools"])
def test_one_word_alone(name):
    exhibit = exhibit_of(subject(name, "word"), "when", walk=True, ablate=True)
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
    before = looked(name).views[0].weights
    run.model.train()
    exhibit = exhibit_of(run, item_of(name), **SHORT)
    torch.testing.assert_close(exhibit.views[0].weights, before)


QUICK = """
import sys, time, torch
from dataclasses import replace
from inspection.subjects import PAIRS, subject, tokenizers
from regard.inspection import exhibit_of
from regard.models.kinds import build
from regard.models.transformer.config import TransformerConfig
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
    """At 40 words within two seconds of one core, a beam of five among it; where no shapes are checked."""
    home = {"PYTHONPATH": str(Path(__file__).parents[2])}
    seconds = float(subprocess.check_output([sys.executable, "-c", QUICK], env={**os.environ, **home}, text=True))
    assert seconds < 2
