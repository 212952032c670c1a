"""Pages that are made from the code when the site is built: commands, the Python interface, the notebook.

A page of `docs/` says in a comment what belongs in its place: `<!-- command reference -->`, `<!-- notebook: NAME -->`,
`<!-- module: regard.attention -->`, or with names `<!-- module: regard.tasks: Aligned, Translation -->`.
Markdown takes its place, and nothing is written to the source folder.
"""

import re
from pathlib import Path

import api
import command_reference
import notebook
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

MARK = re.compile(r"^<!-- (command reference|module|notebook)(?:: ([\w.-]+))?(?:: ([\w, ]+))? -->$", re.MULTILINE)


def replace_marks(text: str) -> str:
    """Put what is made from the code in the place of each mark of a page."""

    def generate(mark: re.Match[str]) -> str:
        what, name, chosen = mark.groups()
        if what == "command reference":
            return command_reference.describe_commands()
        if what == "notebook":
            return notebook.as_markdown(name)
        return api.describe_module(name, chosen.split(", ") if chosen else None)

    return MARK.sub(generate, text)


def read_page(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = replace_marks(source[0])


def find_outdated(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """Read pages with marks in every build: the code may have changed where the page has not."""
    return [name for name in env.found_docs if MARK.search(Path(env.doc2path(name)).read_text(encoding="utf-8"))]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", read_page)
    app.connect("env-get-outdated", find_outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
