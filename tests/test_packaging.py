"""The built package is what gets installed."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import regard

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_wheel_installs_and_runs(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)  # it may point to the source
    pip = [sys.executable, "-m", "pip", "--quiet"]
    pins = {"PIP_CONSTRAINT": "constraints.txt", "PIP_BUILD_CONSTRAINT": "constraints.txt"}  # for the build
    subprocess.run([*pip, "wheel", "--no-deps", "-w", tmp_path, "."], check=True, cwd=ROOT, env={**os.environ, **pins})
    (wheel,) = tmp_path.glob("regard-*.whl")
    assert wheel.name.startswith(f"regard-{regard.__version__}-")

    names = zipfile.ZipFile(wheel).namelist()
    assert "regard/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    packages = ("regard", "regard_studies", "regard_bench", "regard_corpora")
    tree = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*") if path.is_file()}
    source = {path for path in tree if "__pycache__" not in path}
    assert {path.partition("/")[0] for path in source} == set(packages)
    packed = {name for name in names if name.startswith(tuple(f"{each}/" for each in packages))}
    assert {name for name in packed if not name.startswith("regard/configs/")} == source
    assert "regard/serving/static/page.html" in source

    # Create an environment that borrows this one's dependencies but not its editable regard.
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    site = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    python = home / "bin" / "python"
    subprocess.run([*pip, "--python", python, "install", "--no-deps", "--no-index", wheel], check=True)
    shown = subprocess.check_output([home / "bin" / "regard", "--version"], text=True, cwd=tmp_path)
    assert shown == f"regard {regard.__version__}\n"
    where = subprocess.check_output([python, "-c", "import regard; print(regard.__file__)"], text=True, cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(site)

    # Check and train the configurations that the pages name, from an empty folder and without the source.
    empty = tmp_path / "empty"
    empty.mkdir()
    for config in sorted((ROOT / "configs").glob("*.toml")):
        assert (site / "regard" / "configs" / config.name).read_bytes() == config.read_bytes()
    command = [home / "bin" / "regard"]
    listed = subprocess.check_output([*command, "configs"], text=True, cwd=empty)
    for name in ("phrasebook", "multi30k"):
        assert f"\n{name} " in listed
        check = subprocess.check_output([*command, "train", f"configs/{name}.toml", "--check"], text=True, cwd=empty)
        assert check == "the configuration is valid\n"
    small = ["data.count=200", "training.steps=2", "model.preset=tiny", f"data.cache={empty / 'cache'}"]
    settings = [each for setting in small for each in ("--set", setting)]
    trained = [*command, "train", "configs/phrasebook.toml", "--out", "run", *settings]
    subprocess.run(trained, check=True, cwd=empty, timeout=120)
    corpora = subprocess.check_output([*command, "data", "--list"], text=True, cwd=empty)
    studies = subprocess.check_output([*command, "study", "--list"], text=True, cwd=empty)
    assert "phrasebook" in corpora
    assert "fixed-context" in studies
    assert subprocess.check_output([*command, "translate", "run"], input="I ate pizza .\n", text=True, cwd=empty)
    assert {path.name for path in empty.iterdir()} == {"cache", "run"}

    # Train and translate with the plugin page's code alone.
    desk = tmp_path / "desk"
    desk.mkdir()
    page = (ROOT / "docs" / "guide" / "plugins.md").read_text(encoding="utf-8")
    form = r"^```\{code-block\} python\n:caption: (\S+)\n\n(.*?)^```\n"
    plugins = []
    for name, code in re.findall(form, page, re.MULTILINE | re.DOTALL):
        (desk / name).write_text(code, encoding="utf-8")
        plugins += ["--plugin", name]
    chosen = ["task=noisy", "data.builtin=mirrors", "data.count=200", "model.kind=near", "model.size=16"]
    chosen += ["training.metric=length", "training.steps=2", "training.device=cpu", f"data.cache={desk / 'cache'}"]
    settings = [each for setting in chosen for each in ("--set", setting)]
    subprocess.run([*command, "train", "--out", "run", *settings, *plugins], check=True, cwd=desk, timeout=120)
    translate = [*command, "translate", "run", "--alignment"]
    assert subprocess.check_output([*translate, *plugins], input="a b\n", text=True, cwd=desk).count("\t") == 1
    refused = subprocess.run(translate, input="a b\n", capture_output=True, text=True, cwd=desk)
    assert refused.returncode == 2
    assert "it needs the plugins noisy.py and near.py and mirrors.py; give --plugin noisy.py" in refused.stderr
    (desk / "source").write_text("a b\n")
    files = ["--source", "source", "--reference", "source", "--metrics", "length"]
    assert "right length" in subprocess.check_output([*command, "eval", "run", *files, *plugins], text=True, cwd=desk)
    subprocess.run([*command, "look", "run", "a b", "--out", "look.html", *plugins], check=True, cwd=desk)
    subprocess.run([*command, "data", "mirrors", "--out", "data", *plugins], check=True, cwd=desk)
