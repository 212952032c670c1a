"""`regard configs`, and `regard train` with the name of a configuration, from an empty folder."""

import subprocess
import sys
from pathlib import Path

import pytest
from cli.typing_in import Command

from regard.cli.commands.configs import find_config, shipped_configs
from regard.errors import CommandError

FILES = {path.stem: path for path in (Path(__file__).parents[3] / "configs").glob("*.toml")}
COMMAND = Command("configs")
typed, said, refused = COMMAND.typed, COMMAND.said, COMMAND.refused


@pytest.fixture
def empty(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_one_is_listed_with_a_whole_sentence(empty):
    assert shipped_configs() == FILES
    lines = typed().stdout.splitlines()
    listed = dict(line.split(maxsplit=1) for line in lines[: lines.index("")])
    assert listed.keys() == FILES.keys()
    assert list(listed) == sorted(listed)
    for name, what in listed.items():
        assert what.endswith((".", ")")), name


@pytest.mark.parametrize("name", ["phrasebook", "phrasebook.toml", "configs/phrasebook.toml"])
def test_one_is_printed_as_it_is(empty, name):
    assert typed(name).stdout_bytes == FILES["phrasebook"].read_bytes()


@pytest.mark.parametrize("name", FILES)
def test_every_one_is_found_from_anywhere(empty, name, capsys):
    for given in (Path(name), Path(f"{name}.toml"), Path("configs") / f"{name}.toml", Path(f"./configs/{name}.toml")):
        assert find_config(given) == FILES[name]
        missing = "no such file here; " if given.suffix else ""
        said = f"regard: {given}: {missing}using the configuration that comes with Regard, {FILES[name]}\n"
        assert capsys.readouterr().err == said
        shown = Command("train").typed(given, "--check")
        assert (shown.exit_code, shown.stdout) == (0, "the configuration is valid\n")


def test_what_is_there_comes_first(empty, capsys):
    (empty / "configs").mkdir()
    for path in (Path("configs/phrasebook.toml"), Path("phrasebook")):
        path.write_text('task = "translate"\n', encoding="utf-8")
        assert find_config(path) == path
    assert capsys.readouterr().err == ""
    assert find_config(Path("scenes")) == FILES["scenes"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "configs/phrasebok.toml",
            "no such file, expected a TOML configuration; did you mean phrasebook?",
        ),
        ("other/phrasebook.toml", "no such file, expected a TOML configuration; did you mean phrasebook?"),
        ("phrasebook.json", "no such file, expected a TOML configuration; did you mean phrasebook?"),
        ("x", "no such file, expected a TOML configuration; `regard configs` lists those that come with Regard"),
        ("configs/../x.toml", "no such file, expected a TOML configuration; `regard configs` lists"),
    ],
)
def test_a_wrong_name_is_answered(empty, given, said):
    with pytest.raises(CommandError) as error:
        find_config(Path(given))
    assert str(error.value).startswith(f"{given}: {said}")


def test_a_wrong_name_to_print(empty):
    assert refused("phrasebok") == "phrasebok: no such configuration; did you mean phrasebook?"
    assert refused("../phrasebook").startswith("../phrasebook: no such configuration")


def test_nothing_heavy_is_imported(empty):
    code = "import sys; from regard.cli.commands.configs import configs; configs();"
    code += " print({'torch', 'numpy'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert shown.stdout.endswith("\nset()\n")
