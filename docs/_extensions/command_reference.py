"""The reference of commands as Markdown: every command with its options, in the groups of `regard --help`."""

import re
from typing import Any

import typer

from regard.cli import SECTIONS, app


def describe_commands() -> str:
    """Describe every command in the help, group by group; the last group includes commands without a group."""
    group: Any = typer.main.get_command(app)
    with group.make_context("regard", [], resilient_parsing=True) as context:
        names = [name for name in group.list_commands(context) if not group.commands[name].hidden]
        listed = {name for names in SECTIONS.values() for name in names}
        parts = []
        for title, section in SECTIONS.items():
            others = [name for name in names if name not in listed] if title == list(SECTIONS)[-1] else []
            parts.append(f"## {title}")
            parts += [describe_command(group.commands[name], name, context) for name in (*section, *others)]
    return "\n\n".join(parts)


def describe_command(command: Any, name: str, above: Any) -> str:
    """Describe one command: usage, help, arguments and options with the name of each value, examples."""
    with command.make_context(name, [], parent=above, resilient_parsing=True) as context:
        usage = " ".join(["regard", name, *command.collect_usage_pieces(context)])
        arguments = [(argument, each.help or "") for argument, each in zip_arguments(command)]
        options = [
            each.get_help_record(context) for each in command.get_params(context) if each not in command.arguments()
        ]
    parts = [f"### regard {name}", f"```text\n{usage}\n```"]
    parts += [escape(paragraph) for paragraph in re.split(r"\n\s*\n", (command.help or "").strip())]
    for title, rows in (("argument", arguments), ("option", [record for record in options if record])):
        if rows:
            head = f"| {title} | what it does |\n|---|---|\n"
            parts.append(head + "\n".join(f"| {code(called)} | {escape(text)} |" for called, text in rows))
    if command.epilog:
        parts.append(f"```text\n{command.epilog}\n```")
    return "\n\n".join(parts)


def zip_arguments(command: Any) -> list[tuple[str, Any]]:
    """Return the arguments of a command with the names that the help gives them."""
    return [(str(each.metavar or each.name.upper()), each) for each in command.arguments()]


def code(text: str) -> str:
    """Format the name of an option or argument as code; escape bars, which would end a table cell."""
    return f"`{text}`".replace("|", "\\|")


def escape(text: str) -> str:
    """Escape a help text: only options and text between backticks become markup, as code."""
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    parts[::2] = [re.sub(r"(?<![\w-])--[a-z][a-z-]+", r"`\g<0>`", part) for part in parts[::2]]
    parts = re.split(r"(`[^`]+`)", "".join(parts))
    plain = [part if index % 2 else re.sub(r"([\\*_<>\[\]$#])", r"\\\1", part) for index, part in enumerate(parts)]
    return "".join(plain).replace("|", "\\|")
