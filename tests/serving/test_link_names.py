"""A link to a run folder, such as runs/current, is a model of the link's own name."""

from pathlib import Path

from regard.serving.models import parse_runs


def test_a_link_to_a_run_has_its_own_name(tmp_path, monkeypatch):
    """`runs/current` stays what requests name, wherever it leads."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path("runs", name).mkdir(parents=True)
        Path("runs", name, "config.toml").touch()
    Path("runs/current").symlink_to("a")
    assert parse_runs(["runs/current", "runs/../runs/b/"]) == {"current": ["runs/current"], "b": ["runs/../runs/b/"]}
