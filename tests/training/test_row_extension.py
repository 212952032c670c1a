"""New rows are means of old ones, fillers are never written, and old rows stay as they are."""

from types import SimpleNamespace

import torch

from regard.training.row_extension import extend_rows


def test_every_table_and_nothing_else():
    torch.manual_seed(0)
    table, bias, other = torch.randn(6, 3), torch.randn(6), torch.randn(6, 3)
    side = SimpleNamespace(after=SimpleNamespace(size=8), pieces={5: [4], 6: [1, 4, 4]}, fillers=[7])
    new = extend_rows({"a": table, "b": bias, "c": other}, {"a": side, "b": side})
    assert new["c"] is other
    for name, old in (("a", table), ("b", bias)):
        assert torch.equal(new[name][:5], old[:5])  # the sixth was a filler
        assert torch.equal(new[name][5], old[4])
        assert torch.allclose(new[name][6], (old[1] + 2 * old[4]) / 3, atol=1e-7)
    assert torch.equal(new["a"][7], table[0])
    assert new["b"][7] == -1e4


def test_half_precision_is_added_in_full():
    table = torch.full((4, 1), 60_000.0, dtype=torch.float16)
    side = SimpleNamespace(after=SimpleNamespace(size=5), pieces={4: [0, 1, 2, 3]}, fillers=[])
    assert extend_rows({"a": table}, {"a": side})["a"][4] == table[0]
