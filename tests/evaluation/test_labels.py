"""Scores of labels, against counts by hand."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ArgumentError
from regard.evaluation.labels import measure_labels

LABELS = ["a", "b", "c", "d"]


def by_hand(outputs, references, labels):
    """Return accuracy, then precision, recall and F1 of each label, then the mean F1, all counted in loops."""
    pairs = list(zip(outputs, references, strict=True))
    each = {}
    for label in labels:
        hits = sum(1 for out, ref in pairs if out == ref == label)
        said = sum(1 for out, _ in pairs if out == label)
        there = sum(1 for _, ref in pairs if ref == label)
        p, r = hits / said if said else 0.0, hits / there if there else 0.0
        each[label] = (p, r, 2 * p * r / (p + r) if p + r else 0.0)
    seen = [label for label in labels if any(label in pair for pair in pairs)]
    macro = sum(each[label][2] for label in seen) / len(seen) if seen else 0.0
    return sum(out == ref for out, ref in pairs) / len(pairs) if pairs else 0.0, each, macro


@given(st.lists(st.tuples(st.sampled_from(LABELS[:3]), st.sampled_from(LABELS[:3])), max_size=30))
def test_against_counting(pairs):
    outputs, references = [out for out, _ in pairs], [ref for _, ref in pairs]
    found = measure_labels(outputs, references, LABELS)
    accuracy, each, macro = by_hand(outputs, references, LABELS)
    assert found.accuracy == pytest.approx(accuracy)
    assert found.macro_f1 == pytest.approx(macro)
    for i, label in enumerate(LABELS):
        assert (found.precision[i], found.recall[i], found.f1[i]) == pytest.approx(each[label])
    for i, ref in enumerate(LABELS):
        for j, out in enumerate(LABELS):
            assert found.confusion[i, j] == pairs.count((out, ref))


def test_a_known_case():
    found = measure_labels(["a", "a", "b", "b", "b"], ["a", "b", "b", "b", "a"])
    assert found.labels == ("a", "b")
    np.testing.assert_array_equal(found.confusion, [[1, 1], [1, 2]])
    assert found.accuracy == 0.6
    assert found.macro_f1 == pytest.approx((0.5 + 2 / 3) / 2)
    table = found.table()
    assert json.loads(json.dumps(table)) == table
    assert table["labels"]["b"] == {
        "count": 3,
        "precision": pytest.approx(2 / 3),
        "recall": pytest.approx(2 / 3),
        "f1": pytest.approx(2 / 3),
    }
    assert (table["accuracy"], table["confusion"]) == (0.6, [[1, 1], [1, 2]])


@pytest.mark.parametrize(
    ("outputs", "references", "labels", "said"),
    [
        (["a"], [], None, "references: 0 given for 1 outputs"),
        (["x"], ["a"], LABELS, "outputs: 'x' given, expected one of a, b, c, d"),
        (["a"], ["x"], LABELS, "references: 'x' given"),
    ],
)
def test_mistakes(outputs, references, labels, said):
    with pytest.raises(ArgumentError, match=said):
        measure_labels(outputs, references, labels)
