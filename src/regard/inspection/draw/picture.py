"""Pictures of an exhibit for papers: heat maps, film strips of captions, shaded documents, grids; bars for terminals.

`picture` draws a still image of a page's content and chooses the kind by the exhibit. Rows of a heat map are queries
(the target), columns are keys (the source), as in figure 3 of Bahdanau et al. 2015 (arXiv:1409.0473).

A document's words are shaded by their weight, with a bar before each sentence. A dependency tree is drawn as arcs
above the words, and the strongest weight of each word as an arc below them, beside a heat map of the weights. As on
the page, a solid line below means that the attention head links a word with its head in the tree, in either direction.
"""

# h heads · n rows, queries or words · m columns, keys or pieces · y x rows and columns of a grid
import math
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib import font_manager
from matplotlib import path as shapes
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.image import AxesImage
from matplotlib.patches import PathPatch, Rectangle
from torch import Tensor

from regard.attention import Look
from regard.errors import ArgumentError, ShapeError
from regard.inspection.collect.exhibit import (
    Exhibit,
    View,
    as_exhibit,
    as_stack,
    check_words,
    count_specials,
    merge,
    separate_marks,
)
from regard.inspection.draw.plot import (
    FAINT,
    INK,
    RULE,
    SEQUENTIAL,
    Drawing,
    Scale,
    draw_bar,
    is_dark,
    letters_on,
    list_scales,
    save,
    share,
    weight_scale,
)
from regard.tasks import Side

DIM, LIFT = 0.72, 0.18  # opacity of the dark veil at weight 0 and of the light veil at weight 1
ACROSS = 7  # maximum number of panels in a row
SCALE_ENDS = (0.1, 0.2, 0.25, 0.5)  # upper ends of the sentence bars with `stretch`; otherwise 1
LEVEL, RISE, BEND = 0.24, 0.14, 0.14  # inches: between levels of arcs, of the lowest arc, and of an arc's corners
LETTER, LABEL, GAP, SIDE = 0.105, 0.075, 0.22, 0.15  # inches: a word's letter, a relation's, between words, margin
CELL = 0.46
MAX_LETTERS = 60  # maximum width of a label, in terminal columns
SHADES = " ░▒▓█"
STEPS = (0.05, 0.25, 0.5, 0.75)
# DejaVu comes with matplotlib; the others, if installed, provide letters that it lacks.
FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Hiragino Sans", "Arial Unicode MS", "Noto Sans")
LOOK = SEQUENTIAL(0.85)
Units = tuple[Sequence[int | None], list[str]]  # the drawn unit of each piece, and the names of the units


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
    """Draw an exhibit, or a `Look` with its source and target words.

    Text becomes a heat map between words; a caption a film strip with a panel per word, as in Xu et al. 2015; a
    document a text with shaded words; a ConvNet's self-attention a panel for each of five places. The default `view` is
    the one nearest to an alignment, with the exhibit's own head. A named view without a `head` (from 0) is drawn with
    all of its heads. One head of self-attention is drawn with the text's dependency tree, if known.
    Colours range from 0 to 1 or, with `stretch`, to the largest weight of the picture. With a `path` the figure is also
    saved, as PNG, SVG or PDF depending on the suffix.
    """
    exhibit = as_exhibit(what, source, target)
    figure = draw_view(exhibit, *select(exhibit, view, head), stretch)
    if path is not None:
        save(figure, path)
    return figure


def draw_view(exhibit: Exhibit, view: View, heads: list[int | None], stretch: bool) -> Figure:
    rows, columns = exhibit.sides.get(view.rows), exhibit.sides.get(view.columns)
    weights = view.weights.detach().float().cpu()
    weights = torch.stack([weights.mean(0) if head is None else weights[head] for head in heads])
    if columns is not None and columns.grid is not None:
        with_places = rows is not None and rows.grid is not None
        return draw_places(exhibit, view, weights.mean(0), columns.grid, with_places=with_places, stretch=stretch)
    if view.role in ("words", "sentences"):
        return draw_document(exhibit, weights.mean(0)[0] if view.role == "words" else None, stretch)
    name = view.title
    if len(heads) == 1 < len(view.weights):  # if there are several panels, each is labelled with its head
        name += ", mean of heads" if heads[0] is None else f", head {heads[0] + 1}"
    tree = exhibit.dependencies
    if tree is not None and view.rows == view.columns == tree.side and len(heads) == 1:
        side = exhibit.sides[tree.side]  # has the same words as the tree
        texts = list(map(replace_surrogates, side.texts))
        merged = merge(weights, side.words, side.words)[0]
        return draw_dependencies(merged, texts, tree.heads, tree.relations, name, stretch=stretch)
    if exhibit.offset == 1 and view.name == exhibit.aligned and view.rows == "written":
        rows = exhibit.sides.get("read", rows)  # with offset 1 a row aligns the word that is read
    # Include special tokens if a text attends to itself, so that rows and columns are the same.
    down, names = units_of(rows, view.weights.shape[1], whole=view.rows == view.columns)
    across, words = units_of(columns, view.weights.shape[2], whole=True)
    figure = heatmap(merge(weights, down, across), words, names, title=name, stretch=stretch)
    for axes, each in zip(figure.axes, heads, strict=False):
        mark(axes, view, each, down, across)
    return figure


def select(exhibit: Exhibit, name: str | None, head: int | None) -> tuple[View, list[int | None]]:
    """Choose the view and the heads to draw; None instead of a head means the mean over heads."""
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


def mark(axes: Axes, view: View, head: int | None, rows: Sequence[int | None], columns: Sequence[int | None]) -> None:
    """Mark the windows of local attention (bracket, diamond at the centre) and hard attention's choices (ring)."""
    m = view.weights.shape[2]
    last = max((column for column in columns if column is not None), default=0)

    def along(place: float) -> float:
        """Convert a position in pieces to one in units; a unit's centre is a whole number."""
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


def draw_places(
    exhibit: Exhibit,
    view: View,
    weights: Float[Tensor, "n m"],
    grid: tuple[int, int],
    *,
    with_places: bool,
    stretch: bool,
) -> Figure:
    """Draw one panel per word or, `with_places`, one panel for each of five framed places and its weights."""
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
        veil = veil_of((maps[index - 1].reshape(grid) / scale.high).numpy())
        axes.imshow(veil, extent=(0, width, height, 0), interpolation="bilinear")
        if with_places:
            tall, wide = height / grid[0], width / grid[1]
            where = (at[index - 1] % grid[1] * wide, at[index - 1] // grid[1] * tall)
            for colour, line in (("black", 2.6), ("white", 1.2)):
                axes.add_patch(Rectangle(where, wide, tall, fill=False, edgecolor=colour, linewidth=line))
    draw_bar(figure, scale, panels, (1.45 * across, 0.0))
    return figure


def veil_of(shares: Any) -> Any:
    """Return an RGBA overlay for a picture: dark where the weight is 0, slightly light where it is 1.

    Brightness grows with the square root of the weight, as the bar shows: a picture has many places, so that most
    weights are small.
    """
    bright = np.sqrt(np.clip(shares, 0.0, 1.0))
    grey = 0.05 + 0.95 * bright
    return np.stack([grey, grey, grey, DIM * (1 - bright) + LIFT * bright], -1)


GREY_VEIL = veil_of(np.linspace(0.0, 1.0, 256))  # blended with grey for the colour bar
VEIL = ListedColormap(GREY_VEIL[..., :3] * GREY_VEIL[..., 3:] + 0.6 * (1 - GREY_VEIL[..., 3:]))


# ---- documents and trees


def units_of(side: Side | None, count: int, whole: bool = False) -> Units:
    """Return the drawn unit of each piece and the units' names; punctuation marks are separate units.

    With `whole`, special tokens such as START and END are units too, so that their share of a row is visible.
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
    """Replace unpaired surrogates, which no font can draw."""
    return text.encode("utf-8", "replace").decode()


def draw_document(exhibit: Exhibit, words: Float[Tensor, " m"] | None, stretch: bool) -> Figure:
    """Draw words shaded by √(sentence weight) × word weight as in Yang et al. 2016, with a bar before each sentence."""
    by_role = {str(view.role): view for view in exhibit.views}
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
    for unit, (name, part) in enumerate(zip(names, shares, strict=True)):
        own = [piece for piece, each in enumerate(ids) if each == unit]
        number = side.sentences[own[0]] if side.sentences is not None and own else 0
        strength = part * math.sqrt(counts[number]) if counts is not None else part
        lines.setdefault(number, []).append((name, strength))
    return draw_shaded(lines, counts, stretch)


def draw_shaded(lines: dict[int, list[tuple[str, float]]], counts: list[float] | None, stretch: bool) -> Figure:
    size, wide, step, left = 9.5, 6.6, 0.24, 1.0 if counts is not None else 0.1  # points; the others in inches
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
        box.set_gid(f"shade-{number}")  # a page's dark theme inverts the box by this name
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
    """Draw a dependency tree, each word with its head (-1 for the root) and relation, beside the words' weights."""
    words = [cut_word(word, MAX_LETTERS) for word in words]
    centres, wide = list[float](), SIDE - GAP  # the centre of each word, and the total width
    for text, relation in zip(words, relations, strict=True):
        width = max(LETTER * text_width(text), LABEL * text_width(relation), 0.3)
        centres.append(wide + GAP + width / 2)
        wide += GAP + width
    wide += SIDE
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
    base = high / 2 - (above - below) / 2  # the y coordinate of the words
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


def arc_levels(pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Choose the level of each arc: above the arcs that it spans, and different from those that it crosses."""
    ends = [(min(pair), max(pair)) for pair in pairs]
    levels = dict[int, int]()
    for k in sorted(range(len(pairs)), key=lambda k: ends[k][1] - ends[k][0]):
        blocked = {level for j, level in levels.items() if ends[j][0] < ends[k][1] and ends[k][0] < ends[j][1]}
        levels[k] = next(level for level in range(len(pairs)) if level not in blocked)
    return [levels[k] for k in range(len(pairs))]


def draw_arc(
    axes: Axes, ends: tuple[float, float], base: float, y: float, colour: object, width: float, style: object = "solid"
) -> None:
    """Draw an arc from and to the line `base`, up or down to `y`, with a dot at its end."""
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


# ---- heat maps


def heatmap(
    weights: Any,
    source: Sequence[str] | None = None,
    target: Sequence[str] | None = None,
    *,
    title: str | Sequence[str] | None = None,
    stretch: bool = False,
    path: str | Path | None = None,
) -> Figure:
    """Draw attention weights as a heat map; several heads become small multiples.

    `weights` is a `Look`, or a tensor or nested list with a matrix [n, m] or a stack [h, n, m]; leading dimensions of
    size one are dropped. `source` names the m columns and `target` the n rows. `title` is one title for the figure, or
    one for each panel. Colours range from 0 to 1 or, with `stretch`, to the largest weight of the picture; the bar
    shows the range. Numbers that are not weights, such as scores, have their own scale. With a `path` the figure is
    also saved, as PNG, SVG or PDF depending on the suffix.
    """
    stack = to_stack(weights)
    panels, n, m = stack.shape
    source, target = (
        [cut_word(word[: MAX_LETTERS + 1], MAX_LETTERS) for word in words]
        for words in (label_positions("source", source, m), label_positions("target", target, n))
    )
    heading, names = title, [f"head {index + 1}" for index in range(panels)] if panels > 1 else [""]
    if title is not None and not isinstance(title, str):
        if len(title) != panels:
            raise ShapeError(f"title: one title or one for each of {panels} panels was expected, got {len(title)}")
        heading, names = None, list(map(str, title))
    scales = list_scales(stack, stretch)
    if m > 24 or panels == 4:  # two columns; otherwise one row if the panels fit, else three or four columns
        columns = min(panels, 2)
    else:
        columns = panels if panels <= 5 and m <= 8 else min(panels, 4 if panels > 4 else 3)
    rows = -(-panels // columns)
    cell = min(0.46, max(0.11, 6.5 / max(n, m))) if panels == 1 else min(0.36, max(0.09, 4.0 / max(n, m)))
    left = 0.085 * max(map(text_width, target), default=0) + 0.25
    top = 0.07 * max(map(text_width, source), default=0) + 0.5
    apart = 0.5 * len(set(scales))  # inches for the colour bars
    size = (
        max(columns * (m * cell + 0.2) + left + 0.2 + apart, 2.2),
        max(rows * (n * cell + top + 0.35) + 0.3 + (apart if rows * n * cell < 1.1 else 0.0), 1.4),
    )

    figure = Drawing(figsize=size, layout="constrained", facecolor="white")
    figure.get_layout_engine().set(h_pad=0.06, w_pad=0.05)  # type: ignore[union-attr, call-arg]
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for index, axes in enumerate(grid):
        if index >= panels:
            axes.set_axis_off()
            continue
        down = target if index % columns == 0 else [""] * n
        draw_panel(axes, stack[index], source, down, names[index], cell, scales[index])
    for scale in dict.fromkeys(scales):
        own = [axes for axes, each in zip(grid, scales, strict=False) if each == scale]
        beside = grid if len(set(scales)) == 1 else own
        draw_bar(figure, scale, beside, (m * cell * min(columns, len(own)), n * cell * rows))
    if isinstance(heading, str) and heading:
        figure.suptitle(heading, fontsize=11, color=INK, fontfamily=fonts(), parse_math=False)
    if path is not None:
        save(figure, path)
    return figure


def draw_panel(
    axes: Axes, matrix: Tensor, source: list[str], target: list[str], name: str, cell: float, scale: Scale
) -> AxesImage:
    """Draw one matrix with its words, in cells of `cell` inches, with the colours of `scale`."""
    image = axes.imshow(matrix.numpy(), cmap=scale.colours, vmin=scale.low, vmax=scale.high, aspect="equal")
    size = 9.0 if cell >= 0.3 else max(4.5, cell * 34)
    upright = all(text_width(word) * size / 72 * 0.62 <= cell for word in source)
    axes.set_xticks(range(len(source)), labels=source, parse_math=False)
    axes.set_yticks(range(len(target)), labels=target, parse_math=False)
    axes.tick_params(
        top=True, labeltop=True, bottom=False, labelbottom=False, length=0, pad=3, colors=INK, labelsize=size
    )
    for label in [*axes.get_xticklabels(), *axes.get_yticklabels()]:
        label.set_fontfamily(fonts())
    for label in () if upright else axes.get_xticklabels():
        label.set(rotation=45, ha="left", va="bottom", rotation_mode="anchor")
    # Thin white lines separate the cells.
    axes.set_xticks([j - 0.5 for j in range(1, len(source))], minor=True)
    axes.set_yticks([i - 0.5 for i in range(1, len(target))], minor=True)
    if cell >= 0.14:
        axes.grid(which="minor", color="white", linewidth=1.0)
    axes.tick_params(which="minor", length=0)
    for spine in axes.spines.values():
        spine.set(color=RULE, linewidth=0.8)
    if name:
        room = max(12, int(len(source) * cell / 0.085))  # characters that fit below the panel
        axes.set_xlabel(
            textwrap.fill(name, room), fontsize=9, color=INK, labelpad=6, fontfamily=fonts(), parse_math=False
        )
    if cell >= 0.28:
        for i, row in enumerate(matrix.tolist()):
            for j, value in enumerate(row):
                text = share(value)
                if text in ("0", "-0"):
                    continue
                dark = is_dark(scale.colours((value - scale.low) / (scale.high - scale.low)))
                style: dict[str, Any] = {"fontsize": min(8.0, cell * 17.5), "color": "white" if dark else INK}
                axes.text(j, i, text, ha="center", va="center", fontfamily="DejaVu Sans", **style)
    return image


def bars(
    weights: Any, source: Sequence[str] | None = None, target: Sequence[str] | None = None, *, width: int = 80
) -> str:
    """Draw attention weights with shade blocks for a terminal of `width` columns.

    The source words are printed above their columns, side by side if they fit, otherwise as a staircase. A matrix that
    is still too wide is split into parts, printed one below the other; so are several heads. Long words are truncated.
    """
    stack = to_stack(weights)
    panels, n, m = stack.shape
    source, target = label_positions("source", source, m), label_positions("target", target, n)
    target = [cut_word(word, max(8, width // 4)) for word in target]
    margin = max(map(text_width, target), default=0)
    top = float(stack.max())
    unit = 1.0 if 0.0 < top <= 1.0 else max(top, 1e-30)  # numbers that are not shares are divided by the largest
    most = max(1, (width - margin - 8) // 2)  # columns that fit as a staircase, with space for the last word
    lines: list[str] = []
    for index in range(panels):
        if panels > 1:
            lines += [f"head {index + 1}"]
        for first in range(0, m, most):
            part = slice(first, first + most)
            header, wide, gap = header_lines(source[part], margin, width)
            lines += [line.rstrip() for line in header]
            for word, row in zip(target, (stack[index, :, part] / unit).tolist(), strict=True):
                cells = "".join(
                    gap + SHADES[sum(value >= step for step in STEPS)] * size
                    for value, size in zip(row, wide, strict=True)
                )
                lines.append((" " * (margin - text_width(word)) + word + cells).rstrip())
            lines.append("")
    key = "  ".join(f"{shade} {share(step * unit)}" for shade, step in zip(SHADES[1:], STEPS, strict=True))
    lines.append(" " * margin + gap + key + " and more")
    return "\n".join(lines)


def header_lines(source: list[str], margin: int, width: int) -> tuple[list[str], list[int], str]:
    """Return the lines above the columns, the width of each column, and the gap between columns."""
    for least, gap in ((4, "  "), (3, " "), (2, " ")):
        wide = [max(text_width(word), least) for word in source]
        if margin + sum(wide) + len(gap) * len(source) <= width:
            padded = (gap + word + " " * (size - text_width(word)) for word, size in zip(source, wide, strict=True))
            return [" " * margin + "".join(padded)], wide, gap
    for size in (3, 1):
        stairs = [" " * margin + (" " + "│".ljust(size)) * j + " ┌ " for j in range(len(source))]
        if all(len(stair) + text_width(word) <= width for stair, word in zip(stairs, source, strict=True)):
            break
    cut = [stair + cut_word(word, width - len(stair)) for stair, word in zip(stairs, source, strict=True)]
    return cut, [size] * len(source), " "


def to_stack(weights: Any) -> Tensor:
    """Convert a `Look`, a tensor or nested lists to finite float64 [h, n, m]."""
    weights = torch.as_tensor(getattr(weights, "weights", weights)).detach().cpu().double()
    weights = as_stack(weights, "weights: one matrix [n, m] or a stack [heads, n, m] can be drawn, got")
    if not bool(weights.isfinite().all()):
        raise ArgumentError("weights: all must be finite to be drawn, got infinity or NaN")
    return weights


def label_positions(name: str, words: Sequence[str] | None, count: int) -> list[str]:
    if words is None:  # label every position by its index, or every `step`-th position of more than 12
        step = max(1, round(count / 8 / 5) * 5) if count > 12 else 1
        return [str(index) if index % step == 0 else "" for index in range(count)]
    return check_words(name, words, count)


def text_width(word: str) -> int:
    """Count the terminal columns of a word: two for wide letters, none for combining marks."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in word
    )


def cut_word(word: str, size: int) -> str:
    """Truncate a word to at most `size` terminal columns, with … at the end if it is longer."""
    if text_width(word) <= size:
        return word
    while word and text_width(word) > size - 1:
        word = word[:-1]
    return word + "…" if size > 0 else ""


def fonts() -> list[str]:
    """List the installed fonts for words, in the order in which matplotlib searches them for a letter."""
    installed = set(font_manager.fontManager.get_font_names())
    return [font for font in FONTS if font in installed]
