"""A run's report: complete for any run, even an unfinished one; true to the records; safe whatever they contain."""

import json
import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from pages import read

from regard.inspection import heatmap
from regard.inspection.draw.report_page import LookPicture, article, curves, thin_points, write
from regard.training.metrics import Metrics

EVIL = '<script>alert(\'x\')</script> " onload="x" & </pre></style> שלום \u202e'


def translation(folder, validations=4):
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text('[model]\nkind = "transformer"\n[training]\nsteps = 400\nmetric = "bleu"\n')
    lines = []
    for step in range(20, 401, 20):
        record = {"kind": "step", "step": step, "steps": 400, "loss": 400 / step, "rate": 1e-4, "seconds": step / 4}
        lines.append({**record, "skipped": 2, "tokens_per_second": 100.0})
        if step % (400 // validations) == 0:
            figures = {"loss": 3.0, "bleu": step / 20, "chrf": 30.0, "exact": 0.125, "best": step <= 200}
            samples = [{"source": "a", "reference": "b c", "output": f"b {step}"}]
            lines.append({"kind": "valid", "step": step, **figures, "samples": samples})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def record_samples(folder, *samples):
    """Record a validation with these sources, references and outputs."""
    rows = [dict(zip(("source", "reference", "output"), sample, strict=True)) for sample in samples]
    (folder / "metrics.jsonl").write_text(json.dumps({"kind": "valid", "step": 1, "samples": rows}) + "\n")


def test_a_translation_run_is_told_whole(tmp_path):
    drawn = heatmap(torch.eye(2, 3), ["I", "eat", "pizza"], ["ich", "esse"])
    page = write(
        translation(tmp_path / "en-de"),
        parameters=1_312_768,
        data="29,000 pairs, 290 held out",
        look=LookPicture(drawn, "A row is a word.", "What it looked at"),
        finished=True,
        signature=[("torch", "2.13"), ("seed", "1")],
        commands=[('regard look runs/x "a & b"', "See what it looked at.")],
    )
    assert page == tmp_path / "en-de" / "report.html"
    text = read(page.read_text())
    for said in (
        "A transformer model with 1.3 M parameters, trained on 29,000 pairs, 290 held out.",
        "It has taken 400 steps in 2 min.",
        "The best checkpoint is that of step 200, with BLEU 10.0 on held-out data.",
        "2 steps had no finite gradient",
        "Learning rate",
        "chrF, validation",
        "pizza",
        "b 400",
        'kind = "transformer"',
        "2.13",
        'regard look runs/x "a & b"',
        "12.5%",
    ):
        assert said in text, said
    assert text.count("best by BLEU") == 1
    assert not list(page.parent.glob("*.part"))


def test_samples_are_marked_by_more_than_colour(tmp_path):
    record_samples(tmp_path, ("s", "Ein Mann reitet", "Ein Hund"), ("s", "ja", "ja"), ("s", "ja", ""))
    text = write(tmp_path).read_text()
    assert "Ein <mark>Hund</mark>" in text
    assert "text-decoration: underline" in text
    assert text.count("✓ as the reference") == 1
    assert text.count('<mark class="missing" title="missing here">‸</mark>') == 1
    assert text.count('dir="auto"') >= 9
    read(text)


def test_a_classifier_is_told_by_its_accuracy(tmp_path):
    with Metrics(tmp_path / "metrics.jsonl") as metrics:
        metrics.write("valid", {"step": 50, "loss": 0.4, "accuracy": 0.913, "best": True})
    (tmp_path / "config.toml").write_text('[model]\nkind = "encoder"\n')
    text = read(write(tmp_path).read_text())
    best = "The best checkpoint is that of step 50, with accuracy 91.3%"
    assert f"An encoder model. It has taken 50 steps. {best}" in text
    assert "Accuracy, validation" in text
    assert "BLEU" not in text


def test_a_run_that_has_hardly_begun(tmp_path):
    assert "No step has been recorded yet." in read(write(tmp_path).read_text())
    (tmp_path / "metrics.jsonl").write_text('{"kind": "step", "step": 20, "loss": 8.1, "steps": 400}\n{"kind": "va')
    text = read(write(tmp_path, finished=False).read_text())
    assert "It has taken 20 of 400 steps. Training is not finished. It has not been validated yet." in text


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "null",
        '{"kind": "step"}',
        '{"kind": "valid", "step": null, "bleu": null, "best": true}',
        '{"kind": "valid", "step": 1, "loss": NaN, "samples": [1, {}], "best": true}',
        '{"kind": "step", "step": "x", "loss": "y", "rate": [], "seconds": null, "steps": "many", "skipped": null}',
        '{"kind": "other", "step": 3}',
        '{"kind": "valid", "step": 3, "": 1.0, "a$b$": 2.0, "new_score": 1e300, "loss": -1e300}',
    ],
)
def test_odd_records_do_not_stop_it(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text(line + "\n")
    read(write(tmp_path).read_text())


def test_a_configuration_that_cannot_be_read_is_shown_as_it_is(tmp_path):
    (tmp_path / "config.toml").write_bytes(b"this is = not [ TOML \xff <b>")
    assert "this is = not [ TOML � <b>" in read(write(tmp_path).read_text())


def test_nothing_given_can_break_the_page(tmp_path):
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    folder.mkdir()
    (folder / "config.toml").write_text(f"# {EVIL}\n[model]\nkind = '''{EVIL}'''\n")
    samples = [{"source": EVIL, "reference": EVIL, "output": f"x {EVIL}"}]
    record = {"kind": "valid", "step": 1, EVIL: 1.0, "best": True, "loss": 1.0, "samples": samples}
    (folder / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    words = EVIL.split()
    seen = LookPicture(heatmap(torch.ones(len(words), len(words)), words, words), EVIL, EVIL)
    page = write(folder, data=EVIL, look=seen, signature=[(EVIL, EVIL)], commands=[(EVIL, EVIL)])
    text = read(page.read_text())  # no element, attribute or address from the records
    assert text.count("<script>alert('x')</script>") >= 8


def test_a_lone_surrogate_can_be_written(tmp_path):
    record_samples(tmp_path, ("x\ud800", "y", "z"))
    assert "x?" in read(write(tmp_path).read_text())


@pytest.mark.unchecked
def test_an_earlier_report_stays_until_the_new_one_is_whole(tmp_path):
    page = write(tmp_path, data="first")
    before = page.read_bytes()
    with pytest.raises(AttributeError):
        write(tmp_path, data="second", look="no such thing")
    assert page.read_bytes() == before
    assert write(tmp_path, data="first").read_bytes() == before  # the same run gives the same page


def test_a_photograph_keeps_its_colours_on_dark_paper(tmp_path):
    drawn = heatmap(torch.eye(1), ["pizza"], ["Pizza"]), Figure()
    drawn[1].subplots().imshow(torch.zeros(4, 4, 3).numpy())
    pages = [write(tmp_path, look=LookPicture(each, "a caption", "seen")).read_text() for each in drawn]
    assert ['class="alone as-is"' in page for page in pages] == [False, True]
    assert all(word in read(pages[0]) for word in ("pizza", "a caption"))


def test_a_long_run_stays_a_small_page(tmp_path):
    with open(tmp_path / "metrics.jsonl", "w") as file:
        for step in range(1, 20_001):
            file.write(json.dumps({"kind": "step", "step": step, "loss": 3.0 + step % 7, "rate": 1e-3}) + "\n")
        for step in range(100, 20_001, 100):
            file.write(json.dumps({"kind": "valid", "step": step, "loss": 2.0, "bleu": 3.0}) + "\n")
    page = write(tmp_path)
    assert page.stat().st_size < 400_000
    assert "<summary>All 200 validations</summary>" in page.read_text()


def test_every_curve_is_described(tmp_path):
    text = write(translation(tmp_path / "run")).read_text()
    labels = re.findall(r'<svg role="img" aria-label="([^"]+)"', text)
    assert len(labels) == text.count("<svg") == 5
    assert "BLEU: 5.0 at step 100, 20.0 at step 400." in labels


@pytest.mark.parametrize(
    ("article_", "names"),
    [
        ("an", ["encoder", "rnn", "rnnsearch", "lstmn", "ntm", "LSTM", "mlp", "s4", "ssm", "xlstm", "f"]),
        ("a", ["transformer", "luong", "pointer", "captioner", "han", "convnet", "unet", "states", "flow", "hyena"]),
    ],
)
def test_an_article_goes_by_the_sound(article_, names):
    assert {name: article(name) for name in names} == dict.fromkeys(names, article_)


@given(st.lists(st.floats(-1e6, 1e6), max_size=60), st.integers(1, 20))
def test_thinned_points_are_means_between_the_least_and_the_most(values, count):
    points = [(float(i), value) for i, value in enumerate(values)]
    means, low, high = thin_points(points, count)
    assert len(means) <= count
    assert all(a - 1e-6 <= y <= b + 1e-6 for (_, y), a, b in zip(means, low, high, strict=True))
    if values:
        assert (min(low), max(high)) == (min(values), max(values))
    if len(values) <= count:
        assert means == points


def test_curves_draw_what_was_recorded():
    steps = [{"step": step, "loss": loss, "rate": 0.1} for step, loss in [(1, 4.0), (2, math.nan), (3, None), (4, 1.0)]]
    found = curves(steps, [{"step": 4, "loss": 2.0, "accuracy": 0.5, "best": True, "word": "x"}])
    assert [curve.name for curve in found] == ["loss", "rate", "accuracy"]
    line = found[0].figure.axes[0].lines[0]
    assert line.get_xydata().tolist() == [[1.0, 4.0], [4.0, 1.0]]
    assert found[0].alt.startswith("Training loss: 4.00 at step 1, 1.00 at step 4.")
    assert curves([], []) == []
    assert len({curve.figure.axes[0].get_xlim() for curve in found}) == 1


def test_points_at_the_edges_of_the_axes_are_whole():
    valids = [{"step": step, "loss": 0.0, "exact": step / 9, "best": step > 0} for step in (0, 9)]
    steps = [{"step": step, "loss": 0.0, "rate": 0.0} for step in (0, 9)]
    lines = [line for curve in curves(steps, valids) for line in curve.figure.axes[0].lines]
    assert len(lines) >= 6
    assert not any(line.get_clip_on() for line in lines)
