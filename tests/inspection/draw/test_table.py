"""Tables: which columns stand to the right."""

import pytest

from regard.inspection.draw.table import Table, is_number


@pytest.mark.parametrize("cell", [1, 2.5, None, "37.2", "37.2 ± 0.3", "−1.5 ± 0.7", "1,234", "98.2 ± 1.9 %", "–"])
def test_numbers(cell):
    assert is_number(cell)


@pytest.mark.parametrize("cell", ["", "LSTM", "n = 5", "1–10", "±", "3 of 5", "1.2.3"])
def test_words(cell):
    assert not is_number(cell)


def test_a_column_of_numbers_and_one_of_words():
    table = Table("t", ["a", "b", "c"], [["x", "1.0 ± 0.2", 3], ["y", "2.0", None]])
    assert table.numeric() == [False, True, True]
