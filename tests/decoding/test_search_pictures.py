"""Search over pictures: against one that recomputes every prefix, against all possible captions, and against itself."""

import math
import random

import pytest
import torch
from decoding.cases import every_target
from models.pictured import CASES, captioner, pictures

from regard.data import END, PAD, START
from regard.decoding.batches import search_pictures
from regard.decoding.ensemble import Ensemble
from regard.decoding.limits import CAPTION
from regard.decoding.options import GREEDY, Options
from regard.decoding.scoring import length_penalty
from regard.decoding.sentence_search import search
from regard.errors import ArgumentError
from regard.models import Pictures, Tokens

WORDS = 7
every_case = pytest.mark.parametrize("name", CASES)


@torch.no_grad()
def log_probs(model, pixels, targets) -> list[float]:
    """Return log P of each caption of a picture and its END, teacher forced."""
    lengths = torch.tensor([len(said) + 1 for said in targets])
    told = torch.full((len(targets), int(lengths.max()) + 1), PAD)
    for row, said in enumerate(targets):
        told[row, : len(said) + 2] = torch.tensor([START, *said, END])
    target = Tokens.of(told[:, :-1], lengths)
    memory = model.encode(Pictures(pixels[None])).rows(torch.zeros(len(targets), dtype=torch.long))
    logits = model.output(model.decode(memory, target)[0]).log_softmax(-1)
    each = logits.gather(-1, told[:, 1:, None])[..., 0]
    return each.masked_fill(~target.real, 0.0).sum(1).tolist()


@every_case
def test_a_wide_beam_finds_what_trying_everything_finds(name):
    """Four words and END, up to three words: 85 captions."""
    model, source, longest = captioner(name, words=WORDS), pictures(2), 3
    targets = list(every_target(WORDS, longest))
    options = Options(beam=len(targets), nbest=20, longest=longest)
    for pixels, found in zip(source.pixels, search(model, source, options), strict=True):
        each = log_probs(model, pixels, targets)
        told = [
            total / length_penalty(len(said) + 1, options.length_penalty)
            for total, said in zip(each, targets, strict=True)
        ]
        best = sorted(zip(told, targets, strict=True), key=lambda each: -each[0])[:20]
        assert [output.tokens for output in found.outputs] == [said for _, said in best]
        assert [output.score for output in found.outputs] == pytest.approx([score for score, _ in best], abs=1e-9)


ASKED = [
    Options(beam=3, nbest=3, longest=6),
    Options(beam=2, longest=6, no_repeat=2, shortest=2),
    Options(sample=True, nbest=3, seed=5, longest=6),
]


@every_case
@pytest.mark.parametrize("options", ASKED, ids=["beam", "rules", "sample"])
def test_alone_is_in_any_batch(name, options):
    model, source = captioner(name), pictures(5)
    together = search(model, source, options)
    shuffled = random.sample(range(5), 5)
    again = search(model, Pictures(source.pixels[shuffled]), options)
    for place, i in enumerate(shuffled):
        alone = search(model, Pictures(source.pixels[i : i + 1]), options)[0]
        for other in (alone, again[place]):
            assert [output.tokens for output in other.outputs] == [output.tokens for output in together[i].outputs]


def test_samples_hang_on_the_picture_and_the_seed():
    model, source = captioner(scale=None), pictures(2)
    twice = Pictures(source.pixels[[0, 0, 1]])

    def drawn(seed):
        options = Options(sample=True, seed=seed, shortest=10, longest=20)  # two empty captions would be equal
        return [each.outputs[0].tokens for each in search(model, twice, options)]

    first = drawn(1)
    assert first == drawn(1)
    assert first[0] == first[1] != first[2]
    assert drawn(2) != first


def test_a_caption_ends_somewhere():
    model = captioner()
    with torch.no_grad():
        model.readout.bias[END] = -1e6
    (found,) = search(model, pictures(1), GREEDY)
    assert len(found.outputs[0].tokens) == CAPTION
    assert not found.outputs[0].finished


def test_pictures_in_batches_are_all_at_once():
    model, source = captioner(), pictures(7)
    wanted = [found.outputs[0].tokens for found in search(model, source, Options(longest=5))]
    for given in (source.pixels, source.pixels.numpy(), iter(source.pixels.numpy()), list(source.pixels)):
        found = list(search_pictures(model, given, Options(longest=5), rows=3))
        assert [each.outputs[0].tokens for each in found] == wanted
    assert list(search_pictures(model, [])) == []
    with pytest.raises(ArgumentError, match="rows: 0"):
        list(search_pictures(model, source.pixels, rows=0))


def test_an_ensemble_of_captioners_is_the_mean_of_their_probabilities():
    models, source = [captioner("soft"), captioner("transformer")], pictures(1)
    found = search(Ensemble(models).eval(), source, Options(beam=2, longest=4))[0].outputs[0]
    total = 0.0
    for i, token in enumerate([*found.tokens, END]):
        target = Tokens.of(torch.tensor([[START, *found.tokens[:i]]]), torch.tensor([i + 1]))
        with torch.no_grad():
            each = torch.stack([model(source, target)[0, -1].softmax(-1) for model in models])
        total += math.log(each.mean(0)[token])
    assert found.log_prob == pytest.approx(total)
