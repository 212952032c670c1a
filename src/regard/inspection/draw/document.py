"""Documents as pictures: words shaded by what they count, a bar before a sentence; and the words that pictures draw."""

# m pieces
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from torch import Tensor

from regard.inspection.collect.exhibit import Exhibit, Side, View
from regard.inspection.collect.sides import count_specials, merge, separate_marks
from regard.inspection.draw.colours import FAINT, RULE, SEQUENTIAL, draw_bar, letters_on, weight_scale
from regard.inspection.draw.heatmap import Drawing, fonts, heatmap

SCALE_ENDS = (0.1, 0.2, 0.25, 0.5)  # of the bars of sentences, from 0, where they are stretched; else 1


def units_of(
    side: Side | None, count: int, pieces: bool, whole: bool = False
) -> tuple[Sequence[int | None], list[str]]:
    """Return for each piece the unit it is drawn in, and the units' names; punctuation is a unit of its own.

    `whole` keeps START, END and the like as units: what they take of a row is seen.
    """
    if side is None:
        return range(count), [str(index + 1) for index in range(count)]
    if pieces or all(word is None for word in side.words):
        return range(count), list(map(replace_surrogates, side.pieces))
    side = separate_marks(side)
    side = count_specials(side) if whole else side
    last = max(word for word in side.words if word is not None)
    return side.words, [*map(replace_surrogates, side.texts), *[""] * (last + 1)][: last + 1]


def replace_surrogates(text: str) -> str:
    """A text without halves of letters, which no font can draw."""
    return text.encode("utf-8", "replace").decode()


def draw_document(exhibit: Exhibit, words: Float[Tensor, " m"] | None, stretch: bool) -> Figure:
    """Words shaded by √(sentence) × word as in Yang et al. 2016, a bar before each sentence."""
    by_role: dict[str, View] = {view.role: view for view in exhibit.views}
    whole = by_role.get("sentences")
    counts = None if whole is None else whole.weights.float().mean(0)[0].tolist()
    if words is None:
        if "words" not in by_role:
            assert whole is not None
            texts = units_of(exhibit.sides.get(whole.columns), whole.weights.shape[-1], True)[1]
            return heatmap(whole.weights.mean(0), texts, [""], title=whole.title, stretch=stretch)
        words = by_role["words"].weights.float().mean(0)[0]
    side = exhibit.sides[by_role["words"].columns]
    ids, names = units_of(side, len(words), False)
    shares = merge(words[None], [0], list(ids))[0].tolist()
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
