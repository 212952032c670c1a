"""Alignment error rate against sums by hand, files with mistakes, and properties of any links."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ArgumentError, DataError
from regard.evaluation.alignment import Gold, check_links, measure_links, parse_links, read_links

LINKS = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)))
GOLD = st.builds(Gold, LINKS, LINKS)


def values(found, gold):
    return {key: each.score().value for key, each in measure_links(found, gold).items()}


def test_worked_by_hand():
    """Two sentences: A = 4 links and S = 3; two of A are sure, and one more is possible."""
    gold = [parse_links("0-0 1-1 2?1"), parse_links("0-1 0?0")]
    found = [[(0, 0), (2, 1), (2, 2)], [(0, 1)]]
    assert values(found, gold) == {
        "aer": pytest.approx(1 - (2 + 3) / (4 + 3)),
        "precision": pytest.approx(3 / 4),
        "recall": pytest.approx(2 / 3),
        "f1": pytest.approx(2 * (3 / 4) * (2 / 3) / (3 / 4 + 2 / 3)),
    }


def test_what_is_counted_is_the_corpus_and_not_the_mean_of_sentences():
    gold = [parse_links("0-0"), parse_links("0-0 1-1 2-2")]
    assert values([[(0, 0)], []], gold)["aer"] == pytest.approx(1 - 2 / 5)


def test_nothing_against_nothing():
    empty, one = Gold(frozenset(), frozenset()), parse_links("0-0")
    assert values([[]], [empty]) == {"aer": 0.0, "precision": 1.0, "recall": 1.0, "f1": 1.0}
    assert values([[]], [one]) == {"aer": 1.0, "precision": 1.0, "recall": 0.0, "f1": 0.0}
    assert values([[(0, 0)]], [empty]) == {"aer": 1.0, "precision": 0.0, "recall": 1.0, "f1": 0.0}


@given(st.lists(st.tuples(LINKS, GOLD), min_size=1, max_size=4))
def test_the_definition_holds(sentences):
    """Compare with the formulas over links that carry their sentence's number."""
    said = {(number, *link) for number, (links, _) in enumerate(sentences) for link in links}
    sure = {(number, *link) for number, (_, gold) in enumerate(sentences) for link in gold.sure}
    possible = {(number, *link) for number, (_, gold) in enumerate(sentences) for link in gold.possible}
    found = values([links for links, _ in sentences], [gold for _, gold in sentences])
    if said or sure:
        expected = 1 - (len(said & sure) + len(said & possible)) / (len(said) + len(sure))
        assert found["aer"] == pytest.approx(expected)
    if said:
        assert found["precision"] == pytest.approx(len(said & possible) / len(said))
    if sure:
        assert found["recall"] == pytest.approx(len(said & sure) / len(sure))
    assert all(-1e-12 <= value <= 1 for value in found.values())


@given(st.lists(GOLD, min_size=1, max_size=4))
def test_sure_links_have_no_error_and_possible_ones_cost_none(gold):
    assert values([each.sure for each in gold], gold)["aer"] == pytest.approx(0)
    assert values([each.possible for each in gold], gold)["aer"] == pytest.approx(0)


@given(st.lists(st.tuples(LINKS, LINKS), min_size=1, max_size=4))
def test_where_all_is_sure_the_error_is_what_f1_lacks(sentences):
    gold = [Gold(sure, frozenset()) for _, sure in sentences]
    found = values([links for links, _ in sentences], gold)
    if any(links for links, _ in sentences) and any(sure for _, sure in sentences):
        assert found["aer"] == pytest.approx(1 - found["f1"])


def test_a_line():
    assert parse_links("") == Gold(frozenset(), frozenset())
    both = parse_links(" 0-1 12?3  4p5 0-1 ")
    assert both.sure == {(0, 1)}
    assert both.possible == {(0, 1), (12, 3), (4, 5)}
    assert parse_links("1-2 3?1", first=1) == Gold(frozenset({(0, 1)}), frozenset({(2, 0)}))


@pytest.mark.parametrize("wrong", ["3", "3-", "-1-2", "1–2", "1-2-3", "a-b", "1 -2", "1.0-2", "²-1", "1x2", "0-0,1-1"])
def test_what_is_no_link(wrong):
    with pytest.raises(DataError, match="expected source-target, such as 3-4"):
        parse_links(f"0-0 {wrong}")


def test_a_file(tmp_path):
    path = tmp_path / "gold.txt"
    path.write_bytes(b"\xef\xbb\xbf0-0\r\n\r\n1?1 0-0\n")
    assert [sorted(each.possible) for each in read_links(path)] == [[(0, 0)], [], [(0, 0), (1, 1)]]
    packed = tmp_path / "gold.gz"
    packed.write_bytes(gzip.compress(b"1-1\n"))
    assert [sorted(each.sure) for each in read_links(packed, first=1)] == [[(0, 0)]]


@pytest.mark.parametrize(
    ("content", "first", "message"),
    [
        ("0-0\n1-1 2=2\n3\n", 0, "links, line 2: '2=2' given, expected source-target"),
        ("1-1\n\n1-0\n0-1\n", 1, "links, line 3: '1-0' given, expected words that are counted from 1"),
        ("\n1-0\n", 1, "links, line 2: '1-0' given, expected words that are counted from 1"),
        ("", 0, "links: empty, expected links such as 0-0 1-2, one line per sentence"),
    ],
)
def test_mistakes_are_named_by_file_and_line(tmp_path, content, first, message):
    (tmp_path / "links").write_text(content)
    with pytest.raises(DataError) as caught:
        read_links(tmp_path / "links", first=first)
    assert str(caught.value).removeprefix(f"{tmp_path}/").startswith(message)


def test_one_odd_link_is_left_out_and_said(tmp_path):
    for odd in ("2=2", "1-", "9" * 5_000 + "-1", "x"):
        (tmp_path / "links").write_text(f"0-0\n1-1 {odd} 2?0\n0-1\n")
        said = []
        found = read_links(tmp_path / "links", say=said.append)
        assert [sorted(each.possible) for each in found] == [[(0, 0)], [(1, 1), (2, 0)], [(0, 1)]]
        assert said[0].startswith(f"{tmp_path / 'links'}, line 2: '{odd[:30]}")
        assert said[0].endswith("for a possible link; it is skipped")
        assert len(said[0]) < 300


def test_links_to_words_that_are_not_there():
    gold = [parse_links("0-0"), parse_links("1?2"), parse_links("1-2")]
    assert check_links("gold", gold, ["a", "a b", "a b"], ["x", "x y z", "x y z"]) == []
    with pytest.raises(DataError, match="gold, line 2: 1-2 given, but the target has 2 words there, counted from 0"):
        check_links("gold", gold, ["a", "a b", "a b"], ["x", "x y", "x y"])
    with pytest.raises(DataError, match="gold, line 2: 1-2 given, but the source has 1 word there"):
        check_links("gold", gold, ["a", "a", "a"], ["x", "x y z", "x y z"])
    (said,) = check_links("gold", gold, ["a", "a b", "a b"], ["x", "x y", "x y z"])
    assert said.startswith("gold, line 2: 1-2 given, but the target has 2 words there")
    gold = gold[:2]
    with pytest.raises(DataError, match="gold has 2 lines and the text has 1"):
        check_links("gold", gold, ["a"], ["x"])


def test_a_slip_among_many_lines_is_said_and_missed():
    gold = [parse_links("0-0")] * 99 + [parse_links("0-0 0-7")]
    texts = ["a"] * 100
    (said,) = check_links("gold", gold, texts, texts)
    assert said.startswith("gold, line 100: 0-7 given, but the target has 1 word there")
    assert said.endswith("it counts as a link that was missed")
    scores = measure_links([[(0, 0)]] * 100, gold)
    assert scores["recall"].score().value == pytest.approx(100 / 101)
    with pytest.raises(DataError, match="line 97: 0-7 given"):
        check_links("gold", gold[:96] + [gold[-1]] * 4, texts, texts)


def test_as_many_sentences():
    with pytest.raises(ArgumentError, match="links of 1 sentences given, expected those of 2"):
        measure_links([[]], [parse_links("0-0")] * 2)
