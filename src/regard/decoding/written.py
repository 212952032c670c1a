"""How outputs are written: a line each, n-best lists as Moses has them, JSON."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from regard.data.pharaoh import pharaoh

__all__ = ["Form", "Written", "captioned", "json_line", "number", "sampled"]

BREAKS = re.compile(r"[\t\r\n]+")  # a model that spells bytes could say one of these, and a line is a line


@runtime_checkable
class Written(Protocol):
    """An output, as far as it is written."""

    @property
    def text(self) -> str: ...
    @property
    def score(self) -> float: ...
    @property
    def log_prob(self) -> float: ...
    @property
    def tokens(self) -> tuple[str, ...]: ...
    @property
    def finished(self) -> bool: ...
    @property
    def alignment(self) -> tuple[tuple[int, int], ...] | None: ...


@dataclass(frozen=True)
class Form:
    """What stands in a line.

    The text; with `scores` its score behind a tab; with `alignment` the links in Pharaoh's format behind another. With
    `nbest` there is a line an output, `i ||| text ||| score`, i the line of the source from 0. With `as_json` there is
    one object a source.
    """

    scores: bool = False
    alignment: bool = False
    nbest: bool = False
    as_json: bool = False

    def lines(self, i: int, source: str, outputs: Sequence[Written]) -> str:
        """The outputs for source number i (from 0), ends of lines included."""
        if self.as_json:
            whole = {"source": source, "translations": [row(output) for output in outputs]}
            return json_line(whole)
        if not self.nbest:
            return self.line(outputs[0], "\t") + "\n"
        return "".join(f"{i} ||| {self.line(output, ' ||| ')}\n" for output in outputs)

    def line(self, output: Written, between: str) -> str:
        """One output."""
        cells = [BREAKS.sub(" ", output.text)]
        cells += [f"{output.score:.4f}"] if self.scores or self.nbest else []
        cells += [pharaoh(output.alignment or ())] if self.alignment else []
        return between.join(cells)


def row(output: Written) -> dict[str, Any]:
    """An output as JSON has it."""
    return {
        "text": output.text,
        "score": number(output.score),
        "log_prob": number(output.log_prob),
        "tokens": list(output.tokens),
        "finished": output.finished,
        "alignment": None if output.alignment is None else [list(link) for link in output.alignment],
    }


def sampled(output: Written, scores: bool = False, as_json: bool = False) -> str:
    """A line of what a language model wrote; its score is its log-probability."""
    if as_json:
        kept = {name: value for name, value in row(output).items() if name not in ("score", "alignment")}
        return json_line(kept)
    return BREAKS.sub(" ", output.text) + (f"\t{output.log_prob:.4f}" if scores else "") + "\n"


def captioned(picture: str, outputs: Sequence[Written], scores: bool = False, as_json: bool = False) -> str:
    """The captions of a picture, a line each, behind its path where it has one; or one object."""
    if as_json:
        kept = [{name: value for name, value in row(output).items() if name != "alignment"} for output in outputs]
        return json_line({"picture": picture, "captions": kept})
    form, before = Form(scores), f"{BREAKS.sub(' ', picture)}\t" if picture else ""
    return "".join(f"{before}{form.line(output, chr(9))}\n" for output in outputs)


def number(value: float) -> float | None:
    """A number as JSON can hold it: to six places, and null for what is not finite."""
    return round(value, 6) if math.isfinite(value) else None


def json_line(row: dict[str, Any]) -> str:
    """An object in a line; a byte of a file's name that is no UTF-8 is escaped, as JSON can."""
    return json.dumps(row, ensure_ascii=False, allow_nan=False).encode(errors="backslashreplace").decode() + "\n"
