"""Systems that decode in comparison with Regard: Marian of Transformers, JoeyNMT and CTranslate2.

Each decodes a batch of sources into outputs of a fixed number of tokens, through its public interface. Regard's search
ends an output at its limit with END, and scores this END, which takes one more step of the model. The others stop
without END, so they decode one more token. All Transformers get the weights of one Regard Transformer, so that outputs
can be compared token by token.
`pip install 'regard[export]'` installs CTranslate2; `training_peers` says how to install the others. A trained run and
its export are searched with their own limits, up to the END that the model predicts.
"""

# b sentences · m source positions · d width
import importlib
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Heads
from regard.data import END, PAD, START, UNKNOWN, Batch
from regard.decoding import Options, batches, output_limit, search
from regard.errors import ArgumentError
from regard.interop import convert, library, marian_tensors, open_engine
from regard.models import Model, Tokens, TransformerModel
from regard.run import load
from regard_bench import training_peers
from regard_bench.training_peers import Sizes

Outputs = list[list[int]]


def transformer(sizes: Sizes) -> TransformerModel:
    """Create a post-norm Regard Transformer whose random weights give varied outputs at each step and for each source.

    With the usual initialisation, attention averages over all positions, and a tied output repeats its input. So
    queries, keys and embeddings are scaled up, and the last norm flips the sign of every other feature. The embeddings
    of PAD, START and END are zero, so that no system prefers one of them.
    """
    model = sizes.transformer(norm="post")
    assert isinstance(model, TransformerModel)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("projection.weight"):
                parameter[: 2 * sizes.size].mul_(3)
            elif name.endswith("tokens.weight"):
                parameter.mul_(3)
        model.get_parameter(f"decoder.blocks.{sizes.layers - 1}.feed_norm.weight")[::2] = -1
        model.target.tokens.weight[[PAD, START, END]] = 0
    return model


class Decoder:
    """A system that decodes `length` tokens for every sentence, and takes one more step."""

    def __init__(self, length: int):
        self.length, self.steps = length, length + 1

    def prepare(self, batch: Batch) -> Any:
        """Convert the batch to the system's own inputs; not timed."""
        return batch

    def __call__(self, inputs: Any, beam: int) -> Any:
        """Decode prepared sources into the system's own outputs, greedily for a beam of 1; this is the timed part."""
        raise NotImplementedError

    def tokens(self, outputs: Any, inputs: Any) -> Outputs:
        """Return the tokens of each sentence's best output, one per step, in the order of the batch; not timed."""
        raise NotImplementedError

    def halve(self) -> "Decoder":
        """Use half precision on a GPU in the system's usual way."""
        return self


class RegardDecoder(Decoder):
    """A Regard model with Regard's search."""

    def __init__(self, model: Model, length: int):
        super().__init__(length)
        self.model = model.eval()

    def prepare(self, batch: Batch) -> Tokens:
        """Return the source tokens."""
        return Tokens.of(batch.source, batch.source_lengths)

    def __call__(self, inputs: Tokens, beam: int) -> Any:
        """Search without a length penalty, as all outputs have the same length."""
        options = Options(beam=beam, length_penalty=0.0, shortest=self.length, longest=self.length)
        return search(self.model, inputs, options)

    def tokens(self, outputs: Any, inputs: Tokens) -> Outputs:
        """Return the best output of each sentence, with END."""
        return [[*result.outputs[0].tokens, END] for result in outputs]

    def without_end(self, inputs: Tokens, beam: int) -> Outputs:
        """Return the outputs that peers should give: the most probable hypotheses, scored without END."""
        options = Options(beam=beam, nbest=beam, length_penalty=0.0, shortest=self.steps, longest=self.steps)
        hypotheses = [[output.tokens for output in each.outputs] for each in search(self.model, inputs, options)]
        likely = log_probs(self.model, inputs, hypotheses)
        return [
            max(zip(map(sum, each), outputs, strict=True))[1] for each, outputs in zip(likely, hypotheses, strict=True)
        ]


def log_probs(model: Model, inputs: Tokens, outputs: list[Outputs]) -> list[list[list[float]]]:
    """Compute the log-probability of every token of each source's outputs, with teacher forcing."""
    rows = zip(inputs.ids.tolist(), inputs.lengths.tolist(), outputs, strict=True)
    pairs = [(row[:length], tokens) for row, length, hypotheses in rows for tokens in hypotheses]
    scored = iter(batches.score_pairs(model, *map(list, zip(*pairs, strict=True))))
    return [[next(scored).tokens[:-1] for _ in hypotheses] for hypotheses in outputs]


# ---- Marian


class MarianDecoder(Decoder):
    """MarianMTModel.generate, with its cache."""

    def __init__(self, model: TransformerModel, sizes: Sizes, length: int, device: str = "cpu"):
        super().__init__(length)
        self.net: Any = training_peers.MarianLearner(sizes).net.eval()
        copy_to_marian(model, self.net)
        self.net.to(device)
        settings = self.net.generation_config
        settings.forced_eos_token_id = settings.bad_words_ids = None  # Marian's own defaults end every output
        self.options: dict[str, Any] = {"min_new_tokens": self.steps, "max_new_tokens": self.steps}
        self.options |= {"length_penalty": 0.0, "do_sample": False, "use_cache": True}

    def prepare(self, batch: Batch) -> dict[str, Tensor]:
        """Return padded ids and the attention mask."""
        there = torch.arange(batch.source.shape[1], device=batch.source.device) < batch.source_lengths[:, None]
        return {"input_ids": batch.source, "attention_mask": there.long()}

    def __call__(self, inputs: dict[str, Tensor], beam: int) -> Tensor:
        """Generate with Transformers; its greedy search accepts no length penalty."""
        options = self.options if beam > 1 else {k: v for k, v in self.options.items() if k != "length_penalty"}
        return self.net.generate(**inputs, num_beams=beam, **options)

    def tokens(self, outputs: Tensor, inputs: dict[str, Tensor]) -> Outputs:
        """Return the output tokens without the start token."""
        return outputs[:, 1:].tolist()

    def halve(self) -> Decoder:
        """Convert the weights to bfloat16."""
        self.net.to(torch.bfloat16)
        return self


@torch.no_grad()
def copy_to_marian(model: TransformerModel, net: Any) -> None:
    """Copy all weights of a Regard Transformer with `norm="post"` and tied output to a MarianMTModel."""
    check_sinusoidal(model)
    missing, _ = net.load_state_dict(marian_tensors(model), strict=False)
    left = [name for name in missing if "embed_positions" not in name and name != "lm_head.weight"]  # fixed, tied
    if left:
        raise ArgumentError(f"model: no weights for {left[0]} of Marian")


# ---- JoeyNMT


class JoeyDecoder(Decoder):
    """JoeyNMT's search with one of its models; a Transformer may get Regard's weights."""

    half = False  # whether it runs under autocast to bfloat16

    def __init__(self, learner: training_peers.JoeyLearner, length: int, model: TransformerModel | None = None):
        super().__init__(length)
        self.learner = learner.eval()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.search = importlib.import_module("joeynmt.search").search
        if model is not None:
            copy_to_joey(model, learner.net)

    def prepare(self, batch: Batch) -> Any:
        """Return JoeyNMT's batch, longest sources first, and the indices that restore the order."""
        return self.learner.sort(batch, None)

    def __call__(self, inputs: Any, beam: int) -> Any:
        """Search with JoeyNMT, greedily for a beam of 1."""
        with torch.autocast("cuda", torch.bfloat16, enabled=self.half):
            return self.search(
                self.learner.net, inputs[0], self.steps, beam, 0.0, min_output_length=self.steps, return_prob="none"
            )[0]

    def tokens(self, outputs: Any, inputs: Any) -> Outputs:
        """Return the outputs' tokens in the order of the batch."""
        return [outputs[i].tolist() for i in inputs[1]]

    def halve(self) -> Decoder:
        """Search under autocast to bfloat16."""
        self.half = True
        return self


@torch.no_grad()
def copy_to_joey(model: TransformerModel, net: Any) -> None:
    """Copy all weights of a Regard Transformer to a post-norm JoeyNMT Transformer, whose output layer has no bias."""
    check_sinusoidal(model)
    if bool(model.readout.bias.any()):
        raise ArgumentError("model: an output bias that is not zero given, JoeyNMT's tied output layer has none")
    for embedding, words, stack, blocks in (
        (model.source, net.src_embed, net.encoder, model.encoder.blocks),
        (model.target, net.trg_embed, net.decoder, model.decoder.blocks),
    ):
        words.lut.weight.copy_(embedding.tokens.weight)
        layers: Iterable[tuple[Any, Any]] = zip(stack.layers, blocks, strict=True)
        for layer, block in layers:
            if block.cross is None:
                pairs = [(layer.src_src_att, layer.layer_norm, block.attention, block.attention_norm)]
            else:
                pairs = [
                    (layer.trg_trg_att, layer.x_layer_norm, block.attention, block.attention_norm),
                    (layer.src_trg_att, layer.dec_layer_norm, block.cross, block.cross_norm),
                ]
            for attention, norm, heads, heads_norm in pairs:
                fill((attention.q_layer, attention.k_layer, attention.v_layer, attention.output_layer), heads)
                norm.load_state_dict(heads_norm.state_dict())
            feed = layer.feed_forward
            feed.pwff_layer[0].load_state_dict(block.feed[0].state_dict())
            feed.pwff_layer[3].load_state_dict(block.feed[2].state_dict())
            feed.layer_norm.load_state_dict(block.feed_norm.state_dict())
    net.decoder.output_layer.weight = net.trg_embed.lut.weight
    for module in net.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = nn.LayerNorm(1).eps  # JoeyNMT's epsilon is a tenth of torch's


# ---- CTranslate2


class CTranslate2Decoder(Decoder):
    """CTranslate2's translate_batch with a converted Regard Transformer."""

    def __init__(self, model: TransformerModel, length: int, compute: str = "float32", device: str = "cpu"):
        super().__init__(length)
        words = [special(i) for i in range(model.readout.out_features)]
        self.words = [special(i) for i in range(model.source.tokens.num_embeddings)]
        self.numbers = {word: number for number, word in enumerate(words)}
        with tempfile.TemporaryDirectory() as folder:
            convert(model, Path(folder), self.words, words)
            self.translator = library().Translator(
                folder, device, compute_type=compute, inter_threads=1, intra_threads=torch.get_num_threads()
            )

    def prepare(self, batch: Batch) -> list[list[str]]:
        """Convert the sources to pieces, the input of CTranslate2."""
        rows = zip(batch.source.tolist(), batch.source_lengths.tolist(), strict=True)
        return [[self.words[i] for i in row[:n]] for row, n in rows]

    def __call__(self, inputs: list[list[str]], beam: int) -> Any:
        """Translate all sentences as one batch."""
        limits = {"min_decoding_length": self.steps, "max_decoding_length": self.steps}
        return self.translator.translate_batch(inputs, beam_size=beam, length_penalty=0.0, **limits)

    def tokens(self, outputs: Any, inputs: list[list[str]]) -> Outputs:
        """Convert the outputs' pieces back to token ids."""
        return [[self.numbers[word] for word in each.hypotheses[0]] for each in outputs]


def special(number: int) -> str:
    """Return an artificial piece for a token id."""
    return {PAD: "<pad>", START: "<s>", END: "</s>", UNKNOWN: "<unk>"}.get(number, str(number))


# ---- a trained run


class RunDecoder(RegardDecoder):
    """A run's model, with the search's default limits."""

    def __init__(self, folder: Path):
        super().__init__(load(folder, device="cpu").model, 0)

    def __call__(self, inputs: Tokens, beam: int) -> Any:
        """Search as `regard translate` does."""
        return search(self.model, inputs, Options(beam=beam))


class ExportDecoder(CTranslate2Decoder):
    """CTranslate2's translate_batch with a run exported by `regard export --to ctranslate2`."""

    def __init__(self, folder: Path):
        Decoder.__init__(self, 0)
        engine: Any = open_engine(folder).engine
        self.model, self.translator, self.words, self.numbers = (
            engine.model, engine.translator, engine.source, engine.numbers
        )  # fmt: skip

    def prepare(self, batch: Batch) -> Any:
        """Return the sources' pieces, and the length limit of Regard's search."""
        return super().prepare(batch), output_limit(self.model, int(batch.source_lengths.max()), Options())

    def __call__(self, inputs: Any, beam: int) -> Any:
        """Translate all sentences as one batch."""
        pieces, limit = inputs
        return self.translator.translate_batch(pieces, beam_size=beam, max_decoding_length=limit)

    def tokens(self, outputs: Any, inputs: Any) -> Outputs:
        """Convert the outputs' pieces back to token ids, and append END."""
        return [[*tokens, END] for tokens in super().tokens(outputs, inputs)]


# ---- shared by the copies


def fill(projections: Iterable[Any], heads: Heads) -> None:
    """Copy the weights of a Heads to a peer's projections of queries, keys, values and output."""
    assert heads.projection is not None
    assert heads.output is not None
    sizes = (heads.query_size, heads.query_size, heads.value_size)
    split = zip(heads.projection.weight.split(sizes), heads.projection.bias.split(sizes), strict=True)
    pairs = [*split, (heads.output.weight, heads.output.bias)]
    for linear, (weight, bias) in zip(projections, pairs, strict=True):
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)


def check_sinusoidal(model: TransformerModel) -> None:
    """Raise an ArgumentError for options that the peers' Transformers do not have."""
    config = model.config
    if (config.positions, config.norm, config.tied) != ("sinusoidal", "post", "output"):
        options = f"{config.positions} positions, {config.norm}-norm, tied {config.tied}"
        raise ArgumentError(f"model: {options} given, expected sinusoidal positions, post-norm, tied output")
