"""`regard study` from the command line."""

import json
import os
import shlex
import subprocess
import sys

import child
import pytest

from regard_studies import STUDIES


def regard(*arguments, cwd):
    return child.regard(*arguments, before=lambda: os.chdir(cwd))


def test_a_study_prints_its_table_and_says_where_the_page_is(tmp_path):
    done = regard("study", "positions", "--quick", "--untrained", "--seed", "5", cwd=tmp_path)
    assert done.status == 0, done.stderr
    assert "heads + causal mask" in done.stdout
    assert "agrees  " in done.stdout
    assert "seed 5 · quick" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr.strip() == "page: studies/positions/index.html"
    results = json.loads((tmp_path / "studies/positions/results.json").read_text())
    assert results["signature"]["seed"] == 5


def test_the_list_names_every_study(tmp_path):
    done = regard("study", "--list", cwd=tmp_path)
    assert done.status == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(STUDIES)


THERE_ARE = f"there are {', '.join(STUDIES)}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("gradeint", f"there is no study 'gradeint'; did you mean 'gradient'? ({THERE_ARE})"),
        ("xyz", f"there is no study 'xyz' ({THERE_ARE})"),
        ("", f"which study? give one of {', '.join(STUDIES)}; --list describes them"),
        ("fixed-context --data nowhere", "--data: nowhere is not a folder"),
        ("fixed-context --quick --data .", "--data: --quick uses the built-in corpora; leave out one of them"),
        ("heads --untrained", "--untrained: heads measures nothing without training; leave it out"),
        ("fixed-context --seeds 1,x", "--seeds: '1,x' given, expected numbers of at most 2147483647, such as 0,1,2"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, said, tmp_path):
    done = regard("study", *shlex.split(arguments), cwd=tmp_path)
    assert (done.status, done.stdout, done.stderr) == (2, "", f"regard: {said}\n")


def test_a_page_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "taken").write_text("")
    done = regard("study", "positions", "--quick", "--untrained", "--out", "taken", cwd=tmp_path)
    assert done.status == 2
    assert "taken" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_does_not_load_torch(tmp_path):
    code = "import sys, regard.cli.commands.study, regard.cli.commands.demo, regard_studies;"
    code += " sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path).returncode == 0
    done = regard("study", "--help", cwd=tmp_path)
    assert done.status == 0
    assert "--quick" in done.stdout
