"""What CTranslate2 as an engine costs beside CTranslate2 itself, and what a pack costs beside a run folder.

    python benchmarks/exchange.py runs/demo --source test.en --out figures.json

The engine and a plain loop over `translate_batch` search the same batches in turn, with the same options; the outputs
must be equal before a ratio is printed. A pack is opened in turn with the folder that it was made from: weights,
tokenizer and all. Seconds of the clock and of the processors, medians of rounds.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard import export_model, load
from regard.decoding import Options
from regard.decoding.batches import BUDGET
from regard.interop import pack
from regard.interop.exported import batches, open_exported, without_end
from regard_bench import signature


def compare(one: Callable[[], Any], other: Callable[[], Any], rounds: int) -> dict[str, float]:
    """Measure two calls in turn; the first round of each is not counted. The ratio is the median of the rounds'."""
    seconds: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        for name, call in (("first", one), ("second", other)):
            wall, used = time.perf_counter(), time.process_time()
            call()
            if number:
                seconds.setdefault(name, []).append(time.perf_counter() - wall)
                seconds.setdefault(f"{name}_processor", []).append(time.process_time() - used)
    figures = {name: statistics.median(values) for name, values in seconds.items()}
    for end in ("", "_processor"):
        ratios = (a / b for a, b in zip(seconds[f"first{end}"], seconds[f"second{end}"], strict=True))
        figures[f"ratio{end}"] = statistics.median(ratios)
    return figures


def measure_engine(folder: Path, texts: list[str], beam: int, rounds: int) -> dict[str, float]:
    """Measure the engine beside `translate_batch` called directly, in the same batches."""
    engine = open_exported(folder).engine
    sources = engine.tokenizers.source.encode_batch(texts)
    options = Options(beam=beam, length_penalty=0.0)
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    prefixes: list[list[int]] = [[] for _ in sources]
    groups = [
        [[engine.source[token] for token in sources[i]] for i in chunk]
        for chunk in batches(order, sources, prefixes, options, BUDGET)
    ]
    longest = [2 * max(map(len, group)) + 20 for group in groups]  # Regard's own limit

    def plain() -> list[Any]:
        return [
            result
            for group, limit in zip(groups, longest, strict=True)
            for result in engine.translator.translate_batch(
                group, beam_size=beam, max_decoding_length=limit, max_input_length=0, length_penalty=0.0,
                return_scores=True,
            )
        ]  # fmt: skip

    ours, theirs = engine.search(sources, options), plain()
    numbers = engine.numbers
    same = sum(
        ours[i].outputs[0].tokens == without_end([numbers[piece] for piece in result.hypotheses[0]])
        for i, result in zip(order, theirs, strict=True)
    )
    unlimited = sum(result.outputs[0].finished for result in ours)
    if same < unlimited:  # those that reach their limit are cut there, and may differ
        raise SystemExit(f"{same:,} of {len(texts):,} outputs are equal, of which {unlimited:,} ended: no ratio")
    figures = compare(lambda: engine.search(sources, options), plain, rounds)
    return {"sentences": len(texts), "equal": same, "ended": unlimited, **figures}


def main() -> None:
    """Measure, print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--source", type=Path, required=True, help="text file to translate")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    texts = arguments.source.read_text(encoding="utf-8").splitlines()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as home:
        export_model(arguments.run, Path(home) / "exported", to="ctranslate2")
        for beam in (1, 5):
            figures[f"engine, beam {beam}"] = measure_engine(Path(home) / "exported", texts, beam, arguments.rounds)
        packed = Path(home) / "run.regard"
        pack(arguments.run, packed)
        figures["pack"] = {
            "megabytes": packed.stat().st_size / 1e6,
            **compare(lambda: load(packed), lambda: load(arguments.run), arguments.rounds),
        }
    for name, table in figures.items():
        print(name, {key: round(value, 4) for key, value in table.items()})
    if arguments.out is not None:
        content = {"run": arguments.run.name, **figures, **signature("cpu", 2)}
        arguments.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
