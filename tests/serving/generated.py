"""Requests that schemathesis generates from a server's OpenAPI document: allowed and forbidden ones."""

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, strategies
from schemathesis import GenerationMode

__all__ = ["MODES", "draw_case", "every_mode", "generate", "read_schema"]

MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]


def every_mode(count):
    """Parametrise a test by mode and number of requests: `count`, and a thousand in the slow form."""
    counts = [count, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
    mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name.lower())
    return lambda test: mode(pytest.mark.parametrize("count", counts)(test))


def read_schema(process, *statuses):
    """Read a server's OpenAPI document; `statuses` are the right answers to forbidden requests."""
    config = schemathesis.Config.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": statuses}}})
    return schemathesis.openapi.from_url(f"{process.address}/openapi.json", config=config)


@strategies.composite
def draw_case(draw, operation, mode):
    """Draw a request with schemathesis; reject those with pictures whose bytes it cannot check."""
    try:
        return draw(operation.as_strategy(generation_mode=mode))
    except ValueError as error:
        if "Unsupported type: 'Binary'" in str(error):
            hypothesis.reject()
        raise


def generate(count, *given):
    """Call a function with `count` examples of the strategies."""
    phases, checks = [Phase.generate, Phase.shrink], list(HealthCheck)
    settings = hypothesis.settings(max_examples=count, database=None, suppress_health_check=checks, phases=phases)
    return lambda function: settings(hypothesis.given(*given)(function))()
