"""The page of keys lists every key with its default and meaning from the code."""

import dataclasses
import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

from regard.data import CorpusSettings, DataSettings, TokenizerSettings
from regard.models import KINDS
from regard.serving import ServeSettings
from regard.training import TrainingSettings

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "guide" / "configuration.md").read_text()
CLASSES = {
    "data": DataSettings,
    "data.corpora": CorpusSettings,
    "tokenizer": TokenizerSettings,
    **{f"model.{name}": kind.config for name, kind in KINDS.items()},
    "training": TrainingSettings,
    "serve": ServeSettings,
}


def rows(name: str) -> dict[str, list[str]]:
    """Return the cells of the first table after a mark, as Markdown."""
    marked = PAGE.partition(f"<!-- keys: {name} -->\n\n")[2].partition("\n\n")[0]
    found = [re.split(r"(?<!\\)\|", line)[1:-1] for line in marked.splitlines()[2:]]
    return {cells[0].strip(" `"): [cell.strip() for cell in cells[1:]] for cells in found}


def test_page_is_the_one_that_would_be_written():
    spec = importlib.util.spec_from_file_location("keys", DOCS / "keys.py")
    keys = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(keys)
    assert keys.written(PAGE) == PAGE, "run: python docs/keys.py"


def test_every_table_is_there():
    assert re.findall(r"<!-- keys: (\S+) -->", PAGE) == list(CLASSES)


@pytest.mark.parametrize("name", CLASSES)
def test_every_key_has_its_default_and_meaning(name):
    """Each default, read back from the page, is the default of the code."""
    table = rows(name)
    fields = {field.name: field for field in dataclasses.fields(CLASSES[name])}
    assert list(table) == list(fields)
    for key, (takes, default, what) in table.items():
        value = tomllib.loads(f"value = {default.strip('`')}")["value"] if default else None
        expected = fields[key].default
        assert value == (list(expected) if isinstance(expected, tuple) else expected), key
        assert re.sub(r"\\(.)", r"\1", what).replace("`", "") == fields[key].metadata["help"].replace("`", "")
        assert takes


@pytest.mark.parametrize("kind", KINDS)
def test_every_preset_is_there(kind):
    section = PAGE.partition(f"<!-- keys: model.{kind} -->")[2].partition("<!-- end -->")[0]
    head, _, *body = section.partition("| preset |")[2].splitlines()
    keys = re.findall(r"`(\w+)`", head)
    for line in body:
        if not line:
            continue
        name, *cells = [cell.strip().strip("`") for cell in line.split("|")[1:-1]]
        said = {key: tomllib.loads(f"v = {cell}")["v"] for key, cell in zip(keys, cells, strict=True) if cell}
        assert said == KINDS[kind].presets[name]
    assert len([line for line in body if line]) == len(KINDS[kind].presets)
