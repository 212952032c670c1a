"""How the tests check the types and shapes in signatures: beartype, as the import hook of conftest.py applies it.

jaxtyping's own decorator binds the arguments of every call to the signature, checks them once before and once after the
call, and makes the checks of a nested function anew whenever the function around it is called: half of the time of what
is checked. The one here makes them once, and after the call checks the result alone; sizes that the arguments bound are
still those that it must have. What does not pass is given to jaxtyping's, which says what is wrong.
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

# A type checker lets an int pass for a float; so does this.
checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
plainly = jaxtyping.jaxtyped
EMPTY = inspect.Parameter.empty


class Checks(NamedTuple):
    """What is called with a function's arguments, and with its result; None where there is nothing to check."""

    arguments: Callable[..., object] | None
    result: Callable[[Any], object] | None


made: dict[tuple[Any, ...], tuple[Checks, Any]] = {}  # beside each its code, whose address is in the key


def install(package: str) -> None:
    """Check whatever is imported of a package from now on."""
    jaxtyping.jaxtyped = jaxtyped
    jaxtyping.install_import_hook(package, "shapes.check")


def check(function: Callable) -> Callable:
    """`function`, checked when called, but for what beartype cannot check."""
    for name, hint in getattr(function, "__annotations__", {}).items():
        if any(uncheckable(each) for each in (hint, *typing.get_args(hint))):
            function.__annotations__[name] = object
    return checked(function)


def uncheckable(hint: object) -> bool:
    """`Self`, as the hook decorates methods one at a time; a protocol that no instance can be asked about.

    Before Python 3.12 the question calls every property, and one that refuses to answer is an error.
    """
    runtime = getattr(hint, "_is_runtime_protocol", False) and sys.version_info >= (3, 12)
    protocol = getattr(hint, "_is_protocol", False) and not runtime
    return hint is typing.Self or (protocol and isinstance(hint, type))


def jaxtyped(function: Any = None, *, typechecker: Any) -> Any:
    """A function, or a dataclass whose `__init__` is, checked when it is called."""
    if function is None:
        return functools.partial(jaxtyped, typechecker=typechecker)
    if inspect.isclass(function):
        if dataclasses.is_dataclass(function) and not hasattr(function.__init__, "__wrapped__"):
            function.__init__ = jaxtyped(function.__init__, typechecker=typechecker)
        return function
    if any(getattr(hint, "__name__", "") == "constexpr" for hint in getattr(function, "__annotations__", {}).values()):
        return function  # a kernel of Triton's, which reads its source, and what that names in its own module
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
    """The checks of a function, made once for all functions of the same code and annotations."""
    try:
        key = id(function.__code__), *function.__annotations__.items()
        if key not in made:
            made[key] = make_checks(function), function.__code__
        return made[key][0]
    except TypeError:  # an annotation that has no hash
        return make_checks(function)


def make_checks(function: Any) -> Checks:
    """Functions that do nothing, with the annotations of one: of its parameters, and of its result."""
    signature = inspect.signature(function)
    names = [name for name, each in signature.parameters.items() if each.annotation is not EMPTY]
    arguments = result = None
    if names:
        # Only names and order matter: no default is looked at.
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
    """A function that does nothing, by the name of another."""
    scope: dict[str, Any] = {}
    exec(f"def nothing{parameters}: pass", scope)
    scope["nothing"].__qualname__, scope["nothing"].__module__ = function.__qualname__, function.__module__
    return scope["nothing"]


def resolve(hint: Any, function: Any) -> Any:
    """A hint that is written as a string, or has one in it, as what it means; Any where that is not known yet."""

    def named(value):
        pass

    named.__annotations__ = {"value": hint}
    try:
        return typing.get_type_hints(named, function.__globals__, include_extras=True)["value"]
    except Exception:
        return Any
