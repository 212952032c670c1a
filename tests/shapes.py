"""How the tests check the types and shapes in signatures: beartype, as the import hook of conftest.py applies it."""

import typing
from collections.abc import Callable

from beartype import BeartypeConf, beartype

# A type checker lets an int pass for a float; so does this.
checked = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check(function: Callable) -> Callable:
    """`function`, checked when called, but for what beartype cannot check."""
    for name, hint in getattr(function, "__annotations__", {}).items():
        if any(uncheckable(each) for each in (hint, *typing.get_args(hint))):
            function.__annotations__[name] = object
    return checked(function)


def uncheckable(hint: object) -> bool:
    """`Self`, as the hook decorates methods one at a time; a protocol that no instance can be asked about."""
    protocol = getattr(hint, "_is_protocol", False) and not getattr(hint, "_is_runtime_protocol", False)
    return hint is typing.Self or (protocol and isinstance(hint, type))
