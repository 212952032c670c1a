"""Tables of plain numbers, and how a cell is written."""

import dataclasses
import math
import re
from collections.abc import Sequence

from regard.errors import ArgumentError

Cell = str | int | float | bool | None
NUMBER = r"−?[\d,]+(?:\.\d+)?"
DEVIATING = re.compile(rf"{NUMBER}(?: ± {NUMBER})?(?: ?%)?|–")


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of plain numbers, with the format each column is shown in."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    formats: Sequence[str] = ()
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ArgumentError(f"rows: {len(self.columns)} cells a row were expected, got {list(row)}")

    def text_rows(self) -> list[list[str]]:
        """The rows as text."""
        formats = [*self.formats, *([""] * (len(self.columns) - len(self.formats)))]
        return [[show(cell, style) for cell, style in zip(row, formats, strict=True)] for row in self.rows]

    def numeric(self) -> list[bool]:
        """Mark the columns that hold numbers, with or without their deviations, and stand to the right."""
        return [all(is_number(row[index]) for row in self.rows) for index in range(len(self.columns))]


def is_number(cell: Cell) -> bool:
    """A number, nothing, or a text that is a number with its deviation, as in 37.2 ± 0.3."""
    return cell is None or isinstance(cell, int | float) or bool(DEVIATING.fullmatch(cell))


def show(cell: Cell, style: str = "") -> str:
    """A cell as text: a true minus, powers of ten as people write them, a dash for nothing."""
    if cell is None:
        return "–"
    if isinstance(cell, str | bool):
        return str(cell)
    text = format(cell, style) if style else format(cell, ".3g" if isinstance(cell, float) else ",d")
    if cell == 0:
        return "0"
    if "e" in text and math.isfinite(cell):
        digits, power = text.split("e")
        raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        text = f"{digits}·10{raised}"
    return text.replace("-", "−")
