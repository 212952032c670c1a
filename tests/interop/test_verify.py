"""Verification finds sentences, detects differences, accepts ties, and says what it compared."""

from dataclasses import dataclass, field

import pytest
from interop.random_models import TOKENIZERS

import regard
from regard.data import END, START, Tokenizers, train
from regard.decoding import GREEDY, Output, SearchResult, batches
from regard.errors import DataError, VerificationError
from regard.interop import export as module
from regard.interop.export import draw_pieces, find_sentences, is_tie, verify
from regard.interop.numbering import round_up


@dataclass
class Copy:
    """An export that is the run itself, except for the changes of a test."""

    run: regard.Run
    exact: bool = True
    outputs: dict[int, list[int]] = field(default_factory=dict)  # that differ from the run's
    shift: float = 0.0  # added to all log-probabilities
    versions: dict[str, str] = field(default_factory=lambda: {"copy": "1"})

    @property
    def engine(self):
        return self

    def search(self, sources, options, *, prefixes):
        assert options == GREEDY
        return [SearchResult([Output(tokens, 0.0, 0.0, True)]) for tokens in self.decode(sources, prefixes)]

    def decode(self, sources, prefixes):
        found = self.run.engine.search(sources, GREEDY, prefixes=prefixes)
        return [self.outputs.get(i, each.outputs[0].tokens) for i, each in enumerate(found)]

    def score(self, sources, targets):
        scored = self.run.engine.score(sources, targets)
        return [batches.Scored(each.log_prob, [token + self.shift for token in each.tokens]) for each in scored]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """Keep the stored runs' corpus out of the user's own cache."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def desk(furnish):
    return furnish(run="phrasebook")


@pytest.fixture(scope="module")
def run(desk):
    return regard.load(desk / "run")


def test_sentences_come_from_the_file_the_cache_or_a_draw(desk, run, tmp_path):
    (tmp_path / "check.en").write_text("the man sleeps .\n\n  \nthe dog\n")
    found = find_sentences(run, tmp_path / "check.en")
    assert (found.kind, list(found.texts)) == ("file", ["the man sleeps .", "the dog"])
    found = find_sentences(run, None)
    assert found.kind == "validation"
    assert found.sources == run.tokenizers.source.encode_batch(list(found.texts))
    assert 0 < len(found.texts) <= 200
    stored = regard.load("tests/stored_runs/transformer")
    drawn = find_sentences(stored, None)
    assert (drawn.kind, len(drawn.sources), len(drawn.targets or [])) == ("drawn", 200, 200)
    assert drawn == find_sentences(stored, None), "the same each time"


def test_a_file_without_sentences(run, tmp_path):
    (tmp_path / "empty").write_text("\n \n")
    with pytest.raises(DataError, match="no sentence in it"):
        find_sentences(run, tmp_path / "empty")
    with pytest.raises(DataError, match="absent"):
        find_sentences(run, tmp_path / "absent")


def test_pieces_are_drawn_without_special_ones():
    rows = draw_pieces(TOKENIZERS.target, 300, 7, 0)
    assert {piece for row in rows for piece in row} == set(range(4, TOKENIZERS.target.size))
    assert {len(row) for row in rows} == set(range(1, 8))
    one = draw_pieces(Tokenizers(train(["a"], "word")).target, 2, 3, 0)
    assert one == [[4] * len(row) for row in one]
    filled = round_up(Tokenizers(train(["a b c d e"], "word")), "here").target
    drawn = {piece for row in draw_pieces(filled, 300, 7, 0) for piece in row}
    assert (filled.size, drawn) == (16, set(range(4, 9))), "none that stands for nothing"


def test_a_copy_is_equal(run):
    found = verify(run, Copy(run))
    assert (found.sentences, found.equal, found.ties) == ("validation", found.count, 0)
    assert found.log_prob_difference == 0
    assert str(found).endswith(f"validation sentences; {found.count} outputs equal; log-probabilities differ by 0")
    rounded = verify(run, Copy(run, exact=False))
    assert (rounded.bleu, rounded.chrf, rounded.equal) == (100.0, 100.0, found.count)


def test_one_token_of_one_output_is_enough(run):
    sentences = find_sentences(run, None)
    right = Copy(run).decode(sentences.sources, None)
    place = next(i for i, tokens in enumerate(right) if len(tokens) > 2)
    wrong = [right[place][0], 9 if right[place][1] != 9 else 10, *right[place][2:]]
    with pytest.raises(VerificationError) as error:
        verify(run, Copy(run, outputs={place: wrong}))
    problem = f"not verified: 1 of {len(right)} outputs differ; the first is “{sentences.texts[place]}”"
    assert problem in str(error.value)
    assert f"by the export “{run.tokenizers.target.decode(wrong)}”" in str(error.value)
    with pytest.raises(VerificationError, match="1 of .* outputs differ"):
        verify(run, Copy(run, outputs={0: right[0][:-1]}))  # an end that comes too early


def test_a_tie_is_let_pass_and_counted(run, monkeypatch):
    sentences = find_sentences(run, None)
    right = Copy(run).decode(sentences.sources, None)
    other = [*right[3][:-1], 12 if right[3][-1] != 12 else 13]
    assert not is_tie(run, sentences.sources[3], right[3], other)
    one, two = (run.engine.score([sentences.sources[3]], [each])[0].tokens[-2] for each in (right[3], other))
    monkeypatch.setattr(module, "TIE", abs(one - two) + 1e-5)
    assert is_tie(run, sentences.sources[3], right[3], other)
    found = verify(run, Copy(run, outputs={3: other}))
    assert (found.equal, found.ties) == (found.count - 1, 1)
    assert "1 by a tie" in str(found)


def test_the_same_words_with_other_probabilities(run):
    with pytest.raises(VerificationError, match="log-probabilities differ by 0.*, expected at most 0.001"):
        verify(run, Copy(run, shift=0.5))
    with pytest.raises(VerificationError, match="log-probabilities differ by nan"):
        verify(run, Copy(run, shift=float("nan")))


def test_texts_that_are_unlike_where_weights_were_rounded(run):
    sentences = find_sentences(run, None)
    wrong = {i: [4, 5, 6] for i in range(0, len(sentences.sources), 3)}
    with pytest.raises(
        VerificationError, match="BLEU .* and chrF .* between the two, expected 90 and 95; the first is"
    ):
        verify(run, Copy(run, exact=False, outputs=wrong))


def test_outputs_of_a_word_are_compared_by_their_letters(run, monkeypatch):
    words = [[4 + i % 7] for i in range(len(find_sentences(run, None).sources))]
    wrong = dict(enumerate(words))
    same = Copy(run, exact=False, outputs=wrong)
    results = [
        type(each)([each.outputs[0]._replace(tokens=words[i])])
        for i, each in enumerate(run.engine.search(find_sentences(run, None).sources, GREEDY))
    ]
    engine = type("Fixed", (), {"search": lambda self, *rest, **options: results})()
    monkeypatch.setattr(regard.Run, "engine", engine)
    same.decode = lambda sources, prefixes: words
    assert verify(run, same).bleu == 100.0
    same.decode = lambda sources, prefixes: [[30]] * len(words)
    with pytest.raises(VerificationError, match="chrF"):
        verify(run, same)


def test_pieces_that_were_drawn():
    run = regard.load("tests/stored_runs/transformer")
    found = verify(run, Copy(run))
    assert (found.sentences, found.count, found.equal) == ("drawn", 200, None)
    assert verify(run, Copy(run, exact=False, shift=0.01)).log_prob_difference == pytest.approx(0.01, rel=0.9)
    for copy in (Copy(run, shift=0.1), Copy(run, exact=False, shift=5.0)):
        with pytest.raises(VerificationError, match="log-probabilities differ by .* by the run and .* by the export"):
            verify(run, copy)
    assert START < END < min(min(row) for row in find_sentences(run, None).sources)
