"""Built-in corpora in place of files."""

import os

import pytest
from data.cases import texts

from regard.data.preparation import prepare
from regard.data.settings import DataSettings
from regard.errors import ConfigError


def test_a_builtin_corpus(tmp_path):
    said = []
    data = DataSettings(builtin="phrasebook", pair="en-fr", count=300, cache=str(tmp_path))
    prepared = prepare(data, say=said.append)
    assert (len(prepared.train), len(prepared.valid)) == (300, 3)
    assert said == ["300 pairs; 3 for validation"]
    assert not set(prepared.valid_pairs) & set(texts(prepared, prepared.train))
    assert not [path for path in tmp_path.rglob("*") if "drawn" in path.name]
    prepare(data, say=said.append)
    assert said[1] == said[0] + ", from the cache"
    other = DataSettings(builtin="phrasebook", pair="en-fr", count=300, builtin_seed=1, cache=str(tmp_path))
    assert prepare(other).hash != prepared.hash


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"builtin": "phrasbook"}, 'builtin: "phrasbook" given; did you mean .phrasebook'),
        ({"builtin": "phrasebook", "pair": "en-xx"}, "pair: .en-xx. given"),
        ({"builtin": "phrasebook", "builtin_options": ("langest=3",)}, "builtin_options: .*no option 'langest'"),
        ({}, "source: missing"),
    ],
)
def test_impossible_settings_are_refused_at_once(change, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        prepare(DataSettings(**change, cache=str(tmp_path)))
    assert os.listdir(tmp_path) == []
