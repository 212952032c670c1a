"""The papers' symbols: a table a kind, of patterns that can be read, and of marks that can be drawn."""

import re

import pytest

from regard.inspection.collect.symbols import GENERAL, SYMBOLS, VARIANTS
from regard.models import KINDS

ROWS = [*GENERAL, *(row for rows in SYMBOLS.values() for row in rows), *(row for *_, rows in VARIANTS for row in rows)]


def test_the_tables_are_of_kinds_and_of_options_that_they_have():
    assert {*SYMBOLS} <= {*KINDS}
    for kind, option, _, _ in VARIANTS:
        assert option in KINDS[kind].config.__dataclass_fields__ or hasattr(KINDS[kind].config, option)


@pytest.mark.parametrize(("pattern", "symbol"), ROWS)
def test_every_pattern_can_be_read_and_every_index_is_closed(pattern, symbol):
    re.compile(pattern)
    assert symbol.count("{") == symbol.count("}")
    assert not re.search(r"[_^]($|[ \])])", symbol)
    assert "ℓ" not in symbol.replace("(ℓ)", "").replace("h^{(ℓ−1)}_t", "")
