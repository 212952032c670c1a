"""Doors: names load from their modules on first use, and old paths forward."""

import importlib
import sys
import warnings

import pytest

MODULES = {
    "shop/__init__.py": """
from typing import TYPE_CHECKING
from regard.door import door
if TYPE_CHECKING:
    from shop import till as checkout
    from shop.fruit import (
        Apple,
        price,
    )
    from shop.tools import scales
__all__ = ["Apple", "checkout", "price", "scales"]
__getattr__, __dir__ = door(__name__)
""",
    "shop/till.py": "",
    "shop/fruit.py": "LOADED = True\nclass Apple: pass\ndef price(): return 3\n",
    "shop/tools/__init__.py": "",
    "shop/tools/scales.py": "def weigh(): return 2\n",
    "old.py": "from regard.door import forward\n__getattr__ = forward('old', 'shop.fruit')\n",
}


@pytest.fixture
def shop(tmp_path, monkeypatch):
    for path, text in MODULES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("shop")
    for name in [each for each in sys.modules if each.split(".")[0] in ("shop", "old")]:
        del sys.modules[name]


def test_a_name_is_loaded_when_it_is_used(shop):
    assert dir(shop) == ["Apple", "checkout", "price", "scales"]
    assert "shop.fruit" not in sys.modules
    assert shop.price() == 3
    assert vars(shop)["price"] is sys.modules["shop.fruit"].price, "the second use asks nobody"
    assert "shop.tools.scales" not in sys.modules
    assert shop.scales.weigh() == 2
    assert shop.scales is sys.modules["shop.tools.scales"]
    assert shop.checkout is sys.modules["shop.till"]


def test_an_unknown_name_is_an_error_that_names_the_package(shop):
    with pytest.raises(AttributeError, match="module 'shop' has no attribute 'Pear'"):
        shop.Pear  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'LOADED' from 'shop'"):
        exec("from shop import LOADED")  # from its module, not from its door


def test_an_old_path_forwards_with_one_warning(shop):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from old import Apple, price
    assert Apple is shop.Apple
    assert price is shop.price
    assert [str(each.message) for each in caught] == ["old is now shop.fruit: import Apple from there"]
    assert caught[0].category is DeprecationWarning
    assert caught[0].filename == __file__


PATHS = {  # paths that plugins import, with the names from each
    "regard.config": "option parse read show_value suggestion",
    "regard.attention.score": "Additive Cosine Dot General Location Score",
    "regard.attention.span": "Alibi Causal Lengths Mask Monotonic Packed Predictive Span",
    "regard.attention.weighting": "Gumbel Hard Plain Softmax Sparsemax Weighting",
    "regard.attention.positions": "Embedded Rotary Sinusoidal",
    "regard.attention.grid": "GridAttention GridSelfAttention",
    "regard.attention.cache": "Cache Prepared",
    "regard.models.contract": "Documents Memory Model Pictures State",
    "regard.models.kinds": "KINDS Kind build",
    "regard.models.config": "ModelConfig",
    "regard.training.task": "Loss Task",
    "regard.training.loop": "train",
    "regard.training.settings": "TrainingSettings",
    "regard.tasks.table": "TASKS TaskRow",
    "regard.tasks.translate": "Translate",
    "regard.evaluation.metric": "METRICS Measurement Metric signature_of",
    "regard.data.builtin": "BuiltIn CORPORA Example generate",
    "regard.data.tokenizer": "UNKNOWN Tokenizer Tokenizers",
    "regard.inspection.draw": "plot",
}


@pytest.mark.parametrize("path", PATHS)
def test_the_paths_that_plugins_use_stay(path):
    module = importlib.import_module(path)
    for name in PATHS[path].split():
        exec(f"from {path} import {name}")
    assert module.__name__ == path
