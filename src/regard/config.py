"""Configuration: frozen dataclasses, read from TOML and `--set key=value`; errors name the path of the wrong key.

This module does not import torch, so that a wrong key is reported at once.

    @dataclass(frozen=True)
    class Settings:
        heads: int = option(8, "attention heads", least=1)

    parse(Settings, {"heads": 0}, "model")      # ConfigError: model.heads: 0 given, expected at least 1
"""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from regard.errors import ConfigError
from regard.io import reading
from regard.messages import did_you_mean, show_name, show_value, suggestion, visible

__all__ = ["assign", "option", "parse", "plain", "read", "show_value", "suggestion", "visible"]

T = TypeVar("T")
MAX_CHARACTERS = 4096  # characters of a text, as many as a path may have


def option(
    default: Any = dataclasses.MISSING,
    help: str = "",
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    also: Callable[[], Iterable[str]] | None = None,
) -> Any:
    """Declare a field of a configuration: its default, its help, and the limits of its value.

    `also` returns further choices, from plugins, in addition to those of a Literal.
    """
    limits = {"least": least, "most": most, "above": above, "below": below, "also": also}
    return dataclasses.field(
        default=default, metadata={"help": help, **{k: v for k, v in limits.items() if v is not None}}
    )


def wrong_value(key: str, value: Any, expected: str) -> ConfigError:
    """Build the error for an invalid value of a key."""
    return ConfigError(key, f"{show_value(value)} given, expected {expected}")


def parse(cls: type[T], table: Mapping[str, Any], path: str = "") -> T:
    """Build `cls` from a mapping; a ConfigError names the path of a wrong key.

    The class itself refuses impossible combinations: its `__post_init__` raises ConfigError("key", "problem"), and this
    function prepends the path to the key.
    """
    if not isinstance(table, Mapping):
        raise wrong_value(path, table, "a table")
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = hints_of(typing.cast(Any, cls))
    for key in table:
        if key not in fields:
            raise ConfigError(join_path(path, key), f"no such key{suggestion(key, fields)}")
    values = {}
    for name, field in fields.items():
        if name in table:
            inner = f"{path}.{name}" if path else name
            values[name] = value_of(hints[name], table[name], inner, field.metadata)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ConfigError(join_path(path, name), f"missing, expected {describe_type(hints[name])}")
    try:
        return cls(**values)
    except ConfigError as error:
        raise ConfigError(join_path(path, error.key), error.problem) from None


hints_of = functools.cache(typing.get_type_hints)


def value_of(hint: Any, value: Any, path: str, limits: Mapping[str, Any]) -> Any:
    """Check one value; convert an integer to a float and a list to a tuple where expected, and nothing else."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return union(arguments, value, path, limits)
    if origin is Literal:
        if any(value == choice and type(value) is type(choice) for choice in arguments):
            return value
        more = tuple(limits["also"]()) if "also" in limits else ()
        if isinstance(value, str) and value in more:
            return value
        arguments += more
        guess = did_you_mean(value, [each for each in arguments if isinstance(each, str)])
        raise wrong_value(path, value, f"{choices(arguments)}{guess}")
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise wrong_value(path, value, "a list")
        return tuple(value_of(arguments[0], each, f"{path}[{i}]", limits) for i, each in enumerate(value))
    if dataclasses.is_dataclass(hint):
        if isinstance(value, typing.cast(type, hint)):
            return value
        return parse(typing.cast(type, hint), value, path)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        if value.bit_length() > 1000:  # more than a float holds
            in_limits(value, path, limits)
            raise wrong_value(path, value, "a number that fits into a float")
        value = float(value)
    if hint in (int, float, str, bool) and type(value) is hint:
        if hint in (int, float):
            in_limits(value, path, limits)
        elif hint is str:
            check_text(value, path)
        return value
    raise wrong_value(path, value, describe_type(hint))


def union(arguments: tuple[Any, ...], value: Any, path: str, limits: Mapping[str, Any]) -> Any:
    """Return the value as the first type that accepts it, or raise the error of the type that fits best."""
    if value is None and type(None) in arguments:
        return None
    real = [each for each in arguments if each is not type(None)]
    for each in real:
        try:
            return value_of(each, value, path, limits)
        except ConfigError as error:
            # Report this error if the type fits but the limits do not, or if a key inside a table is wrong.
            near = len(real) == 1 or error.key != path
            near |= each in (int, float) and isinstance(value, int | float) and not isinstance(value, bool)
            near |= each is str and isinstance(value, str)
            if near:
                raise
    raise wrong_value(path, value, " or ".join(describe_type(each) for each in real))


def in_limits(value: float, path: str, limits: Mapping[str, Any]) -> None:
    """Refuse a number that is not finite, or outside its limits."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(path, f"{value} given, expected a finite number")
    checks = {
        "least": (lambda limit: value >= limit, "at least"),
        "most": (lambda limit: value <= limit, "at most"),
        "above": (lambda limit: value > limit, "more than"),
        "below": (lambda limit: value < limit, "less than"),
    }
    for name, (holds, words) in checks.items():
        if name in limits and not holds(limits[name]):
            raise wrong_value(path, value, f"{words} {limits[name]}")


def check_text(text: str, path: str) -> None:
    """Refuse a text that is empty, too long, or contains NUL or surrogates."""
    if not text:
        raise ConfigError(path, '"" given, expected a text; leave the key out to use its default')
    if len(text) > MAX_CHARACTERS:
        count = f"{len(text):,} characters, expected at most {MAX_CHARACTERS:,}"
        raise ConfigError(path, f"{show_value(text)} given, {count}")
    if "\0" in text or any("\ud800" <= each <= "\udfff" for each in text):
        raise wrong_value(path, text, "UTF-8 text without NUL")


def describe_type(hint: Any) -> str:
    """Describe a type in words, for messages."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return choices(arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(describe_type(each) for each in arguments if each is not type(None))
    if origin is tuple:
        return f"a list ({describe_type(arguments[0])} each)"
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    return names.get(hint, "a table")


def choices(values: Iterable[Any]) -> str:
    """List the values of a Literal, in words."""
    texts = [show_value(value) for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


def join_path(path: str, key: str) -> str:
    return f"{path}.{show_name(key)}" if path else show_name(key)


def read(path: str | Path) -> dict[str, Any]:
    """Read a TOML file; a ConfigError names the line of a mistake."""
    try:
        return reading.read_toml(path, pipe=True)
    except reading.Unreadable as error:
        raise ConfigError(str(path), str(error)) from None
    except IsADirectoryError:
        raise ConfigError(str(path), "a folder given, expected a TOML file") from None
    except FileNotFoundError:
        raise ConfigError(str(path), "no such file, expected a TOML configuration") from None


def assign(config: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """Apply settings `key.path=value` to a configuration; a value that is not valid TOML is taken as text."""
    for setting in settings:
        key, equals, text = setting.partition("=")
        path = key.strip().split(".")
        if not equals or not all(path):
            raise ConfigError(join_path("", setting), "given to --set, expected key=value, such as training.steps=8000")
        value = read_value(text)
        table = config
        for i, part in enumerate(path[:-1]):
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ConfigError(".".join(path[: i + 1]), "not a table, so nothing below it can be set")
        table[path[-1]] = value
    return config


def read_value(text: str) -> Any:
    """Read a value as TOML, or return the text itself if it is not valid TOML."""
    try:
        table = reading.parse_toml(f"value = {text}")
    except reading.Unreadable:
        return text.strip()
    return table["value"] if len(table) == 1 else text.strip()  # several lines of TOML are not one value


def plain(config: Any) -> dict[str, Any]:
    """Convert a configuration to types that TOML can hold: tables and lists, without keys that are None."""

    def value(each: Any) -> Any:
        if dataclasses.is_dataclass(each) and not isinstance(each, type):
            pairs = ((field.name, getattr(each, field.name)) for field in dataclasses.fields(each))
            return {name: value(inner) for name, inner in pairs if inner is not None}
        if isinstance(each, list | tuple):
            return [value(inner) for inner in each]
        return str(each) if isinstance(each, Path) else each

    return typing.cast(dict[str, Any], value(config))
