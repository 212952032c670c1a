"""Peer decoders: with our weights they give our outputs, and they refuse unsupported models."""

import pytest
import torch
from bench.cases import LENGTH, ROWS, TINY

from regard.data import END, PAD, START
from regard.errors import ArgumentError
from regard.models import Tokens, TransformerConfig, kinds
from regard_bench import decoding, decoding_peers, training_peers
from regard_bench.training_peers import Sizes


def said(decoder, batch, beam):
    given = decoder.prepare(batch)
    return decoder.tokens(decoder(given, beam), given)


def teacher_forced(model, batch, i, tokens):
    """Return the log-probability of each token, with one call per prefix."""
    source = batch.source[i : i + 1, : batch.source_lengths[i]]
    found = []
    for n, token in enumerate(tokens):
        read = torch.tensor([[START, *tokens[:n]]])
        logits = model(*(Tokens.of(ids, torch.tensor([ids.shape[1]])) for ids in (source, read)))
        found.append(float(logits[0, -1].detach().log_softmax(-1)[token]))
    return found


def test_random_weights_do_not_repeat_themselves():
    torch.manual_seed(0)
    sizes = Sizes(vocabulary=400, size=64, heads=4, layers=2, hidden=128)
    ours = decoding_peers.RegardDecoder(decoding.transformer(sizes), 10)
    batch = decoding.make_batches(1, 16, sizes.vocabulary, seed=0)[0]
    for beam in decoding.BEAMS:
        outputs = said(ours, batch, beam)
        assert len({tuple(each) for each in outputs}) > 12  # of 16
        assert sum(len(set(each)) for each in outputs) / len(outputs) > 4


def test_special_words_are_never_the_likeliest(model, batch):
    target = torch.randint(4, TINY.vocabulary, (ROWS, 9))
    logits = model(Tokens.of(batch.source, batch.source_lengths), Tokens.of(target, torch.full((ROWS,), 9)))
    assert not logits[..., [PAD, START, END]].any()
    assert bool((logits.amax(-1) > 0).all())


@pytest.mark.parametrize("beam", [1, 3])
def test_without_end_is_the_likeliest_of_the_last_beam(model, batch, beam):
    """A plainly written beam search that recomputes every prefix."""
    ours = decoding_peers.RegardDecoder(model, LENGTH)
    for i, found in enumerate(ours.without_end(ours.prepare(batch), beam)):
        source = batch.source[i : i + 1, : batch.source_lengths[i]]
        hypotheses = [([], 0.0)]
        for _ in range(LENGTH + 1):
            longer = []
            for tokens, total in hypotheses:
                read = torch.tensor([[START, *tokens]])
                logits = model(*(Tokens.of(ids, torch.tensor([ids.shape[1]])) for ids in (source, read)))
                likely = enumerate(logits[0, -1].detach().double().log_softmax(-1).tolist())
                longer += [([*tokens, token], total + each) for token, each in likely if token > END]
            hypotheses = sorted(longer, key=lambda pair: -pair[1])[:beam]
        assert found == hypotheses[0][0]


def test_log_probs_are_the_models(model, batch):
    torch.manual_seed(3)
    outputs = [torch.randint(4, TINY.vocabulary, (2, LENGTH)).tolist() for _ in range(ROWS)]
    found = decoding_peers.log_probs(model, Tokens.of(batch.source, batch.source_lengths), outputs)
    for i, each in enumerate(outputs):
        for tokens, likely in zip(each, found[i], strict=True):
            assert likely == pytest.approx(teacher_forced(model, batch, i, tokens), abs=1e-4)


@pytest.mark.filterwarnings("default")  # warnings of the peer
@pytest.mark.parametrize("name", ["transformers", "joeynmt", "ctranslate2"])
def test_a_peer_with_our_weights_says_the_same(name, model, batch):
    pytest.importorskip(name)
    ours = decoding_peers.RegardDecoder(model, LENGTH)
    if name == "transformers":
        peer = decoding_peers.MarianDecoder(model, TINY, LENGTH)
    elif name == "joeynmt":
        peer = decoding_peers.JoeyDecoder(training_peers.JoeyTransformer(TINY, "post"), LENGTH, model)
    else:
        peer = decoding_peers.CTranslate2Decoder(model, LENGTH)
    for beam in decoding.BEAMS:
        assert said(peer, batch, beam) == ours.without_end(ours.prepare(batch), beam)


@pytest.mark.filterwarnings("default")
def test_joeynmts_gru_says_as_many_tokens(batch):
    pytest.importorskip("joeynmt")
    outputs = said(decoding_peers.JoeyDecoder(training_peers.JoeyRNN(TINY), LENGTH), batch, 5)
    ours = said(decoding_peers.RegardDecoder(TINY.rnnsearch(), LENGTH), batch, 5)
    assert [len(each) for each in outputs] == [len(each) for each in ours] == [LENGTH + 1] * ROWS


def test_what_a_peer_cannot_be_is_refused():
    def build(**options):
        return kinds.build("transformer", TransformerConfig(size=8, heads=2, layers=1, hidden=8, **options), 20, 20)

    for copy in (decoding_peers.copy_to_marian, decoding_peers.copy_to_joey):
        with pytest.raises(ArgumentError, match="sinusoidal positions, pre-norm, tied output given"):
            copy(build(), None)
    biased = build(norm="post")
    torch.nn.init.ones_(biased.readout.bias)
    with pytest.raises(ArgumentError, match="JoeyNMT's tied output layer has none"):
        decoding_peers.copy_to_joey(biased, None)
