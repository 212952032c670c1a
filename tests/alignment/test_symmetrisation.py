"""Joining two directions: against the papers' loops over tables, and against properties that hold for any links."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.alignment.symmetrisation import METHODS, flip_links, symmetrise
from regard.errors import ArgumentError

# ---- joining two directions: against the papers' loops over tables, and against properties that hold for any links


SIZE = 5
LINKS = st.frozensets(st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)), max_size=9)


def loops(forward, backward, method):
    """Run the algorithm as printed: tables, every word of both sides, repeated until nothing is added."""
    table = [[(f, e) in forward and (f, e) in backward for f in range(SIZE)] for e in range(SIZE)]
    neighbours = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]

    def e_aligned(e):
        return any(table[e])

    def f_aligned(f):
        return any(row[f] for row in table)

    added = True
    while added:
        added = False
        for e in range(SIZE):
            for f in range(SIZE):
                if not table[e][f]:
                    continue
                for de, df in neighbours:
                    e_new, f_new = e + de, f + df
                    if not (0 <= e_new < SIZE and 0 <= f_new < SIZE) or table[e_new][f_new]:
                        continue
                    if (f_new, e_new) not in forward | backward:
                        continue
                    if not e_aligned(e_new) or not f_aligned(f_new):
                        table[e_new][f_new] = added = True
    if method != "grow-diag":
        for links in (forward, backward):
            for e in range(SIZE):
                for f in range(SIZE):
                    free = [not e_aligned(e), not f_aligned(f)]
                    if (f, e) in links and (all(free) if method.endswith("and") else any(free)):
                        table[e][f] = True
    return {(f, e) for e in range(SIZE) for f in range(SIZE) if table[e][f]}


@pytest.mark.parametrize("method", ["grow-diag", "grow-diag-final", "grow-diag-final-and"])
@given(LINKS, LINKS)
def test_growing_is_the_loops(method, forward, backward):
    assert set(symmetrise(forward, backward, method)) == loops(forward, backward, method)


def test_worked_by_hand():
    """Both directions have 0-0, with 0-1 and 1-1 adjacent; neither 3-3 nor 4-3 is adjacent to a link of both."""
    forward, backward = [(0, 0), (1, 1), (3, 3)], [(0, 0), (0, 1), (4, 3)]
    assert symmetrise(forward, backward, "intersection") == [(0, 0)]
    assert symmetrise(forward, backward, "union") == [(0, 0), (0, 1), (1, 1), (3, 3), (4, 3)]
    # 0-1 comes before 1-1 in the order of neighbours: it gives target word 1 its first link, and 1-1 source word 1.
    assert symmetrise(forward, backward, "grow-diag") == [(0, 0), (0, 1), (1, 1)]
    assert symmetrise(forward, backward, "grow-diag-final") == [(0, 0), (0, 1), (1, 1), (3, 3), (4, 3)]
    assert symmetrise(forward, backward, "grow-diag-final-and") == [(0, 0), (0, 1), (1, 1), (3, 3)]


@given(LINKS, LINKS)
def test_growing_stays_between_intersection_and_union(forward, backward):
    found = {method: set(symmetrise(forward, backward, method)) for method in METHODS}
    assert found["intersection"] == forward & backward
    assert found["union"] == forward | backward
    assert found["intersection"] <= found["grow-diag"]
    for final in ("grow-diag-final", "grow-diag-final-and"):
        assert found["grow-diag"] <= found[final] <= found["union"]
    for side in (0, 1):  # after the final step every word that had a link still has one
        assert {link[side] for link in found["grow-diag-final"]} == {link[side] for link in found["union"]}


@given(LINKS)
def test_what_both_say_alike_stays(links):
    for method in METHODS:
        assert set(symmetrise(links, links, method)) == links
    assert set(flip_links(flip_links(links))) == links


def test_no_such_method():
    with pytest.raises(ArgumentError, match="method: 'grow' given, expected one of intersection, union, grow-diag"):
        symmetrise([], [], "grow")
