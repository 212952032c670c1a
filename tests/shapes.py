"""How the tests check the types and shapes in signatures: beartype, as the import hook of conftest.py applies it."""

import typing
from collections.abc import Callable

from beartype import BeartypeConf, beartype

# A type checker lets an int pass for a float; so does this.
checked = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check(function: Callable) -> Callable:
    """`function`, checked when called. The hook decorates methods one at a time, where beartype cannot know `Self`."""
    for name, hint in getattr(function, "__annotations__", {}).items():
        if hint is typing.Self or typing.Self in typing.get_args(hint):
            function.__annotations__[name] = object
    return checked(function)
