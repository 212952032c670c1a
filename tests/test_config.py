"""Configuration: an error names the path of every mistake."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from regard.config import assign, option, parse, plain, read
from regard.errors import ConfigError
from regard.models.config import RNNConfig

pytestmark = pytest.mark.unchecked


@dataclass(frozen=True)
class Inner:
    name: str = option("x", "a name")
    many: tuple[int, ...] = option((), "numbers", least=0)


@dataclass(frozen=True)
class Outer:
    count: int = option(help="needed", least=1, most=9)
    share: float = option(0.5, above=0, below=1)
    kind: Literal["a", "b", 3] = option("a")
    either: int | Literal["auto"] | None = option(None, least=2)
    flag: bool = option(False)
    inner: Inner = field(default_factory=Inner)
    parts: tuple[Inner, ...] = option(())

    def __post_init__(self):
        if self.flag and self.count == 1:
            raise ConfigError("flag", "not with count = 1")


WRONG = [
    ({}, "top.count: missing, expected a whole number"),
    ({"count": 0}, "top.count: 0 given, expected at least 1"),
    ({"count": 10}, "top.count: 10 given, expected at most 9"),
    ({"count": True}, "top.count: true given, expected a whole number"),
    ({"count": 2.0}, "top.count: 2.0 given, expected a whole number"),
    ({"count": "2"}, 'top.count: "2" given, expected a whole number'),
    ({"count": 1, "share": 1}, "top.share: 1.0 given, expected less than 1"),
    ({"count": 1, "share": 0}, "top.share: 0.0 given, expected more than 0"),
    ({"count": 1, "share": float("nan")}, "top.share: nan given, expected a finite number"),
    ({"count": 1, "kind": "c"}, 'top.kind: "c" given, expected "a", "b" or 3'),
    ({"count": 1, "kind": 3.0}, 'top.kind: 3.0 given, expected "a", "b" or 3'),
    ({"count": 1, "either": 1}, "top.either: 1 given, expected at least 2"),
    ({"count": 1, "either": "aut"}, 'top.either: "aut" given, expected a whole number or "auto"'),
    ({"count": 1, "either": True}, 'top.either: true given, expected a whole number or "auto"'),
    ({"count": 1, "flag": 1}, "top.flag: 1 given, expected true or false"),
    ({"count": 1, "flag": True}, "top.flag: not with count = 1"),
    ({"count": 1, "inner": 3}, "top.inner: 3 given, expected a table"),
    ({"count": 1, "inner": {"nmae": "y"}}, "top.inner.nmae: no such key; did you mean 'name'?"),
    ({"count": 1, "inner": {"many": 3}}, "top.inner.many: 3 given, expected a list"),
    ({"count": 1, "inner": {"many": [1, -1]}}, "top.inner.many[1]: -1 given, expected at least 0"),
    ({"count": 1, "parts": [{}, {"name": 1}]}, "top.parts[1].name: 1 given, expected a text"),
    ([], "top: [] given, expected a table"),
]


@pytest.mark.parametrize(("table", "said"), WRONG, ids=[said.partition(" given")[0] for _, said in WRONG])
def test_mistakes(table, said):
    with pytest.raises(ConfigError) as caught:
        parse(Outer, table, "top")
    assert str(caught.value).startswith(said)


def test_a_long_value_is_cut_short():
    with pytest.raises(ConfigError) as caught:
        parse(Outer, {"count": "x" * 1000})
    assert len(str(caught.value)) < 150


TABLES = st.fixed_dictionaries(
    {"count": st.integers(2, 9)},
    optional={
        "share": st.floats(0.01, 0.99),
        "kind": st.sampled_from(["a", "b", 3]),
        "either": st.integers(2, 99) | st.just("auto"),
        "flag": st.booleans(),
        "inner": st.fixed_dictionaries(
            {"name": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)}
        ),
    },
)


@given(TABLES)
def test_there_and_back_through_toml(table):
    import tomllib

    one = parse(Outer, table)
    assert parse(Outer, tomllib.loads(tomli_w.dumps(plain(one)))) == one


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("a.b=3", 3),
        ("a.b=1e-3", 1e-3),
        ("a.b=true", True),
        ("a.b=[1, 2]", [1, 2]),
        ('a.b="3"', "3"),
        ("a.b=runs/x y", "runs/x y"),
        ("a.b=", ""),
        ("a.b=x=y", "x=y"),
        (" a.b =local-p", "local-p"),
    ],
)
def test_assign(setting, value):
    assert assign({"a": {"c": 1}}, [setting]) == {"a": {"b": value, "c": 1}}


@pytest.mark.parametrize("setting", ["a", "=3", "a..b=3", ".a=3", ""])
def test_what_is_no_setting(setting):
    with pytest.raises(ConfigError, match="expected key=value"):
        assign({}, [setting])


def test_below_what_is_no_table():
    with pytest.raises(ConfigError, match="a.b: not a table"):
        assign({"a": {"b": 3}}, ["a.b.c=1"])


@pytest.mark.parametrize(
    ("content", "said"), [(b"a = ", "not valid TOML"), (b"a = 1\na = 2", "not valid TOML"), (b"\xff", "not UTF-8")]
)
def test_files_that_are_no_toml(tmp_path, content, said):
    path = tmp_path / "c.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_files_that_are_not_there(tmp_path):
    for path, said in ((tmp_path, "a folder given"), (tmp_path / "none.toml", "no such file")):
        with pytest.raises(ConfigError, match=said):
            read(Path(path))


@pytest.mark.parametrize("value", ["sleep", "gru ", "transformer"])
def test_choices_are_listed_once(value):
    with pytest.raises(ConfigError) as caught:
        parse(RNNConfig, {"cell": value})
    assert str(caught.value).count('"lstm"') == 1
    assert "expected one of" not in str(caught.value)
