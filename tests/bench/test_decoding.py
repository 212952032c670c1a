"""The decoding benchmark: every system has our weights and says the same, or is named as missing, or is refused."""

import importlib.util
import itertools
from functools import partial

import pytest
import torch

from regard.bench import attention, decoding, decoding_cuda, decoding_peers, process, training, training_peers
from regard.bench.process import DecoderProcess, time_decoder
from regard.bench.training_peers import Sizes
from regard.data.tokenizer import END, PAD, START
from regard.decoding.options import Options
from regard.decoding.search import search
from regard.decoding.sources import tokens_of
from regard.errors import ArgumentError, RegardError
from regard.models import kinds
from regard.models.contract import Tokens
from regard.models.transformer.config import TransformerConfig

TINY = Sizes(vocabulary=27, size=16, heads=2, layers=1, hidden=24)
ROWS, LENGTH = 5, 4


@pytest.fixture(autouse=True)
def no_rest(monkeypatch):
    monkeypatch.setattr(process, "REST", 0)


@pytest.fixture
def model():
    torch.manual_seed(1)
    return decoding.transformer(TINY).eval()


@pytest.fixture
def batch():
    return decoding.make_batches(3, ROWS, TINY.vocabulary, seed=2)[0]


def said(decoder, batch, beam):
    given = decoder.prepare(batch)
    return decoder.tokens(decoder(given, beam), given)


def teacher_forced(model, batch, i, tokens):
    """The log-probability of each token, a call for every prefix."""
    source = batch.source[i : i + 1, : batch.source_lengths[i]]
    found = []
    for n, token in enumerate(tokens):
        read = torch.tensor([[START, *tokens[:n]]])
        logits = model(*(Tokens.of(ids, torch.tensor([ids.shape[1]])) for ids in (source, read)))
        found.append(float(logits[0, -1].detach().log_softmax(-1)[token]))
    return found


def test_batches_hold_all_sources_with_those_of_like_length_together():
    batches = decoding.make_batches(5, 64, 8000, seed=0)
    lengths = torch.stack([batch.source_lengths for batch in batches])
    assert lengths.shape == (5, 64)
    assert 13 < lengths.float().mean() < 16
    bounds = sorted((int(each.min()), int(each.max())) for each in lengths)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(bounds))


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
    """A beam search written plainly, that feeds every prefix anew."""
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


def test_it_runs_and_names_who_is_not_there(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    results = list(decoding.run(rounds=1, sizes=TINY, rows=ROWS, length=LENGTH))
    names = [name for name in decoding.PACKAGES for _ in decoding.BEAMS]
    assert [result.peer for result in results] == [f"{name} is not installed" for name in names]
    for result in results:
        assert result.ratio is None
        assert not result.reached
        assert result.details["ours_sentences_s"] > 0
    assert [result.goal for result in results if "greedy" in result.what] == [
        "at least 1.3 × its speed", "none", "none", "none", "at least 2 × its speed",
    ]  # fmt: skip


class Echo(decoding_peers.RegardDecoder):
    """A peer that is Regard itself, but for what `spoil` does to its outputs."""

    def __init__(self, model, spoil=lambda outputs: outputs):
        super().__init__(model, LENGTH)
        self.spoil = spoil

    def tokens(self, outputs, given):
        return self.spoil(self.without_end(given, self.beam))

    def __call__(self, given, beam):
        self.beam = beam


class Here:
    """A system in this process."""

    def __init__(self, make, ours):
        self.decoder = make()

    def time_batches(self, batches, beam):
        return time_decoder(self.decoder, batches, beam)

    def end(self):
        pass


@pytest.fixture
def measured(monkeypatch):
    monkeypatch.setattr(decoding, "DecoderProcess", Here)

    def measure(model, batches, spoil):
        systems = {"Regard": lambda: decoding_peers.RegardDecoder(model, LENGTH), "another": lambda: Echo(model, spoil)}
        return decoding.measure(systems, batches, LENGTH + 1)

    return measure


def test_what_goes_wrong_elsewhere_is_told_here():
    with pytest.raises(RegardError, match="bench: ZeroDivisionError: .*by zero"):
        DecoderProcess(partial(divmod, 1, 0), ours=True)
    gone = DecoderProcess(partial(decoding.make, "Regard", TINY, 0, LENGTH), ours=False)
    gone.process.kill()
    with pytest.raises(RegardError, match="a system did not finish, status -9"):
        gone.time_batches([], 1)


def test_a_peer_that_says_the_same_is_compared(model, measured):
    batches = decoding.make_batches(3 * decoding.IN_A_ROW, ROWS, TINY.vocabulary, seed=0)
    found = measured(model, batches, lambda outputs: outputs)
    assert {beam: len(found["another"].rates[beam]) for beam in decoding.BEAMS} == {1: 3, 5: 3}
    ours = decoding_peers.RegardDecoder(model, LENGTH)
    assert decoding.same_outputs(batches, found, ours) == {("another", 1): 1.0, ("another", 5): 1.0}
    greedy, beam = decoding.compare_systems("what", found, ["Regard", "another"], {("another", 1): 1.0})
    rates = zip(found["Regard"].rates[1], found["another"].rates[1], strict=True)
    assert greedy.ratio == sorted(a / b for a, b in rates)[1]
    assert greedy.details["equal_outputs"] == 1.0
    assert beam.goal == "none"
    assert beam.reached


def test_a_peer_that_says_something_else_is_refused(model, measured):
    def spoil(outputs):
        return [[*outputs[0][:2], 4 if outputs[0][2] != 4 else 5, *outputs[0][3:]], *outputs[1:]]

    batches = decoding.make_batches(2, ROWS, TINY.vocabulary, seed=0)
    with pytest.raises(RegardError, match="bench: another, beam 1: 2 of 10 outputs are not Regard's"):
        decoding.same_outputs(batches, measured(model, batches, spoil), decoding_peers.RegardDecoder(model, LENGTH))


def test_a_tie_may_fall_either_way(model, measured):
    with torch.no_grad():  # two words that are the same to the model
        model.target.tokens.weight[5] = model.target.tokens.weight[4]
        model.readout.bias[[4, 5]] = 30.0

    def other(outputs):
        return [[9 - token if token in (4, 5) else token for token in each] for each in outputs]

    batches = decoding.make_batches(1, ROWS, TINY.vocabulary, seed=0)
    found = measured(model, batches, other)
    ours = decoding_peers.RegardDecoder(model, LENGTH)
    assert decoding.same_outputs(batches, found, ours)["another", 1] == 0.0  # nothing is equal, and nothing refused


@pytest.mark.parametrize(
    "spoil", [lambda outputs: [each[:-1] for each in outputs], lambda outputs: [[END, *each[1:]] for each in outputs]]
)
def test_another_length_is_refused(model, measured, spoil):
    batches = decoding.make_batches(1, ROWS, TINY.vocabulary, seed=0)
    with pytest.raises(RegardError, match=f"another, beam 1: .* said, expected {LENGTH + 1} tokens"):
        measured(model, batches, spoil)


# ---- peers, where they are installed


@pytest.mark.filterwarnings("default")  # theirs
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
    ours = said(decoding_peers.RegardDecoder(training.rnnsearch(TINY).objective.model, LENGTH), batch, 5)
    assert [len(each) for each in outputs] == [len(each) for each in ours] == [LENGTH + 1] * ROWS


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("tied", ["none", "output", "all"])
def test_ctranslate2_scores_as_we_do(tmp_path, norm, positions, tied):
    """Every parameter is random, so that none can be left behind unseen; there are two vocabularies where there may."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    torch.manual_seed(4)
    config = TransformerConfig(
        size=12, heads=3, layers=2, decoder_layers=1, hidden=20, norm=norm, positions=positions, tied=tied, length=30
    )
    sizes = (31, 31) if tied == "all" else (31, 42)
    model = kinds.build("transformer", config, *sizes).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    words = [[decoding_peers.special(i) for i in range(size)] for size in sizes]
    decoding_peers.convert(model, tmp_path, *words)
    translator = ctranslate2.Translator(str(tmp_path), compute_type="float32", intra_threads=1)
    sources = [torch.randint(4, 31, (n,)).tolist() for n in (1, 5, 9)]
    targets = [torch.randint(4, sizes[1], (n,)).tolist() for n in (7, 2, 11)]
    found = translator.score_batch(
        *([[names[i] for i in ids] for ids in side] for side, names in zip((sources, targets), words, strict=True))
    )
    for each, scored in zip(found, decoding_peers.score(model, sources, targets), strict=True):
        assert each.log_probs == pytest.approx(scored.tokens, abs=1e-4)


def test_what_a_peer_cannot_be_is_refused(tmp_path):
    def build(**options):
        return kinds.build("transformer", TransformerConfig(size=8, heads=2, layers=1, hidden=8, **options), 20, 20)

    with pytest.raises(ArgumentError, match="rotary positions, joined by add, given"):
        decoding_peers.convert(build(positions="rotary"), tmp_path, [], [])
    with pytest.raises(ArgumentError, match="sinusoidal positions, joined by concatenate, given"):
        decoding_peers.convert(build(join="concatenate"), tmp_path, [], [])
    for copy in (decoding_peers.copy_to_marian, decoding_peers.copy_to_joey):
        with pytest.raises(ArgumentError, match="sinusoidal positions, pre-norm, tied output given"):
            copy(build(), None)
    biased = build(norm="post")
    torch.nn.init.ones_(biased.readout.bias)
    with pytest.raises(ArgumentError, match="JoeyNMT's tied output layer has none"):
        decoding_peers.copy_to_joey(biased, None)


@pytest.mark.parametrize("peer", decoding_cuda.PEERS, ids=lambda peer: peer.package)
def test_peers_of_a_gpu_say_the_same_here(peer):
    """Their weights and their order are right, wherever they run."""
    pytest.importorskip(peer.package)
    sizes = Sizes(vocabulary=60, size=32, heads=2, layers=1, hidden=48)
    model = decoding.transformer(sizes).eval()
    sources = [[4 + (7 * i + j) % 50 for j in range(9)] for i in range(3)]
    options = Options(beam=1, length_penalty=0.0, shortest=decoding_cuda.OUT, longest=decoding_cuda.OUT)
    ours = [found.outputs[0].tokens for found in search(model, tokens_of(sources), options)]
    assert decoding_cuda.alike(peer.make(model, sizes, "cpu"), sources, ours, "cpu") == 1.0
    assert decoding_cuda.alike(peer.make(model, sizes, "cpu"), sources, [[9], *ours[1:]], "cpu") < 1.0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
@pytest.mark.parametrize("run", [attention.run, decoding.run, training.run])
def test_no_gpu_is_said(run):
    with pytest.raises(RegardError, match="torch sees no CUDA device here"):
        next(iter(run(3, device="cuda")))
