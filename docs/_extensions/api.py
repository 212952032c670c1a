"""The Python interface as Markdown: every public name with its signature from the source, shapes included.

Public names do not begin with an underscore. The reference omits the methods that only other parts of Regard call:
they are at the end of their class, below the line `# ---- for other parts of Regard`.
"""

import ast
import importlib
import inspect
import re
import textwrap
from functools import cached_property
from typing import Any

WIDTH = 96
MEMBERS = property | cached_property | classmethod | staticmethod
INTERNAL = re.compile(r"^ +# ---- for other parts of Regard$", re.MULTILINE)


def describe_module(name: str, chosen: list[str] | None = None) -> str:
    """Describe the public or the chosen names of a module; names with a section elsewhere are only listed."""
    module = importlib.import_module(name)
    names = chosen or [public for public in module.__all__ if public[0] != "_"]
    values = {public: getattr(module, public) for public in names}
    foreign = [public for public in names if is_foreign(public, name)]
    parts = [f"## {name}", clean(module.__doc__ or "")]
    if foreign:
        homes = ", ".join(f"`{public}`" for public in foreign)
        parts.append(f"Also here, and described in the section of their own module: {homes}.")
    parts += [describe(public, value) for public, value in values.items() if public not in foreign]
    return "\n\n".join(part for part in parts if part)


def is_foreign(public: str, name: str) -> bool:
    """Tell whether a name of `regard` also belongs to a submodule that has a section of its own."""
    below = ("regard.attention", "regard.errors")
    return name == "regard" and any(public in importlib.import_module(each).__all__ for each in below)


def describe(name: str, value: Any) -> str:
    """Describe a class with its public methods, a function, or a value."""
    if inspect.isclass(value):
        parts = [f"### {name}", signature_of_class(name, value), clean(value.__doc__ or "")]
        parts += [describe_member(name, member, *found) for member, found in members(value).items()]
        return "\n\n".join(part for part in parts if part)
    if callable(value):
        return "\n\n".join([f"### {name}", signature(name, value), clean(inspect.getdoc(value) or "")])
    return f"### {name}\n\n```python\n{name}: {type(value).__name__}\n```"


def members(value: type) -> dict[str, tuple[Any, str]]:
    """Return the public methods and properties of a class, each with its own or its inherited docstring.

    Only methods that Regard's own classes define and document count: torch's reference has those of its modules.
    """
    owners = [owner for owner in value.__mro__ if owner.__module__.startswith("regard")]
    found: dict[str, tuple[Any, str]] = {}
    internal = {name for owner in owners for name in internal_names(owner)}
    for name in dict.fromkeys(name for owner in owners for name in vars(owner) if name[0] != "_"):
        if name in internal:
            continue
        definitions = [vars(owner)[name] for owner in owners if name in vars(owner)]
        text = next((each.__doc__ for each in definitions if each.__doc__), None)
        if text and (isinstance(definitions[0], MEMBERS) or inspect.isfunction(definitions[0])):
            found[name] = definitions[0], text
    return found


def internal_names(value: type) -> set[str]:
    """Return the names of the methods below the line `# ---- for other parts of Regard`."""
    parts = INTERNAL.split(textwrap.dedent(inspect.getsource(value)))
    if len(parts) == 1:
        return set()
    end = parts[0].count("\n") + 1
    return {
        node.name for node in class_definition(value).body if isinstance(node, ast.FunctionDef) and node.lineno > end
    }


def describe_member(owner: str, name: str, member: Any, text: str) -> str:
    """Describe a method with its signature, or a property with its type."""
    if isinstance(member, property | cached_property):
        function = member.fget if isinstance(member, property) else member.func
        returns = definition(function).returns
        shown = f"```python\n{name}" + (f": {ast.unparse(returns)}" if returns else "") + "\n```"
    else:
        shown = signature(name, member.__func__ if isinstance(member, classmethod | staticmethod) else member)
    return "\n\n".join([f"#### {owner}.{name}", shown, clean(text)])


def signature_of_class(name: str, value: type) -> str:
    """Write the signature of a class: that of `__init__`, or the fields of a dataclass or a named tuple."""
    if "__init__" in vars(value) and has_source(vars(value)["__init__"]):
        return signature(name, vars(value)["__init__"])
    fields = [node for node in class_definition(value).body if isinstance(node, ast.AnnAssign)]
    if fields and (hasattr(value, "__dataclass_fields__") or issubclass(value, tuple)):
        return in_lines(name, [ast.unparse(field) for field in fields], "")
    for owner in value.__mro__:
        made = vars(owner).get("__init__")
        if made is not None and owner.__module__.startswith("regard") and has_source(made):
            return signature(name, made)
    return f"```python\n{name}({', '.join(base.__name__ for base in value.__bases__)})\n```"


def has_source(function: Any) -> bool:
    """Tell whether a function has source code; the generated `__init__` of a dataclass has none."""
    try:
        inspect.getsource(function)
    except (OSError, TypeError):
        return False
    return True


def class_definition(value: type) -> ast.ClassDef:
    node = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    assert isinstance(node, ast.ClassDef)
    return node


def definition(function: Any) -> ast.FunctionDef:
    """Return the syntax tree of a function's definition."""
    node = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def signature(name: str, function: Any) -> str:
    """Write a signature with its annotations from the source, which give the shapes of tensors."""
    node = definition(function)
    parameters = node.args
    if parameters.args and parameters.args[0].arg in ("self", "cls"):
        parameters.args = parameters.args[1:]
    positional = [*parameters.posonlyargs, *parameters.args]
    defaults = [None] * (len(positional) - len(parameters.defaults)) + list(parameters.defaults)
    shown = [with_default(each, default) for each, default in zip(positional, defaults, strict=True)]
    if parameters.posonlyargs:
        shown.insert(len(parameters.posonlyargs), "/")
    if parameters.vararg:
        shown.append(f"*{ast.unparse(parameters.vararg)}")
    elif parameters.kwonlyargs:
        shown.append("*")
    shown += [
        with_default(each, default) for each, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)
    ]
    if parameters.kwarg:
        shown.append(f"**{ast.unparse(parameters.kwarg)}")
    returns = node.returns
    ends = "" if returns is None or node.name == "__init__" else f" -> {ast.unparse(returns)}"
    return in_lines(name, shown, ends)


def with_default(parameter: ast.arg, default: ast.expr | None) -> str:
    equals = " = " if parameter.annotation else "="
    return ast.unparse(parameter) + ("" if default is None else equals + ast.unparse(default))


def in_lines(name: str, parameters: list[str], ends: str) -> str:
    """Write a call in one line if it fits, otherwise with one parameter per line."""
    line = f"{name}({', '.join(parameters)}){ends}"
    if len(line) > WIDTH:
        line = f"{name}(\n" + "".join(f"    {each},\n" for each in parameters) + f"){ends}"
    line = re.sub(r"'([^'\"]*)'", r'"\1"', line)
    return f"```python\n{line}\n```"


def clean(text: str) -> str:
    """Convert a docstring to Markdown: indented code becomes a block, and formulas stay formulas."""
    text = inspect.cleandoc(text)
    return re.sub(r"(?:^|(?<=\n\n))((?: {4}.*(?:\n|$)|\n(?= {4}))+)", as_block, text).strip()


def as_block(match: re.Match[str]) -> str:
    return f"```text\n{textwrap.dedent(match[1]).rstrip()}\n```\n"
