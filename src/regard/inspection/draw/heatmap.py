"""Pictures of attention weights: a heat map for papers and pages, shaded bars for a terminal.

Rows are queries (the target), columns are keys (the source), as in figure 3 of Bahdanau et al. 2015
(arXiv:1409.0473).

h heads · n queries · m keys
"""

import textwrap
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor

from regard.errors import ArgumentError, ShapeError
from regard.inspection.collect.exhibit import as_stack, check_words
from regard.inspection.draw.plot import INK, RULE, Drawing, Scale, draw_bar, is_dark, list_scales, save, share

MAX_LETTERS = 60  # letters of a word beside a picture

SHADES = " ░▒▓█"
STEPS = (0.05, 0.25, 0.5, 0.75)
# DejaVu comes with matplotlib; the others are used for letters it lacks, where they are installed.
FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Hiragino Sans", "Arial Unicode MS", "Noto Sans")


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

    `weights` is a Look, or anything that reads as a matrix [n, m] or a stack [h, n, m]; leading dimensions of one are
    dropped. `source` names the m columns and `target` the n rows. `title` is one title, or one for each panel.
    The colours of weights go from 0 to 1 in every picture, as the bar beside them says; with `stretch` to the largest
    that is drawn, which the bar names. What cannot be weights, such as scores, has a scale of its own. With a `path`
    the figure is also saved; the suffix chooses PNG, SVG or PDF.
    """
    stack = _stack(weights)
    panels, n, m = stack.shape
    source, target = (
        [cut_word(word[: MAX_LETTERS + 1], MAX_LETTERS) for word in words]
        for words in (_labels("source", source, m), _labels("target", target, n))
    )
    heading, names = _titles(title, panels)

    scales = list_scales(stack, stretch)
    if m > 24 or panels == 4:  # two by two; otherwise a row where they fit, and four at most
        columns = min(panels, 2)
    else:
        columns = panels if panels <= 5 and m <= 8 else min(panels, 4 if panels > 4 else 3)
    rows = -(-panels // columns)
    cell = min(0.46, max(0.11, 6.5 / max(n, m))) if panels == 1 else min(0.36, max(0.09, 4.0 / max(n, m)))
    left = 0.085 * max(map(text_width, target), default=0) + 0.25
    top = 0.07 * max(map(text_width, source), default=0) + 0.5
    apart = 0.5 * len(set(scales))  # the room of bars
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
    if heading:
        figure.suptitle(heading, fontsize=11, color=INK, fontfamily=fonts(), parse_math=False)
    if path is not None:
        save(figure, path)
    return figure


def draw_panel(
    axes: Axes, matrix: Tensor, source: list[str], target: list[str], name: str, cell: float, scale: Scale
) -> AxesImage:
    """Draw one matrix with its words, `cell` inches per number, in the colours of its scale."""
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
    if not upright:
        for label in axes.get_xticklabels():
            label.set(rotation=45, ha="left", va="bottom", rotation_mode="anchor")
    # Thin white lines between cells keep neighbours apart without drawing attention to themselves.
    axes.set_xticks([j - 0.5 for j in range(1, len(source))], minor=True)
    axes.set_yticks([i - 0.5 for i in range(1, len(target))], minor=True)
    if cell >= 0.14:
        axes.grid(which="minor", color="white", linewidth=1.0)
    axes.tick_params(which="minor", length=0)
    for spine in axes.spines.values():
        spine.set(color=RULE, linewidth=0.8)
    if name:
        room = max(12, int(len(source) * cell / 0.085))  # letters that fit under a panel
        axes.set_xlabel(
            textwrap.fill(name, room), fontsize=9, color=INK, labelpad=6, fontfamily=fonts(), parse_math=False
        )
    if cell >= 0.28:
        _write_values(axes, matrix, scale, size=min(8.0, cell * 17.5))
    return image


def bars(
    weights: Any, source: Sequence[str] | None = None, target: Sequence[str] | None = None, *, width: int = 80
) -> str:
    """Draw attention weights with shade blocks, for a terminal `width` columns wide.

    The source stands above its columns; where it does not fit side by side, as a staircase; where that does not fit
    either, in parts that follow one another, as several heads do. Words too long for the width are cut short.
    """
    stack = _stack(weights)
    panels, n, m = stack.shape
    source, target = _labels("source", source, m), _labels("target", target, n)
    target = [cut_word(word, max(8, width // 4)) for word in target]
    margin = max(map(text_width, target), default=0)
    top = float(stack.max())
    unit = 1.0 if 0.0 < top <= 1.0 else max(top, 1e-30)  # shares already; anything else is shown against its largest
    most = max(1, (width - margin - 8) // 2)  # columns that fit as a staircase, with room for the last one's word
    lines: list[str] = []
    for index in range(panels):
        if panels > 1:
            lines += [f"head {index + 1}"]
        for first in range(0, m, most):
            part = slice(first, first + most)
            header, wide, gap = _header(source[part], margin, width)
            lines += [line.rstrip() for line in header]
            for word, row in zip(target, (stack[index, :, part] / unit).tolist(), strict=True):
                cells = "".join(
                    gap + SHADES[sum(value >= step for step in STEPS)] * size
                    for value, size in zip(row, wide, strict=True)
                )
                lines.append((_pad(word, margin, right=True) + cells).rstrip())
            lines.append("")
    key = "  ".join(f"{shade} {share(step * unit)}" for shade, step in zip(SHADES[1:], STEPS, strict=True))
    lines.append(" " * margin + gap + key + " and more")
    return "\n".join(lines)


def _header(source: list[str], margin: int, width: int) -> tuple[list[str], list[int], str]:
    """Lay out the lines above the columns, the width of each column, and what stands between two."""
    for least, gap in ((4, "  "), (3, " "), (2, " ")):
        wide = [max(text_width(word), least) for word in source]
        if margin + sum(wide) + len(gap) * len(source) <= width:
            return [" " * margin + "".join(gap + _pad(w, k) for w, k in zip(source, wide, strict=True))], wide, gap
    for size in (3, 1):
        stairs = [" " * margin + (" " + "│".ljust(size)) * j + " ┌ " for j in range(len(source))]
        if all(len(stair) + text_width(word) <= width for stair, word in zip(stairs, source, strict=True)):
            break
    cut = [stair + cut_word(word, width - len(stair)) for stair, word in zip(stairs, source, strict=True)]
    return cut, [size] * len(source), " "


def _stack(weights: Any) -> Tensor:
    """Read a Look, a tensor or nested lists as finite float64 [h, n, m]."""
    weights = torch.as_tensor(getattr(weights, "weights", weights)).detach().cpu().double()
    weights = as_stack(weights, "weights: one matrix [n, m] or a stack [heads, n, m] can be drawn, got")
    if not bool(weights.isfinite().all()):
        raise ArgumentError("weights: all must be finite to be drawn, got infinity or NaN")
    return weights


def _labels(name: str, words: Sequence[str] | None, count: int) -> list[str]:
    if words is None:  # the index of every position, or of every so many
        step = max(1, round(count / 8 / 5) * 5) if count > 12 else 1
        return [str(index) if index % step == 0 else "" for index in range(count)]
    return check_words(name, words, count)


def _titles(title: str | Sequence[str] | None, panels: int) -> tuple[str, list[str]]:
    heads = [f"head {index + 1}" for index in range(panels)] if panels > 1 else [""]
    if title is None or isinstance(title, str):
        return title or "", heads
    if len(title) != panels:
        raise ShapeError(f"title: one title or one for each of {panels} panels was expected, got {len(title)}")
    return "", [str(name) for name in title]


def _write_values(axes: Axes, matrix: Tensor, scale: Scale, size: float) -> None:
    for i, row in enumerate(matrix.tolist()):
        for j, value in enumerate(row):
            text = share(value)
            if text in ("0", "-0"):
                continue
            dark = is_dark(scale.colours((value - scale.low) / (scale.high - scale.low)))
            style: dict[str, Any] = {"fontsize": size, "fontfamily": "DejaVu Sans", "color": "white" if dark else INK}
            axes.text(j, i, text, ha="center", va="center", **style)


def text_width(word: str) -> int:
    """Count the columns a word takes in a terminal: two for wide letters, none for combining marks."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in word
    )


def cut_word(word: str, size: int) -> str:
    """Cut a word to at most `size` columns, its end replaced by … where it is longer."""
    if text_width(word) <= size:
        return word
    while word and text_width(word) > size - 1:
        word = word[:-1]
    return word + "…" if size > 0 else ""


def _pad(word: str, size: int, right: bool = False) -> str:
    fill = " " * (size - text_width(word))
    return fill + word if right else word + fill


def fonts() -> list[str]:
    """List the installed fonts that words are written with, in the order they are asked for a letter."""
    installed = set(font_manager.fontManager.get_font_names())
    return [font for font in FONTS if font in installed]
