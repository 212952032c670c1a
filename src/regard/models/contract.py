"""The contract: the interface of every model that training, search, inspection, serving and export use.

    memory         = model.encode(source)              annotations for the decoder, with their span
    hidden, extra  = model.decode(memory, target)      all steps with teacher forcing, before the output projection
    logits         = model.output(hidden)
    state          = model.start(memory, rows, size)   caches of a fixed size
    logits, state  = model.step(tokens, state)         one step for all rows

A batch is padded, [b n] with `Lengths`, or packed, [Σn] with `Packed`: a span describes the layout, and the model code
is the same for both. `decode` computes the same scores as the steps.

A model reads sentences (`Tokens`), `Documents` or `Pictures`, as its row in the table of kinds says. A classifier has
`classify(memory)` in place of the decoder.
"""

# b sentences, documents or pictures · s sentences of all documents · w words · h w height and width
# m source positions · n target positions · d width · v vocabulary · r rows: hypotheses of all sentences
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from regard.attention import Attention, Lengths, ModelPlan, Packed, Prepared, State, plan_calls
from regard.errors import CheckpointError, ShapeError
from regard.messages import visible

__all__ = [
    "Documents",
    "Memory",
    "Model",
    "Notation",
    "Pictures",
    "Reading",
    "Reinforcement",
    "Source",
    "State",
    "Tokens",
]


@dataclass(frozen=True, eq=False)
class Tokens:
    """Token numbers and their layout: [b n] with Lengths, or [Σn] with Packed."""

    ids: Int[Tensor, "*b n"]
    span: Lengths | Packed

    def __post_init__(self) -> None:
        if self.ids.ndim != (1 if isinstance(self.span, Packed) else 2):
            expected = "[Σn] with Packed" if isinstance(self.span, Packed) else "[b n] with Lengths"
            raise ShapeError(f"tokens: {list(self.ids.shape)} given, expected {expected}")

    @classmethod
    def of(cls, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> "Tokens":
        """Return tokens of padded rows."""
        return cls(ids, Lengths(lengths))

    @property
    def lengths(self) -> Int[Tensor, " b"]:
        """Return the number of tokens of each sentence."""
        return self.span.offsets.diff() if isinstance(self.span, Packed) else self.span.lengths

    @property
    def real(self) -> Bool[Tensor, "*b n"]:
        """Return a mask of the tokens that are not padding, in the layout of the ids."""
        if isinstance(self.span, Packed):
            return torch.ones_like(self.ids, dtype=torch.bool)
        return torch.arange(self.ids.shape[1], device=self.ids.device) < self.lengths.to(self.ids.device)[:, None]

    @property
    def padded_ids(self) -> Int[Tensor, "b n"]:
        """Return the ids with one row per sentence, as a recurrence reads them, for either layout."""
        if isinstance(self.span, Packed):
            return self.span.to(self.ids.device).pad_queries(self.ids[:, None])[..., 0]
        return self.ids

    def unpad(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "*t d"]:
        """Convert vectors with one row per sentence to the layout of these tokens."""
        return self.span.to(x.device).unpad(x) if isinstance(self.span, Packed) else x

    def pack(self) -> "Tokens":
        """Return these tokens packed, with their sentences end to end."""
        return (
            self
            if isinstance(self.span, Packed)
            else Tokens(self.ids[self.real], Packed(F.pad(self.lengths.cumsum(0), (1, 0))))
        )

    def to(self, device: torch.device | str) -> "Tokens":
        """Copy to another device."""
        span = (
            Lengths(self.lengths.to(device)) if isinstance(self.span, Lengths) else self.span.to(torch.device(device))
        )
        return Tokens(self.ids.to(device), span)


@dataclass(frozen=True, eq=False)
class Documents:
    """The sentences of all documents in a row, and the number of sentences of each document."""

    words: Tokens  # [s w], one sentence per row
    sentences: Int[Tensor, " b"]

    def __post_init__(self) -> None:
        if isinstance(self.words.span, Packed):
            raise ShapeError("words: packed given, expected one sentence per row")

    @property
    def lengths(self) -> Int[Tensor, " b"]:
        """Return the number of sentences of each document."""
        return self.sentences

    def to(self, device: torch.device | str) -> "Documents":
        """Copy to another device."""
        return Documents(self.words.to(device), self.sentences.to(device))


@dataclass(frozen=True, eq=False)
class Pictures:
    """RGB pictures of one size, as bytes."""

    pixels: UInt8[Tensor, "b 3 h w"]

    @property
    def lengths(self) -> Int[Tensor, " b"]:
        """Return 1 for each picture, which counts as one position."""
        return torch.ones(len(self.pixels), dtype=torch.long, device=self.pixels.device)

    def to(self, device: torch.device | str) -> "Pictures":
        """Copy to another device."""
        return Pictures(self.pixels.to(device))


Source = Tokens | Documents | Pictures


@dataclass(frozen=True, eq=False)
class Memory:
    """The encoder's output: annotations in the source's layout, and tensors with one row per sentence."""

    states: Float[Tensor, "*b m d"]
    span: Lengths | Packed
    sentence: dict[str, Tensor] = field(default_factory=dict)
    grid: tuple[int, int] | None = None  # for pictures: the height and width of the grid that the positions form

    @property
    def lengths(self) -> Int[Tensor, " b"]:
        """Return the number of source positions of each sentence."""
        return self.span.offsets.diff() if isinstance(self.span, Packed) else self.span.lengths

    def pad(self) -> "Memory":
        """Return the memory in the padded layout, one row per sentence."""
        if isinstance(self.span, Lengths):
            return self
        return replace(self, states=self.span.pad_queries(self.states), span=Lengths(self.lengths))

    def prepare(self, attention: Attention) -> Prepared:
        """Project the annotations once for an attention, one row per sentence, and keep the number of real positions.

        The number is a tensor, not `Lengths`, which reads its values on the host if they are on a CPU.
        """
        padded = self.pad()
        keys = attention.prepare(padded.states)
        return Prepared(keys.keys, keys.values, attention, padded.lengths.to(keys.keys.device))

    def rows(self, index: Int[Tensor, " r"]) -> "Memory":
        """Return the memory of the sentences at `index`, which may repeat: one row for each of several targets."""
        padded = self.pad()
        sentence = {name: tensor[index] for name, tensor in self.sentence.items()}
        return replace(padded, states=padded.states[index], span=Lengths(padded.lengths[index]), sentence=sentence)

    def cross_span(self, target: Tokens) -> Lengths | Packed:
        """Return the span of the target's attention to this memory."""
        if isinstance(self.span, Packed) and isinstance(target.span, Packed):
            sizes, key_sizes = (target.span.total, target.span.longest), (self.span.total, self.span.longest)
            return Packed(target.span.offsets, self.span.offsets, sizes=sizes, key_sizes=key_sizes)
        if isinstance(self.span, Packed) or isinstance(target.span, Packed):
            raise ShapeError("target: one of memory and target is packed, expected both or neither")
        return self.span


@dataclass(frozen=True, eq=False)
class Reinforcement:
    """The settings of REINFORCE, for a model whose `decode` samples source positions.

    `decode` returns `sampled` [b], a mask of the targets with sampled positions, and `log_prob` and `entropy` [b n].
    `baseline` and `batches` are buffers of the model, so that checkpoints hold them; an objective updates them.
    """

    weight: float  # of the REINFORCE term, which makes the positions of better targets likelier
    entropy: float  # weight of the entropy of the distribution over positions
    baseline: Float[Tensor, ""]  # moving average of a target's log-probability; 0 before the first batch
    batches: Float[Tensor, ""]  # the number of batches that an objective has counted


@dataclass(frozen=True)
class Reading:
    """A module's input, output or state, which a walk shows between the context and the readout."""

    module: str  # its dotted name
    what: Literal["input", "output", "state"]  # "state": a recurrent cell's h (or h and c) after a step
    formula: str
    words: str
    main: bool = True


@dataclass(frozen=True)
class Notation:
    """The notation of a kind's paper: names of the stages of its attention, and of the steps up to its readout.

    A walk through a model (`regard look --steps`) shows these names beside its numbers, or the general names of
    attention where there are none here.

    `boxes` maps patterns of side, module and operation to the symbols in a model's graph. The first match wins, table
    by table. In a symbol `_` and `^` begin a subscript and a superscript of one letter, or of several in braces: "h_j",
    "s_{i−1}". `(ℓ)` is the number of a layer; the top layer has none, as in the papers. h^{(ℓ−1)}_t is a layer's
    input; for the first layer it is x_t. The part after a ‖ replaces the symbol in the top layer.
    """

    symbols: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # formula and words, by a stage's symbol
    attentions: Mapping[str, Mapping[str, tuple[str, str]]] = field(default_factory=dict)  # for one attention, by name
    readout: tuple[Reading, ...] = ()  # in order; a walk skips modules that did not run
    boxes: Sequence[Mapping[str, str]] = ()  # symbols in a graph, by pattern

    def of(self, attention: str) -> Mapping[str, tuple[str, str]]:
        """Return the names of one attention's stages, found by its full name or its last part."""
        own = self.attentions.get(attention, self.attentions.get(attention.rpartition(".")[2], {}))
        return {**self.symbols, **own}


def name_additive_stages(query: str, key: str, weight: str, context: str, words: str) -> dict[str, tuple[str, str]]:
    """Return the names of additive attention's stages in a paper's symbols for query, key, weight and context."""
    tanh = f"tanh(W {query} + U {key} + b)"
    return {
        "q": (query, words),
        "W q": (f"W {query}", "the query, projected"),
        "U k + b": (f"U {key} + b", "every key, projected, once for all words"),
        "tanh(W q + U k + b)": (tanh, "query and key together"),
        "e": (f"e = vᵀ {tanh}", "the score of every key"),
        "a": (f"{weight} = softmax(e)", ""),
        "v": (key, "what is summed"),
        "Σ a v": (f"{context} = Σ {weight} {key}", "the context: what this word reads"),
    }


class Model(nn.Module):
    """The base class of all models: an encoder and a decoder that follow the contract.

    `readout` is the output projection: a linear layer that `output` applies and that the objective fuses with the loss.
    A model that computes its scores in another way has no readout: it sets `projects = False` and overrides `output`.
    """

    readout: nn.Linear
    projects: bool = True
    limit: int | None = None  # the largest number of target positions, if there is one
    origin: str = "the model"  # the model's name in errors: the run folder that it was loaded from
    replays: bool = True  # a step reads nothing back from the device, so that a CUDA graph can capture it
    points: bool = False  # the attention over the source is the output, and cannot be removed

    @cached_property
    def notation(self) -> Notation:
        """Return the paper's formulas for a walk through the model, and the symbols for its graph."""
        return Notation()

    @property
    def doubly_stochastic(self) -> float:
        """Return λ, the weight of the penalty on source positions whose weights over all words do not sum to one.

        See Xu et al. 2015. If it is not 0, `decode` returns `weights` [b n m] in training.
        """
        return 0.0

    @property
    def reinforcement(self) -> Reinforcement | None:
        """Return the settings of REINFORCE for a model that samples source positions; None for other models."""
        return None

    def load_pretrained(self) -> None:
        """Load the user's weights into a new model before training; a model loaded from a run already has its own."""

    def encode(self, source: Any) -> Memory:
        """Encode a source, of the type that this model reads, into the memory that the decoder attends to."""
        raise NotImplementedError

    def decode(self, memory: Memory, target: Tokens) -> tuple[Float[Tensor, "*b n d"], dict[str, Tensor]]:
        """Take all steps with teacher forcing; return the output projection's input after each token of `target`.

        The second value holds named differentiable tensors that an objective may use.
        """
        raise NotImplementedError

    def output(self, hidden: Float[Tensor, "*b d"]) -> Float[Tensor, "*b v"]:
        """Compute the scores (logits) of all next tokens."""
        logits: Tensor = self.readout(hidden)
        return logits

    def classify(self, memory: Memory) -> Float[Tensor, "b v"]:
        """Compute the scores (logits) of all labels, if the model is a classifier."""
        raise NotImplementedError

    def start(self, memory: Memory, rows: int = 1, size: int = 256, coverage: bool = False) -> State:
        """Return the state before the first step, with `rows` hypotheses per sentence and room for `size` steps.

        With `coverage` the state sums the attention that each source position receives.
        """
        raise NotImplementedError

    def step(self, tokens: Int[Tensor, " r"], state: State) -> tuple[Float[Tensor, "r v"], State]:
        """Read one token per row, update the state in place, and return it with the scores of the next tokens."""
        raise NotImplementedError

    @property
    def packs(self) -> bool:
        """Return whether a GPU computes packed sentences in half precision without padding them."""
        return False

    @property
    def gives_weights(self) -> bool:
        """Return whether `decode` returns the `weights` [b n m] of its one cross-attention at no cost.

        For other models, `watch` reads the weights.
        """
        return False

    def source_states(self, memory: Memory) -> Float[Tensor, "*b m d"] | None:
        """Return a recurrent encoder's hidden states, one per source position; None for other encoders."""
        return None

    def hidden_state(self, state: State) -> Float[Tensor, "r d"] | None:
        """Return the hidden state of a recurrent decoder's top layer, without an LSTM's c; None for other decoders."""
        return None

    @property
    def reads_backwards(self) -> bool:
        """Return whether the encoder reads sentences from end to start, and so computes its states in that order."""
        return False

    def weigh_documents(self, documents: Documents) -> tuple[Float[Tensor, "s w"], Float[Tensor, "b t"]]:
        """Return the weight of each word in its sentence, and of each sentence in its document; rows sum to one.

        Only models that read documents with attention have such weights.
        """
        raise NotImplementedError

    @property
    def cross_attentions(self) -> list[str]:
        """Return the names of the cross-attentions, as `watch` uses them, from the first layer up."""
        return [name for name, _ in self.named_modules() if name == "attention" or name.endswith(".cross")]

    @property
    def alignment_attention(self) -> str:
        """Return the name of the cross-attention that is most like an alignment.

        Of more than three it is the last but one, as in the deep Transformers of Garg et al. 2019 (arXiv:1909.02074);
        otherwise the last.
        """
        return self.cross_attentions[-2 if len(self.cross_attentions) > 3 else -1]

    def plan(self, source: Source, target: Tokens | None = None) -> ModelPlan:
        """Run this batch, and return a printable plan: each attention's backend, and why no faster one serves it.

        Without a target, only the encoder runs.
        """
        with plan_calls(self) as found:
            memory = self.encode(source)
            if target is not None:
                self.decode(memory, target)
        return found

    def forward(self, source: Source, target: Tokens) -> Float[Tensor, "*b n v"]:
        """Encode the source, decode the target with teacher forcing, and return the scores of all next tokens."""
        hidden, _ = self.decode(self.encode(source), target)
        return self.output(hidden)


# ---- weights from files

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # the dtypes that a file may keep weights in
WRAPPERS = ("state_dict", "model", "model_state_dict")  # keys under which a file may hold its weights
CODE = re.compile(r"GLOBAL ([\w.]{1,80})")  # the import that a pickle requests, as torch's error names it


def check_weight(name: str, weight: Tensor, dtype: torch.dtype, where: str) -> None:
    """Raise an error for a weight with NaN or infinity, or of the wrong dtype; any float dtype may replace another."""
    if weight.dtype != dtype and (weight.dtype not in FLOATS or dtype not in FLOATS):
        kinds = [
            str(each).removeprefix("torch.") for each in (weight.dtype, *(FLOATS if dtype in FLOATS else (dtype,)))
        ]
        raise CheckpointError(f"{where}: weight {name} is {kinds[0]}, expected {' or '.join(kinds[1:])}")
    if dtype not in FLOATS:
        return
    with torch.no_grad():
        weight = weight.to(dtype)  # a float64 number may overflow in a narrower dtype
        # A sum over NaN or infinity is never finite: one pass without a temporary, except where the sum overflows.
        if bool(torch.isfinite(weight.sum())) or bool(torch.isfinite(weight).all()):
            return
        what = "NaN" if bool(torch.isnan(weight).any()) else "infinity"
    raise CheckpointError(
        f"{where}: weight {name} has {what} in it, expected finite numbers: training it diverged, or the file was "
        "changed; take another checkpoint of the run, or train it again with a lower training.rate"
    )


def load_weights(net: nn.Module, path: str) -> None:
    """Load a file's weights into a network; ignore others in the file, such as those of a removed classifier."""
    weights = {unify_name(name): tensor for name, tensor in read_weights(path).items()}
    own = {unify_name(name): tensor for name, tensor in net.state_dict().items()}
    with torch.no_grad():
        for name, tensor in own.items():
            if name not in weights:
                if name.endswith("num_batches_tracked"):
                    continue
                raise CheckpointError(f"{path}: weight {name} is missing, which the backbone needs")
            if weights[name].shape != tensor.shape:
                shapes = f"{list(weights[name].shape)}, expected {list(tensor.shape)}"
                raise CheckpointError(f"{path}: weight {name} is {shapes}")
            check_weight(name, weights[name], tensor.dtype, path)
            tensor.copy_(weights[name])


def unify_name(name: str) -> str:
    """Return a weight's name without wrappers; timm writes blocks_0 for blocks.0 in networks of stages only."""
    return name.removeprefix("module.").replace(".", "_")


def refusal(error: str) -> str:
    """Rewrite torch's error about a file of weights; torch's own advice is to disable the check, which runs code."""
    if "TorchScript" in error:
        return "a TorchScript archive, which holds code; expected weights: save its state_dict() as .safetensors"
    if name := CODE.search(error):
        return f"holds {name[1]} beside weights, which is not run; save its state_dict() as .safetensors, and give that"
    return "not a file that holds only weights; it may be cut or of another kind, expected a state_dict() in it"


def read_weights(path: str) -> Mapping[str, Tensor]:
    """Read the tensors of a .safetensors file, or of a state_dict in a .pt file, without running any code in it."""
    try:
        if Path(path).suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from None
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"{path}: not a safetensors file ({visible(str(error)[:300])})") from None
    except Exception as error:  # torch raises many types of exception for files of other formats or with code
        raise CheckpointError(f"{path}: {refusal(str(error))}") from None
    for name in WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(name), dict):
            content = content[name]
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(f"{path}: expected names with tensors, as state_dict() gives them")
    return content
