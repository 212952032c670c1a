"""What is built is what is installed."""

import os
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
def test_the_wheel_installs_and_runs(tmp_path):
    pip = [sys.executable, "-m", "pip", "--quiet"]
    pins = {"PIP_CONSTRAINT": "constraints.txt", "PIP_BUILD_CONSTRAINT": "constraints.txt"}  # of what builds it
    subprocess.run([*pip, "wheel", "--no-deps", "-w", tmp_path, "."], check=True, cwd=ROOT, env={**os.environ, **pins})
    (wheel,) = tmp_path.glob("regard-*.whl")
    assert wheel.name.startswith(f"regard-{regard.__version__}-")

    names = zipfile.ZipFile(wheel).namelist()
    assert "regard/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    source = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "regard").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == source

    # A fresh environment, that borrows the dependencies of this one but not its editable regard.
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
