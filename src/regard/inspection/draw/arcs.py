"""A dependency tree as arcs over the words, where a head of attention looks most as arcs under them, and its weights.

As the page draws them: a full line where the head of attention leads from a word to its head in the tree, or back.
"""

# n words
from collections.abc import Sequence

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from torch import Tensor

from regard.inspection.draw.colours import FAINT, INK, SEQUENTIAL, draw_bar, weight_scale
from regard.inspection.draw.heatmap import LONGEST, Drawing, cut_word, draw_panel, fonts, text_width

LEVEL, RISE, BEND = 0.24, 0.14, 0.14  # inches: from an arc to the one over it, of the lowest, and of its corners
LETTER, LABEL, GAP, SIDE = 0.105, 0.075, 0.22, 0.15  # inches: of a word, of a relation, between words, at the edges
CELL = 0.46
LOOK = SEQUENTIAL(0.85)


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
    words = [cut_word(word, LONGEST) for word in words]
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
        y = draw_arc(axes, centres[word], centres[head], base + 0.17, level, INK if follows else FAINT, 1.0)
        axes.text(
            (centres[word] + centres[head]) / 2,
            y + 0.02,
            relations[word],
            ha="center",
            va="bottom",
            fontsize=8,
            color=INK,
        )
    for word, head in enumerate(heads):
        if head < 0:
            axes.plot([centres[word]] * 2, [base + 0.19, base + 0.17 + above], color=FAINT, linewidth=1.0)
            axes.text(centres[word] + 0.05, base + 0.17 + above, "root", va="top", fontsize=8, color=FAINT)
    for pair, level in zip(looks, under, strict=True):
        width = 0.8 + 1.8 * float(weights[pair])
        style = "solid" if pair in hits else (0, (2, 2))
        draw_arc(axes, centres[pair[0]], centres[pair[1]], base - 0.17, level, LOOK, width, down=True, style=style)
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
    """The middle of each word, in inches, and how wide all are."""
    centres, x = list[float](), SIDE
    for word, relation in zip(words, relations, strict=True):
        width = max(LETTER * text_width(word), LABEL * text_width(relation), 0.3)
        centres.append(x + width / 2)
        x += width + GAP
    return centres, x - GAP + SIDE


def arc_levels(pairs: Sequence[tuple[int, int]]) -> list[int]:
    """The height of each arc: over those that it covers, and apart from those that it crosses."""
    ends = [(min(pair), max(pair)) for pair in pairs]
    levels = dict[int, int]()
    for k in sorted(range(len(pairs)), key=lambda k: ends[k][1] - ends[k][0]):
        blocked = {level for j, level in levels.items() if ends[j][0] < ends[k][1] and ends[k][0] < ends[j][1]}
        levels[k] = next(level for level in range(len(pairs)) if level not in blocked)
    return [levels[k] for k in range(len(pairs))]


def draw_arc(
    axes: Axes,
    start: float,
    end: float,
    base: float,
    level: int,
    colour: object,
    width: float,
    *,
    down: bool = False,
    style: object = "solid",
) -> float:
    """Draw an arc from a word to another, with a point at its end; returns how high it is."""
    end += 0.06 if end < start else -0.06
    y = base + (RISE + LEVEL * level) * (-1 if down else 1)
    bend = min(BEND, abs(end - start) / 2) * (1 if start < end else -1)
    points = [
        *((start, base), (start, (base + y) / 2), (start, y), (start + bend, y)),
        *((end - bend, y), (end, y), (end, (base + y) / 2), (end, base)),
    ]
    codes = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3]
    axes.add_patch(PathPatch(Path(points, codes), fill=False, edgecolor=colour, linewidth=width, linestyle=style))
    axes.plot([end], [base], "o", ms=3, color=colour)
    return y
