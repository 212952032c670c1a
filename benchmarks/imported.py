"""Imported models on a GPU beside Transformers: translation from texts to texts, and fine-tuning.

    python benchmarks/imported.py --shape opus-mt --out figures.json
    python benchmarks/imported.py --shape nllb-600m --device cpu --small      # does it run?

The weights are random, of the shapes of OPUS-MT's and of NLLB-600M's; Transformers' model is saved to a folder, and
Regard imports that folder, so that both have the same weights. Outputs are compared in float32 before anything is timed
in bfloat16. Both translate sentences of 24 words into 28 tokens, tokenizers included; Transformers at the better of two
batch sizes. Fine-tuning is a whole update of AdamW; a native model of the same size stands beside.
"""

import argparse
import dataclasses
import gc
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers

from regard import import_model, load
from regard.data import Batch, collate
from regard_bench import PairTask, RegardLoop, signature
from regard_bench.training_cuda import peer_rate, transformer
from regard_bench.training_peers import Learner, Sizes, make_pairs, smoothed_loss

SHAPES = {
    "opus-mt": Sizes(vocabulary=58_101, size=512, heads=8, layers=6, hidden=2048),
    "nllb-600m": Sizes(vocabulary=256_206, size=1024, heads=16, layers=12, hidden=4096),
}
WORDS, LENGTH, OUT = 3000, 24, 28
CHECKED = 32
BUDGET = {"opus-mt": 16_384, "nllb-600m": 8_192}


def word_list(generator: random.Random) -> list[str]:
    """Words of made-up syllables."""
    parts = [a + b for a in "bdfgklmnprstvwz" for b in ("a", "e", "i", "o", "u", "an", "er")]
    return ["".join(generator.choices(parts, k=generator.randint(1, 3))) for _ in range(WORDS)]


def train_pieces(lines: list[str], path: Path, kind: str, **ids: int) -> list[str]:
    """Train a SentencePiece model of few pieces, and return them."""
    with open(path, "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=file, vocab_size=2000, model_type=kind, minloglevel=2,
            hard_vocab_limit=False, **ids,
        )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def write_opus(folder: Path, sizes: Sizes, lines: list[str]) -> Any:
    """Write a folder as OPUS-MT's are."""
    pieces = train_pieces(lines, folder / "source.spm", "unigram", bos_id=-1, eos_id=0, unk_id=1, pad_id=-1)
    (folder / "target.spm").write_bytes((folder / "source.spm").read_bytes())
    names = [*pieces, *(f"▁filler{i}" for i in range(sizes.vocabulary - len(pieces) - 1)), "<pad>"]
    (folder / "vocab.json").write_text(
        json.dumps({name: row for row, name in enumerate(names)}), encoding="utf-8", newline="\n"
    )
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"source_lang": "en", "target_lang": "de"}), encoding="utf-8", newline="\n"
    )
    last = sizes.vocabulary - 1
    config = transformers.MarianConfig(
        **common(sizes), decoder_vocab_size=sizes.vocabulary, activation_function="swish", scale_embedding=True,
        static_position_embeddings=True, pad_token_id=last, decoder_start_token_id=last, eos_token_id=0,
        forced_eos_token_id=None, init_std=0.05,
    )  # fmt: skip
    model = transformers.MarianMTModel(config)
    model.generation_config.bad_words_ids = [[last]]
    return model


def write_nllb(folder: Path, sizes: Sizes, lines: list[str]) -> Any:
    """Write a folder as NLLB's are."""
    ids = {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1}
    pieces = train_pieces(lines, folder / "sentencepiece.bpe.model", "bpe", **ids)[3:]
    codes = ["eng_Latn", "deu_Latn", *(f"x{i:03d}_Latn" for i in range(200))]
    fillers = [f"▁filler{i}" for i in range(sizes.vocabulary - 4 - len(pieces) - len(codes) - 1)]
    rows = {name: row for row, name in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces, *fillers])}
    (folder / "vocab.json").write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8", newline="\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"language_codes": "m2m100"}), encoding="utf-8", newline="\n"
    )
    config = transformers.M2M100Config(**common(sizes), scale_embedding=True, init_std=0.03)
    return transformers.M2M100ForConditionalGeneration(config)


def common(sizes: Sizes) -> dict[str, Any]:
    """What both configurations call the same."""
    table: dict[str, Any] = {"vocab_size": sizes.vocabulary, "d_model": sizes.size, "max_position_embeddings": 512}
    for side in ("encoder", "decoder"):
        table |= {f"{side}_layers": sizes.layers, f"{side}_ffn_dim": sizes.hidden}
        table[f"{side}_attention_heads"] = sizes.heads
    return table | {"dropout": sizes.dropout, "attention_dropout": 0.0, "activation_dropout": 0.0}


class PeerLearner(Learner):
    """A model of Transformers and the loss that its users would write."""

    def __init__(self, net: Any, sizes: Sizes):
        super().__init__()
        self.net, self.sizes = net, sizes

    def forward(self, batch: Batch) -> torch.Tensor:
        """The mean loss."""
        there = torch.arange(batch.source.shape[1], device=batch.source.device) < batch.source_lengths[:, None]
        read = batch.target[:, :-1]
        logits = self.net(
            input_ids=batch.source, attention_mask=there.long(), decoder_input_ids=read, use_cache=False
        ).logits
        return smoothed_loss(logits, batch, self.sizes.smoothing)


def rate(call: Callable[[], object], count: int, rounds: int, device: str) -> float:
    """Sentences a second, the median of rounds; the first two pay for graphs and kernels."""
    seconds = []
    for number in range(2 + rounds):
        began = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        if number >= 2:
            seconds.append(time.perf_counter() - began)
    return count / statistics.median(seconds)


def measure_loop(task: PairTask, rounds: int) -> tuple[float, float, float]:
    """Target tokens a second of Regard's loop, with its first and last loss; its graphs are gone afterwards."""
    try:
        return RegardLoop(task).rate(rounds)
    finally:
        free_memory()


def free_memory() -> None:
    """Give back what nothing needs any more."""
    gc.collect()
    torch.cuda.empty_cache()


def main() -> None:
    """Measure one shape, and print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=list(SHAPES), default="opus-mt")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="tiny widths and few sentences: to see that it runs")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    sizes, device = SHAPES[arguments.shape], arguments.device
    if arguments.small:
        sizes = Sizes(vocabulary=3000, size=64, heads=4, layers=2, hidden=128)
    figures: dict[str, Any] = {"shape": arguments.shape, **vars(sizes)}

    def show(name: str, value: Any) -> None:
        figures[name] = value
        print(f"{name}: {value}", flush=True)
        if arguments.out is not None:
            arguments.out.write_text(
                json.dumps({**figures, **signature(device, 1)}, indent=1) + "\n", encoding="utf-8", newline="\n"
            )

    generator = random.Random(0)
    words = word_list(generator)
    lines = [" ".join(generator.choices(words, k=LENGTH)) for _ in range(64 if arguments.small else 4096)]
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "folder"
        folder.mkdir()
        write = write_opus if arguments.shape == "opus-mt" else write_nllb
        net = write(folder, sizes, lines).eval()
        net.save_pretrained(folder)
        languages = {} if arguments.shape == "opus-mt" else {"source_language": "en", "target_language": "de"}
        began = time.perf_counter()
        import_model(folder, Path(home) / "run", **languages)
        show("import_seconds", time.perf_counter() - began)
        run = load(Path(home) / "run", device=device)
        show("parameters", sum(parameter.numel() for parameter in run.model.parameters()))
        if arguments.shape == "opus-mt":
            tokenizer: Any = transformers.MarianTokenizer.from_pretrained(folder)
            forced: dict[str, Any] = {}
        else:
            tokenizer = transformers.M2M100Tokenizer.from_pretrained(folder, src_lang="en", tgt_lang="de")
            forced = {"forced_bos_token_id": tokenizer.get_lang_id("de")}
    net.to(device)

    def theirs(texts: list[str], beam: int, tokens: int = OUT) -> list[str]:
        inputs = tokenizer(texts, padding=True, return_tensors="pt").to(device)
        penalty = {"length_penalty": 0.0} if beam > 1 else {}
        outputs = net.generate(
            **inputs, num_beams=beam, do_sample=False, min_new_tokens=tokens, max_new_tokens=tokens, **penalty, **forced
        )
        # The decoder's start and a forced language are no text.
        return tokenizer.batch_decode(outputs[:, 1 + len(forced) :], skip_special_tokens=True)

    def ours(texts: list[str], beam: int, tokens: int = OUT, **more: Any) -> list[str]:
        # END is the last of Regard's tokens, and a forced language the first of theirs.
        count = tokens - 1 - len(forced)
        return run.translate(texts, beam=beam, length_penalty=0.0, shortest=count, longest=count, **more)

    with torch.no_grad():
        one, other = ours(lines[:CHECKED], 1, precision="fp32"), theirs(lines[:CHECKED], 1)
        same = [a.split()[:8] == b.replace("▁", " ").split()[:8] for a, b in zip(one, other, strict=True)]
        show("greedy_outputs_that_begin_alike_in_float32", sum(same) / len(same))
        if device == "cuda":
            net.to(torch.bfloat16)
        for beam in (1, 4):
            mine = rate(lambda beam=beam: ours(lines, beam), len(lines), arguments.rounds, device)  # type: ignore[misc]
            peers = {}
            for size in (64, 256) if not arguments.small else (16,):
                part = lines[:size]
                call = lambda part=part, beam=beam: theirs(part, beam)  # noqa: E731
                peers[size] = rate(call, size, arguments.rounds, device)
            best = max(peers, key=lambda size: peers[size])
            show(f"beam_{beam}", {"regard": mine, "transformers": peers, "ratio": mine / peers[best], "goal": 5})
    if device != "cuda":
        return
    net.to(torch.float32)
    pairs = make_pairs(2000, sizes.vocabulary - 10, 0, (24.0, 24.0), 100)
    task = PairTask(run.model.train(), pairs, sizes.smoothing, budget=BUDGET[arguments.shape])
    batches = [collate([pairs[i] for i in plan]) for plan in task.plans]
    mine, first, last = measure_loop(task, arguments.rounds)
    show("fine_tuning_tokens_s", {"regard": mine, "losses": [first, last]})
    same = dataclasses.replace(sizes, vocabulary=run.tokenizers.target.size)
    del task, run
    native = PairTask(
        transformer(same, norm="post" if arguments.shape == "opus-mt" else "pre"),
        pairs,
        budget=BUDGET[arguments.shape],
    )
    own, *_ = measure_loop(native, arguments.rounds)
    show("native_tokens_s", {"regard": own, "imported_share": mine / own, "goal": 0.9})
    del native
    free_memory()
    peer, *losses = peer_rate(lambda sizes: PeerLearner(net, sizes), sizes, batches, arguments.rounds)
    show("transformers_tokens_s", {"transformers": peer, "ratio": mine / peer, "goal": 3, "losses": losses})


if __name__ == "__main__":
    main()
