"""Any value of any key either works or is refused with a sentence that names the key.

The tests set every key of every section, kind of model and search to absurd values: as tables in Python, as TOML files,
and as the text of `--set`.
"""

import dataclasses
import re
import time
import typing
from typing import Any, Literal, get_args, get_origin

import odd
import pytest
import tomli_w

from regard.config import assign, parse, read
from regard.decoding import Options
from regard.errors import ConfigError
from regard.tasks import Settings, read_settings

pytestmark = pytest.mark.unchecked
OWN = [("kind", "model.kind"), ("preset", "model.preset")]  # keys without a dataclass field
TOP = ["task", "data", "tokenizer", "model", "training", "data.corpora", "data.valid"]


def outcome(read_it: Any, names: str | tuple[str, ...]) -> Any:
    """Return the accepted value, or None if it is refused at once, in one printable line that begins with the key."""
    names = (names,) if isinstance(names, str) else names
    start = time.process_time()
    try:
        accepted = read_it()
    except ConfigError as error:
        accepted, message = None, str(error)
        assert message.startswith(tuple(f"{name}{end}" for name in names for end in (": ", "[", "."))), message
        assert message.isprintable(), repr(message)
        assert len(message) < 700, message
    assert time.process_time() - start < 2
    return accepted


def siblings(name: str, field: str) -> tuple[str, ...]:
    """Return the key and those that a message may name instead: of two contradicting keys either is wrong."""
    section = name.removesuffix(f".{field}")
    return name, *(f"{section}.{other}" for other in TOGETHER.get(field, ()))


TOGETHER = {
    "source": ("target", "file", "corpora"),
    "target": ("source",),
    "source_file": ("target_file",),
    "target_file": ("source_file",),
    "valid_source": ("valid_target", "valid"),
    "valid_target": ("valid_source",),
    "captions": ("images",),
    "valid_captions": ("captions", "images"),
    "valid_documents": ("documents",),
    "labels": ("images",),
    "train_list": ("images",),
    "valid_list": ("images",),
    "file": ("source", "target"),
    "size": ("heads", "positions"),
    "depth": ("positions",),
    "channels": ("reduction",),
    "stages": ("after", "reduction"),
    "slots": ("shift",),
    "keep": ("average",),
    "valid": ("valid_source",),
    "corpora": ("source",),
}


@pytest.mark.parametrize("value", odd.VALUES)
def test_every_key_through_tables(value):
    for section, field in odd.all_keys():
        table, name = odd.with_value(section, field.name, odd.VALUES[value])
        outcome(lambda table=table: read_settings(table), siblings(name, field.name))
    for key, name in OWN:
        assert outcome(lambda key=key: read_settings({"model": {key: odd.VALUES[value]}}), name) is None
    for field in dataclasses.fields(Options):
        others = ("longest", "nbest", "groups")  # each is compared with another
        outcome(lambda field=field: parse(Options, {field.name: odd.VALUES[value]}), (field.name, *others))


@pytest.mark.parametrize("value", odd.VALUES)
def test_every_section_as_a_whole(value):
    for name in TOP:
        if odd.VALUES[value] == {} or (odd.VALUES[value] == [] and name in ("data.corpora", "data.valid")):
            continue  # empty, and valid
        table: dict[str, Any] = {}
        inside = table
        *path, last = name.split(".")
        for part in path:
            inside = inside.setdefault(part, {})
        inside[last] = odd.VALUES[value]
        assert outcome(lambda table=table: read_settings(table), name) is None, name


@pytest.mark.parametrize("value", [name for name in odd.VALUES if name not in odd.NO_TOML])
def test_every_key_through_set(value):
    """`--set` parses a value as TOML if possible, and else takes it as text."""
    given = odd.VALUES[value]
    texts = [given] if isinstance(given, str) else []
    texts.append(as_toml(given))
    for section, field in odd.all_keys():
        if section.endswith("[0]"):
            continue  # --set cannot change an element of a list
        name = f"{section.partition(' ')[0]}.{field.name}"
        for text in texts:
            outcome(
                lambda text=text, name=name, section=section: read_settings(
                    assign(odd.base(section), [f"{name}={text}"])
                ),
                siblings(name, field.name),
            )


def test_every_key_through_files(tmp_path):
    """Write one file for each value and section: the message names the first of its keys, and is short."""
    path = tmp_path / "odd.toml"
    for value, given in odd.VALUES.items():
        if value in odd.NO_TOML:
            continue
        text = as_toml(given)
        for section, field in odd.all_keys():
            if not section.startswith("training") and field.name not in ("size", "source", "longest"):
                continue  # a file holds a table, and the tests above cover all keys as tables
            name = section.partition(" ")[0]
            head = f"[[{name[:-3]}]]" if name.endswith("[0]") else f"[{name}]"
            path.write_text(f"{head}\n{field.name} = {text}\n", encoding="utf-8", errors="surrogatepass")
            outcome(lambda: read_settings(read(path)), (*siblings(f"{name}.{field.name}", field.name), str(path)))


def as_toml(value: Any) -> str:
    """Write TOML as a person would, including values that Python's TOML writer refuses."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**4000:
        return f"{'-' * (value < 0)}1{'0' * 5000}"
    if value is odd.NEST:
        return "[" * 500 + "]" * 500
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, dict):
        pairs = [f"{tomli_w.dumps({key: 0}).partition(' = ')[0]} = {as_toml(each)}" for key, each in value.items()]
        return f"{{{', '.join(pairs)}}}"
    return tomli_w.dumps({"v": value}).partition(" = ")[2].removesuffix("\n")


# ---- limits


def numbers(hint: Any) -> bool:
    """Whether a key's type includes a number."""
    return hint in (int, float) or any(numbers(each) for each in get_args(hint) if get_origin(hint) is not Literal)


@pytest.mark.parametrize("section", [*odd.SECTIONS, "search"])
def test_every_number_has_limits(section):
    cls = odd.SECTIONS.get(section, Options)
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if numbers(hints[field.name]):
            assert {"most", "below"} & set(field.metadata), f"{section}: {field.name} has no upper limit"
            assert {"least", "above"} & set(field.metadata), f"{section}: {field.name} has no lower limit"


def test_the_limit_is_said():
    for section, field in odd.all_keys():
        if "most" not in field.metadata or field.metadata["most"] >= 2**63 - 1:
            continue
        table, name = odd.with_value(section, field.name, 10**400)
        if typing.get_type_hints(odd.SECTIONS[section])[field.name] in (float, float | None):
            table, name = odd.with_value(section, field.name, 1e300)
        with pytest.raises(
            ConfigError, match=f"^{re.escape(name)}: .* given, expected at most {field.metadata['most']}$"
        ):
            read_settings(table)


def test_every_section_is_known():
    """The tests know every section, so they include new ones."""
    sections = {hint for hint in typing.get_type_hints(Settings).values() if dataclasses.is_dataclass(hint)}
    for cls in sections:
        assert any(issubclass(each, cls) for each in odd.SECTIONS.values()), cls
