"""The contract: what training, search, inspection, serving and export ask of a model, whatever is inside.

    memory         = model.encode(source)              what the decoder attends to, with its span
    hidden, extra  = model.decode(memory, target)      teacher forced, all steps, before the output projection
    logits         = model.output(hidden)
    state          = model.start(memory, rows, size)   caches of a fixed size
    logits, state  = model.step(tokens, state)         one step for all rows

A batch is padded, [b n] with `Lengths`, or packed, [Σn] with `Packed`: the layout is a span, and the model code is the
same. `decode` equals the steps.

What is read may be sentences (`Tokens`), `Documents` or `Pictures`: each kind says which. A classifier answers with
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
        """Return a mask that is True for tokens that are not padding, in the layout of the ids."""
        if isinstance(self.span, Packed):
            return torch.ones_like(self.ids, dtype=torch.bool)
        return torch.arange(self.ids.shape[1], device=self.ids.device) < self.lengths.to(self.ids.device)[:, None]

    @property
    def padded_ids(self) -> Int[Tensor, "b n"]:
        """Return the ids with a row per sentence, as a recurrence reads them, whatever their layout."""
        if isinstance(self.span, Packed):
            return self.span.to(self.ids.device).pad_queries(self.ids[:, None])[..., 0]
        return self.ids

    def unpad(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "*t d"]:
        """Put vectors that have a row per sentence into the layout of these tokens."""
        return self.span.to(x.device).unpad(x) if isinstance(self.span, Packed) else x

    def pack(self) -> "Tokens":
        """Lay these sentences end to end."""
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
    """Documents as sentences: those of all documents, one after the other, and how many each document has."""

    words: Tokens  # [s w], a sentence per row
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
    """Pictures of one size, as bytes: red, green and blue."""

    pixels: UInt8[Tensor, "b 3 h w"]

    @property
    def lengths(self) -> Int[Tensor, " b"]:
        """Return one for each picture, which is read as a whole."""
        return torch.ones(len(self.pixels), dtype=torch.long, device=self.pixels.device)

    def to(self, device: torch.device | str) -> "Pictures":
        """Copy to another device."""
        return Pictures(self.pixels.to(device))


Source = Tokens | Documents | Pictures


@dataclass(frozen=True, eq=False)
class Memory:
    """An encoder's result, for the decoder: annotations in the source's layout, and tensors of one row per sentence."""

    states: Float[Tensor, "*b m d"]
    span: Lengths | Packed
    sentence: dict[str, Tensor] = field(default_factory=dict)
    grid: tuple[int, int] | None = None  # of pictures: the height and width that the positions are places of

    @property
    def lengths(self) -> Int[Tensor, " b"]:
        """Return the number of source positions of each sentence."""
        return self.span.offsets.diff() if isinstance(self.span, Packed) else self.span.lengths

    def pad(self) -> "Memory":
        """Give every sentence a row of its own."""
        if isinstance(self.span, Lengths):
            return self
        return replace(self, states=self.span.pad_queries(self.states), span=Lengths(self.lengths))

    def prepare(self, attention: Attention) -> Prepared:
        """Project the annotations once for an attention, a row per sentence, with the number of them that exist.

        The number goes with them as a tensor and not as `Lengths`, which reads it where it lies on the host.
        """
        padded = self.pad()
        keys = attention.prepare(padded.states)
        return Prepared(keys.keys, keys.values, attention, padded.lengths.to(keys.keys.device))

    def rows(self, index: Int[Tensor, " r"]) -> "Memory":
        """Return a memory of these sentences, some of them several times: one for each of several targets."""
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
    """The settings of REINFORCE, by which a model learns from the source positions that its `decode` samples.

    Its `decode` gives `sampled` [b], the targets that it sampled positions for, and `log_prob` and `entropy` [b n] of
    what was sampled. Both tensors are buffers of the model, so that a resumed run has them; an objective updates them.
    """

    weight: float  # of the term that makes positions of better targets likelier
    entropy: float  # weight of the entropy of the positions' distribution
    baseline: Float[Tensor, ""]  # moving average of the log-probability of a target; 0 where there is none yet
    batches: Float[Tensor, ""]  # how many an objective has counted


@dataclass(frozen=True)
class Reading:
    """Numbers between the context and the readout: the input or the output of a module."""

    module: str  # its dotted name
    what: Literal["input", "output", "state"]  # "state": h after a step of a recurrent cell, or c with it
    formula: str
    words: str
    main: bool = True


@dataclass(frozen=True)
class Notation:
    """The notation of a kind's paper: names of the stages of its attention, and of the steps up to its readout.

    A walk through a model (`regard look --steps`) has these words beside its numbers; without them it has the words of
    attention in general.

    `boxes` are the symbols in a model's graph. A symbol belongs to a pattern of side, module and operation; the first
    that fits is taken, table by table. In it `_` and `^` begin an index below and above, one letter or several in
    braces: "h_j", "s_{i−1}". `(ℓ)` is the number of a layer, which the top one goes without, as the papers write it;
    h^{(ℓ−1)}_t is what a layer reads, which the first one calls x_t. What stands behind a ‖ is the top layer's.
    """

    symbols: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # by symbol of a stage: its formula, and words
    attentions: Mapping[str, Mapping[str, tuple[str, str]]] = field(default_factory=dict)  # of one attention, by name
    readout: tuple[Reading, ...] = ()  # in order; those that did not run are left out
    boxes: Sequence[Mapping[str, str]] = ()  # symbols in a graph, by pattern

    def of(self, attention: str) -> Mapping[str, tuple[str, str]]:
        """Look up the names of one attention's stages, by its whole name or the last part of it."""
        own = self.attentions.get(attention, self.attentions.get(attention.rpartition(".")[2], {}))
        return {**self.symbols, **own}


def name_additive_stages(query: str, key: str, weight: str, context: str, words: str) -> dict[str, tuple[str, str]]:
    """Name the stages of additive attention as a paper does: query, key, weight and context."""
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
    """An encoder and a decoder behind the contract.

    `readout` is the output projection: a linear layer that `output` applies and that the objective fuses with the loss.
    A model whose scores come about in another way has none: it says `projects = False` and has an `output` of its own.
    """

    readout: nn.Linear
    projects: bool = True
    limit: int | None = None  # the most target positions there can be, where there is such a number
    origin: str = "the model"  # what errors call it: the run folder that it was loaded from
    replays: bool = True  # a step reads nothing back from the device, so that a graph can hold it
    points: bool = False  # its attention over the source is its output, and cannot be taken away

    @cached_property
    def notation(self) -> Notation:
        """Return the formulas of its paper, for a walk through its numbers, and the symbols for its graph."""
        return Notation()

    @property
    def doubly_stochastic(self) -> float:
        """Weight of a penalty on source positions whose weights over all words do not sum to one (Xu et al. 2015).

        Where it is not 0, `decode` gives `weights` [b n m] in training.
        """
        return 0.0

    @property
    def reinforcement(self) -> Reinforcement | None:
        """Return how this model learns from positions that it samples; None where it samples none."""
        return None

    def load_pretrained(self) -> None:
        """Load the user's own weights into a new model before it is trained; a model of a run has its own."""

    def encode(self, source: Any) -> Memory:
        """Read a source, of the kind of `Source` that this model reads, into what the decoder attends to."""
        raise NotImplementedError

    def decode(self, memory: Memory, target: Tokens) -> tuple[Float[Tensor, "*b n d"], dict[str, Tensor]]:
        """Take all steps, teacher forced: the vectors before the output projection after each token of `target`.

        The second part holds named differentiable tensors that an objective may ask for.
        """
        raise NotImplementedError

    def output(self, hidden: Float[Tensor, "*b d"]) -> Float[Tensor, "*b v"]:
        """Compute the scores (logits) of every next token."""
        logits: Tensor = self.readout(hidden)
        return logits

    def classify(self, memory: Memory) -> Float[Tensor, "b v"]:
        """Compute the scores of every label, for a model that names one."""
        raise NotImplementedError

    def start(self, memory: Memory, rows: int = 1, size: int = 256, coverage: bool = False) -> State:
        """Return the state before the first step: `rows` hypotheses per sentence, room for `size` steps.

        With `coverage` the state sums the attention each source position gets.
        """
        raise NotImplementedError

    def step(self, tokens: Int[Tensor, " r"], state: State) -> tuple[Float[Tensor, "r v"], State]:
        """Read one token a row, and return the scores of the next; the state is updated in place."""
        raise NotImplementedError

    @property
    def packs(self) -> bool:
        """Return whether packed sentences are served as they are on a GPU, in half precision; else they are padded."""
        return False

    @property
    def gives_weights(self) -> bool:
        """Return whether `decode` gives the weights of its one cross-attention, [b n m], at no cost, as `weights`.

        Those of other models are read with `watch`.
        """
        return False

    def source_states(self, memory: Memory) -> Float[Tensor, "*b m d"] | None:
        """Return a recurrent encoder's hidden states, one per source position; None where it is not recurrent."""
        return None

    def hidden_state(self, state: State) -> Float[Tensor, "r d"] | None:
        """Return the hidden state of a recurrent decoder's top layer, without an LSTM's c; None of others."""
        return None

    @property
    def reads_backwards(self) -> bool:
        """Return whether the encoder reads a sentence from its end, so that its states come about in that order."""
        return False

    def weigh_documents(self, documents: Documents) -> tuple[Float[Tensor, "s w"], Float[Tensor, "b t"]]:
        """Return how much each word counts in its sentence, and each sentence in its document; rows sum to one.

        For a model that reads documents and weighs what it reads.
        """
        raise NotImplementedError

    @property
    def cross_attentions(self) -> list[str]:
        """Name the attentions from target to source, as `watch` knows them, the first layer first."""
        return [name for name, _ in self.named_modules() if name == "attention" or name.endswith(".cross")]

    @property
    def alignment_attention(self) -> str:
        """Name the cross-attention nearest to an alignment: of more than three the last but one, else the last.

        So it is in a deep Transformer: Garg et al. 2019 (arXiv:1909.02074).
        """
        return self.cross_attentions[-2 if len(self.cross_attentions) > 3 else -1]

    def plan(self, source: Source, target: Tokens | None = None) -> ModelPlan:
        """Return who computes each attention of a pass over this batch, and why nobody faster does; print it.

        Without a target it is encoded alone, as a classifier does.
        """
        with plan_calls(self) as found:
            memory = self.encode(source)
            if target is not None:
                self.decode(memory, target)
        return found

    def forward(self, source: Source, target: Tokens) -> Float[Tensor, "*b n v"]:
        """Encode, decode and output."""
        hidden, _ = self.decode(self.encode(source), target)
        return self.output(hidden)


# ---- weights from files

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # that weights may be kept in
WRAPPERS = ("state_dict", "model", "model_state_dict")  # keys under which files of weights hold them
CODE = re.compile(r"GLOBAL ([\w.]{1,80})")  # what a pickle asks to be imported, in what torch says of it


def check_weight(name: str, weight: Tensor, dtype: torch.dtype, where: str) -> None:
    """Refuse a weight of a dtype that would have to be cast, and one with NaN or infinity in it."""
    if weight.dtype != dtype and (weight.dtype not in FLOATS or dtype not in FLOATS):
        kinds = [
            str(each).removeprefix("torch.") for each in (weight.dtype, *(FLOATS if dtype in FLOATS else (dtype,)))
        ]
        raise CheckpointError(f"{where}: weight {name} is {kinds[0]}, expected {' or '.join(kinds[1:])}")
    if dtype not in FLOATS:
        return
    with torch.no_grad():
        weight = weight.to(dtype)  # a number may be finite in float64 alone
        # A sum with NaN or infinity in it is neither finite; one pass, and nothing is made but where there is doubt.
        if bool(torch.isfinite(weight.sum())) or bool(torch.isfinite(weight).all()):
            return
        what = "NaN" if bool(torch.isnan(weight).any()) else "infinity"
    raise CheckpointError(
        f"{where}: weight {name} has {what} in it, expected finite numbers: training it diverged, or the file was "
        "changed; take another checkpoint of the run, or train it again with a lower training.rate"
    )


def load_weights(net: nn.Module, path: str) -> None:
    """Load a file's weights into a network; the file may have more, such as the classifier that was cut off."""
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
    """Unify a weight's name, however it is wrapped: timm writes blocks_0 for blocks.0 where it has stages alone."""
    return name.removeprefix("module.").replace(".", "_")


def refusal(error: str) -> str:
    """Say in our words what torch says of a file; torch advises to turn the check off, which runs code."""
    if "TorchScript" in error:
        return "a TorchScript archive, which holds code; expected weights: save its state_dict() as .safetensors"
    if name := CODE.search(error):
        return f"holds {name[1]} beside weights, which is not run; save its state_dict() as .safetensors, and give that"
    return "not a file that holds only weights; it may be cut or of another kind, expected a state_dict() in it"


def read_weights(path: str) -> Mapping[str, Tensor]:
    """Read the tensors of a .safetensors file, or of a state_dict in a .pt file; no code in it is run."""
    try:
        if Path(path).suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from None
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"{path}: not a safetensors file ({visible(str(error)[:300])})") from None
    except Exception as error:  # what torch raises at other bytes, and at code among them, has no narrower name
        raise CheckpointError(f"{path}: {refusal(str(error))}") from None
    for name in WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(name), dict):
            content = content[name]
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(f"{path}: expected names with tensors, as state_dict() gives them")
    return content
