"""Dates: against `datetime`'s reading of them."""

import datetime
import re

import pytest

from regard.data import generate
from regard_corpora.dates import FORMS, LIMITS


def listed(words):
    return words.split()


WRITTEN = {  # the formats that strptime reads, once digits are joined
    "british": "%d %B %Y",
    "american": "%B %d , %Y",
    "weekday": "%A , %d %B %Y",
    "dots": "%d . %m . %Y",
    "slashes": "%m / %d / %Y",
}
ORDINALS = listed(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth"
)


def ordinal(text):
    value = 0
    for word in text.split():
        value += {"twenty": 20, "thirty": 30, "thirtieth": 30}.get(word) or ORDINALS.index(word) + 1
    return value


def joined(text):
    return re.sub(r"(?<=\d) (?=\d)", "", text)


@pytest.mark.parametrize("form", WRITTEN)
def test_strptime_reads_the_same_date(form):
    for example in generate("dates", 150, form=form):
        date = datetime.datetime.strptime(joined(example.source), WRITTEN[form]).date()
        assert example.target.replace(" ", "") == date.isoformat()
        if form == "weekday":
            assert example.source.startswith(date.strftime("%A"))


@pytest.mark.parametrize(
    ("form", "pattern"), [("long", r"the (.+) of (\w+) (\d+)"), ("ordinal", r"(\w+) (.+) , (\d+)")]
)
def test_ordinals(form, pattern):
    for example in generate("dates", 150, form=form):
        one, two, year = re.fullmatch(pattern, joined(example.source)).groups()
        day, month = (one, two) if form == "long" else (two, one)
        date = datetime.datetime.strptime(f"{ordinal(day)} {month} {year}", "%d %B %Y").date()
        assert example.target.replace(" ", "") == date.isoformat()


def test_two_digits_of_a_year_mean_1950_to_2049():
    for example in generate("dates", 300, form="short", first=1950, last=2049):
        day, month, year = map(int, joined(example.source).split(" . "))
        iso = datetime.date(1900 + year if year >= 50 else 2000 + year, month, day).isoformat()
        assert example.target.replace(" ", "") == iso


def test_spoken_years_by_hand():
    spoken = {
        1900: "nineteen hundred",
        1905: "nineteen oh five",
        1998: "nineteen ninety eight",
        2000: "two thousand",
        2005: "two thousand and five",
        2010: "twenty ten",
        2031: "twenty thirty one",
        1117: "eleven seventeen",
    }
    for year, words in spoken.items():
        written = FORMS["spoken"](datetime.date(year, 2, 21))
        assert " ".join(word for word, _ in written) == f"the twenty first of February {words}"
        places = {place for _, all_of_it in written for place in all_of_it}
        assert places == set(range(8))


@pytest.mark.parametrize("form", FORMS)
def test_links_join_what_belongs_together(form):
    first, last = LIMITS.get(form, (1900, 2099))
    for example in generate("dates", 60, form=form, first=first, last=last):
        source, target = example.source.split(), example.target.split()
        linked = {}
        for i, j in example.alignment:
            assert target[j] != "-"
            linked.setdefault(j, set()).add(i)
            if source[i].isdecimal():
                assert source[i] == target[j]
        missing = [j for j, digit in enumerate(target) if digit != "-" and j not in linked]
        assert all(target[j] == "0" or (form == "short" and j < 2) for j in missing)  # an unwritten zero


def test_back_again():
    for example in generate("dates", 50, direction="from-iso"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", example.source.replace(" ", ""))
        assert re.fullmatch(r"the [a-z ]+ of [A-Z][a-z]+ \d{4}", joined(example.target))
    back = next(generate("dates", 1, direction="from-iso", form="american"))
    forth = {e.source: e.target for e in generate("dates", 346, form="american", first=2000, last=2000)}
    year = {
        e.target: e.source for e in generate("dates", 340, form="american", first=2000, last=2000, direction="from-iso")
    }
    assert "," in back.target
    assert sum(forth.get(source) == iso for source, iso in year.items()) > 300


def test_the_same_words_never_mean_two_dates():
    found = {}
    for example in generate("dates", 8_000):
        assert found.setdefault(example.source, example.target) == example.target
    assert len(set(found.values())) > 6_000


def test_each_form_comes_up():
    text = "\n".join(example.source for example in generate("dates", 500))
    for pattern in (r"^the .* of", r"day ,", r" / ", r"^\d( \d)? \. \d( \d)? \. \d \d$", r"oh|thousand|nineteen [a-z]"):
        assert re.search(pattern, text, re.M)
