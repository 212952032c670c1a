"""How the tests check the types and shapes in signatures: beartype, as the import hook of conftest.py applies it.

jaxtyping's own decorator binds every call's arguments to the signature, checks them once before and once after the
call, and recreates the checks of a nested function whenever the outer function is called: half of the run time of the
checked code. The decorator here creates them once, and after the call checks only the result, against the sizes that
the arguments bound. If a check fails, jaxtyping's decorator runs and reports the error.
"""

import dataclasses
import functools
import inspect
import sys
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping._storage import pop_shape_memo, push_shape_memo, shape_str

# A type checker accepts an int for a float; so does this.
checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
plainly = jaxtyping.jaxtyped
EMPTY = inspect.Parameter.empty


class Checks(NamedTuple):
    """Functions to call with a function's arguments, and with its result; None if there is nothing to check."""

    arguments: Callable[..., object] | None
    result: Callable[[Any], object] | None


made: dict[tuple[Any, ...], tuple[Checks, Any]] = {}  # each with its code, whose address is in the key


def install(package: str) -> None:
    """Check all modules of a package that are imported from now on."""
    jaxtyping.jaxtyped = jaxtyped
    jaxtyping.install_import_hook(package, "shapes.check")


def check(function: Callable) -> Callable:
    """Return `function` with checks on every call, unless beartype cannot check it."""
    for name, hint in getattr(function, "__annotations__", {}).items():
        if any(uncheckable(each) for each in (hint, *typing.get_args(hint))):
            function.__annotations__[name] = object
    return checked(function)


def uncheckable(hint: object) -> bool:
    """Return whether a hint is `Self`, or a protocol that isinstance cannot check.

    The hook decorates single methods, so it cannot resolve `Self`. Before Python 3.12 isinstance calls every property,
    and a property that raises is an error.
    """
    runtime = getattr(hint, "_is_runtime_protocol", False) and sys.version_info >= (3, 12)
    protocol = getattr(hint, "_is_protocol", False) and not runtime
    return hint is typing.Self or (protocol and isinstance(hint, type))


def jaxtyped(function: Any = None, *, typechecker: Any) -> Any:
    """Return a function, or a dataclass by its `__init__`, that checks every call."""
    if function is None:
        return functools.partial(jaxtyped, typechecker=typechecker)
    if inspect.isclass(function):
        if dataclasses.is_dataclass(function) and not hasattr(function.__init__, "__wrapped__"):
            function.__init__ = jaxtyped(function.__init__, typechecker=typechecker)
        return function
    if any(getattr(hint, "__name__", "") == "constexpr" for hint in getattr(function, "__annotations__", {}).values()):
        return function  # a Triton kernel: Triton reads its source and the names in its module
    if not inspect.isfunction(function) or "{" in str(
        [*function.__annotations__.values()]
    ):  # a size that is an argument
        return plainly(function, typechecker=typechecker)
    checks = find_checks(function)
    if checks == (None, None):
        return function
    check_arguments, check_result = checks
    config = jaxtyping.config

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if config.jaxtyping_disable:
            return function(*args, **kwargs)
        sizes = push_shape_memo({})
        try:
            if check_arguments is not None:
                try:
                    check_arguments(*args, **kwargs)
                except Exception:
                    return plainly(function, typechecker=typechecker)(*args, **kwargs)
            result = function(*args, **kwargs)
            if check_result is not None:
                try:
                    check_result(result)
                except Exception as error:
                    name = f"{function.__module__}.{function.__qualname__}"
                    raise jaxtyping.TypeCheckError(f"result of {name}: {error}\n{shape_str(sizes)}") from error
            return result
        finally:
            pop_shape_memo()

    return wrapped


def find_checks(function: Any) -> Checks:
    """Return a function's checks, created once for all functions of the same code and annotations."""
    try:
        key = id(function.__code__), *function.__annotations__.items()
        if key not in made:
            made[key] = make_checks(function), function.__code__
        return made[key][0]
    except TypeError:  # an unhashable annotation
        return make_checks(function)


def make_checks(function: Any) -> Checks:
    """Create empty functions with the annotations of a function's parameters and of its result."""
    signature = inspect.signature(function)
    names = [name for name, each in signature.parameters.items() if each.annotation is not EMPTY]
    arguments = result = None
    if names:
        # Only names and order matter, not default values.
        plain = [
            each.replace(annotation=EMPTY, default=EMPTY if each.default is EMPTY else None)
            for each in signature.parameters.values()
        ]
        arguments = define(str(signature.replace(parameters=plain, return_annotation=EMPTY)), function)
        arguments.__annotations__ = {name: resolve(signature.parameters[name].annotation, function) for name in names}
        arguments = check(arguments)
    if signature.return_annotation is not EMPTY:
        result = define("(result)", function)
        result.__annotations__ = {"result": resolve(signature.return_annotation, function)}
        result = check(result)
    return Checks(arguments, result)


def define(parameters: str, function: Any) -> Any:
    """Return an empty function with another's name."""
    scope: dict[str, Any] = {}
    exec(f"def nothing{parameters}: pass", scope)
    scope["nothing"].__qualname__, scope["nothing"].__module__ = function.__qualname__, function.__module__
    return scope["nothing"]


def resolve(hint: Any, function: Any) -> Any:
    """Resolve a hint that is or contains a string; return Any if its name is not defined yet."""

    def named(value):
        pass

    named.__annotations__ = {"value": hint}
    try:
        return typing.get_type_hints(named, function.__globals__, include_extras=True)["value"]
    except Exception:
        return Any
