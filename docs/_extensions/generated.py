"""Pages that the build of the site generates from the code: commands, the Python interface, the notebook.

A comment in a page of `docs/` marks the place: `<!-- command reference -->`, `<!-- notebook: NAME -->`,
`<!-- module: regard.attention -->`, or with names `<!-- module: regard.tasks: Aligned, Translation -->`.
Generated Markdown replaces the comment in memory; the build writes nothing to the source folder.
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
    """Replace each mark of a page by Markdown generated from the code."""

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
    """Return the pages with marks, to read them in every build: the code may have changed although they have not."""
    return [name for name in env.found_docs if MARK.search(Path(env.doc2path(name)).read_text(encoding="utf-8"))]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", read_page)
    app.connect("env-get-outdated", find_outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
