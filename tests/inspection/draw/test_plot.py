"""The plot of a score by length."""

from regard.evaluation import Lengths
from regard.evaluation.evaluation import Bucket
from regard.inspection.draw.heatmap import svg
from regard.inspection.draw.plot import draw_lengths


def test_every_range_its_sentences_and_the_score_over_all_are_there():
    buckets = [
        Bucket(1, 9, 3, 51.0, None),
        Bucket(10, 19, 1280, 40.5, (38.0, 43.0)),
        Bucket(20, None, 44, 33.3, (30, 36)),
    ]
    figure = draw_lengths(Lengths("BLEU", "words", buckets, 39.4))
    words = svg(figure)
    for text in ("1–9", "10–19", "20+", "1,280", "44", "all 39.4", "BLEU by source length", "open: fewer than 10"):
        assert text in words, text
    (axes,) = figure.axes
    joined = axes.lines[-1]
    assert joined.get_ydata().tolist() == [40.5, 33.3]  # what three sentences say is not joined to the rest
    assert axes.get_ylim()[0] == 0
    one = svg(draw_lengths(Lengths("BLEU", "characters", buckets[1:2], 0.0), "A title"))
    assert "A title" in one
    assert "open:" not in one
