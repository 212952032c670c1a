"""What a trace consists of."""

from regard.inspection.collect.trace import Output, Parameter, Unit


def test_a_unit_ran_as_often_as_it_read():
    unit = Unit("a", "module", "encoder.layers.0", "Layer", "encoder", 3)
    assert unit.calls == 0
    unit.reads += [{"x"}, {"x", "y"}]
    assert unit.calls == 2


def test_origins_are_told_apart():
    assert Output("a", 0) != Output("a", 1)
    assert Parameter("encoder", "weight") != Output("encoder", 0)
