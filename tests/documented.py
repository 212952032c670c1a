"""What people read, and the commands in it: pages, cells of notebooks, comments of configurations."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHELL = {"|", "<", ">", "2>", "&&"}  # what stands behind one of these is the shell's


def texts() -> dict[str, str]:
    """What people read, by its name: pages, the cells of notebooks, the comments of configurations.

    But for the table of old names, in which `data.lines` is a module.
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
    """The lines of a page's shell blocks, and what stands between backticks, in one line each."""
    text = text.replace("\\\n", " ")
    fenced = re.findall(r"^```(\S*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    blocks = [line for language, block in fenced if language in ("", "sh") for line in block.splitlines()]
    quoted = re.findall(r"(?<!`)`([^`]+)`(?!`)", prose)
    return blocks, [" ".join(each.split()) for each in quoted]
