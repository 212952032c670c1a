"""constraints.txt has one version of everything, for every Python and system that Regard supports."""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LINES = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
PINS = [Requirement(line) for line in LINES if not line.startswith("#")]
PYTHONS = [found[1] for name in PROJECT["classifiers"] if (found := re.search(r"Python :: (3\.\d+)$", name))]
# as markers and as uv name them; torch has no wheel for macOS before 14
SYSTEMS = {
    "linux": ("linux", "Linux", "x86_64", "x86_64-manylinux_2_28"),
    "linux-arm": ("linux", "Linux", "aarch64", "aarch64-manylinux_2_28"),
    "windows": ("win32", "Windows", "AMD64", "x86_64-pc-windows-msvc"),
    "macos": ("darwin", "Darwin", "arm64", "aarch64-apple-darwin"),
}
EVERYWHERE = list(itertools.product(PYTHONS, SYSTEMS))


def environment(python, system):
    patch = PROJECT["requires-python"].removeprefix(">=") if python == PYTHONS[0] else f"{python}.1"
    names = dict(zip(("sys_platform", "platform_system", "platform_machine"), SYSTEMS[system], strict=False))
    names["os_name"] = "nt" if system == "windows" else "posix"
    return {**default_environment(), **names, "python_version": python, "python_full_version": patch}


def applies(marker: Marker | None, where: dict) -> bool:
    return marker is None or marker.evaluate({**where, "extra": ""})


def required():
    """Return all requirements of pyproject.toml and of the build."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values(), build, ["editables"]]
    found = [Requirement(text) for texts in lists for text in texts]
    return [each for each in found if each.name != PROJECT["name"]]


def test_the_pythons_are_those_of_the_classifiers():
    assert PYTHONS == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == ">=3.11.5"


def test_each_line_is_an_exact_version_and_nothing_else():
    """pip accepts no extras, options, addresses or paths in a constraints file."""
    for pin in PINS:
        assert not pin.extras, pin
        assert not pin.url, pin
        assert [clause.operator for clause in pin.specifier] == ["=="], pin
        assert "*" not in str(pin.specifier), pin
        assert "+" not in str(pin.specifier), f"{pin}: a local version is in no registry"
        assert pin.name == canonicalize_name(pin.name), pin
    assert not any("://" in line or "/" in line.partition("#")[0] for line in LINES)


@pytest.mark.parametrize(("python", "system"), EVERYWHERE)
def test_every_requirement_has_one_pin(python, system):
    where = environment(python, system)
    pins = {}
    for pin in PINS:
        if applies(pin.marker, where):
            assert pin.name not in pins, f"{pin.name} has two versions"
            (clause,) = pin.specifier
            pins[pin.name] = Version(clause.version)
    for need in required():
        if applies(need.marker, where):
            name = canonicalize_name(need.name)
            assert name in pins, f"{need} has no pin with Python {python} on {system}: run `make constraints`"
            assert pins[name] in need.specifier, f"{need} is not what constraints.txt has: run `make constraints`"


@pytest.mark.parametrize("python", PYTHONS)
def test_triton_is_the_one_that_torch_of_the_registry_asks_for(python):
    """The pair is given by hand: the torch installed here may be a CPU build, which requires no Triton."""
    pairs = {"2.13.0": "3.7.1"}
    found = {pin.name: str(pin.specifier)[2:] for pin in PINS if applies(pin.marker, environment(python, "linux"))}
    assert found["triton"] == pairs[found["torch"]]
    assert "triton" not in {pin.name for pin in PINS if applies(pin.marker, environment(python, "windows"))}


def test_no_pin_belongs_to_one_build_of_torch():
    """Each build pins its versions of CUDA's libraries; a pin here would reject the other builds."""
    assert not [pin.name for pin in PINS if pin.name.startswith(("nvidia-", "cuda-"))]


def uv() -> str | None:
    beside = Path(sys.executable).with_name("uv.exe" if os.name == "nt" else "uv")
    return str(beside) if beside.exists() else shutil.which("uv")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("extras", ["none", "all"])
@pytest.mark.parametrize(("python", "system"), EVERYWHERE)
def test_the_pins_resolve_with_wheels_alone(python, system, extras, tmp_path):
    """Resolve as pip would on that machine, from the registry; install nothing."""
    if uv() is None:
        pytest.skip("uv is not installed")
    version = PROJECT["requires-python"].removeprefix(">=") if python == PYTHONS[0] else python
    command = [uv(), "pip", "compile", ROOT / "pyproject.toml", "--constraint", ROOT / "constraints.txt"]
    command += ["--python-version", version, "--python-platform", SYSTEMS[system][-1], "--only-binary", ":all:"]
    command += ["--all-extras"] if extras == "all" else []
    command += ["--no-header", "--no-annotate", "--output-file", tmp_path / "resolved.txt"]
    # uv resolves for a Python that need not be installed; a download would be another point of failure.
    settings = {"MACOSX_DEPLOYMENT_TARGET": "14.0", "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **settings}, check=False)
    if done.returncode and ("Could not connect" in done.stderr or "dns error" in done.stderr):
        pytest.skip("the registry cannot be reached")
    assert done.returncode == 0, done.stderr
    resolved = [Requirement(line) for line in (tmp_path / "resolved.txt").read_text().splitlines()]
    pins = {(pin.name, str(pin.specifier)) for pin in PINS}
    loose = {each.name for each in resolved if (each.name, str(each.specifier)) not in pins}
    assert {name for name in loose if not name.startswith(("nvidia-", "cuda-"))} == set()
    assert ("triton" in {each.name for each in resolved}) == system.startswith("linux")


@pytest.mark.slow
def test_what_builds_the_package_resolves(tmp_path):
    """`PIP_BUILD_CONSTRAINT` is this file as well."""
    if uv() is None:
        pytest.skip("uv is not installed")
    (tmp_path / "build.in").write_text("hatchling\neditables\n")
    command = [uv(), "pip", "compile", tmp_path / "build.in", "--constraint", ROOT / "constraints.txt", "--quiet"]
    command += ["--no-header", "--no-annotate", "--output-file", tmp_path / "resolved.txt"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    pins = {str(pin) for pin in PINS}
    assert set((tmp_path / "resolved.txt").read_text().splitlines()) <= pins
