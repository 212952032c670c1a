"""Old imports from `regard.studies` come from `regard_studies`, with one warning."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("line", "new"),
    [
        ("from regard.studies.page import Page, Plot, Table, Verdict, signed", "regard_studies.page"),
        ("from regard.studies import Study, STUDIES", "regard_studies"),
    ],
)
def test_studies_are_found_where_older_plugins_look(line, new):
    code = f"{line}\nprint([each for each in dir() if each[0] != '_'])"
    shown = subprocess.run([sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True)
    assert shown.stderr.count("DeprecationWarning") == 1
    assert f"is now {new}" in shown.stderr
