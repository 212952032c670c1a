"""Documentation texts and their commands: pages, notebook cells, comments of configurations."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHELL = {"|", "<", ">", "2>", "&&"}  # words after one of these belong to the shell


def texts() -> dict[str, str]:
    """Return the documentation texts by name: pages, notebook cells, comments of configurations.

    The table of old names is left out: `data.lines` is a module there.
    """
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    pages += sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)
    pages.remove(ROOT / "docs/inside/names.md")
    found = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in pages}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = ("".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])
        found[f"notebooks/{path.name}"] = "\n\n".join(cells)
    for path in sorted((ROOT / "configs").glob("*.toml")):
        lines = (line.partition("#")[2] for line in path.read_text(encoding="utf-8").splitlines())
        shown = (f"```sh\n{line.strip()}\n```" if line.startswith("   ") else line for line in lines)
        found[f"configs/{path.name}"] = "\n".join(shown).replace("\\\n```\n```sh\n", " ")
    return found


def spans(text: str) -> tuple[list[str], list[str]]:
    """Return the lines of a page's shell blocks, and the text of each pair of backticks on one line."""
    text = text.replace("\\\n", " ")
    fenced = re.findall(r"^```(\S*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    blocks = [line for language, block in fenced if language in ("", "sh") for line in block.splitlines()]
    quoted = re.findall(r"(?<!`)`([^`]+)`(?!`)", prose)
    return blocks, [" ".join(each.split()) for each in quoted]
