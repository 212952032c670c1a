"""The study of self-attention in a ConvNet: how it compares, counts and judges, and, in the slow form, its findings."""

from dataclasses import replace

import pytest
import torch

from regard.models import Pictures, build
from regard.tasks import read_settings
from regard_corpora import Pictured
from regard_corpora.scenes import Scene, Shape
from regard_studies import Setting, convnet, run
from regard_studies.convnet import (
    BINS,
    SYSTEMS,
    ShapeAttention,
    attention_between,
    distance,
    measure_attention,
    receptive_field,
    shape_places,
    shares,
    tables,
    verdicts,
)
from regard_studies.seed_statistics import SeedStatistics


def scene(x, third="small", size=64, second="large"):
    """Return a scene: the ringed shape left, the one of its colour `x` to its right, and a third above it."""
    shapes = (
        Shape("small", "red", "star", 20, 80, True),
        Shape(second, "red", "circle", 20 + x, 75),
        Shape(third, "blue", "square", 75, 20),
    )
    made = Scene(shapes, "which-size")
    return Pictured(made.description, second, scene=made, size=size)


def net(table):
    settings = read_settings(table)
    return build(settings.kind, settings.model, 0, 2).eval()


def test_systems_have_the_same_data_and_budget_and_the_controls_as_many_parameters():
    for quick in (True, False):
        made = tables(quick)
        found = {name: read_settings(table) for name, table in made.items()}
        assert len({each.training for each in found.values()}) == len({each.data for each in found.values()}) == 1
        if not quick:
            one, other = (found[name].model.__dict__ for name in ("attention", "none"))
            assert {key for key in one if one[key] != other[key]} == {"attention"}
        count = {name: sum(p.numel() for p in net(table).parameters()) for name, table in made.items()}
        for name in set(made) - {"attention", "none"}:
            assert abs(count[name] / count["attention"] - 1) < 0.05


def test_reach_is_what_a_place_sees():
    """Without the layer, pixels change the middle of the last grid exactly within the receptive field."""
    for name in ("none", "deeper"):
        model = net(tables(False)[name]).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.5)
            seen = torch.zeros(96, dtype=torch.bool)
            pixels = torch.full((1, 3, 96, 96), 90, dtype=torch.uint8)
            before = model.encode(Pictures(pixels)).states.unflatten(1, (24, 24))[:, 12, 12]
            for column in range(96):
                other = pixels.clone()
                other[..., 48, column] = 250
                after = model.encode(Pictures(other)).states.unflatten(1, (24, 24))[:, 12, 12]
                seen[column] = bool((after - before).abs().max() > 1e-9)
        assert int(seen.sum()) == receptive_field(model)


def test_answers_are_counted_by_distance_and_where_counting_helps():
    tests = [scene(50), scene(52, "large"), scene(50), scene(51, "large", second="small"), scene(59), scene(62)]
    assert [distance(test) for test in tests] == [50, 52, 50, 51, 59, 62]
    found = shares(["large", "small", "small", "small", "small", "large"], tests)
    assert found["accuracy"] == 50.0
    assert found["differing"] == pytest.approx(60.0)
    assert [found[f"distance-{i}"] for i in range(len(BINS))] == [50.0, 0.0, 100.0]


def test_shapes_look_where_their_places_look():
    test = scene(55)
    on = shape_places(test, (8, 8))
    assert on.shape == (4, 64)
    assert on.any(1).all()
    assert (on[:3].sum(0) <= 1).all()
    assert torch.equal(on[3], ~on[:3].any(0))
    even = attention_between(torch.full((64, 64), 1 / 64), on)
    assert even == pytest.approx(on.float().mean(1).expand(3, 4).numpy())
    weights = torch.zeros(64, 64)
    weights[:, int(on[1].int().argmax())] = 1.0
    assert attention_between(weights, on).tolist() == [[0.0, 1.0, 0.0, 0.0]] * 3


def test_a_network_is_looked_into():
    model = net(tables(False)["attention"])
    with torch.no_grad():
        for part in (model.attention.query, model.attention.key):
            part.weight.zero_()
            part.bias.zero_()  # every place attends to all equally
    found = measure_attention(model, [scene(55), scene(60)])
    assert [sum(row) for row in found.share] == pytest.approx([100.0] * 3, abs=1e-3)
    for row in found.share:
        assert row == pytest.approx(found.chance, abs=1e-3)
    both = ShapeAttention.mean([found, ShapeAttention([[0.0] * 4] * 3, [0.0] * 4)])
    assert both.chance == pytest.approx([each / 2 for each in found.chance])


def figures(accuracy, far=None, gamma=0.0):
    found = {"accuracy": accuracy, "differing": accuracy, "parameters": 9, "reach": 23, "gamma": gamma, "seconds": 3}
    found |= {f"distance-{i}": accuracy for i in range(len(BINS))}
    found[f"distance-{len(BINS) - 1}"] = accuracy if far is None else far
    return {key: SeedStatistics((float(value),)) for key, value in found.items()}


def test_verdicts_follow_the_figures():
    good = {"attention": figures(97, gamma=1.2), "none": figures(77), "wider": figures(78), "deeper": figures(80)}
    looks = ShapeAttention([[5.0, 60.0, 5.0, 30.0]] * 3, [8.0, 8.0, 8.0, 76.0])
    assert [verdict.agrees for verdict in verdicts(good, looks)] == [True] * 7
    bad = {"attention": figures(84, 70, gamma=0.01), "none": figures(78), "wider": figures(79), "deeper": figures(99)}
    looks = ShapeAttention([[50.0, 9.0, 5.0, 36.0]] * 3, [8.0, 8.0, 8.0, 76.0])
    assert [verdict.agrees for verdict in verdicts(bad, looks)] == [False] * 7
    falling = good | {"attention": figures(97, 88, gamma=1.2)}
    assert [verdict.agrees for verdict in verdicts(falling, looks)].count(False) == 2
    lucky = good | {"none": {**good["none"], "accuracy": SeedStatistics((98.0, 60.0))}}
    assert not verdicts(lucky, looks)[1].agrees


def test_a_page_of_a_hardly_trained_study(shorten):
    tests = {"make_tests": lambda count, side: [scene(50 + 2 * i, size=side) for i in range(6)]}
    setting = shorten(convnet, data={"count": 60}, training={"batch_rows": 4}, **tests)
    page = run("convnet", setting=replace(setting, seeds=(4, 5)))
    assert [row[0] for row in page.tables[0].rows] == [SYSTEMS[name] for name in tables(True)]
    assert "±" in page.tables[0].rows[0][1]
    assert page.signature.command(page.name) == "regard study convnet --seeds 4,5 --quick"
    assert page.write(setting.out).is_file()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_claim_holds(tmp_path):
    """Check all claims but two that one seed does not decide.

    Far shapes are mostly small, which hides the distance in a few scenes. The layer may carry information from or to
    the ringed shape, so the attention of its places depends on the seed.
    """
    page = run("convnet", setting=Setting((0,), quick=True, device="cpu", out=tmp_path))
    loose = ("how far apart", "look at others like them")
    for verdict in page.verdicts:
        assert verdict.agrees or any(words in verdict.claim for words in loose), verdict.evidence
