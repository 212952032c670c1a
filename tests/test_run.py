"""An opened run folder."""

import inspect

import pytest
import torch
from tiny import table

from regard.errors import ArgumentError, CheckpointError, ConfigError
from regard.run import Run, load
from regard.tasks import start


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    home = tmp_path_factory.mktemp("trained")
    return start(table(home, training__validate_every=2, training__keep=9), home / "run"), home / "run"


def test_save_then_load_is_the_original(trained):
    started, folder = trained
    run = load(folder, checkpoint="last")
    for name, parameter in started.task.model.named_parameters():
        assert torch.equal(dict(run.model.named_parameters())[name], parameter)
    texts = ["1 2 3", "", "9 9", "7"]
    started.task.model.eval()
    assert run.translate(texts, beam=1) == started.task.translate(texts)
    assert run.step == 8
    assert not run.model.training
    assert [run.translate([text])[0] for text in texts] == run.translate(texts)
    assert run.translate([]) == []
    assert run.translate(iter(texts)) == run.translate(texts)


def test_checkpoints_by_name(trained):
    _, folder = trained
    assert load(folder, checkpoint="step-000002").step == 2
    assert load(str(folder)).step in (2, 4, 6, 8)
    for wrong in ("step-000003", "worst"):
        with pytest.raises(CheckpointError, match=f"no checkpoint {wrong} in it"):
            load(folder, checkpoint=wrong)


def test_what_is_no_run(tmp_path):
    with pytest.raises(CheckpointError, match="not a run folder, it has no config.toml; regard runs lists run folders"):
        load(tmp_path)
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(CheckpointError, match="no checkpoint best in it"):
        load(tmp_path)


def test_alignments(trained):
    run = load(trained[1])
    aligned = run.align("1 2 3", "3 2 1 0")
    assert (aligned.source, aligned.target) == (["1", "2", "3"], ["3", "2", "1", "0"])
    assert aligned.weights.shape == (4, 3)
    torch.testing.assert_close(aligned.weights.sum(1), torch.ones(4))
    for wrong in (("", "1"), ("1", "")):
        with pytest.raises(ArgumentError, match="an empty text given"):
            run.align(*wrong)


@pytest.mark.unchecked
def test_one_text_is_not_a_list(trained):
    with pytest.raises(ArgumentError, match="one text given, expected a list"):
        load(trained[1]).translate("1 2 3")


def test_a_wrong_key_names_the_file(trained, tmp_path):
    import shutil

    shutil.copytree(trained[1], tmp_path / "run", symlinks=True)
    path = tmp_path / "run/config.toml"
    path.write_text(path.read_text().replace("steps =", "stepss ="))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "run")
    assert str(caught.value).startswith(f"{path}: training.stepss: no such key")


def test_a_model_without_attention_has_nothing_to_align(tmp_path):
    start(table(tmp_path, "rnn", training__steps=1), tmp_path / "run")
    with pytest.raises(ArgumentError, match="a model of kind rnn has no attention to its source"):
        load(tmp_path / "run").align("1", "1")


@pytest.mark.parametrize("joint", [True, False])
def test_a_language_model(tmp_path, joint):
    given = table(tmp_path, training__steps=2, tokenizer={"kind": "word", "joint": joint}, task="language-model")
    source = tmp_path / "source.txt"
    source.write_text("x\n" * 200)  # fewer words than the other side
    given["data"]["source"] = str(source)
    given["model"] = {"kind": "encoder", "size": 16, "heads": 2, "layers": 1, "hidden": 16}
    started = start(given, tmp_path / "run")
    assert started.result.best is not None
    with pytest.raises(ArgumentError, match="its task is language-model, expected translate"):
        load(tmp_path / "run").translate(["1"])


def test_a_run_says_what_it_is(trained):
    run = load(trained[1], checkpoint="last")
    count = sum(parameter.numel() for parameter in run.model.parameters())
    assert repr(run) == f"Run('{trained[1]}': translate, transformer, {count:,} parameters, step 8, cpu)"


NAMES = """align alignment_settings can caption captions classify device engine evaluate folder force labels links model
require sample score sentence_share set_languages settings step stream task tokenizers translate unknown"""


def test_the_names_of_a_run_are_few_and_there(trained):
    run = load(trained[1])
    names = [name for name in dir(run) if not name.startswith("_")]
    assert names == NAMES.split()
    assert [name for name in names if not hasattr(run, name)] == []
    attributes = {name for name in names if not hasattr(Run, name)}
    assert {f"`{name}`" for name in attributes} <= set(Run.__doc__.split()), "the class says what its attributes are"
    assert [name for name in names if name not in attributes and not inspect.getdoc(getattr(Run, name))] == []
