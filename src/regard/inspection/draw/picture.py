"""Pictures of an exhibit for papers: heat maps, film strips of captions, shaded documents, places.

What a page shows, standing still: `picture` chooses by what the exhibit holds.

A document's words are shaded by what they count, with a bar before a sentence. A dependency tree stands as arcs over
the words, and where a head of attention looks most as arcs under them, with its weights: as on the page, a full line
where the head of attention leads from a word to its head in the tree, or back.
"""

# h heads · n rows or words · m columns or pieces · y x rows and columns of a grid
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib import path as shapes
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import PathPatch, Rectangle
from torch import Tensor

from regard.attention import Look
from regard.errors import ArgumentError
from regard.inspection.collect.exhibit import Exhibit, View, as_exhibit, count_specials, merge, separate_marks
from regard.inspection.draw.heatmap import MAX_LETTERS, cut_word, draw_panel, fonts, heatmap, text_width
from regard.inspection.draw.plot import FAINT, INK, RULE, SEQUENTIAL, Drawing, draw_bar, letters_on, save, weight_scale
from regard.tasks import Side

DIM, LIFT = 0.72, 0.18  # how dark a picture is where nothing looks, and how light where something does
ACROSS = 7  # pictures side by side
SCALE_ENDS = (0.1, 0.2, 0.25, 0.5)  # of the bars of sentences, from 0, where they are stretched; else 1
LEVEL, RISE, BEND = 0.24, 0.14, 0.14  # inches: from an arc to the one over it, of the lowest, and of its corners
LETTER, LABEL, GAP, SIDE = 0.105, 0.075, 0.22, 0.15  # inches: of a word, of a relation, between words, at the edges
CELL = 0.46
LOOK = SEQUENTIAL(0.85)
Units = tuple[Sequence[int | None], list[str]]  # of each piece, the unit that it is drawn in; and the units' names


def picture(
    what: Exhibit | Look,
    source: Sequence[str] | None = None,
    target: Sequence[str] | None = None,
    *,
    view: str | None = None,
    head: int | None = None,
    stretch: bool = False,
    path: str | Path | None = None,
) -> Figure:
    """Draw an exhibit, or a look with the words that it stands between.

    Text is drawn as a heat map between words; a caption as a film strip, a panel a word, as in Xu et al. 2015; a
    document with its words shaded; a ConvNet's places with where they look. Without a `view` it is the one that is
    nearest to an alignment, with the exhibit's own head; a view without a `head` (from 0) is drawn with all of them,
    and one head of self-attention with the text's dependency tree, where that is known. Colours go from 0 to 1 or, with
    `stretch`, to the largest weight of the picture. With a `path` the figure is also saved; the suffix chooses PNG, SVG
    or PDF.
    """
    exhibit = as_exhibit(what, source, target)
    figure = _draw_view(exhibit, *_select(exhibit, view, head), stretch)
    if path is not None:
        save(figure, path)
    return figure


def _draw_view(exhibit: Exhibit, view: View, heads: list[int | None], stretch: bool) -> Figure:
    rows, columns = exhibit.sides.get(view.rows), exhibit.sides.get(view.columns)
    weights = view.weights.detach().float().cpu()
    weights = torch.stack([weights.mean(0) if head is None else weights[head] for head in heads])
    if columns is not None and columns.grid is not None:
        with_places = rows is not None and rows.grid is not None
        return _draw_places(exhibit, view, weights.mean(0), columns.grid, with_places=with_places, stretch=stretch)
    if view.role in ("words", "sentences"):
        return draw_document(exhibit, weights.mean(0)[0] if view.role == "words" else None, stretch)
    name = view.title
    if len(heads) == 1 < len(view.weights):  # several panels have the numbers of their heads
        name += ", mean of heads" if heads[0] is None else f", head {heads[0] + 1}"
    tree = exhibit.dependencies
    if tree is not None and view.rows == view.columns == tree.side and len(heads) == 1:
        side = exhibit.sides[tree.side]  # with the words that the tree counts
        texts = list(map(replace_surrogates, side.texts))
        merged = merge(weights, side.words, side.words)[0]
        return draw_dependencies(merged, texts, tree.heads, tree.relations, name, stretch=stretch)
    if exhibit.offset == 1 and view.name == exhibit.aligned and view.rows == "written":
        rows = exhibit.sides.get("read", rows)  # what is read is what a row aligns
    # Whole where a text looks at itself, so that rows and columns are the same.
    down, names = units_of(rows, view.weights.shape[1], whole=view.rows == view.columns)
    across, words = units_of(columns, view.weights.shape[2], whole=True)
    figure = heatmap(merge(weights, down, across), words, names, title=name, stretch=stretch)
    for axes, each in zip(figure.axes, heads, strict=False):
        _marks(axes, view, each, down, across)
    return figure


def _select(exhibit: Exhibit, name: str | None, head: int | None) -> tuple[View, list[int | None]]:
    """Choose the view to draw and its heads; None stands for their mean."""
    views = {view.name: view for view in exhibit.views}
    if not views:
        raise ArgumentError(f"exhibit: a {exhibit.kind or 'model'} without attention has nothing to draw")
    if name is not None and name not in views:
        raise ArgumentError(f"view: {name!r} is not one of the exhibit's, which are {', '.join(views)}")
    first = exhibit.aligned if exhibit.aligned in views else None
    crossing = [view for view in exhibit.views if view.role in ("cross", "words")]
    view = views[name] if name else views[first] if first else (crossing or list(exhibit.views))[-1]
    count = len(view.weights)
    if head is not None:
        if not 0 <= head < count:
            raise ArgumentError(f"head {head + 1}: {view.title} has {count} heads, numbered 1 to {count}")
        return view, [head]
    if name is None and first is not None:
        return view, [exhibit.head]
    return view, [0] if count == 1 else list(range(count))


def _marks(axes: Axes, view: View, head: int | None, rows: Sequence[int | None], columns: Sequence[int | None]) -> None:
    """Mark windows of local attention by a bracket and a diamond at the centre, what hard attention took by a ring."""
    m = view.weights.shape[2]
    last = max((column for column in columns if column is not None), default=0)

    def along(place: float) -> float:
        """Map a place between pieces to one between units, whose middles are whole numbers."""
        piece = min(m - 1, max(0, math.floor(place + 0.5)))
        unit = columns[piece]
        if unit is None:
            return last + 0.5
        own = [index for index, each in enumerate(columns) if each == unit]
        part = (own.index(piece) + min(1.0, max(0.0, place + 0.5 - piece))) / len(own)
        return min(last + 0.5, unit - 0.5 + part)

    for piece, unit in enumerate(rows):
        if unit is None:
            continue
        if view.centre is not None:
            reach = view.radius
            centre = float((view.centre.float().mean(0) if head is None else view.centre[head])[piece])
            if reach is not None:
                axes.plot([along(centre - reach), along(centre + reach)], [unit, unit], "|-", color=INK, ms=6, lw=0.9)
            axes.plot([along(centre)], [unit], "D", ms=4.5, mfc="white", mec=INK, mew=0.9)
        if view.picked is not None:
            for key in {int(each[piece]) for each in (view.picked if head is None else view.picked[head : head + 1])}:
                column = columns[key] if 0 <= key < m else None
                if column is not None:
                    axes.plot([column], [unit], "o", ms=9, mfc="none", mec=INK, mew=1.2)


# ---- pictures


def _draw_places(
    exhibit: Exhibit,
    view: View,
    weights: Float[Tensor, "n m"],
    grid: tuple[int, int],
    *,
    with_places: bool,
    stretch: bool,
) -> Figure:
    """Draw a panel a word; or a panel each of five places, framed, that look at the others."""
    if with_places:
        spread = ((0.25, 0.25), (0.25, 0.75), (0.5, 0.5), (0.75, 0.25), (0.75, 0.75))
        at = sorted({int(y * grid[0]) * grid[1] + int(x * grid[1]) for y, x in spread})
        maps, names = weights[at], [f"{place // grid[1] + 1}, {place % grid[1] + 1}" for place in at]
    else:
        rows, names = units_of(exhibit.sides.get(view.rows), len(weights))
        maps, at = merge(weights, rows, range(weights.shape[-1])), []
    maps = maps.clamp(min=0).cpu().double()
    scale = replace(weight_scale(maps, stretch), colours=VEIL)
    across = min(ACROSS, len(maps) + 1)
    down = -(-(len(maps) + 1) // across)
    figure = Drawing(figsize=(1.45 * across + 0.1, 1.75 * down + 0.45), layout="constrained", facecolor="white")
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    background = None if exhibit.picture is None else exhibit.picture.movedim(0, -1).numpy()
    height, width = grid if background is None else background.shape[:2]
    for index, axes in enumerate(panels):
        axes.set_axis_off()
        if index > len(maps):
            continue
        paper = np.full((1, 1, 3), 245, np.uint8) if background is None else background
        axes.imshow(paper, extent=(0, width, height, 0))
        if index == 0:
            continue
        axes.set_title(names[index - 1], fontsize=9, color=INK, pad=3, fontfamily=fonts(), parse_math=False)
        veil = _veil((maps[index - 1].reshape(grid) / scale.high).numpy())
        axes.imshow(veil, extent=(0, width, height, 0), interpolation="bilinear")
        if with_places:
            tall, wide = height / grid[0], width / grid[1]
            where = (at[index - 1] % grid[1] * wide, at[index - 1] // grid[1] * tall)
            for colour, line in (("black", 2.6), ("white", 1.2)):
                axes.add_patch(Rectangle(where, wide, tall, fill=False, edgecolor=colour, linewidth=line))
    draw_bar(figure, scale, panels, (1.45 * across, 0.0))
    return figure


def _veil(shares: Any) -> Any:
    """Return red, green, blue and opacity over a picture: dark where nothing looks, thinly light where all do.

    Brightness grows with the root of a weight, as the bar shows: a picture has so many places that most weights are
    small.
    """
    bright = np.sqrt(np.clip(shares, 0.0, 1.0))
    veil = np.zeros((*bright.shape, 4))
    veil[..., :3] = (0.05 + 0.95 * bright)[..., None]
    veil[..., 3] = DIM * (1 - bright) + LIFT * bright
    return veil


GREY_VEIL = _veil(np.linspace(0.0, 1.0, 256))  # over grey, for the bar
VEIL = ListedColormap(GREY_VEIL[..., :3] * GREY_VEIL[..., 3:] + 0.6 * (1 - GREY_VEIL[..., 3:]))


# ---- documents and trees


def units_of(side: Side | None, count: int, whole: bool = False) -> Units:
    """Return for each piece the unit it is drawn in, and the units' names; punctuation is a unit of its own.

    `whole` keeps START, END and the like as units: what they take of a row is seen.
    """
    if side is None:
        return range(count), [str(index + 1) for index in range(count)]
    if all(word is None for word in side.words):
        return range(count), list(map(replace_surrogates, side.pieces))
    side = separate_marks(side)
    side = count_specials(side) if whole else side
    last = max(word for word in side.words if word is not None)
    return side.words, [*map(replace_surrogates, side.texts), *[""] * (last + 1)][: last + 1]


def replace_surrogates(text: str) -> str:
    """Replace halves of letters, which no font can draw."""
    return text.encode("utf-8", "replace").decode()


def draw_document(exhibit: Exhibit, words: Float[Tensor, " m"] | None, stretch: bool) -> Figure:
    """Draw words shaded by √(sentence) × word as in Yang et al. 2016, a bar before each sentence."""
    by_role: dict[str, View] = {view.role: view for view in exhibit.views}
    whole = by_role.get("sentences")
    counts = None if whole is None else whole.weights.float().mean(0)[0].tolist()
    if words is None:
        if "words" not in by_role:
            assert whole is not None
            texts = list(map(replace_surrogates, exhibit.sides[whole.columns].pieces))
            return heatmap(whole.weights.mean(0), texts, [""], title=whole.title, stretch=stretch)
        words = by_role["words"].weights.float().mean(0)[0]
    side = exhibit.sides[by_role["words"].columns]
    ids, names = units_of(side, len(words))
    shares = merge(words[None], [0], ids)[0].tolist()
    lines: dict[int, list[tuple[str, float]]] = {}
    for unit, (name, share) in enumerate(zip(names, shares, strict=True)):
        own = [piece for piece, each in enumerate(ids) if each == unit]
        number = side.sentences[own[0]] if side.sentences is not None and own else 0
        strength = share * math.sqrt(counts[number]) if counts is not None else share
        lines.setdefault(number, []).append((name, strength))
    return draw_shaded(lines, counts, stretch)


def draw_shaded(lines: dict[int, list[tuple[str, float]]], counts: list[float] | None, stretch: bool) -> Figure:
    size, wide, step, left = 9.5, 6.6, 0.24, 1.0 if counts is not None else 0.1  # points, and inches
    font = FontProperties(family=fonts(), size=size)
    renderer = FigureCanvasAgg(Figure(dpi=72)).get_renderer()
    strengths = torch.tensor([strength for line in lines.values() for _, strength in line])
    scale = weight_scale(strengths, stretch, "√(sentence) × word" if counts is not None else "weight of a word")
    placed: list[tuple[float, float, float, str, float]] = []
    firsts: dict[int, float] = {}
    y = 0.65  # below the bar of the scale
    for number, line in lines.items():
        x, firsts[number] = left, y
        for word, strength in line:
            width = renderer.get_text_width_height_descent(word, font, False)[0] / 72
            if x > left and x + width > wide:
                x, y = left, y + step
            placed.append((x, y, width, word, strength))
            x += width + 0.09
        y += step * (1.3 if counts is not None else 1.0)
    figure = Drawing(figsize=(wide + 0.1, y + 0.1), facecolor="white")
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, wide + 0.1), ylim=(y + 0.1, 0))
    axes.set_axis_off()
    for number, (x, at, width, word, strength) in enumerate(placed):
        shade = scale.colours(strength / scale.high)
        box = Rectangle((x - 0.03, at - 0.1), width + 0.06, 0.2, facecolor=shade, linewidth=0)
        box.set_gid(f"shade-{number}")  # a page turns it around on dark paper, where letters are light
        axes.add_patch(box)
        ink = letters_on(shade)
        axes.text(x, at + 0.005, word, fontproperties=font, color=ink, va="center_baseline", parse_math=False)
    room = (1.8, 0.09)
    where = (wide - 1.85) / (wide + 0.1), 1 - 0.18 / (y + 0.1), room[0] / (wide + 0.1), room[1] / (y + 0.1)
    draw_bar(figure, scale, [figure.add_axes(where)], room, within=True)
    if counts is not None:
        end = next((each for each in SCALE_ENDS if stretch and max(counts) <= each), 1.0)
        axes.text(0.1, 0.4, f"share of the document, 0 to {end:g}", fontsize=6.5, color=FAINT, va="center")
    for number, at in firsts.items() if counts is not None else ():
        assert counts is not None
        length = 0.5 * counts[number] / end
        axes.add_patch(Rectangle((0.1, at - 0.05), 0.5, 0.1, facecolor="none", edgecolor=RULE, linewidth=0.6))
        axes.add_patch(Rectangle((0.1, at - 0.05), length, 0.1, facecolor=SEQUENTIAL(0.8), linewidth=0))
        axes.text(0.88, at, f"{counts[number]:.2f}", fontsize=7.5, color=FAINT, va="center", ha="right")
    return figure


def draw_dependencies(
    weights: Float[Tensor, "n n"],
    words: Sequence[str],
    heads: Sequence[int],
    relations: Sequence[str],
    title: str,
    *,
    stretch: bool = False,
) -> Figure:
    """Draw the tree of words, each with its head (-1 for the root) and relation, beside weights between them."""
    words = [cut_word(word, MAX_LETTERS) for word in words]
    centres, wide = place_words(words, relations)
    strongest = [int(row.argmax()) if float(row.max()) > 0 else -1 for row in weights]
    tree = [(word, head) for word, head in enumerate(heads) if head >= 0]
    looks = [(word, at) for word, at in enumerate(strongest) if at not in (-1, word)]
    over, under = arc_levels(tree), arc_levels(looks)
    above, below = (RISE + LEVEL * (max(levels, default=0) + 1) for levels in (over, under))
    left, top = 0.085 * max(map(text_width, words)) + 0.3, 0.062 * max(map(text_width, words)) + 0.2
    size = CELL * len(words)
    high = max(above + 0.5 + below, top + size + 0.35)
    total = wide + left + size + 0.62
    figure = Drawing(figsize=(total, high), facecolor="white")
    base = high / 2 - (above - below) / 2  # the line that the words stand on
    axes = figure.add_axes((0.0, 0.0, wide / total, 1.0))
    axes.set(xlim=(0, wide), ylim=(0, high), xticks=[], yticks=[])
    axes.set_axis_off()
    for place, text in zip(centres, words, strict=True):
        axes.text(place, base, text, ha="center", va="center", fontsize=11, color=INK, fontfamily=fonts())
    hits = {pair for pair in looks if heads[pair[0]] == pair[1] or heads[pair[1]] == pair[0]}
    for (word, head), level in zip(tree, over, strict=True):
        follows = (word, head) in hits or (head, word) in hits
        y = base + 0.17 + RISE + LEVEL * level
        draw_arc(axes, (centres[word], centres[head]), base + 0.17, y, INK if follows else FAINT, 1.0)
        middle = (centres[word] + centres[head]) / 2
        axes.text(middle, y + 0.02, relations[word], ha="center", va="bottom", fontsize=8, color=INK)
    for word, head in enumerate(heads):
        if head < 0:
            axes.plot([centres[word]] * 2, [base + 0.19, base + 0.17 + above], color=FAINT, linewidth=1.0)
            axes.text(centres[word] + 0.05, base + 0.17 + above, "root", va="top", fontsize=8, color=FAINT)
    for pair, level in zip(looks, under, strict=True):
        width = 0.8 + 1.8 * float(weights[pair])
        style = "solid" if pair in hits else (0, (2, 2))
        y = base - 0.17 - RISE - LEVEL * level
        draw_arc(axes, (centres[pair[0]], centres[pair[1]]), base - 0.17, y, LOOK, width, style)
    for word, at in enumerate(strongest):
        if at == word:
            axes.plot([centres[word] + 0.08], [base - 0.26], "o", ms=4, mfc="none", mec=LOOK)
    panel = figure.add_axes(((wide + left) / total, (high - top - size) / high, size / total, size / high))
    scale = weight_scale(weights, stretch)
    draw_panel(panel, weights.double(), list(words), list(words), title, CELL, scale)
    x, y = (wide + left + size + 0.12) / total, (high - top - size) / high
    draw_bar(figure, scale, [figure.add_axes((x, y, 0.09 / total, size / high))], (0.09, size), within=True)
    return figure


def place_words(words: Sequence[str], relations: Sequence[str]) -> tuple[list[float], float]:
    """Place the middle of each word, in inches; also how wide all are."""
    centres, x = list[float](), SIDE
    for word, relation in zip(words, relations, strict=True):
        width = max(LETTER * text_width(word), LABEL * text_width(relation), 0.3)
        centres.append(x + width / 2)
        x += width + GAP
    return centres, x - GAP + SIDE


def arc_levels(pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Choose the height of each arc: over those that it covers, and apart from those that it crosses."""
    ends = [(min(pair), max(pair)) for pair in pairs]
    levels = dict[int, int]()
    for k in sorted(range(len(pairs)), key=lambda k: ends[k][1] - ends[k][0]):
        blocked = {level for j, level in levels.items() if ends[j][0] < ends[k][1] and ends[k][0] < ends[j][1]}
        levels[k] = next(level for level in range(len(pairs)) if level not in blocked)
    return [levels[k] for k in range(len(pairs))]


def draw_arc(
    axes: Axes, ends: tuple[float, float], base: float, y: float, colour: object, width: float, style: object = "solid"
) -> None:
    """Draw an arc over `base`, or under it, as far as `y`, with a point at its end."""
    start, end = ends
    end += 0.06 if end < start else -0.06
    bend = min(BEND, abs(end - start) / 2) * (1 if start < end else -1)
    points = [
        *((start, base), (start, (base + y) / 2), (start, y), (start + bend, y)),
        *((end - bend, y), (end, y), (end, (base + y) / 2), (end, base)),
    ]
    codes = [shapes.Path.MOVETO, *[shapes.Path.CURVE4] * 3, shapes.Path.LINETO, *[shapes.Path.CURVE4] * 3]
    axes.add_patch(
        PathPatch(shapes.Path(points, codes), fill=False, edgecolor=colour, linewidth=width, linestyle=style)
    )
    axes.plot([end], [base], "o", ms=3, color=colour)
