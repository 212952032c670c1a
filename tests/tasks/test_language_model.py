"""The language model as a task, and the actions of its runs."""

import pytest
import torch
from tiny import table

from regard import load
from regard.config import parse
from regard.decoding import Options
from regard.errors import ArgumentError
from regard.tasks.language_model import LanguageModel
from regard.tasks.run_start import start
from regard.tasks.settings import read_settings
from regard.tasks.task import prepare_data

ENCODER = {"kind": "encoder", "size": 16, "heads": 2, "layers": 1, "hidden": 16}


def test_it_is_measured_by_its_loss(tmp_path):
    settings = read_settings(table(tmp_path, task="language-model", model=ENCODER))
    task = settings.row.load()(settings, prepare_data(settings), 64)
    assert type(task) is LanguageModel
    assert task.metric == "loss"
    task.objective.eval()
    figures = task.validate()
    assert figures["perplexity"] == pytest.approx(torch.tensor(figures["loss"]).exp().item(), rel=1e-5)
    assert task.samples() == []
    assert task.example() is None


def test_a_run_samples_scores_and_is_measured(tmp_path):
    start(table(tmp_path, task="language-model", model=ENCODER, training__steps=2), tmp_path / "run")
    run = load(tmp_path / "run")
    first, second = run.sample(2, prefix="1 2", longest=6, seed=3)
    assert first.text.startswith("1 2") and second.text.startswith("1 2")  # noqa: PT018
    texts = ["1 2 3", "4 5"]
    scored = run.score(texts)
    (tmp_path / "texts").write_text("1 2 3\n4 5\n")
    report = run.evaluate(reference=tmp_path / "texts")
    mean = sum(each.log_prob for each in scored) / sum(len(each.tokens) for each in scored)
    assert report.json["scores"]["perplexity"]["value"] == pytest.approx(torch.tensor(-mean).exp().item(), rel=1e-4)
    with pytest.raises(ArgumentError, match="its task is language-model, expected translate; use regard sample"):
        run.translate(texts)
    with pytest.raises(ArgumentError, match="its task is language-model, expected classify; use regard sample"):
        run.evaluate(documents="a.tsv")


@pytest.mark.parametrize("joint", [False, True])
def test_its_known_words_are_those_that_it_writes(tmp_path, joint):
    """From pairs it reads only the target side, so words of the source side are unknown to it."""
    data = {"builtin": "phrasebook", "pair": "en-de", "count": 400, "cache": str(tmp_path / "cache")}
    tokenizer = {"kind": "bpe", "joint": joint, "size": 600}
    given = {"data": data, "tokenizer": tokenizer, "training__steps": 2}
    start(table(tmp_path, **given), tmp_path / "translator")
    start(table(tmp_path, task="language-model", model=ENCODER, **given), tmp_path / "run")  # from the same cache
    written, read = "Ich habe nicht das.", "I have not the."
    for run, own, other in ((load(tmp_path / "run"), written, read), (load(tmp_path / "translator"), read, written)):
        assert run.unknown.list_words(own) == []
        assert run.unknown.list_words(other) == [word.strip(".") for word in other.split()]
    run = load(tmp_path / "run")
    run.score([written])
    assert run.unknown.message() is None
    run.score([read])
    assert run.unknown.message() == "I, have, not and the were never seen in training"
    said = list[str]()
    run = load(tmp_path / "run", warn=said.append)
    run.force(f"{written} zorp", None, parse(Options, {}), False)  # like `look`
    assert said == ["zorp was never seen in training"]
