r"""Recurrent cells and stacks of them, and the functions that models with a recurrent decoder share.

Elman's cell, the GRU and the LSTM run over whole sentences or one step at a time.

$h_t = \tanh(W x_t + U h_{t-1} + b)$, or ReLU (Elman 1990)

$r = \sigma(W_r x + U_r h)$, $z = \sigma(W_z x + U_z h)$, $\tilde h = \tanh(W x + r \circ (U h + b))$,
$h' = z \circ h + (1 - z) \circ \tilde h$ (Cho et al. 2014, arXiv:1406.1078, section 2.3). Here the reset gate acts on
U h, not on h, so that a step is one matrix product; Bahdanau et al. write 1 - z for z.

$i, f, o = \sigma(W x + U h + b)$, $c' = f \circ c + i \circ \tanh(W_g x + U_g h + b_g)$, $h' = o \circ \tanh(c')$
(Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000)

The parameters are those of torch's modules (`nn.RNN`, `nn.GRU`, `nn.LSTM`), which run whole sentences. A state is one
tensor, [b p d] for a layer and [b l p d] for a stack; an LSTM's state has two parts, h and c, the others have one.

Recurrent matrices start orthogonal, gate by gate, so that a state keeps its norm over many steps. Input matrices start
as Glorot's. Biases start at zero, except that of an LSTM's forget gate, which starts at 1 so that the cell remembers.

Word embeddings start normal with deviation 1, torch's default, so that first states and annotations differ between
words. With a deviation of 0.1, a common recommendation, attention took five times as many steps to begin to learn.
"""

# b sentences · s sentences · r rows, hypotheses of all sentences · n positions · m source positions
# e width of the input · d of a state · g gates · p parts of a state · l layers
import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Additive, Attention, Dot, General, Prepared, Score, Softmax, Span, State, Weighting
from regard.kernels import Linear, backends, dropout, linear, planning
from regard.models.config import Cell
from regard.models.contract import Memory, Model

Method = TypeVar("Method", bound=Callable[..., Any])
OWN = "parts of one's own, or with hooks"
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
PARTS = {"rnn": 1, "gru": 1, "lstm": 2}
SHUT = 1e4  # its sigmoid is exactly 1, that of -SHUT exactly 0, and both gradients are exactly 0


# The Triton row runs both directions at once in bfloat16, for which cuDNN has no cells.
BOTH_DIRECTIONS = planning.Table(
    "recurrent layers",
    planning.Row(
        name="triton",
        devices=("cuda",),
        dtypes=planning.SINGLE_OR_HALF,
        features=frozenset({planning.AUTOCAST}),
        conditions=(planning.NEEDS_TRITON,),
    ),
    planning.Row(name="torch", features=None),
)


def without_autocast(*devices: str) -> Callable[[Method], Method]:
    """Decorate a module's method to run without autocast on these devices, with its arguments in float32.

    A step is too small to gain from half precision, where every cast is one more kernel, and rounding a state at every
    step would lose its small changes. Autocast would also run cuDNN's cells in float16, which needs gradient scaling.
    """

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def run(self: nn.Module, x: Tensor, *others: Any) -> Any:
            device = x.device.type
            if device not in devices or not torch.is_autocast_enabled(device):
                return method(self, x, *others)
            with torch.autocast(device, enabled=False):
                return method(self, *map(to_float, (x, *others)))

        return cast(Method, run)

    return decorate


def to_float(value: Any) -> Any:
    """Cast a floating-point tensor, projected keys or a memory to float32; return any other value unchanged."""
    if isinstance(value, Memory):
        sentence = {name: tensor.float() for name, tensor in value.sentence.items()}
        return replace(value, states=value.states.float(), sentence=sentence)
    if isinstance(value, Prepared) or (isinstance(value, Tensor) and value.is_floating_point()):
        return value.float()
    return value


class Dropout(nn.Module):
    """Dropout in training, with Regard's own kernels."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        """Apply dropout to x in training."""
        return dropout(x, self.p) if self.training else x

    def extra_repr(self) -> str:
        return str(self.p)


class Layer(nn.Module):
    """One recurrent layer."""

    step_method = "step"  # the method that takes one step, which a recording wraps

    def __init__(self, kind: Cell, inputs: int, size: int, nonlinearity: str = "tanh"):
        super().__init__()
        self.kind, self.size, self.nonlinearity = kind, size, nonlinearity
        self.gates, self.parts = GATES[kind], PARTS[kind]
        options: dict[str, Any] = {"nonlinearity": nonlinearity} if kind == "rnn" else {}
        self.net = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[kind](inputs, size, batch_first=True, **options)
        with torch.no_grad():
            for gate in self.net.weight_ih_l0.chunk(self.gates):
                nn.init.xavier_uniform_(gate)
            for gate in self.net.weight_hh_l0.chunk(self.gates):
                nn.init.orthogonal_(gate)
            for bias in (self.net.bias_ih_l0, self.net.bias_hh_l0):
                bias.zero_()
            if kind == "lstm":
                self.net.bias_ih_l0[size : 2 * size].fill_(1.0)

    def train(self, mode: bool = True) -> "Layer":
        """Keep the net in training mode: it has no dropout, and cuDNN computes gradients in training mode only."""
        super().train(mode)
        self.net.train()
        return self

    @without_autocast("cuda")
    def forward(
        self,
        x: Float[Tensor, "b n e"],
        state: Float[Tensor, "b p d"] | None = None,
        lengths: Int[Tensor, " b"] | None = None,
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b p d"]]:
        """Return h after each position, and the full state after the last one, or after each row's length.

        Padding after a row's length does not change its states.
        """
        b, n, _ = x.shape
        if state is None:
            state = x.new_zeros(b, self.parts, self.size)
        if n == 0:
            return x.new_zeros(b, 0, self.size), state
        if lengths is not None and self.kind == "lstm":
            states, cell = self.run_to_lengths(x, state, lengths)
            return states, torch.stack([last_states(states, lengths, state[:, 0]), cell], 1)
        start: Any = tuple(part.unsqueeze(0).contiguous() for part in state.unbind(1))
        states, end = self.net(x, start if self.kind == "lstm" else start[0])
        if lengths is not None:
            return states, last_states(states, lengths, state[:, 0])[:, None]
        return states, torch.stack([part[0] for part in end], 1) if self.kind == "lstm" else end.transpose(0, 1)

    def run_to_lengths(
        self, x: Float[Tensor, "b n e"], state: Float[Tensor, "b 2 d"], lengths: Int[Tensor, " b"]
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b d"]]:
        """Run an LSTM; return its states h, and its cell c after each row's last position.

        An extra input marks padding: it opens the forget gate and shuts the input gate, so that c keeps its value.
        Unlike packing the rows, this does not read the lengths on the host.
        """
        over = (torch.arange(x.shape[1], device=x.device) >= lengths.to(x.device)[:, None]).to(x.dtype)
        gate = x.new_zeros(4, self.size)
        gate[0], gate[1] = -SHUT, SHUT
        weight = torch.cat([self.net.weight_ih_l0, gate.view(-1, 1).to(self.net.weight_ih_l0.dtype)], 1)
        weights = [weight, self.net.weight_hh_l0, self.net.bias_ih_l0, self.net.bias_hh_l0]
        start = [part.unsqueeze(0).contiguous() for part in state.unbind(1)]
        with warnings.catch_warnings():  # cuDNN warns that it copies the weights into one contiguous buffer
            warnings.filterwarnings("ignore", message=".*single contiguous chunk.*")
            states, _, cell = torch.lstm(
                torch.cat([x, over[..., None]], -1), start, weights, True, 1, 0.0, True, False, True
            )
        return states, cell[0]

    def project(self, x: Float[Tensor, "*b f"], first: int = 0, bias: bool = True) -> Float[Tensor, "*b g"]:
        """Compute W x + b, a step's projected input; `x` may be a part of the input that starts at column `first`."""
        weight = self.net.weight_ih_l0[:, first : first + x.shape[-1]]
        return linear(x, weight, self.net.bias_ih_l0 if bias else None)

    def step(self, projected: Float[Tensor, "r g"], state: Float[Tensor, "r p d"]) -> Float[Tensor, "r p d"]:
        """Return the state after one more input, given its projection."""
        h = state[:, 0]
        recurrent = linear(h, self.net.weight_hh_l0, self.net.bias_hh_l0)
        if self.kind == "lstm" and state.is_cuda and projected.dtype == recurrent.dtype == state.dtype:
            return torch.stack(torch.ops.aten._thnn_fused_lstm_cell(projected, recurrent, state[:, 1])[:2], 1)
        if self.kind == "gru":
            r, z = torch.sigmoid(projected[:, : 2 * self.size] + recurrent[:, : 2 * self.size]).chunk(2, -1)
            new = torch.tanh(projected[:, 2 * self.size :] + r * recurrent[:, 2 * self.size :])
            return (new + z * (h - new))[:, None]
        summed = projected + recurrent
        if self.kind == "lstm":
            i, f, g, o = summed.chunk(4, -1)
            c = torch.sigmoid(f) * state[:, 1] + torch.sigmoid(i) * torch.tanh(g)
            return torch.stack([torch.sigmoid(o) * torch.tanh(c), c], 1)
        return (torch.tanh(summed) if self.nonlinearity == "tanh" else torch.relu(summed))[:, None]


class Stack(nn.Module):
    """A stack of layers with dropout between them, never from step to step (Zaremba et al. 2014, arXiv:1409.2329)."""

    def __init__(
        self, kind: Cell, inputs: int, size: int, layers: int, dropout: float = 0.0, nonlinearity: str = "tanh"
    ):
        super().__init__()
        self.layers = nn.ModuleList(
            Layer(kind, size if index else inputs, size, nonlinearity) for index in range(layers)
        )
        self.dropout = Dropout(dropout)

    @property
    def each(self) -> list[Layer]:
        """Return the layers, from the bottom up."""
        return cast(list[Layer], list(self.layers))

    def forward(
        self,
        x: Float[Tensor, "b n e"],
        state: Float[Tensor, "b l p d"] | None = None,
        lengths: Int[Tensor, " b"] | None = None,
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b l p d"]]:
        """Return the top layer's states, and every layer's last state."""
        ends = []
        for index, layer in enumerate(self.each):
            if index:
                x = self.dropout(x)
            x, end = layer(x, None if state is None else state[:, index], lengths)
            ends.append(end)
        return x, torch.stack(ends, 1)

    def read(
        self, x: Float[Tensor, "b n e"], lengths: Int[Tensor, " b"]
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b l p d"]]:
        """Return the annotations of padded sentences, and every layer's last state."""
        result: tuple[Tensor, Tensor] = self(x, lengths=lengths)
        return result

    def step(
        self, projected: Float[Tensor, "r g"], state: Float[Tensor, "r l p d"]
    ) -> tuple[Float[Tensor, "r d"], Float[Tensor, "r l p d"]]:
        """Return the top layer's h and all states after one more input, given its projection by the first layer."""
        ends: list[Tensor] = []
        for index, layer in enumerate(self.each):
            if index:
                projected = layer.project(self.dropout(ends[-1][:, 0]))
            ends.append(layer.step(projected, state[:, index]))
        return ends[-1][:, 0], torch.stack(ends, 1)


class Bidirectional(nn.Module):
    """A stack of bidirectional layers, with annotations [h→; h←] (Schuster and Paliwal 1997).

    The backward layer runs forwards over sentences that are reversed within their lengths.
    """

    def __init__(
        self, kind: Cell, inputs: int, size: int, layers: int, dropout: float = 0.0, nonlinearity: str = "tanh"
    ):
        super().__init__()
        widths = [2 * size if index else inputs for index in range(layers)]
        self.forwards = nn.ModuleList(Layer(kind, width, size, nonlinearity) for width in widths)
        self.backwards = nn.ModuleList(Layer(kind, width, size, nonlinearity) for width in widths)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "b n e"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "b n dd"]:
        """Return the annotation of every position."""
        fused = BOTH_DIRECTIONS.choose(self.describe(x)).name == "triton"
        for index, (forwards, backwards) in enumerate(zip(self.forwards, self.backwards, strict=True)):
            if index:
                x = self.dropout(x)
            if fused:
                x = run_both_directions(x, lengths, cast(Layer, forwards), cast(Layer, backwards))
                continue
            x = torch.cat([forwards(x)[0], reverse_rows(backwards(reverse_rows(x, lengths))[0], lengths)], -1)
        return x

    def describe(self, x: Tensor) -> planning.Request:
        """Describe a call as a request to the table of recurrent layers."""
        request = describe_recurrence(x, self.forwards, self.backwards)
        needs = [*request.features]
        if not torch.is_autocast_enabled("cuda") or torch.get_autocast_dtype("cuda") != torch.bfloat16:
            needs.append("another dtype than bfloat16")
        if any(layer.kind == "rnn" for layer in self.layers):
            needs.append("cells without gates")
        if x.shape[1] == 0:
            needs.append("no words")
        return request._replace(features=tuple(needs))

    @property
    def layers(self) -> list[Layer]:
        """Return the layers of both directions."""
        return cast(list[Layer], [*self.forwards, *self.backwards])

    def read(
        self, x: Float[Tensor, "b n e"], lengths: Int[Tensor, " b"]
    ) -> tuple[Float[Tensor, "b n dd"], Float[Tensor, "b l p dd"]]:
        """Return the annotations, and every layer's last state [h→; h←], of both directions."""
        ends = []
        for index, (forwards, backwards) in enumerate(zip(self.forwards, self.backwards, strict=True)):
            if index:
                x = self.dropout(x)
            there, back = forwards(x, None, lengths), backwards(reverse_rows(x, lengths), None, lengths)
            x = torch.cat([there[0], reverse_rows(back[0], lengths)], -1)
            ends.append(torch.cat([there[1], back[1]], -1))
        return x, torch.stack(ends, 1)


def run_both_directions(
    x: Float[Tensor, "b n e"], lengths: Int[Tensor, " b"], forwards: Layer, backwards: Layer
) -> Float[Tensor, "b n dd"]:
    """Compute [h→; h←] with a Triton kernel that steps in both directions at once."""
    from regard.kernels import cell_layer

    nets = forwards.net, backwards.net
    weight = torch.cat([net.weight_ih_l0 for net in nets])
    bias = torch.cat([net.bias_ih_l0 for net in nets])
    recurrent, hidden_bias = (
        torch.stack(list(each)) for each in ((net.weight_hh_l0 for net in nets), (net.bias_hh_l0 for net in nets))
    )
    if forwards.kind == "lstm":
        bias = bias + hidden_bias.flatten()
    projected = linear(x, weight, bias).unflatten(-1, (2, -1))
    return cell_layer.run(projected, recurrent, hidden_bias, lengths.to(x.device))


class ReverseRows(torch.autograd.Function):
    """A permutation of rows that is its own inverse, so that backward applies the same permutation."""

    @staticmethod
    def forward(x: Tensor, index: Tensor) -> Tensor:
        return x.flatten(0, 1).index_select(0, index).view(x.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return cast(Tensor, ReverseRows.apply(grad.contiguous(), ctx.saved_tensors[0])), None


def reverse_rows(x: Tensor, lengths: Int[Tensor, " b"]) -> Tensor:
    """Reverse each row of [b n] or [b n d] within its length; padding stays in place."""
    b, n = x.shape[:2]
    place = torch.arange(n, device=x.device)
    length = lengths.to(x.device)[:, None]
    within = torch.where(place < length, length - 1 - place, place)
    index = (within + torch.arange(0, b * n, max(1, n), device=x.device)[:b, None]).flatten()
    if x.ndim == 2:
        return x.flatten().index_select(0, index).view(x.shape)
    return cast(Tensor, ReverseRows.apply(x, index))


def last_states(
    states: Float[Tensor, "b n d"], lengths: Int[Tensor, " b"], empty: Float[Tensor, "b d"]
) -> Float[Tensor, "b d"]:
    """Return each row's state at its last position, or `empty` for a row of length 0."""
    length = lengths.to(states.device)
    rows = torch.arange(len(states), device=states.device)
    return torch.where((length > 0)[:, None], states[rows, (length - 1).clamp(min=0)], empty)


class RecurrentModel(Model):
    """The base class of models with a recurrent decoder and, in most cases, a recurrent encoder.

    `row["state"]` of a search's state is the decoder's recurrent state.
    """

    def source_states(self, memory: Memory) -> Float[Tensor, "*b m d"] | None:
        """Return the encoder's states, which are its memory; None if it is not recurrent."""
        return memory.states if getattr(self.config, "has_recurrent_encoder", True) else None

    def hidden_state(self, state: State) -> Float[Tensor, "r d"]:
        """Return h of the decoder's top layer, from the state of a stack [r l p d] or of one cell [r p d]."""
        states: Tensor = state.row["state"]
        return states[:, -1, 0] if states.ndim == 4 else states[:, 0]

    @property
    def reads_backwards(self) -> bool:
        """Return whether the kind has an option `reverse` and it is set."""
        return bool(getattr(self.config, "reverse", False))


def make_linear(inputs: int, size: int, bias: bool = True) -> nn.Linear:
    """Return a linear layer with weights initialised as in Glorot and Bengio 2010, and a bias of zero."""
    layer = Linear(inputs, size, bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def make_readout(size: int, count: int, scale: float = 1.0) -> nn.Linear:
    """Return an output projection with normal weights of deviation scale/√size; small inputs need a larger scale."""
    layer = Linear(size, count)
    nn.init.normal_(layer.weight, std=scale * size**-0.5)
    nn.init.zeros_(layer.bias)
    return layer


def can_bypass(
    *parts: nn.Module,
    scores: Sequence[type[Score]] = (Additive, Dot, General),
    weightings: Sequence[type[Weighting]] = (Softmax,),
) -> bool:
    """Return whether faster code may replace these modules: none has a hook, and no backend is forced.

    That code supports only attentions with these scores and weightings of Regard's; any other attention is called.
    """
    return backends.forced_backend() is None and not any(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or (isinstance(module, Attention) and not is_standard(module, scores, weightings))
        for part in parts
        for module in part.modules()
    )


def describe_recurrence(x: Tensor, *parts: nn.Module, scores: Sequence[type[Score]] = (Additive,)) -> planning.Request:
    """Describe a recurrence of these modules over x as a request to a table of implementations."""
    needs, device = [*planning.compiling()], x.device.type
    if torch.is_autocast_enabled(device):
        needs.append(planning.AUTOCAST)
    if planning.COMPILING not in needs and not can_bypass(*parts, scores=scores):
        needs.append(OWN)
    return planning.Request(device, (x.dtype,), tuple(needs))


def is_standard(
    attention: Attention, scores: Sequence[type[Score]], weightings: Sequence[type[Weighting]] = (Softmax,)
) -> bool:
    """Return whether an attention has one of these scores, unscaled, one of these weightings, no span, no dropout."""
    score, weighting = attention.score, attention.weighting
    return (
        type(attention) is Attention
        and type(score) in scores
        and score.fused_form == score.form
        and score.scale(64) == 1.0
        and type(weighting) in weightings
        and (not isinstance(weighting, Softmax) or weighting.temperature == 1.0)
        and attention.span is None
        and not attention.dropout
    )


def to_autocast_dtype(x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
    """Cast to autocast's dtype on a GPU, once, so that the modules that read x do not each cast it."""
    if x.is_cuda and torch.is_autocast_enabled("cuda"):
        return x.to(torch.get_autocast_dtype("cuda"))
    return x


def maxout(x: Float[Tensor, "*b dd"]) -> Float[Tensor, "*b d"]:
    """Return the maximum of numbers j and j + d (Goodfellow et al. 2013, arXiv:1302.4389).

    Papers pair neighbours, 2j and 2j + 1; pairing halves is the same function with the matrix's rows reordered.
    """
    return torch.maximum(*x.chunk(2, -1))


def repeat_rows(x: Tensor, rows: int) -> Tensor:
    """Copy a tensor without its gradient, with each row repeated `rows` times."""
    return x.detach().repeat_interleave(rows, 0) if rows > 1 else x.detach().clone()


def start_attending(
    attention: Attention, memory: Memory, start: Float[Tensor, "s *l p d"], rows: int, coverage: bool
) -> State:
    """Project the annotations once, and return a decoder's state before the first step."""
    keys = memory.prepare(attention).copy()
    row = {"state": repeat_rows(start, rows)}
    if coverage:
        row["coverage"] = start.new_zeros(len(start) * rows, keys.keys.shape[1])
    return State({"memory": keys}, row, rows)


def attend_rows(
    attention: Attention, query: Float[Tensor, "r d"], state: State, span: Span | None = None
) -> Float[Tensor, "r dv"]:
    """Attend from every row, with a sentence's rows as queries of one call, and add the weights to the coverage."""
    memory, together = state.sentence["memory"], state.group_rows(query[:, None])
    if state.coverage is None:
        return attention(together, memory, span=span).flatten(0, 1)
    look = attention.look(together, memory, span=span)
    state.coverage.add_(look.weights.flatten(0, 1).to(state.coverage.dtype))
    if attention._forward_hooks:  # hooks need a call
        return attention(together, memory, span=span).flatten(0, 1)
    return look.context.flatten(0, 1)
