"""The table that chooses an implementation, for attention calls, search steps, stacks, recurrences and updates.

A `Request` describes a piece of work as plain data. Each `Row` lists the features that it supports and refuses all
others: a new feature is unknown to every row until the row lists it, so that no kernel silently ignores it. The first
row that serves a request and is faster there is chosen; the last row of each table serves everything. A table caches
its answer for each kind of request. A `Plan` names the chosen row, and says why the rows before it were not chosen.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from regard.errors import BackendError
from regard.kernels import triton

HALF = (torch.float16, torch.bfloat16)
SINGLE_OR_HALF = (torch.float32, *HALF)
FULL = (torch.float32, torch.float64)
COMPILING = "tracing by torch.compile"
AUTOCAST = "autocast"
HOOKS = "hooks, which it would not call"
MOST_PLANS = 4096  # kinds of requests to cache; the cache is cleared when it is full


class Request(NamedTuple):
    """A piece of work as plain data: its device, its dtypes, the features that it needs, and its sizes."""

    device: str
    dtypes: tuple[torch.dtype, ...] = ()
    features: tuple[str, ...] = ()  # noun phrases, which appear in refusals
    sizes: Mapping[str, int] = {}


@dataclass(frozen=True)
class Condition:
    """A condition on several features or sizes of a request, with the refusal to report if it does not hold."""

    holds: Callable[[Request], bool]
    refusal: str


NEEDS_TRITON = Condition(lambda request: triton.INSTALLED, "Triton is not installed")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One implementation, with the requests that it serves."""

    name: str
    features: frozenset[str] | None = frozenset()  # None: all features, including future ones; only for the last row
    devices: tuple[str, ...] | None = None  # None: every device that torch supports
    dtypes: tuple[torch.dtype, ...] | None = None  # None: every dtype
    most: Mapping[str, int] | None = None  # the largest sizes
    conditions: tuple[Condition, ...] = ()
    wins: Callable[[Request], bool] = lambda request: True  # whether it is the fastest where it serves

    def serves(self, request: Request) -> bool:
        """Return whether the row supports the device, features, dtypes and sizes, and all conditions hold."""
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
        for condition in self.conditions:  # noqa: SIM110 (a generator is several times slower)
            if not condition.holds(request):
                return False
        return True

    def missing(self, request: Request) -> list[str]:
        """List the features of a request that the row does not support."""
        return [] if self.features is None else [each for each in request.features if each not in self.features]

    def refusal(self, request: Request) -> str | None:
        """Explain why the row refuses a request; return None if it serves it."""
        reasons = []
        if self.devices is not None and request.device not in self.devices:
            reasons.append(f"it runs on {listing(self.devices)}, not on {request.device}")
        for dtype in dict.fromkeys(request.dtypes):
            if self.dtypes is not None and dtype not in self.dtypes:
                reasons.append(f"it takes {listing(map(dtype_name, self.dtypes))}, not {dtype_name(dtype)}")
        if missing := self.missing(request):
            reasons.append(f"it does not serve {listing(missing, 'or')}")
        for name, most in (self.most or {}).items():
            if request.sizes[name] > most:
                reasons.append(f"{name}: {request.sizes[name]} given, expected at most {most}")
        reasons += [condition.refusal for condition in self.conditions if not condition.holds(request)]
        return "; ".join(reasons) or None


AnyRow = TypeVar("AnyRow", bound=Row)
TABLES: dict[str, "Table[Any]"] = {}  # by the name of their work


class Forced(threading.local):
    """The name of the row that is forced in this thread; not a ContextVar, which torch.compile cannot trace."""

    name: str | None = None


class Table(Generic[AnyRow]):
    """The rows for one kind of work, in order of preference.

    `steps` are the sizes at which the choice may change, for requests without a feature of `exact`; all other sizes are
    compared exactly. Requests that fall between the same steps are one kind.
    """

    def __init__(
        self,
        work: str,
        *rows: AnyRow,
        steps: Mapping[str, tuple[int, ...]] | None = None,
        exact: frozenset[str] = frozenset(),
    ):
        self.work, self.rows, self.steps, self.exact = work, rows, steps or {}, exact
        self.forced = Forced()
        self.known: dict[tuple[object, ...], tuple[object, AnyRow]] = {}  # with the table's rows
        TABLES[work] = self

    def __iter__(self) -> Iterator[AnyRow]:
        return iter(self.rows)

    def choose(self, request: Request) -> AnyRow:
        """Return the row for a request, or the forced one; the answer is cached for each kind of request."""
        name = self.forced.name
        if torch.compiler.is_compiling():  # the trace stores the answer
            return self.ask(request, name)
        device, dtypes, features, sizes = request
        if self.steps and self.exact.isdisjoint(features):
            steps = self.steps
            place = [bisect_left(steps[size], sizes[size]) if size in steps else sizes[size] for size in sizes]
        else:
            place = [*sizes.values()]
        kind = (triton.INSTALLED, name, device, dtypes, features, *place)
        rows, row = self.known.get(kind, (None, self.rows[-1]))
        if rows is not self.rows:
            row = self.ask(request, name)
            if len(self.known) >= MOST_PLANS:
                self.known.clear()
            self.known[kind] = self.rows, row  # atomic: threads need no lock
        return row

    def ask(self, request: Request, name: str | None = None) -> AnyRow:
        """Return the first row that serves a request and wins there, or the forced row `name` if it serves it."""
        rows = self.rows if name is None else [row for row in self.rows if row.name == name]
        for row in rows:
            if row.serves(request) and (name is not None or row.wins(request)):
                return row
        # Only a forced row can fail: the last row serves everything.
        raise BackendError(f"the backend {name!r} cannot serve this call: {rows[-1].refusal(request)}")

    def plan(self, request: Request) -> "Plan":
        """Return the plan for a request: the chosen row, and why the rows before it were not chosen."""
        return Plan(self.choose(request), request, self.rows)


@dataclass(frozen=True)
class Plan:
    """The row chosen for a request, and why the rows before it in the table were not."""

    row: Row
    request: Request
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """The row's name."""
        return self.row.name

    @property
    def reasons(self) -> dict[str, str]:
        """Why each row before the chosen one was not chosen, by name."""
        found = {}
        for each in takewhile(lambda each: each.name != self.name, self.rows):
            if each.devices is not None and self.request.device not in each.devices:
                found[each.name] = f"it runs on {listing(each.devices)}"  # the other reasons do not matter
            else:
                found[each.name] = each.refusal(self.request) or f"{self.name} is faster here"
        return found

    def __str__(self) -> str:
        needs = listing(self.request.features) if self.request.features else "nothing beside"
        return "\n".join([f"{self.name}: {needs}", *(f"  not {name}: {why}" for name, why in self.reasons.items())])


def has_kernel(device: str, *dtypes: torch.dtype) -> bool:
    """Return whether Triton has kernels for this device and these dtypes."""
    return device == "cuda" and triton.INSTALLED and all(dtype in SINGLE_OR_HALF for dtype in dtypes)


def compiling() -> tuple[str, ...]:
    """Return the feature of a call that torch.compile traces, which rules out kernels that it cannot trace."""
    return (COMPILING,) if torch.compiler.is_compiling() else ()


def listing(words: Iterable[str], last: str = "and") -> str:
    """Join words as in a sentence: "a, b and c"."""
    *before, end = words
    return f"{', '.join(before)} {last} {end}" if before else end


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype's name without its module."""
    return str(dtype).removeprefix("torch.")
