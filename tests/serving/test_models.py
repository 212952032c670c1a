"""A server's models: their folders, their devices, and their descriptions."""

import pytest
import torch
from serving.served import STORED, settings_of, stored

from regard.decoding import Options
from regard.errors import CommandError, ConfigError
from regard.run import load
from regard.serving.jobs import Job
from regard.serving.models import ServedModel, parse_devices, share_threads, worker_class
from regard.serving.worker import ProcessWorker, ThreadWorker


def test_devices_are_separated_by_commas():
    assert parse_devices("cpu") == ["cpu"]
    assert parse_devices("cpu, cpu") == ["cpu", "cpu"]
    with pytest.raises(CommandError, match="tpu"):
        parse_devices("cpu,tpu")


@pytest.mark.parametrize(
    ("name", "reads", "actions"),
    [
        ("rnn", "texts", ["translate"]),  # this model has no alignment
        ("rnnsearch", "texts", ["translate", "align"]),
        ("convnet", "pictures", ["classify"]),
        ("encoder-language-model", "texts", ["sample"]),
    ],
)
def test_a_card_says_what_a_model_reads_and_can_do(opened, name, reads, actions):
    card = opened(name, *stored(name))[0].card
    assert (card["reads"], card["actions"]) == (reads, actions)


def test_workers_on_a_cpu_share_its_threads():
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(5)
        share_threads(["cpu"])
        assert torch.get_num_threads() == 5
        share_threads(["cpu", "cuda:0", "cpu"])
        assert torch.get_num_threads() == 2
        share_threads(["cpu"] * 3)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)


@pytest.fixture
def opened():
    """Make models with their deliveries, and close the models after the test."""
    models = []

    def make(name, *folders, **settings):
        delivered: list = []
        model = ServedModel(name, folders, settings_of(**settings), delivered.extend)
        models.append(model)
        model.start()
        return model, delivered

    yield make
    for model in models:
        model.queue.close()
        for worker in model.workers:
            worker.join(60)
            assert not worker.is_alive()


def test_what_is_told_of_a_model(opened):
    (folder,) = stored("transformer")
    model, _ = opened("t", folder)
    run = load(folder)
    assert model.card == {
        "name": "t",
        "task": "translate",
        "kind": "transformer",
        "reads": "texts",
        "actions": list(run.task.actions),
        "languages": {"source": "en", "targets": ["de"]},
        "known_languages": None,
        "split": True,
        "labels": None,
        "step": 100,
        "parameters": sum(each.numel() for each in run.model.parameters()),
        "longest": 200,
        "devices": ["cpu"],
    }
    assert (model.ready, model.ready_workers, model.under_way) == (True, 1, 0)
    classifier, _ = opened("h", *stored("han"))
    assert classifier.card["languages"] is None
    assert classifier.card["labels"] == list(load(*stored("han")).labels)


@pytest.mark.parametrize(
    ("workers", "device", "form"),
    [
        ("auto", "cpu", ThreadWorker),
        ("auto", "cuda:1", ProcessWorker),
        ("auto", "mps", ThreadWorker),
        ("thread", "cuda:0", ThreadWorker),
        ("process", "cpu", ProcessWorker),
    ],
)
def test_workers_are_threads_or_processes(workers, device, form):
    assert worker_class(workers, device) is form


def test_there_are_no_processes_on_windows(monkeypatch):
    monkeypatch.setattr("sys.platform", "win32")
    assert worker_class("auto", "cuda:0") is ThreadWorker
    with pytest.raises(ConfigError, match="workers: process given, expected thread or auto"):
        worker_class("process", "cpu")


def test_a_run_to_compute_nothing_with_takes_no_memory():
    """It has the shapes of the weights, including tied ones, and the same description as the loaded run."""
    model = ServedModel("t", stored("transformer"), settings_of(), lambda updates: None)
    run, expected = model.open_here(), load(*stored("transformer"))
    shapes = [(name, each.shape) for name, each in expected.model.named_parameters()]
    assert [(name, each.shape) for name, each in run.model.named_parameters()] == shapes
    assert {each.untyped_storage().nbytes() for each in run.model.parameters()} == {4}
    cards = []
    for each in (run, expected):
        model.settle(each)
        cards.append(model.card)
    assert cards[0] == cards[1]


def test_a_person_may_say_the_languages(opened):
    assert opened("n", *stored("ntm"))[0].card["languages"] is None
    card = opened("n", *stored("ntm"), languages=["n=nl-fr", "other=en-de"])[0].card
    assert card["languages"] == {"source": "nl", "targets": ["fr"]}


@pytest.mark.parametrize("workers", ["thread", pytest.param("process", marks=pytest.mark.slow)])
def test_an_ensemble_and_several_workers(opened, workers):
    folders = stored("transformer", "transformer")
    model, delivered = opened("both", *folders, device="cpu,cpu", workers=workers)
    assert model.card["devices"] == ["cpu", "cpu"]
    assert model.card["parameters"] == 2 * sum(each.numel() for each in load(folders[0]).model.parameters())
    assert model.ready_workers == 2
    model.queue.add([Job([3, 4], Options(longest=3), request=i) for i in range(9)])
    model.queue.close()
    for worker in model.workers:  # the workers finish waiting jobs before they end
        worker.join(60)
    assert len(delivered) == 9
    assert model.counters.sentences == 9


@pytest.mark.parametrize("name", ["transformer", "convnet"])
def test_words_that_never_come_again_are_forgotten(name, monkeypatch):
    """A server meets new words all the time, and its memory stays constant; a classifier of pictures has no words."""
    monkeypatch.setattr("regard.serving.models.WORDS", 50)
    model = ServedModel(name, [str(STORED / name)], settings_of(), lambda updates: None)
    run = model.open_model("cpu")
    if name == "transformer":
        expected = load(STORED / name).tokenizers.source
        for number in range(200):
            text = f"we word{number} here"
            assert run.tokenizers.source.encode_batch([text]) == expected.encode_batch([text])
            assert len(run.tokenizers.source.cache) <= 50
        assert len(expected.cache) >= 200
