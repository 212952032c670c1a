"""Numbers in half precision: they come back as torch rounds them, and a page that would be too large says so."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from inspection import exhibits
from inspection.draw.test_page import embedded
from inspection.subjects import exhibit_of_subject

from regard.inspection import page
from regard.inspection.collect.exhibit import Numbers
from regard.inspection.draw.page import half_planes


@pytest.mark.parametrize("shape", [(1,), (3, 7), (2, 5, 63)])
def test_planes_hold_halves(shape):
    values = torch.randn(shape) * 10 ** torch.randint(-6, 4, shape).float()
    planes = half_planes(values)
    pairs = np.stack(np.split(planes, 2)[::-1], -1)
    assert torch.equal(torch.tensor(pairs.copy().view("<f2").reshape(shape)), values.half())
    assert half_planes(torch.full(shape, 1e5)) is None


def with_numbers(exhibit, width):
    """Random q, k and v of that width a head, for every view."""

    def numbers(view):
        heads, n, m = view.weights.shape
        q, k, v = (torch.randn(heads, count, width) for count in (n, m, m))
        return Numbers("dot", width**-0.5, query=q, keys=k, values=v)

    return replace(exhibit, views=tuple(replace(view, numbers=numbers(view)) for view in exhibit.views))


def large(words):
    source, target = ([*side * 20][:words] for side in (exhibits.GERMAN, exhibits.ENGLISH))
    return with_numbers(exhibits.transformer(source, target, links=list(range(words))), 64)


def left_out(made):
    return [view["numbers"]["left"] for view in embedded(made)["exhibits"][0]["views"]]


def test_forty_words_six_layers_eight_heads_stay_under_four_megabytes():
    made = page(large(40))
    assert len(made.html.encode()) < 4_000_000
    assert left_out(made) == [""] * 18


def test_a_larger_page_leaves_values_out_first_and_says_so():
    made = page(large(60))
    assert len(made.html.encode()) < 4_000_000
    assert set(left_out(made)) == {"", "values"}
    huge = left_out(page(large(100)))
    assert "size" in huge
    assert huge[[view.name for view in large(100).views].index("decoder.blocks.4.cross")] != "size"  # the first shown


def test_numbers_too_large_for_half_precision_are_left_out():
    exhibit = exhibit_of_subject("luong")
    view = exhibit.views[0]
    hot = replace(view, numbers=replace(view.numbers, keys=view.numbers.keys * 1e6))
    assert left_out(page(replace(exhibit, views=(hot,)))) == ["range"]
