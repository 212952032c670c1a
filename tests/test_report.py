"""Training's final message and its report: how it ended, and how to resume it."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import table, write_pairs

import regard
from regard import plugins, report
from regard.report import picture_of, train_and_report
from regard.run import load
from regard.tasks import Settings, read_settings


def test_a_run_is_trained_opened_and_reported(tmp_path, capsys):
    out = tmp_path / "run"
    run = regard.train(table(tmp_path, training__steps=4), out)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"regard train --resume {out} --steps 8" in page
    assert f"regard eval {out} --source A --reference B" in page
    assert f"regard translate {out} &quot;A SENTENCE&quot;" in page or f'regard translate {out} "A SENTENCE"' in page
    assert f"regard look {out}" in page
    assert torch.__version__ in page
    said = capsys.readouterr().err
    assert "finished after 4 steps; the best checkpoint is from step" in said
    assert f"report: {out / 'report.html'}" in said
    *_, ended, _, what_next, first, _, _ = said.splitlines()
    assert ended.startswith("finished after 4 steps")
    assert " GB of memory at most" in ended
    assert what_next == "what next:"
    assert first.split("  ")[1] == f'regard translate {out} "A SENTENCE"'
    assert run.step <= 4


def test_a_picture_is_not_worth_a_report(tmp_path, monkeypatch):
    def fail(run, task):
        raise regard.RegardError("no picture")

    monkeypatch.setattr(report, "picture_of", fail)
    train_and_report(table(tmp_path, training__steps=2), tmp_path / "run")
    assert (tmp_path / "run" / "report.html").is_file()


def test_without_an_example_there_is_no_picture():
    class Without:
        def example(self):
            return None

    assert picture_of(None, Without()) is None


SHORT = {"steps": 2, "validate_every": 2, "validate_rows": 2, "device": "cpu", "batch_tokens": 64}


def test_two_lists_become_a_run_that_resumes(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    source, target = (Path(path).read_text().splitlines() for path in write_pairs(tmp_path / "pairs"))
    out = tmp_path / "run"
    run = regard.train(source=source, target=target, out=out, preset="tiny", **SHORT)
    assert len(run.translate(["1 2 3"])) == 1
    assert (out / "data" / "source.txt").read_text().splitlines() == source
    again = regard.train(out=out, resume=True, steps=4)
    assert load(out, checkpoint="last").step == 4
    assert again.settings.data.source == str(out / "data" / "source.txt")


def test_two_files_are_left_where_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    source, target = write_pairs(tmp_path / "pairs")
    run = regard.train(source=source, target=target, out=tmp_path / "run", preset="tiny", **SHORT)
    assert run.settings.data.source == source
    assert not (tmp_path / "run" / "data").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": ["a"], "target": ["b"]}, "^out: missing"),
        ({"out": "run"}, "^source: missing, expected source=… and target=…"),
        ({"source": ["a", "b"], "target": ["c"], "out": "run"}, "^source: 2 texts given, but target has 1"),
        ({"source": ["a", "b\nc"], "target": ["c", "d"], "out": "run"}, "^source: item 1, counted from 0, has a line"),
        ({"source": ["a", 3], "target": ["c", "d"], "out": "run"}, "^source: item 1, counted from 0, is not a text"),
        ({"source": ["a"], "target": ["b"], "out": "run", "stepz": 3}, "^training.stepz: no such key"),
    ],
)
@pytest.mark.unchecked
def test_mistakes_leave_nothing_behind(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(regard.RegardError, match=message):
        regard.train(**options)
    assert list(tmp_path.iterdir()) == []


def test_resuming_is_the_first_thing_to_do_after_control_c(tmp_path):
    class Interrupted:
        result = report.Result(4, None, 0, "signal", 1.0)
        settings = read_settings(table(tmp_path))

    assert report.next_commands(tmp_path, Interrupted())[0][0] == f"regard train --resume {tmp_path}"
    assert report.describe_end(Interrupted.result).startswith("saved at step 4; it took 1 s")


def test_what_next_names_the_plugins_and_measures_as_the_task_that_it_is_like(tmp_path, monkeypatch):
    class Trained:
        result = report.Result(4, None, 0, "finished", 1.0)
        settings = read_settings(table(tmp_path))

    row = replace(Trained.settings.row, name="noisy")
    monkeypatch.setitem(plugins.LOADED, "my plugins/noisy.py", "noisy.py")
    monkeypatch.setattr(Settings, "row", property(lambda self: row))
    monkeypatch.setattr(Settings, "plugins", property(lambda self: ("noisy.py",)))
    use, evaluate, *_ = [command for command, _ in report.next_commands(tmp_path, Trained())]
    assert use == f"""regard translate {tmp_path} "A SENTENCE" --plugin 'my plugins/noisy.py'"""
    assert evaluate == f"regard eval {tmp_path} --source A --reference B --plugin 'my plugins/noisy.py'"


def test_commands_to_copy_are_quoted(tmp_path):
    """The folder's name contains spaces and quotes: each command has it as one word."""
    run = tmp_path / "my mother's run"
    report.train_and_report(table(tmp_path, training__steps=1), run, display="quiet")
    said = (run / "log.txt").read_text().splitlines()
    commands = [line[line.index("  regard ") :].strip().split("  ")[0] for line in said if "  regard " in line]
    assert len(commands) == 3
    for line in commands:
        assert str(run) in shlex.split(line), line
    with pytest.raises(regard.RegardError) as refused:
        report.train_and_report(table(tmp_path), run)
    assert str(run) in shlex.split(str(refused.value).partition("resume it with ")[2].partition(", or give")[0])
