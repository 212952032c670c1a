"""The HTML page of an exhibit: one file that opens from disk and contains its style, its script and its numbers.

Weights are rounded to 256 levels per head, deflated and encoded in base64. q, k and v are stored in half precision in
the same way, as long as the page stays within four megabytes. The browser decodes them. A Content-Security-Policy in
the page forbids all connections and all scripts but the page's own, which it allows by its hash.

A half-precision tensor is stored as two planes, all high bytes and then all low bytes: they deflate better than pairs.
"""

# h heads · n rows · m columns or width
import base64
import hashlib
import io
import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from regard.attention import Look
from regard.errors import ArgumentError, ShapeError
from regard.inspection.collect.exhibit import (
    Addressing,
    Exhibit,
    Numbers,
    View,
    as_exhibit,
    separate_marks,
)
from regard.inspection.draw.graph import GRAPH_STYLE, STATIC, draw_graph
from regard.io import disk
from regard.tasks import Side

# In order of dependency; each file draws one section of the page or contains code that several sections share.
SCRIPTS = (
    "data", "draw", "scale", "heat", "figure", "lecture", "lines", "pair", "heads", "ablation", "search",
    "dependencies", "steps", "numbers", "addressing", "gates", "pictures", "captions", "places", "documents", "compare",
    "graph", "link", "look",
)  # fmt: skip
STYLES = ("look", "drawings", "sections")  # common rules, drawings of attention, other sections and narrow windows
LEVELS = 255
LONGEST = 60  # maximum number of characters in a page's title
MOST_BYTES = 4_000_000  # size limit of a page; numbers that exceed it are left out
SPARE = 60_000  # bytes reserved for the page's HTML frame and the tables that describe the numbers
LARGE = 250_000  # a picture whose PNG has more bytes is stored as JPEG
SMALL = ("vector", "scores", "bias", "gate", "weights", "query", "keys")  # tensors that weights are computed from
ORDER = {"cross": 0, "words": 1, "sentences": 1}  # priority of views if there is no room for all


@dataclass(frozen=True, repr=False)
class Page:
    """An HTML page with a `save` method; a notebook displays it."""

    html: str

    def save(self, path: str | Path) -> Path:
        """Write the page atomically: an interrupted write leaves the previous file unchanged."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return disk.write_whole(path, self.html)

    def _repr_html_(self) -> str:
        return (
            '<iframe title="what a model looked at" sandbox="allow-scripts allow-downloads" loading="lazy" '
            'style="width:100%;height:44rem;border:1px solid #8b93a155;border-radius:.5rem" '
            f'srcdoc="{escape(self.html, quote=True)}"></iframe>'
        )

    def __str__(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return f"Page({len(self.html):,} characters; .save(path) writes it, a notebook shows it)"


def page(
    what: Exhibit | Look,
    source: Sequence[str] | None = None,
    target: Sequence[str] | None = None,
    *,
    against: Exhibit | Look | None = None,
    stretch: bool = False,
) -> Page:
    """Make the page of an exhibit, or of a `Look` with its source and target words.

    `against` is a second exhibit or `Look`, of the same input and another model or of another input. The page shows the
    two side by side and marks where they differ. With `stretch` the page opens with its "Stretch" switch on: colours
    then range from 0 to the largest weight of each map instead of from 0 to 1.
    """
    exhibits = [as_exhibit(what, source, target)]
    if against is not None:
        exhibits.append(as_exhibit(against, *((None, None) if isinstance(against, Exhibit) else (source, target))))
    style, script = look_style(), look_script()
    data = page_data(exhibits, len(style.encode()) + len(script.encode())) | ({"stretch": True} if stretch else {})
    title = " ".join(exhibits[0].title.encode("utf-8", "replace").decode().split())
    title = title if len(title) <= LONGEST else title[: LONGEST - 1].rstrip() + "…"
    title = " · ".join(filter(None, [title, exhibits[0].kind])) or "What was looked at"
    # ASCII without "<": no text of an exhibit can close the <script> element, and no encoding can corrupt it.
    embedded = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    styles = [style, *([GRAPH_STYLE] if any(each.graph is not None for each in exhibits) else [])]
    allowed = " ".join(f"'{hash_source(each)}'" for each in styles)
    policy = (
        f"default-src 'none'; script-src '{hash_source(script)}'; style-src {allowed}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return Page(
        "<!doctype html>\n"
        '<html lang="en-GB">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<main id="look"><noscript><p>This page draws itself with a script that it carries; here scripts are turned '
        "off.</p></noscript></main>\n"
        f'<script type="application/json" id="data">{embedded}</script>\n<script>{script}</script>\n</body>\n</html>\n'
    )


def page_data(exhibits: Sequence[Exhibit], used: int = 0) -> dict[str, Any]:
    """Collect a page's data in types that JSON has; `used` is the size of the rest of the page in bytes."""
    packed = bytearray()
    data: dict[str, Any] = {"exhibits": [exhibit_data(each, packed) for each in exhibits]}
    for index, (table, exhibit) in enumerate(zip(data["exhibits"], exhibits, strict=True)):
        if exhibit.graph is not None:
            table["graph"] = draw_graph(exhibit.graph, f"graph-{index}")
    views = [
        (view_table, view, view.name == exhibit.aligned)
        for table, exhibit in zip(data["exhibits"], exhibits, strict=True)
        for view_table, view in zip(table["views"], exhibit.views, strict=True)
    ]
    length = used + len(json.dumps(data)) + SPARE
    pack_numbers(views, packed, (MOST_BYTES - length) * 3 // 4 - len(zlib.compress(bytes(packed), 9)))
    data["bytes"] = base64.b64encode(zlib.compress(bytes(packed), 9)).decode()
    return data


def pick(thing: object, names: str) -> dict[str, Any]:
    """Return the attributes in `names`, a list separated by spaces, as a dictionary."""
    return {name: getattr(thing, name) for name in names.split()}


def exhibit_data(exhibit: Exhibit, packed: bytearray) -> dict[str, Any]:
    names = {view.name for view in exhibit.views}
    if exhibit.aligned is not None and exhibit.aligned not in names:
        raise ArgumentError(f"aligned: {exhibit.aligned!r} is not a view of the exhibit; they are {sorted(names)}")
    table = pick(exhibit, "kind task title run output") | {
        "logProb": round_number(exhibit.log_prob),
        "labels": [[label, round_number(share)] for label, share in exhibit.labels.items()],
        **pick(exhibit, "aligned head offset"),
        "sides": {name: side_data(side) for name, side in exhibit.sides.items()},
        "views": [view_data(exhibit, view, packed) for view in exhibit.views],
    }
    if exhibit.picture is not None:
        image = Image.fromarray(np.ascontiguousarray(exhibit.picture.cpu().movedim(0, -1).numpy()))
        kind, out = "png", io.BytesIO()
        image.save(out, "PNG", optimize=True)
        if out.tell() > LARGE:
            kind, out = "jpeg", io.BytesIO()
            image.save(out, "JPEG", quality=90)
        table["picture"] = f"data:image/{kind};base64,{base64.b64encode(out.getvalue()).decode()}"
    if exhibit.tree is not None:
        steps = [
            [[c.parent, c.piece, round_number(c.log_prob), round_number(c.total), c.fate, c.row, c.best] for c in step]
            for step in exhibit.tree.steps
        ]
        table["tree"] = {"beam": exhibit.tree.beam, "steps": steps}
    if exhibit.walk is not None:
        stages = [vars(each) | {"values": round_numbers(each.values, least="-inf")} for each in exhibit.walk.stages]
        states = [vars(each) | {"values": round_numbers(each.values)} for each in exhibit.walk.states]
        gates = []
        for each in exhibit.walk.gates:
            parts = []
            for symbol, values in each.values.items():
                levels, (low,), (step,) = to_levels(f"{each.title}, {symbol}", values[None])
                described = {
                    "symbol": symbol,
                    "at": len(packed),
                    "low": round_number(low, 7),
                    "step": round_number(step, 7),
                }
                parts.append(described | {"width": values.shape[1], "means": round_numbers(values.float().mean(-1))})
                packed += levels.tobytes()
            gates.append(pick(each, "title cell side pieces backwards") | {"parts": parts})
        table["walk"] = vars(exhibit.walk) | {"stages": stages, "states": states, "gates": gates}
    if exhibit.dependencies is not None:
        follows = [[head.view, head.head, head.hits, head.back] for head in exhibit.dependencies.follows]
        table["dependencies"] = vars(exhibit.dependencies) | {"follows": follows}
    if exhibit.ablation is not None:
        changes = {name: [round_number(value) for value in heads] for name, heads in exhibit.ablation.changes.items()}
        table["ablation"] = {"logProb": round_number(exhibit.ablation.log_prob), "changes": changes}
    return table


def side_data(side: Side) -> dict[str, Any]:
    if len(side.words) != len(side.pieces):
        raise ShapeError(f"words: {len(side.pieces)} were expected, one for each piece, got {len(side.words)}")
    apart = separate_marks(side)
    parts = {} if apart.words == side.words else {"apart": pick(apart, "words texts unknown")}
    return parts | pick(side, "pieces words texts grid sentences unknown")


def view_data(exhibit: Exhibit, view: View, packed: bytearray) -> dict[str, Any]:
    heads, n, m = view.weights.shape
    for name, count in ((view.rows, n), (view.columns, m)):
        side = exhibit.sides.get(name)
        if side is not None and len(side.pieces) != count:
            raise ShapeError(f"{view.name}: weights for {count} pieces of {name!r} given, which has {len(side.pieces)}")
    levels, low, step = to_levels(view.name, view.weights)  # low is exactly zero if no weight is negative
    steps = {key: [round_number(value, 7) for value in values] for key, values in (("low", low), ("step", step))}
    table = pick(view, "name title role layer rows columns") | {"heads": heads, "n": n, "m": m, "at": len(packed)}
    packed += levels.tobytes()
    picked = None if view.picked is None else view.picked.tolist()
    table |= steps | {"entropy": round_numbers(view.entropy), "centre": round_numbers(view.centre)}
    return table | {"radius": view.radius, "picked": picked, "how": view.how}


def to_levels(name: str, values: Float[Tensor, "h n m"]) -> tuple[UInt8[np.ndarray, "h n m"], list[float], list[float]]:
    """Quantise numbers as low + step · level, with one low and one step for each entry of the first dimension."""
    weights: Float[np.ndarray, "h n m"] = values.detach().cpu().double().numpy()
    if not np.isfinite(weights).all():
        raise ArgumentError(f"{name}: all weights must be finite to be shown, got infinity or NaN")
    flat = weights.reshape(len(weights), -1)
    low = np.minimum(flat.min(-1, initial=0.0), 0.0)
    step = (np.maximum(flat.max(-1, initial=0.0), 0.0) - low) / LEVELS
    levels = np.rint((weights - low[:, None, None]) / np.where(step > 0, step, 1.0)[:, None, None])
    return levels.astype(np.uint8), low.tolist(), step.tolist()


def round_number(value: float | None, digits: int = 4) -> float | None:
    """Round to `digits` significant digits; return None for infinity, NaN and None."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def round_numbers(values: Tensor | None, least: str | None = None) -> Any:
    """Round numbers to four digits for JSON, which has no infinity: -∞ becomes `least`, +∞ and NaN become None."""
    if values is None:
        return None
    numbers = values.detach().cpu().double().flatten().tolist()
    rounded = [float(f"{x:.4g}") if math.isfinite(x) else least if x == -math.inf else None for x in numbers]
    return np.array(rounded, object).reshape(values.shape).tolist()


@cache
def look_style() -> str:
    """Read the files of a page's style and concatenate them."""
    return "".join((STATIC / f"{name}.css").read_text(encoding="utf-8") for name in STYLES)


@cache
def look_script() -> str:
    """Read the files of a page's script and join them into one function, so that they define no global names."""
    return join_scripts([(STATIC / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS])


def look_data() -> str:
    """Read the script that decodes a page's numbers, for other pages that display such numbers."""
    return (STATIC / "data.js").read_text(encoding="utf-8")


def join_scripts(parts: Sequence[str]) -> str:
    """Join scripts into one function: they share their names with each other but not with the page."""
    joined = "\n".join(parts)
    return f'"use strict";\n(() => {{\n{joined}\n}})();\n'


def hash_source(text: str) -> str:
    """Return the hash by which a Content-Security-Policy names a script or a style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def pack_numbers(views: Sequence[tuple[dict[str, Any], View, bool]], packed: bytearray, room: int) -> None:
    """Add to each view's table the numbers that it is computed from, while their deflated bytes fit in `room`.

    `views` contains tuples of a table, its view, and whether the page opens with that view. The tensors that weights
    are computed from come first, then the values. Each table records under "left" why numbers are missing.
    """
    ordered = sorted(views, key=lambda each: (not each[2], ORDER.get(each[1].role, 2)))
    queue = [(table, view.numbers) for table, view, _ in ordered if view.numbers]
    for table, numbers in queue:
        memory = isinstance(numbers, Addressing)
        own: dict[str, Any] = (
            {"score": "memory"} if memory else pick(numbers, "score scale temperature groups formulas")
        )
        table["numbers"] = own | {"parts": {}, "left": ""}
    for values in (False, True):
        for table, numbers in queue:
            if isinstance(numbers, Addressing):
                names = [] if values else [field.name for field in fields(Addressing)]
            else:
                names = ["values"] if values else list(SMALL)
            parts = {name: tensor for name in names if (tensor := getattr(numbers, name)) is not None}
            described = table["numbers"]
            halves = {name: half_planes(tensor) for name, tensor in parts.items()}
            if any(planes is None for planes in halves.values()):
                described["left"] = "range"
                continue
            if values and described["left"]:
                continue
            arrays = [(name, planes, tuple(parts[name].shape)) for name, planes in halves.items() if planes is not None]
            if isinstance(numbers, Numbers) and not values and numbers.mask is not None:
                arrays.append(("mask", numbers.mask.to(torch.uint8).numpy().ravel(), tuple(numbers.mask.shape)))
            size = sum(len(zlib.compress(planes.tobytes(), 9)) for _, planes, _ in arrays)
            if size > room:
                described["left"] = "values" if values else "size"
                continue
            room -= size
            for name, planes, shape in arrays:
                # A vector per head gets a middle axis, so that every shape has three axes and begins with the heads.
                whole = [shape[0], 1, shape[1]] if len(shape) == 2 else list(shape)
                described["parts"][name] = {"at": len(packed), "shape": whole}
                packed += planes.tobytes()


def half_planes(tensor: Tensor) -> UInt8[np.ndarray, " bytes"] | None:
    """Return a tensor's bytes in half precision, all high ones first; None if a number is not finite there."""
    halves = tensor.detach().cpu().half()
    if not bool(halves.isfinite().all()):
        return None
    pairs = np.ascontiguousarray(halves.numpy().astype("<f2")).reshape(-1).view(np.uint8).reshape(-1, 2)
    return np.concatenate([pairs[:, 1], pairs[:, 0]])
