"""Search in slots for sentences that come a few at a time: read, stepped and shown to the host, each by one order.

A server's threads share one interpreter: every call of a tensor's operation lets another thread run, and waits to be
let in again. So what a worker asks of its GPU is in two graphs. One reads sentences and puts them into slots, with
their options. The other takes a burst of steps. A third one copies what the host has to know to its memory. The host
orders, waits, and reads that copy; it orders the next burst before it writes results down, and up to `depth` bursts
before it waits for the first, so that a device that has much to do never waits for the host.
"""

# s slots · r rows of each · t steps · b sentences that begin together
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from regard.data import PAD, UNKNOWN
from regard.decoding.device_search import DeviceSearch, Hypotheses, SlotOptions
from regard.decoding.limits import FREE, output_limit
from regard.decoding.options import Options
from regard.decoding.replay import BURST, Arrival, allocate_slots, order_of
from regard.models import Model, Tokens

PARTS = ("total", "step", "scores", "log_probs", "lengths", "ends", "natural", "parents", "words")
WRITES = 4  # orders that read sentences between two bursts; who is not among them waits for the next
# Numbers of a sentence, behind its tokens and its prefix.
OWN = ("length", "slot", "most", "shortest", "beam", "penalty")


class BurstSearch:
    """Sentences of one class of length, searched in slots, in bursts of steps.

    `keys` are the most tokens of a source, `size` the most steps of a search, `prefix` the most tokens of a prefix; no
    beam is wider than `beam`. States take at most `room` bytes. Up to `together` sentences are read by one order, and
    up to `depth` bursts are under way.
    """

    def __init__(
        self,
        model: Model,
        most: int,
        keys: int,
        size: int,
        beam: int,
        prefix: int = 0,
        room: int | None = None,
        together: int = 1,
        depth: int = 1,
    ):
        self.model, self.keys, self.size, self.together, self.depth = model, keys, size, together, depth
        self.device_search, self.bytes = allocate_slots(model, most, keys, size, beam, prefix, room)
        self.count, device = self.device_search.count, self.device_search.tokens.device
        cuda = device.type == "cuda"
        self.width = keys + prefix + 1
        self.given = torch.full((together, self.width + len(OWN)), UNKNOWN, device=device)
        self.given[:, keys : self.width] = FREE
        self.given[:, self.width :] = torch.tensor([keys, 0, 1, 0, 1, 0], device=device)
        # A buffer for each order between two bursts: `depth` bursts later the device has read it.
        blank = [torch.zeros(self.given.shape, dtype=torch.long, pin_memory=cuda) for _ in range(WRITES * depth)]
        self.blanks = deque((sent, sent.numpy()) for sent in blank)
        self.copies = deque(HostCopy(self.device_search, device) for _ in range(depth))
        self.ordered: deque[HostCopy] = deque()
        self.read_sentences = order_of(self.read, device)
        self.take_steps = order_of(self.step, device)
        for copy in self.copies:
            copy.order = order_of(copy.take, device)
        self.device_search.stop(slice(None))  # what was captured had begun with a sentence

    # ---- what the device does; all shapes are fixed

    def read(self) -> None:
        """Read sentences, and begin with them in their slots."""
        search, own = self.device_search, dict(zip(OWN, self.given[:, self.width :].unbind(1), strict=True))
        memory = self.model.encode(Tokens.of(self.given[:, : self.keys], own["length"]))
        penalty = own["penalty"].contiguous().view(torch.float64)
        options = SlotOptions(own["most"], own["shortest"], penalty, own["beam"])
        search.put(own["slot"], memory, options, self.given[:, self.keys : self.width])

    def step(self) -> None:
        """Take a burst of steps."""
        for _ in range(BURST):
            self.device_search.advance()

    # ---- what the host asks for

    def put(
        self,
        slots: Sequence[int],
        sources: Sequence[Sequence[int]],
        options: Sequence[Options],
        prefixes: Sequence[Sequence[int]],
    ) -> None:
        """Begin with sentences in these slots with the next burst, at most `WRITES` times `together` of them."""
        for first in range(0, len(slots), self.together):
            some = slice(first, first + self.together)
            sent, rows = self.blanks[0]
            self.blanks.rotate(-1)
            self.write(rows, slots[some], sources[some], options[some], prefixes[some])
            self.given.copy_(sent, non_blocking=True)
            self.read_sentences()

    def write(self, rows: np.ndarray, slots: Any, sources: Any, options: Any, prefixes: Any) -> None:
        """Write sentences as rows of numbers; where they are fewer than are read together, the first stands again."""
        rows[:, : self.keys], rows[:, self.keys : self.width] = PAD, FREE
        for row, slot, source, option, prefix in zip(rows, slots, sources, options, prefixes, strict=False):
            row[: len(source)] = source
            row[self.keys : self.keys + len(prefix)] = prefix
            most = output_limit(self.model, len(source), option, len(prefix))
            row[self.width : -1] = len(source), slot, most, option.shortest, option.beam
            row[-1:].view(np.float64)[0] = option.length_penalty
        rows[len(slots) :] = rows[0]

    def order(self) -> None:
        """Order a burst of steps."""
        copy = self.copies.popleft()
        self.ordered.append(copy)
        self.take_steps()
        copy.order()
        copy.record()

    def wait(self) -> "HostCopy":
        """Wait for the burst that was ordered first; what came of it may be read until another one is ordered."""
        copy = self.ordered.popleft()
        self.copies.append(copy)
        copy.wait()
        return copy

    def stop(self, slot: int) -> None:
        """End the search in a slot, whatever it has found."""
        self.device_search.stop(slice(slot, slot + 1))


class HostCopy(Arrival):
    """What the host has to know of all slots, as it is after a burst."""

    def __init__(self, search: DeviceSearch, device: torch.device):
        super().__init__(device)
        cuda = device.type == "cuda"
        self.parts = {name: getattr(search, name) for name in PARTS}
        self.copies = {
            name: torch.zeros(part.shape, dtype=part.dtype, pin_memory=cuda) for name, part in self.parts.items()
        }
        self.host: dict[str, np.ndarray] = {name: copy.numpy() for name, copy in self.copies.items()}
        self.order: Callable[[], None] = self.take

    def take(self) -> None:
        """Copy everything, without waiting for it."""
        for name, part in self.parts.items():
            self.copies[name].copy_(part, non_blocking=True)

    @property
    def active(self) -> list[bool]:
        """The slots that are not done."""
        return list(map(bool, self.host["total"].max(1) > -np.inf))

    def finished(self, slots: Sequence[int]) -> Hypotheses:
        """Copy the finished hypotheses of these slots."""
        ranks = (self.host[name][slots] for name in ("scores", "log_probs", "lengths", "ends", "natural"))
        return Hypotheses(*ranks, *self.past(slots))  # type: ignore[call-arg]

    def living(self, slots: Sequence[int]) -> Hypotheses:
        """Copy the hypotheses of these slots that have not ended, as they stand."""
        totals = self.host["total"][slots]
        steps = np.broadcast_to(self.host["step"][slots][:, None], totals.shape)
        rows = np.broadcast_to(np.arange(totals.shape[1]), totals.shape)
        return Hypotheses(totals, totals, steps, rows, np.zeros_like(totals, dtype=bool), *self.past(slots))

    def past(self, slots: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Copy the parents and the words of all rows of these slots, up to the last step that one of them took."""
        steps = int(self.host["step"][slots].max(initial=0)) + 1
        return self.host["parents"][slots, :steps], self.host["words"][slots, :steps]
