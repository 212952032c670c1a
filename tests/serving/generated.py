"""Requests that schemathesis makes from the document of a server: what it allows, and what it forbids."""

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, strategies
from schemathesis import GenerationMode

__all__ = ["MODES", "draw_case", "every_mode", "generate", "read_schema"]

MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]


def every_mode(count):
    """Have a test ask so many times in each mode, and a thousand times where there is time."""
    counts = [count, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
    mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name.lower())
    return lambda test: mode(pytest.mark.parametrize("count", counts)(test))


def read_schema(process, *statuses):
    """The document of a server; with one of the statuses it refuses what is forbidden."""
    config = schemathesis.Config.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": statuses}}})
    return schemathesis.openapi.from_url(f"{process.address}/openapi.json", config=config)


@strategies.composite
def draw_case(draw, operation, mode):
    """A request by schemathesis, which now and then fails to look at the bytes of a picture that it has made."""
    try:
        return draw(operation.as_strategy(generation_mode=mode))
    except ValueError as error:
        if "Unsupported type: 'Binary'" in str(error):
            hypothesis.reject()
        raise


def generate(count, *given):
    """Call a function with so many examples of what is given."""
    phases, checks = [Phase.generate, Phase.shrink], list(HealthCheck)
    settings = hypothesis.settings(max_examples=count, database=None, suppress_health_check=checks, phases=phases)
    return lambda function: settings(hypothesis.given(*given)(function))()
