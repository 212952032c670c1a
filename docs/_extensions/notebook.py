"""A notebook as Markdown: its texts, its code, and its saved text outputs and figures."""

from pathlib import Path
from typing import Any

import nbformat

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def as_markdown(name: str) -> str:
    """Read a notebook of `notebooks/` and write its cells in order; its title becomes the page's title."""
    cells = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells
    parts = []
    for cell in cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif cell.cell_type == "code":
            parts.append(f"```python\n{cell.source}\n```")
            parts += [text for text in map(show_output, cell.outputs) if text]
    return "\n\n".join(parts)


def show_output(output: Any) -> str:
    """Write the output of a cell: printed text as a block, a figure as a picture inside the page."""
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```"
    data = output.get("data", {})
    if "image/svg+xml" in data:
        drawing = "".join(data["image/svg+xml"])
        return f'```{{raw}} html\n<div class="drawing">{drawing}</div>\n```'
    if "image/png" in data:
        source = f"data:image/png;base64,{data['image/png'].strip()}"
        return f'```{{raw}} html\n<img alt="What the cell above drew" src="{source}">\n```'
    text = str(data.get("text/plain", "")).rstrip()
    return f"```text\n{text}\n```" if text else ""
