"""Tables of who serves a call: each row lists what it serves, and whatever it does not list it refuses.

A `Request` describes a call in plain data. A new feature of calls is unknown to every row until the row lists it, so
that no kernel is given what it would ignore. Only the plain expression, the last row of a table, serves all.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch

from regard.kernels.triton import installed

HALF = (torch.float16, torch.bfloat16)
SINGLE_OR_HALF = (torch.float32, *HALF)
COMPILING = "tracing by torch.compile"


class Request(NamedTuple):
    """A call in plain data: where its tensors are, what it needs, and its sizes."""

    device: str
    dtypes: tuple[torch.dtype, ...]
    features: tuple[str, ...] = ()  # noun phrases, of which the words of a refusal are made
    sizes: Mapping[str, int] = {}


@dataclass(frozen=True)
class Condition:
    """A condition that joins several features or sizes of a call, and what a refusal says where it does not hold."""

    holds: Callable[[Request], bool]
    refusal: str


NEEDS_TRITON = Condition(lambda request: installed(), "Triton is not installed")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One implementation, and what it serves."""

    name: str
    features: frozenset[str] | None  # None: all there are and will be, as the plain expression alone does
    devices: tuple[str, ...] | None = None  # None: wherever torch runs
    dtypes: tuple[torch.dtype, ...] | None = None  # None: whatever torch computes in
    most: Mapping[str, int] | None = None  # the largest sizes
    conditions: tuple[Condition, ...] = ()

    def serves(self, request: Request) -> bool:
        """Return whether nothing is refused."""
        if self.devices is not None and request.device not in self.devices:
            return False
        if self.features is not None and not self.features.issuperset(request.features):
            return False
        if self.dtypes is not None:
            for dtype in request.dtypes:
                if dtype not in self.dtypes:
                    return False
        if self.most is not None:
            for name, most in self.most.items():
                if request.sizes[name] > most:
                    return False
        for condition in self.conditions:  # noqa: SIM110 (a generator takes several times as long)
            if not condition.holds(request):
                return False
        return True

    def refusal(self, request: Request) -> str | None:
        """Explain why the request is not served, naming what is missing; None where it is served."""
        reasons = []
        if self.devices is not None and request.device not in self.devices:
            reasons.append(f"it runs on {listing(self.devices)}, not on {request.device}")
        for dtype in dict.fromkeys(request.dtypes):
            if self.dtypes is not None and dtype not in self.dtypes:
                reasons.append(f"it takes {listing(map(plain, self.dtypes))}, not {plain(dtype)}")
        if self.features is not None:
            missing = [feature for feature in request.features if feature not in self.features]
            if missing:
                reasons.append(f"it does not serve {listing(missing, 'or')}")
        for name, most in (self.most or {}).items():
            if request.sizes[name] > most:
                reasons.append(f"{name}: {request.sizes[name]} given, expected at most {most}")
        reasons += [condition.refusal for condition in self.conditions if not condition.holds(request)]
        return "; ".join(reasons) or None


AnyRow = TypeVar("AnyRow", bound=Row)


def first(rows: Iterable[AnyRow], request: Request) -> AnyRow:
    """Find the first row that serves a request; the last of a table serves all."""
    return next(row for row in rows if row.serves(request))


def compiling() -> tuple[str, ...]:
    """Return the feature of a call that torch.compile traces, whose operations it must see through."""
    return (COMPILING,) if torch.compiler.is_compiling() else ()


def listing(words: Iterable[str], last: str = "and") -> str:
    """Join words as in a sentence: "a, b and c"."""
    *before, end = words
    return f"{', '.join(before)} {last} {end}" if before else end


def plain(dtype: torch.dtype) -> str:
    """Return a dtype's name without its module."""
    return str(dtype).removeprefix("torch.")
