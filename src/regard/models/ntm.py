r"""The Neural Turing Machine: a controller with heads that read from and write to a memory.

Graves, Wayne and Danihelka 2014 (arXiv:1410.5401), section 3. The memory $M$ has N slots (`slots`) of `width` numbers.
A head addresses the memory by weights over the slots, which it computes in four stages (section 3.3):

- content: $w^c_i = \mathrm{softmax}_i(\beta \cos(k, M_i))$, with a key k and a sharpness β > 0;
- gate: $w^g = g w^c + (1 - g) w_{t-1}$, between the content weights and the last step's weights, 0 < g < 1;
- shift: $\tilde w_i = \sum_j w^g_j s_{i-j}$ round the circle of slots, s a distribution over $-S \dots S$ (`shift`);
- sharpen: $w_i = \tilde w_i^\gamma / \sum_j \tilde w_j^\gamma$, γ ≥ 1.

Writing erases and adds, $M_i \leftarrow M_i \prod_h (1 - w^h_i e^h) + \sum_h w^h_i a^h$; reading is
$r = \sum_i w_i M_i$ (sections 3.1 and 3.2). All heads of a step compute their weights from the last step's memory; the
writing heads then write, and the reading heads read the new memory. The controller, an LSTM or a feedforward layer,
reads the input and the last step's r; one matrix computes all of k, β, g, s, γ, e and a from its state.

The machine reads each source sentence, over its own length, and then the delimiter END. From that state it writes. With
`feed = false`, as in the paper's copying task, it reads the same learned input at every step, so that the output
depends only on memory and controller; otherwise it reads its last output. The readout reads [controller; r].

The memory starts at 10⁻⁶ everywhere, which trained best in a comparison (Collier and Beel 2018, arXiv:1807.08518).
Every head starts at slot 0, since nothing else tells identical slots apart. Gates start nearly shut, so that heads
shift from slot to slot before they learn to address by content. The first r and an LSTM's first state are learned.
Dropout applies to inputs and before the readout.
"""

# b sentences or rows · n positions · d width of the controller · g gates · p parts of its state · h heads of a kind
# hh = 2h heads, reading heads first · m slots · w width · s shifts
# k numbers that address the memory · v vocabulary · r rows
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import Cosine, State
from regard.data import END
from regard.models.config import NTMConfig
from regard.models.contract import Memory, Notation, Reading, Tokens
from regard.models.recurrent import (
    Dropout,
    Layer,
    RecurrentModel,
    make_linear,
    make_readout,
    repeat_rows,
    without_autocast,
)

BLANK = 1e-6
SHUT = -4.0  # the bias of a gate, before its sigmoid


class Machine(NamedTuple):
    """The state of the machine that it carries from step to step."""

    memory: Float[Tensor, "b m w"]
    weights: Float[Tensor, "b hh m"]
    reads: Float[Tensor, "b h w"]
    state: Float[Tensor, "b p d"]  # the controller's


class MemoryHeads(nn.Module):
    """Heads that write to and read from a memory, controlled by the controller's state."""

    def __init__(self, size: int, *, heads: int, width: int, shift: int):
        super().__init__()
        self.heads, self.width, self.shifts = heads, width, 2 * shift + 1
        self.place = width + 3 + self.shifts  # the numbers that address the memory: k, β, g, s, γ
        self.steer = make_linear(size, 2 * heads * self.place + 2 * heads * width)
        self.content = Cosine("query")
        with torch.no_grad():
            self.steer.bias[: 2 * self.heads * self.place].view(-1, self.place)[:, width + 1] = SHUT

    def forward(
        self, hidden: Float[Tensor, "b d"], machine: Machine, going: Bool[Tensor, "b 1 1"] | None = None
    ) -> tuple[Float[Tensor, "b m w"], Float[Tensor, "b hh m"], Float[Tensor, "b h w"]]:
        """Return memory, weights and reads after a step; rows with `going` False write nothing."""
        where, what = self.steer(hidden).split([2 * self.heads * self.place, 2 * self.heads * self.width], -1)
        weights = self.address(where.unflatten(-1, (2 * self.heads, self.place)), machine)
        reading, writing = weights.chunk(2, 1)
        if going is not None:
            writing = writing * going
        erase, add = what.unflatten(-1, (2, self.heads, self.width)).unbind(1)
        memory = machine.memory
        for w, e in zip(writing.split(1, 1), torch.sigmoid(erase).split(1, 1), strict=True):
            memory = memory * (1 - w.mT @ e)
        memory = torch.baddbmm(memory, writing.mT, add)
        return memory, weights, reading @ memory

    def address(self, where: Float[Tensor, "b hh k"], machine: Machine) -> Float[Tensor, "b hh m"]:
        """Compute every head's weights in four stages; s is ordered from S slots forwards to S slots backwards."""
        key, gate, shifts, power = where.split([self.width + 1, 1, self.shifts, 1], -1)
        content = torch.softmax(self.content(key, self.content.project_keys(machine.memory)), -1)
        gated = torch.lerp(machine.weights, content, torch.sigmoid(gate))
        return sharpen_weights(shift_weights(gated, torch.softmax(shifts, -1)), 1 + F.softplus(power))


def shift_weights(weights: Float[Tensor, "b hh m"], shifts: Float[Tensor, "b hh s"]) -> Float[Tensor, "b hh m"]:
    """Shift weights round the circle of slots: `shifts` has the share of each shift, from S forwards to S backwards."""
    most, count = shifts.shape[-1] // 2, weights.shape[-1]
    if most == 0:
        return weights
    round_the_circle = torch.cat([weights[..., count - most :], weights, weights[..., :most]], -1)
    return (round_the_circle.unfold(-1, shifts.shape[-1], 1) @ shifts[..., None])[..., 0]


def sharpen_weights(weights: Float[Tensor, "b hh m"], power: Float[Tensor, "b hh 1"]) -> Float[Tensor, "b hh m"]:
    """Raise weights to a power and normalise them, by logarithms, since a high power could underflow."""
    return torch.softmax(power * weights.clamp(min=torch.finfo(weights.dtype).tiny).log(), -1)


class Feedforward(nn.Module):
    """A controller without a state, with the interface of a recurrent layer."""

    def __init__(self, inputs: int, size: int):
        super().__init__()
        self.net = make_linear(inputs, size)

    def project(self, x: Float[Tensor, "*b f"], first: int = 0, bias: bool = True) -> Float[Tensor, "*b g"]:
        """Compute W x + b for a part of the input that starts at column `first`."""
        return F.linear(x, self.net.weight[:, first : first + x.shape[-1]], self.net.bias if bias else None)

    def step(self, projected: Float[Tensor, "b g"], state: Float[Tensor, "b 1 d"]) -> Float[Tensor, "b 1 d"]:
        """Apply tanh; the state is ignored."""
        return torch.tanh(projected)[:, None]


class NTMModel(RecurrentModel):
    """A Neural Turing Machine that reads the source into its memory, then writes the output."""

    def __init__(self, config: NTMConfig, source: int, target: int):
        super().__init__()
        self.config = config
        words, reads = config.embedding, config.heads * config.width
        self.source = nn.Embedding(source, words)
        if config.feed:
            self.target = nn.Embedding(target, words)
        else:
            self.silence = nn.Parameter(torch.randn(words))
        self.controller: Layer | Feedforward
        if config.controller == "lstm":
            self.controller = Layer("lstm", words + reads, config.size)
            self.first_state = nn.Parameter(torch.zeros(2, config.size))
        else:
            self.controller = Feedforward(words + reads, config.size)
        self.first_reads = nn.Parameter(torch.empty(config.heads, config.width))
        nn.init.zeros_(self.first_reads)
        self.heads = MemoryHeads(config.size, heads=config.heads, width=config.width, shift=config.shift)
        self.dropout = Dropout(config.dropout)
        self.readout = make_readout(config.size + reads, target)

    def start_machine(self, count: int) -> Machine:
        """Return the machine's initial state."""
        config, like = self.config, self.first_reads
        weights = like.new_zeros(count, 2 * config.heads, config.slots)
        weights[..., 0] = 1
        state = self.first_state if config.controller == "lstm" else like.new_zeros(1, config.size)
        return Machine(
            like.new_full((count, config.slots, config.width), BLANK),
            weights,
            like.expand(count, -1, -1),
            state.expand(count, -1, -1),
        )

    @without_autocast("cpu", "cuda")
    def step_machine(
        self, projected: Float[Tensor, "b g"], machine: Machine, going: Bool[Tensor, "b 1 1"] | None = None
    ) -> Machine:
        """Take one step of the machine with a projected input; rows with `going` False keep their state.

        It computes in float32 or wider: rounding the state at every step would lose its small changes.
        """
        read = self.controller.project(machine.reads.flatten(1), self.config.embedding, bias=False)
        state = self.controller.step(projected + read, machine.state)
        memory, weights, reads = self.heads(state[:, 0], machine, going)
        if going is not None:
            weights, reads, state = (
                torch.where(going, new, old) for new, old in zip((weights, reads, state), machine[1:], strict=True)
            )
        return Machine(memory, weights, reads, state)

    def encode(self, source: Tokens) -> Memory:
        """Return the controller's states, and the machine's state after each sentence's END."""
        ids, lengths = source.padded_ids, source.lengths.to(source.ids.device)
        place = torch.arange(ids.shape[1] + 1, device=ids.device)
        ids = F.pad(ids, (0, 1)).masked_fill(place >= lengths[:, None], END)
        going = (place <= lengths[:, None])[..., None, None]
        machine, states = self.start_machine(len(ids)), []
        projected = self.controller.project(self.dropout(self.source(ids)))
        for word, on in zip(projected.unbind(1), going.unbind(1), strict=True):
            machine = self.step_machine(word, machine, on)
            states.append(machine.state[:, 0])
        return Memory(source.unpad(torch.stack(states, 1)[:, :-1]), source.span, machine._asdict())

    def decode(self, memory: Memory, target: Tokens) -> tuple[Float[Tensor, "*b n d"], dict[str, Tensor]]:
        """Take all steps in order."""
        machine, hidden = Machine(**memory.sentence), []
        for word in self.inputs(target.padded_ids).unbind(1):
            machine = self.step_machine(word, machine)
            hidden.append(self.features(machine))
        return target.unpad(self.dropout(torch.stack(hidden, 1))), {}

    def inputs(self, ids: Int[Tensor, "*b"]) -> Float[Tensor, "*b g"]:
        """Return the projected inputs of the writing steps: the words, or the same learned input for every step."""
        words = self.target(ids) if self.config.feed else self.silence.expand(*ids.shape, -1)
        return self.controller.project(self.dropout(words))

    def features(self, machine: Machine) -> Float[Tensor, "b d"]:
        """Concatenate the controller's state and the heads' reads as the readout's input."""
        return torch.cat([machine.state[:, 0], machine.reads.flatten(1)], -1)

    def start(self, memory: Memory, rows: int = 1, size: int = 256, coverage: bool = False) -> State:
        """Return the machine's state after the source, for each row; without cross-attention it keeps no coverage."""
        return State({}, {name: repeat_rows(part, rows) for name, part in memory.sentence.items()}, rows)

    def step(self, tokens: Int[Tensor, " r"], state: State) -> tuple[Float[Tensor, "r v"], State]:
        """Take one step of every row's machine."""
        machine = self.step_machine(self.inputs(tokens), Machine(**state.row))
        for name, part in machine._asdict().items():
            state.row[name].copy_(part)
        return self.output(self.dropout(self.features(machine))), state

    @cached_property
    def notation(self) -> Notation:
        """Return the formulas and symbols of the paper."""
        return Notation(
            readout=(
                Reading("readout", "input", "[controller; r]", "the controller's state, and what all heads read"),
            ),
            boxes=(
                {
                    "encoder:input": "x_1 … x_m",
                    "decoder:input": "y_0 … y_{n−1}",
                    "(source|target) Embedding": "x_t",
                    r"controller\.net Linear": "W [x_t; r_{t−1}]",
                    "controller": "h_t",
                    "steer": "k_t, β_t, g_t, s_t, γ_t, e_t, a_t",
                    "content Cosine": "β_t cos(k_t, M_{t−1}(i))",
                    "heads softmax 2": "s_t",
                    "heads softmax": "w^c_t",
                    "heads sigmoid 2": "e_t",
                    "heads sigmoid": "g_t",
                    "lerp": "w^g_t = g_t w^c_t + (1 − g_t) w_{t−1}",
                    "shift": "w̃_t",
                    "softplus": "γ_t",
                    "sharpen": "w_t",
                    "heads mul": "M̃_t",
                    "baddbmm": "M_t",
                    "heads matmul 2": "r_t",
                    "heads matmul": "w_t e_t^⊤",
                    "first_reads": "r_0",
                    "decoder: cat$": "[h_t; r_t]",
                    " softmax$": "p(y_t)",
                },
            ),
        )
