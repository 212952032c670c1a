"""What configs/reviews.toml promises: labels that are right, and the words that decide them looked at."""

import tomllib
from pathlib import Path

import pytest

from regard import load
from regard.data.builtin import generate
from regard.inspection.collect.documents import weigh
from regard.tasks.start import start

CONFIG = Path(__file__).parents[2] / "configs" / "reviews.toml"


@pytest.mark.slow
def test_labels_and_the_words_that_decide_them(tmp_path):
    table = tomllib.loads(CONFIG.read_text())
    table["data"]["cache"] = str(tmp_path / "cache")
    start(table, tmp_path / "run")
    run = load(tmp_path / "run")
    examples = list(generate("reviews", 1000, split="test"))
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
