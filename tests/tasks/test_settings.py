"""A complete configuration, and the options that a time limit derives from the measured pace."""

import pytest

from regard.errors import ConfigError
from regard.models import KINDS
from regard.tasks import settings
from regard.tasks.settings import base_table, complete_run_table, leave_open, read_settings, set_by_hand

OPEN = ("steps", "warmup", "validate_every")


@pytest.mark.parametrize(
    ("kind", "preset", "task"),
    [(kind.name, preset, task) for kind in KINDS.values() for preset in (None, *kind.presets) for task in kind.tasks],
)
def test_the_table_of_settings_gives_the_settings(kind, preset, task):
    table = {"task": task, "model": {"kind": kind, **({"preset": preset} if preset else {})}}
    settings = read_settings(table)
    assert settings.task == task
    assert getattr(settings.model, "job", task) == task
    assert read_settings(settings.table()) == settings
    assert settings.training.metric is None  # the held-out data decide


@pytest.mark.parametrize(
    ("data", "task", "kind"),
    [
        ({}, "translate", "transformer"),
        ({"documents": "a.tsv"}, "classify", "han"),
        ({"images": "a", "captions": "b"}, "caption", "captioner"),
        ({"images": "a", "labels": "b"}, "classify", "convnet"),
        ({"images": "a"}, "classify", "convnet"),
        ({"builtin": "reviews"}, "classify", "han"),
        ({"builtin": "scenes"}, "caption", "captioner"),
    ],
)
def test_the_data_says_what_is_learned_and_by_which_kind(data, task, kind):
    settings = read_settings({"data": data} if data else {})
    assert (settings.task, settings.kind) == (task, kind)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"model": {"kind": "encoder"}}, 'model.kind: "encoder" given with task = "translate", expected one of rnn, '),
        (
            {"data": {"documents": "a.tsv"}, "model": {"kind": "convnet"}},
            'model.kind: "convnet" given with task = "classify" and data that is documents, expected one of encoder, ',
        ),
        (
            {"data": {"documents": "a.tsv"}, "task": "caption"},
            'task: "caption" given with data that is documents, expected pictures',
        ),
        ({"data": {"captions": "a"}}, "data.images: missing, as captions is given"),
        ({"data": {"documents": "a.txt"}}, 'data.documents: "a.txt" given, expected a name that ends in .tsv'),
        ({"data": {"documents": "a.tsv", "text_column": "b"}}, 'data.text_column: "b" given, expected a column number'),
        ({"data": {"images": "a", "captions": "b", "labels": "c"}}, "data.labels: given together with captions"),
        ({"data": {"images": "a", "documents": "b.tsv"}}, "data.images: given together with documents"),
    ],
)
def test_what_does_not_go_together_is_named(table, said):
    with pytest.raises(ConfigError) as caught:
        read_settings(table)
    assert str(caught.value).startswith(said)


def test_a_picture_classifier_of_scenes_is_named_by_its_kind():
    assert read_settings({"data": {"builtin": "scenes"}, "model": {"kind": "convnet"}}).task == "classify"


def test_what_goes_from_run_to_run():
    table = read_settings({}).table()
    assert base_table(table, {}, "runs/a").keys() == {"task", "model", "tokenizer"}
    assert base_table(table, table, "runs/a") == base_table(table, {}, "runs/a")
    with pytest.raises(ConfigError, match="model: given, but the run runs/a has another"):
        base_table(table, {"model": {"kind": "rnn"}}, "runs/a")
    with pytest.raises(ConfigError, match="task: given, but the run runs/a has another"):
        base_table(table, {"task": "language-model"}, "runs/a")


def test_two_configurations_are_read_once_each(monkeypatch):
    table, tables = read_settings({}).table(), []
    monkeypatch.setattr(settings, "read_settings", lambda each: tables.append(each) or read_settings(each))
    base_table(table, table, "runs/a")
    assert len(tables) == 2
    base_table(table, {"training": {"steps": 3}}, "runs/a")
    assert len(tables) == 2


def test_a_run_that_says_no_edition_was_trained_on_the_first():
    assert read_settings({"data": {"builtin": "phrasebook"}}).data.builtin_edition == 2
    before = {"task": "translate", "data": {"builtin": "phrasebook", "cache": "elsewhere"}}
    assert complete_run_table(before)["data"] == {"builtin": "phrasebook", "builtin_edition": 1}
    now = read_settings({"data": {"builtin": "phrasebook", "cache": "elsewhere"}}).table()
    assert complete_run_table(now)["data"]["builtin_edition"] == 2
    assert "cache" not in complete_run_table(now)["data"]
    assert read_settings(complete_run_table({})).data.builtin_edition == 1


@pytest.mark.parametrize(
    ("table", "there", "gone"),
    [
        (
            {"data": {"source": "a", "target": "b"}},
            {"data.source", "training.guided"},
            {"data.image_size", "data.pair"},
        ),
        (
            {"data": {"builtin": "copy"}},
            {"data.builtin", "data.count"},
            {"data.document_tokens", "training.class_weights"},
        ),
        (
            {"data": {"documents": "a.tsv"}},
            {"data.documents", "data.document_tokens", "training.class_weights"},
            {"data.image_size", "data.corpora", "training.guided", "training.validate_rows"},
        ),
        (
            {"data": {"images": "a", "labels": "b.tsv"}},
            {"data.images", "data.image_size"},
            {"data.corpora", "tokenizer.kind", "training.guided_head"},
        ),
    ],
)
def test_a_report_lists_only_the_keys_that_the_task_has(table, there, gone):
    own = read_settings(table).own_table()
    keys = {f"{name}.{key}" for name, part in own.items() if isinstance(part, dict) for key in part}
    assert there <= keys
    assert not gone & keys
    whole = read_settings(table).table()
    assert all(
        whole[name][key] == value for name, part in own.items() if isinstance(part, dict) for key, value in part.items()
    )


def test_what_nobody_set_is_left_open():
    def fit(**given):
        return leave_open(read_settings({"data": {"source": "a", "target": "b"}, "training": given})).training.fit

    assert fit(minutes=3) == OPEN
    assert fit(minutes=3, warmup=7) == ("steps", "validate_every")
    assert fit(minutes=3, steps=100) == ()
    assert fit() == ()
    run = {"training": {"minutes": 3.0, "steps": 9, "fit": [*OPEN]}}
    assert set_by_hand(run, {"minutes"})["training"]["fit"] == [*OPEN]
    assert set_by_hand(run, {"warmup"})["training"]["fit"] == ["steps", "validate_every"]
    assert set_by_hand(run, {"steps"})["training"]["fit"] == []
    with pytest.raises(ConfigError, match=r"training\.fit: \"step\" given"):
        read_settings({"training": {"minutes": 3, "fit": ["step"]}})
    with pytest.raises(ConfigError, match=r"training\.fit: given without training\.minutes"):
        read_settings({"training": {"fit": ["steps"]}})
