"""The table of studies: every row names its functions, and a user's own row runs like them."""

import inspect
import subprocess
import sys

import pytest

from regard import plugins
from regard_studies import STUDIES, Setting, Study, run


@pytest.mark.parametrize("name", STUDIES)
def test_every_row_leads_to_its_functions(name):
    study = STUDIES[name]
    assert study.run.split(".")[1] == name.replace("-", "_")  # the file that a reader would expect
    parameters = inspect.signature(plugins.resolve(study.run)).parameters
    assert list(parameters) == (["setting"] if study.trained else ["seed", "quick"])
    if study.training is not None:
        assert list(inspect.signature(plugins.resolve(study.training)).parameters) == ["setting"]


def test_a_row_of_ones_own(monkeypatch):
    monkeypatch.setitem(STUDIES, "plain", Study("a claim", lambda seed, quick: (seed, quick)))
    monkeypatch.setitem(STUDIES, "taught", Study("a claim", lambda setting: setting, trained=True))
    assert run("plain", seed=3, quick=True) == (3, True)
    assert run("taught", seed=3, quick=True) == Setting(seeds=(3,), quick=True)
    assert run("taught", setting=Setting(seeds=(1, 2))).seeds == (1, 2)


def test_the_table_is_read_without_torch():
    code = "import sys, regard_studies; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
