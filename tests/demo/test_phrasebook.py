"""`regard demo`: its configuration, and the folder that it may replace; in full, what it reaches."""

import pytest

from regard.demo import phrasebook
from regard.errors import CommandError
from regard.tasks.settings import read_settings


@pytest.mark.parametrize("steps", [1, 7, phrasebook.STEPS])
def test_its_configuration_is_one(steps):
    settings = read_settings(phrasebook.settings(steps, seed=4))
    assert settings.training.steps == steps
    assert settings.training.seed == 5
    assert settings.training.metric == "exact"
    assert settings.data.builtin == "phrasebook"


def test_an_earlier_demonstration_makes_room(tmp_path):
    out = tmp_path / "demo"
    phrasebook.remove_earlier(out)
    out.mkdir()
    phrasebook.remove_earlier(out)  # an empty folder may be anybody's
    assert out.is_dir()
    (out / phrasebook.MARK).touch()
    (out / "report.html").write_text("old")
    phrasebook.remove_earlier(out)
    assert not out.exists()


def test_anything_else_stays(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(CommandError, match="holds something else than an earlier demonstration; give another --out"):
        phrasebook.remove_earlier(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_demo_reaches_nine_in_ten(tmp_path, monkeypatch):
    """What the README says of `make demo`."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    shown = phrasebook.demonstrate(tmp_path / "demo", steps=phrasebook.STEPS)
    assert shown.exact >= 0.9
