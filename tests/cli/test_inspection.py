"""The parts of `regard look`: options that do not go together, and runs that do not."""

import pytest

from regard.cli.inspection import FORMATS, check_alone, check_walk, open_both, print_graph, write_exhibits
from regard.errors import CommandError
from regard.inspection import Which


@pytest.fixture(scope="module")
def desk(furnish):
    return furnish(run="transformer", other="rnnsearch", reviews="han")


def test_a_graph_alone_takes_no_options_of_a_text():
    check_alone({"--walk": False, "--target": None})
    with pytest.raises(CommandError, match="^--target: --graph without a text draws only the model; add a text$"):
        check_alone({"--walk": False, "--target": "a text"})


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        (("html", False, 1, None, None), "--word"),
        (("html", False, None, "a view", None), "--view"),
        (("html", False, None, None, 1), "--head"),
        (("png", False, 1, None, None), "--word"),
        (("html", True, 0, None, None), "--word"),
        (("png", True, None, None, None), "--walk"),
    ],
)
def test_what_a_format_cannot_show_is_refused(given, flag):
    check_walk("html", True, 1, "a view", 1)
    check_walk("png", False, None, "a view", 1)
    with pytest.raises(CommandError, match=f"^{flag}: "):
        check_walk(*given)
    assert FORMATS[0] == "html"


def test_a_graph_is_drawn_and_its_place_printed(desk, tmp_path, capsys):
    print_graph(str(desk / "run"), "best", tmp_path / "a.svg", None)
    assert capsys.readouterr().out == f"{tmp_path / 'a.svg'}\n"
    assert "<svg" in (tmp_path / "a.svg").read_text(encoding="utf-8")


def test_two_runs_or_one_twice(desk, tmp_path, capsys):
    run = str(desk / "run")
    opened, other = open_both(run, str(desk / "other"), "best", "cpu", {})
    assert (opened.settings.kind, other.settings.kind) == ("transformer", "rnnsearch")
    opened, same = open_both(run, "another text", "best", "cpu", {})
    assert opened is same
    with pytest.raises(CommandError, match="^--against: .* has the task classify, but .* has translate$"):
        open_both(run, str(desk / "reviews"), "best", "cpu", {})
    shown = {"walk": False, "ablate": True, "graph": False}
    place = tmp_path / "a.html"
    write_exhibits(opened, ["1 2"], [(place, None)], Which(), {"target": "2 1"}, shown, (other, ["1 2"]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("log-probability")
    assert lines[-1] == str(place)
    assert "rnnsearch" in place.read_text(encoding="utf-8")
