"""The papers' symbols: a table a kind, of patterns that can be read."""

import re

import pytest

from regard.inspection.collect.symbols import SYMBOLS
from regard.models.kinds import KINDS


def test_the_table_is_of_kinds():
    assert {*SYMBOLS} <= {*KINDS}


@pytest.mark.parametrize("kind", SYMBOLS)
def test_every_pattern_can_be_read(kind):
    for pattern, _ in SYMBOLS[kind]:
        re.compile(pattern)
