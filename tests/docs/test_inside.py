"""The figures of `docs/inside/`: training is what it was, to the last bit."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

HOME = Path(__file__).parents[2] / "docs" / "inside"
BEFORE = json.loads((HOME / "before.json").read_text(encoding="utf-8"))
STEPS = 4
pytestmark = pytest.mark.unchecked  # the command line is used, and typer's own classes are not those it documents


@pytest.fixture(scope="module")
def measure():
    """The script, as a module."""
    spec = importlib.util.spec_from_file_location("measure", HOME / "measure.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", ["transformer", "rnnsearch", "han"])
def test_the_losses_are_those_of_before(measure, name):
    before = BEFORE["losses"][name]
    assert len(before) == len(set(before)) == 50
    found = measure.losses(name, STEPS)
    if BEFORE["losses"]["signature"] == measure.signature():
        assert found == before[:STEPS]
    numbers = [float.fromhex(each) for each in found]
    assert numbers == pytest.approx([float.fromhex(each) for each in before[:STEPS]], rel=1e-5)


def test_every_measure_was_taken_before(measure):
    assert set(BEFORE) == set(measure.MEASURES)


def test_the_tree_is_read(measure):
    found = measure.measure_tree()
    assert found["files"] > found["folders"] > 10
    assert found["median"] < found["longest"][1]
