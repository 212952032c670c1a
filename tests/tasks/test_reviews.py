"""configs/reviews.toml and configs/reviews-encoder.toml give right labels, and attend to the deciding words."""

import tomllib
from pathlib import Path

import pytest
from tasks.opinions import NEGATIVE, POSITIVE

from regard import load
from regard.data import generate
from regard.inspection import exhibit_of, weigh
from regard.tasks.run_start import start

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a function that trains a shipped configuration once for all tests here."""
    runs = {}

    def train(name):
        if name not in runs:
            folder = tmp_path_factory.mktemp(name)
            table = tomllib.loads((CONFIGS / f"{name}.toml").read_text())
            table["data"]["cache"] = str(folder / "cache")
            start(table, folder / "run")
            runs[name] = load(folder / "run")
        return runs[name]

    return train


def test_the_sentences_are_none_of_the_corpus():
    """The fifty sentences are distinct, and the training corpus has none, in any case, with or without a stop."""
    assert len({*POSITIVE, *NEGATIVE}) == len(POSITIVE) + len(NEGATIVE) == 50
    written = {text.lower().rstrip(".!") for text in POSITIVE + NEGATIVE}
    options = {"shortest": 1, "longest": 1, "denied": 35}
    generated = {each.source.lower().rstrip(".!") for each in generate("reviews", 3000, **options)}
    assert len(written & generated) <= 2  # "this film is good" may be in the corpus


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reviews", "reviews-encoder"])
def test_what_people_type_is_labelled_right(trained, name):
    run = trained(name)
    wrong = [text for text, found in zip(POSITIVE, run.classify(POSITIVE), strict=True) if found.label != "positive"]
    wrong += [text for text, found in zip(NEGATIVE, run.classify(NEGATIVE), strict=True) if found.label != "negative"]
    assert len(wrong) <= 5, wrong
    assert "This pizza is not too bad." not in wrong
    assert "This pizza is bad." not in wrong


@pytest.mark.slow
def test_bad_looks_at_not(trained):
    """A head of the self-attention classifier links "bad" to "not"; without "not" the label changes."""
    run = trained("reviews-encoder")
    exhibit = exhibit_of(run, "This pizza is not too bad.")
    pieces = [piece.strip("▁") for piece in exhibit.sides["source"].pieces]
    weights = [view.weights[:, pieces.index("bad"), pieces.index("not")].max() for view in exhibit.views]
    assert max(weights) > 3 / len(pieces)
    assert exhibit.output == "positive"
    assert exhibit_of(run, "This pizza is too bad.").output == "negative"


@pytest.mark.slow
def test_labels_and_the_words_that_decide_them(trained):
    run = trained("reviews")
    examples = list(generate("reviews", 1000, split="test", shortest=1, longest=3, denied=35))
    texts = [example.source for example in examples]
    right = sum(found.label == each.target for found, each in zip(run.classify(texts), examples, strict=True))
    assert right >= 970
    looked = 0
    for example, document in zip(
        examples, weigh(run.model, run.tokenizers.source, run.settings.data, texts), strict=True
    ):
        counts = [count for sentence in document for count in sentence.counts]
        assert len(counts) == len(example.source.split())
        looked += counts.index(max(counts)) in {word for word, _ in example.alignment}
    assert looked >= 900
