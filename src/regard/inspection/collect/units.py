"""Units: the parts of a trace, and the origins of numbers."""

from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal, NamedTuple

Phase = Literal["encoder", "decoder"]
UnitKind = Literal["input", "learned", "module", "operation", "stage"]
Shape = tuple[int, ...]


class Parameter(NamedTuple):
    """A parameter as an origin of numbers."""

    module: str
    name: str


class Output(NamedTuple):
    """The output of a unit in one of its calls."""

    unit: str
    call: int


Origin = Output | Parameter


@dataclass
class Unit:
    """One box of a graph: a module, an operation, a stage of an attention, a parameter, or an input."""

    id: str
    kind: UnitKind
    module: str  # its own dotted name; of an operation or a stage, that of the module that it belongs to
    operation: str  # a torch function, a function's name, a stage or a class
    phase: Phase
    time: int  # when it last ran: in a loop all units have run by then, and stand in the order of a step
    shape: Shape = ()
    modules: list[str] = field(default_factory=list)  # all modules whose parameters it uses
    reads: list[set[str]] = field(default_factory=list)  # the units that it reads, call by call
    note: str = ""
    last_shape: Shape = ()  # in its last call
    pairs: bool = False  # its last axis counts keys
    outputs_read: list[set[Output]] = field(default_factory=list, repr=False)  # the same with the call of each
    times: list[int] = field(default_factory=list, repr=False)  # when each of its calls ended
    layer: tuple[int, int] | None = None  # the call of a loop over layers that it is, from 1, and how many there are
    histories: set[str] = field(default_factory=set)  # units that it reads the outputs of several calls of, at once
    site_reads: dict[Any, list[set[str]]] = field(
        default_factory=dict, repr=False
    )  # in the code: what each reads, in turn
    sites: set[Any] = field(default_factory=set, repr=False)
    frame: FrameType | None = field(default=None, repr=False)

    @property
    def calls(self) -> int:
        """Count how many times the unit ran."""
        return len(self.reads)


class FunctionCall(NamedTuple):
    """A plain function on the stack, and the place that it was called from."""

    name: str
    frame: FrameType
    site: Any
