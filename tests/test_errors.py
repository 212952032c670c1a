"""The tree drawn in errors.py equals the tree of errors."""

import inspect
import re

from regard import errors


def drawn() -> dict[str, tuple[str, ...]]:
    """Return each error in the drawing with the names of its bases."""
    bases: dict[str, tuple[str, ...]] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"([│├└─ ]*)(\w+Error)\b(?: \(also an? (\w+)\))?", line):
            depth = len(match[1]) // 4
            path[depth:] = [match[2]]
            bases[match[2]] = (path[depth - 1] if depth else "Exception", *filter(None, [match[3]]))
    return bases


def test_the_drawing_is_the_tree():
    real = {
        name: tuple(base.__name__ for base in value.__bases__)
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, BaseException)
    }
    assert drawn() == real


def test_everything_is_a_regard_error():
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.RegardError)
