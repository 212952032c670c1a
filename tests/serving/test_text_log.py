"""Texts in the log: all fields but those that may hold a key."""

import logging

import pytest

from regard.serving.requests import log_texts


@pytest.mark.parametrize(
    "name", ["api_key", "API-Key", "apikey", "key", "X-Api-Key", "authorization", "token", "secret"]
)
def test_a_key_is_not_logged(name, caplog):
    with caplog.at_level(logging.INFO, logger="regard.serving"):
        log_texts("/translate", {"q": "a text", name: "one", "more": [{name: ["two"], "x": {name: {"y": "three"}}}]})
    assert "a text" in caplog.text
    assert caplog.text.count("(not logged)") == 3
    assert not any(each in caplog.text for each in ("one", "two", "three"))


def test_options_of_the_search_are_logged(caplog):
    with caplog.at_level(logging.INFO, logger="regard.serving"):
        log_texts("/v1/translate", {"texts": ["a"], "beam": 3, "longest": 7})
    assert '{"texts": ["a"], "beam": 3, "longest": 7}' in caplog.text


def test_what_is_nested_too_deeply_is_named(caplog):
    table: dict = {}
    for _ in range(5000):
        table = {"a": table}
    with caplog.at_level(logging.INFO, logger="regard.serving"):
        log_texts("/translate", table)
    assert "nested too deeply" in caplog.text
