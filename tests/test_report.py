"""Training with its last words and its report: how it ended, and how to resume it."""

import torch
from tiny import table

import regard
from regard import report
from regard.report import picture_of, train_and_report


def test_a_run_is_trained_opened_and_reported(tmp_path, capsys):
    out = tmp_path / "run"
    run = regard.train(table(tmp_path, training__steps=4), out)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"regard train --resume {out} --set training.steps=8" in page
    assert f"regard look {out}" in page
    assert torch.__version__ in page
    said = capsys.readouterr().err
    assert "finished after 4 steps; the best checkpoint is of step" in said
    assert f"report: {out / 'report.html'}" in said
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
