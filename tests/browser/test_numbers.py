"""The numbers of any word: the script computes from q, k and v what the model computed, with pointer and keys."""

import itertools
import re
from dataclasses import replace

import pytest
import torch
from inspection.subjects import SHORT, exhibit_of_subject, subject

from regard.inspection import exhibit_of, page

pytestmark = pytest.mark.browser


def numbers_in(section):
    """Return the weights that the section shows, one for each key."""
    head = section.locator("thead th").all_inner_texts()
    cells = section.locator(f"tbody tr td:nth-of-type({head.index('a')})").all_inner_texts()
    return torch.tensor([float(each.replace("−", "-")) for each in cells])


@pytest.mark.parametrize(
    "name",
    ["transformer", "transformer-alibi", "transformer-rotary", "transformer-additive", "luong-local-p",
     "luong-location", "rnnsearch", "lstmn", "pointer", "han", "encoder-pools", "captioner-hard", "convnet"],
)  # fmt: skip
def test_every_score_is_computed_as_the_model_did(opened, name):
    exhibit = exhibit_of_subject(name)
    tab = opened(page(exhibit))
    section = tab.locator("[data-section=numbers]")
    for view in exhibit.views:
        if section.locator("select").count():
            section.locator("select").select_option(label=view.title[0].upper() + view.title[1:])
        if section.get_by_role("button", name="Show all").count():
            section.get_by_role("button", name="Show all").click()
        for head in range(len(view.weights)):
            if len(view.weights) > 1:
                section.locator(f".choice [data-value='{head}']").check()
            for row in {0, view.weights.shape[1] - 1}:
                if view.weights.shape[1] > 1:
                    section.locator(".rows-row .word").nth(row).hover()
                assert (numbers_in(section) - view.weights[head, row]).abs().max() < 0.003


def test_unknown_words_are_told_apart(opened):
    """All unknown words are the same piece; the page shows each as typed, and treats markup as text."""
    text = "she <b>sleeps</b> and </script> she"
    exhibit = exhibit_of(subject("rnnsearch", "word"), text, **SHORT)
    [side] = [exhibit.sides["source"]]
    assert side.pieces.count("<unk>") >= 2
    assert [name for name in side.names if name in ("<b>sleeps</b>", "</script>")] == ["<b>sleeps</b>", "</script>"]
    section = opened(page(exhibit)).locator("[data-section=numbers]")
    names = section.locator("tbody th").all_inner_texts()
    assert {"<b>sleeps</b>", "</script>"} <= set(names)
    assert "<unk>" not in names
    assert section.locator("tbody .unknown").first.get_attribute("title") == "not in the vocabulary"


def test_of_many_keys_the_largest_weights_are_shown_first(opened):
    words = " ".join(f"w{number}" for number in range(47))
    exhibit = exhibit_of(subject("rnnsearch"), words, **SHORT)
    [view] = [each for each in exhibit.views if each.name == exhibit.aligned]
    section = opened(page(exhibit)).locator("[data-section=numbers]")
    section.locator(".rows-row .word").nth(0).click()
    weights, count = view.weights[0, 0], view.weights.shape[2]
    assert count > 32
    largest = weights.sort(descending=True).values[:12]
    assert (numbers_in(section) - largest).abs().max() < 0.003
    note = re.search(r"The 12 largest of (\d+) weights; they sum to ([\d.]*\d)", section.inner_text())
    assert int(note[1]) == count
    assert float(note[2]) == pytest.approx(float(largest.sum()), abs=0.003)
    section.get_by_role("button", name=f"Show all {count}").click()
    assert (numbers_in(section) - weights).abs().max() < 0.003
    section.locator(".rows-row .word").nth(1).hover()  # another word stays unfolded
    assert len(numbers_in(section)) == count
    section.get_by_role("button", name="Show the 12 largest").press("Enter")
    assert len(numbers_in(section)) == 12
    assert section.locator("button.fold").evaluate("node => node === document.activeElement")


def test_scores_masks_and_sums_are_shown(opened):
    exhibit = exhibit_of_subject("transformer")
    view = next(each for each in exhibit.views if each.name == "decoder.blocks.0.attention")
    tab = opened(page(replace(exhibit, aligned=view.name, head=1)))
    section = tab.locator("[data-section=numbers]")
    section.locator(".rows-row .word").nth(2).click()
    scores = view.numbers.query[1, 2] @ view.numbers.keys[1].mT
    cells = section.locator("tbody tr").all()
    for j, cell in enumerate(cells):
        raw, score = cell.locator("td.number").all_inner_texts()[:2]
        assert float(raw.replace("−", "-")) == pytest.approx(float(scores[j]), abs=0.01)
        if j > 2:
            assert score == "−∞"
        else:
            assert float(score.replace("−", "-")) == pytest.approx(float(scores[j]) / 2, abs=0.01)  # head width 4
    count = view.weights.shape[2]
    assert f"{count - 3} of {count} may not be looked at" in section.inner_text()
    context = view.weights[1, 2] @ view.numbers.values[1]
    shown = section.locator(".vector .bars").last.get_attribute("data-values").replace("−", "-").split()
    assert torch.tensor([float(each) for each in shown]).sub(context).abs().max() < 0.01


def test_heads_of_a_memory_show_each_stage(opened):
    exhibit = exhibit_of_subject("ntm")
    section = opened(page(exhibit)).locator("[data-section=numbers]")
    for view in exhibit.views:
        section.locator("select").select_option(label=view.title[0].upper() + view.title[1:])
        for head, row in itertools.product((0, 1), (0, view.weights.shape[1] - 1)):
            section.locator(f".choice [data-value='{head}']").check()
            section.locator(".rows-row .word").nth(row).hover()
            cells = [each.locator("td.number").all_inner_texts() for each in section.locator("tbody tr").all()]
            shown = torch.tensor([[float(each.replace("−", "-")) for each in row] for row in cells])
            numbers = view.numbers
            beta = numbers.strength[head, row]
            stages = [numbers.cosine, beta * numbers.cosine, numbers.content, numbers.gated, numbers.shifted]
            expected = torch.stack([stage[head, row] for stage in (*stages, numbers.weights)], 1)
            assert (shown - expected).abs().max() < 0.003
            steering = re.findall(r"[βgγ] = ([\d.]+)", section.locator(".steering").inner_text())
            given = [float(part[head, row]) for part in (numbers.strength, numbers.gate, numbers.power)]
            assert [float(each) for each in steering] == pytest.approx(given, abs=0.003)
    assert "γ" in section.locator(".formulas").inner_text()
    assert len(section.locator(".bars").get_attribute("data-values").split()) == 5


def test_keys_lead_to_any_word_layer_and_head(opened):
    exhibit = exhibit_of_subject("transformer")
    tab = opened(page(exhibit))
    section = tab.locator("[data-section=numbers]")
    section.locator(".rows-row .word").first.focus()
    tab.keyboard.press("ArrowRight")
    assert (
        section.locator(".word[aria-pressed=true]").evaluate("node => [...node.parentNode.children].indexOf(node)") == 1
    )
    tab.keyboard.press("h")
    tab.keyboard.press("l")
    name = section.locator("select").evaluate("node => node.selectedOptions[0].text").lower()
    head = int(section.locator(".choice input:checked").get_attribute("data-value"))
    view = next(each for each in exhibit.views if each.title == name)
    assert (numbers_in(section) - view.weights[head, 1]).abs().max() < 0.003
    # The section of numbers shows the word that is selected in the drawing.
    tab.get_by_label("pieces", exact=True).check()
    tab.locator("[data-section=pair] .below .word").nth(3).focus()
    assert (numbers_in(section) - view.weights[head, 3]).abs().max() < 0.003


def test_what_was_left_out_is_named(opened):
    exhibit = exhibit_of_subject("luong")
    view = exhibit.views[0]
    hot = replace(view, numbers=replace(view.numbers, keys=view.numbers.keys * 1e6))
    tab = opened(page(replace(exhibit, views=(hot,))))
    assert "too large for half precision" in tab.locator("[data-section=numbers] .note").inner_text()
