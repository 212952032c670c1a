"""Plant faults, one at a time, and check that the tests notice: `python tests/faults.py [PART OF A FILE'S NAME …]`.

Each fault is a line of the source, the same line with a plausible mistake, and the test files that should fail. In a
copy of the tree the unchanged tests run first and must pass; then one fault after the other is planted, and its tests
run until the first of them fails, in processes forked from this one, where torch is already loaded. A table shows which
faults the tests found; the status is 1 if they missed one, or if a line is not in the source exactly once. Half of the
faults are on the host's side of GPU code: which graph is reused, which operations are fused, how much memory is taken.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
COPIED = ("src", "tests", "configs", "pyproject.toml")


class Fault(NamedTuple):
    """A mistake to plant."""

    file: str  # in src/regard, or with the name of the package beside it
    line: str  # a part of the file that occurs once
    fault: str  # its replacement
    tests: str  # files in tests, separated by spaces


# ---- the host's side of what runs on a GPU

UPDATE, SEARCH = "training/test_update.py", "decoding/test_replay.py"
HOST = [
    Fault(
        "training/update.py",
        "len(self.graphs) >= self.most or",
        "len(self.graphs) > self.most or",
        "training/test_cuda_graphs.py",
    ),
    Fault(
        "training/update.py",
        "if ended and is_out_of_memory(problem):",
        "if is_out_of_memory(problem):",
        "training/test_cuda_graphs.py",
    ),
    Fault("training/update.py", "if accumulate > 1:", "if accumulate > 2:", UPDATE),
    Fault("training/update.py", " or call_records.has_hooks(self.objective)", "", UPDATE),
    Fault("training/update.py", "            self.unread.update(self.device_sums)", "            pass", UPDATE),
    Fault(
        "training/update.py",
        "if self.replay is not None:  # free the graphs",
        "if self.replay is None:  # free the graphs",
        UPDATE,
    ),
    Fault(
        "training/update.py",
        "        parts *= 2",
        "        parts += 1",
        "training/test_update.py training/test_loop.py",
    ),
    Fault("decoding/replay.py", "most <= key[-1] <= WIDER * most", "key[-1] <= WIDER * most", SEARCH),
    Fault("decoding/replay.py", "if self.half is None or self.half[0] != now:", "if self.half is None:", SEARCH),
    Fault("decoding/replay.py", "budget // (keys + 1))", "budget)", SEARCH),
    Fault(
        "decoding/replay.py",
        "return 1 if not self.waiting else max(1, len(self.inside) // CROWD)",
        "return max(1, len(self.inside) // CROWD)",
        SEARCH,
    ),
    Fault(
        "decoding/replay.py",
        "if slots[-1] - slots[0] + 1 == len(slots):",
        "if slots[-1] - slots[0] + 1 >= len(slots):",
        SEARCH,
    ),
    Fault(
        "decoding/device_search.py",
        "(bias.float() - high.float())",
        "(high.float() - bias.float())",
        "decoding/test_device_search.py",
    ),
    Fault(
        "decoding/device_search.py",
        "torch.where(step >= self.most, END, forced)",
        "torch.where(step > self.most, END, forced)",
        "decoding/test_device_search.py",
    ),
    Fault(
        "decoding/device_search.py",
        "        fill(self.scores, slots, -torch.inf)\n",
        "",
        "decoding/test_device_search.py",
    ),
    Fault(
        "kernels/backends.py",
        'most={"queries": ONE_TILE, "keys": ONE_TILE, "width": ONE_TILE_WIDTH}',
        'most={"queries": ONE_TILE, "width": ONE_TILE_WIDTH}',
        "kernels/test_backends.py",
    ),
    Fault(
        "kernels/backends.py",
        "(WINDOW in request.features or ALIBI in request.features)",
        "(WINDOW in request.features and ALIBI in request.features)",
        "kernels/test_backends.py",
    ),
    Fault(
        "kernels/triton/additive_forward.py",
        "max(1, ROOM // (size * group)) * group)",
        "max(1, ROOM // (size * group)))",
        "kernels/triton/test_additive.py",
    ),
    Fault(
        "kernels/triton/few_queries.py",
        "return -(-keys // chunk), chunk",
        "return keys // chunk, chunk",
        "kernels/triton/test_few_queries.py",
    ),
    Fault(
        "kernels/triton/one_tile.py",
        "if size >= longest)",
        "if size > longest)",
        "kernels/triton/test_one_tile.py",
    ),
    Fault(
        "kernels/operations/mixed_precision.py",
        "        finally:\n            store.table = None",
        "        finally:\n            pass",
        "kernels/operations/test_mixed_precision.py",
    ),
    Fault(
        "tasks/memory.py",
        "share).bit_length() - 1))",
        "share).bit_length()))",
        "tasks/test_memory.py",
    ),
    Fault(
        "tasks/memory.py",
        "(processes if given.shard else 1)",
        "processes",
        "tasks/test_memory.py",
    ),
]

# ---- everything else

OTHERS = [
    Fault(
        "kernels/span_limits.py",
        "j <= positions(self.causal, self.queries, j.device)[..., None]",
        "j < positions(self.causal, self.queries, j.device)[..., None]",
        "attention/test_span.py",
    ),
    Fault(
        "kernels/operations/window.py",
        "mask = mask & (j < limits.lengths",
        "mask = mask & (j <= limits.lengths",
        "kernels/operations/test_window.py",
    ),
    Fault(
        "kernels/operations/projection_loss.py",
        "counts * (smoothing - 1))",
        "counts * (1 - smoothing))",
        "kernels/operations/test_projection_loss.py",
    ),
    Fault(
        "attention/cache.py",
        "(filled.index_select(1, rows))\n        self.length.copy_(self.length[rows])",
        "(filled.index_select(1, rows))",
        "attention/test_cache.py",
    ),
    Fault(
        "attention/weighting.py",
        "sample_key(probabilities) if self.training else",
        "sample_key(probabilities) if not self.training else",
        "attention/test_weighting.py",
    ),
    Fault(
        "models/rnnsearch.py",
        "annotations[:, 0, self.config.size :]",
        "annotations[:, -1, self.config.size :]",
        "models/test_rnnsearch.py",
    ),
    Fault(
        "data/batching.py",
        "mix_bits(mix_bits(self.seed) + np.uint64(epoch))",
        "mix_bits(mix_bits(self.seed) + np.uint64(0))",
        "data/test_batching.py",
    ),
    Fault("io/disk.py", "os.fsync(file.fileno())", "pass", "io/test_disk.py promises/test_disk_fails.py"),
    Fault("config.py", "lambda limit: value <= limit,", "lambda limit: value < limit,", "test_config.py"),
    Fault("training/update.py", "settings.steps - warmup)", "settings.steps)", "training/test_schedule.py"),
    Fault(
        "training/loop.py",
        "min(self.settings.ema, (1 + step)",
        "max(self.settings.ema, (1 + step)",
        "training/test_trainer_state.py",
    ),
    Fault(
        "training/checkpoint.py",
        "if record is None or digest(best",
        "if record is None and digest(best",
        "training/test_checkpoint.py promises/test_corruption.py promises/test_copy.py",
    ),
    Fault("decoding/scoring.py", "return ((5 + length) / 6)", "return ((6 + length) / 6)", "decoding/test_scoring.py"),
    Fault(
        "decoding/sentence_search.py",
        "before >= options.top_p, 0.0",
        "before > options.top_p, 0.0",
        "decoding/test_sentence_search.py",
    ),
    Fault(
        "decoding/ensemble.py",
        "return torch.stack(scores).logsumexp(0) - math.log(len(scores)), state",
        "return torch.stack(scores).mean(0), state",
        "decoding/test_sentence_search.py decoding/test_ensemble.py",
    ),
    Fault(
        "evaluation/alignment.py",
        "1 - (hit + allowed) / (predicted + sure)",
        "1 - (hit + hit) / (predicted + sure)",
        "evaluation/test_alignment.py",
    ),
    Fault(
        "evaluation/significance.py",
        "(self.value > 0) == self.higher",
        "(self.value > 0) != self.higher",
        "evaluation/test_significance.py",
    ),
    Fault(
        "alignment/symmetrisation.py",
        'all if method.endswith("and") else any',
        "any",
        "alignment/test_symmetrisation.py",
    ),
    Fault(
        "alignment/extraction.py",
        "pieces.clamp(min=1)",
        "pieces.clamp(max=1)",
        "inspection/collect/test_exhibit.py",
    ),
    Fault(
        "inspection/collect/walk.py",
        "z * h + (1 - z) * proposed",
        "(1 - z) * h + z * proposed",
        "inspection/collect/test_walk.py",
    ),
    Fault(
        "tasks/classify.py",
        "each * self.weights[batch.labels].to(each)",
        "each / self.weights[batch.labels].to(each)",
        "tasks/test_classify.py",
    ),
    Fault(
        "regard_studies/seed_statistics.py",
        "statistics.stdev(self.values)",
        "statistics.pstdev(self.values)",
        "studies/test_seed_statistics.py",
    ),
    Fault("io/results.py", 'f"{source}-{target}"', 'f"{target}-{source}"', "io/test_results.py"),
    Fault(
        "cli/program.py",
        "        sys.exit(130)",
        "        sys.exit(0)",
        "cli/test_program.py",
    ),
]
# ---- a server

ENGINE = "serving/test_engine.py"
SERVING = [
    Fault(
        "serving/running_batches.py",
        "sorted(self.busy, key=lambda batch: batch.time)",
        "sorted(self.busy, key=lambda batch: -batch.time)",
        ENGINE,
    ),
    Fault("serving/running_batches.py", "options.beam > BEAMS[-1]:", "options.beam >= BEAMS[-1]:", ENGINE),
    Fault(
        "serving/running_batches.py",
        "hypotheses.results([job.options.nbest for job in jobs])",
        "hypotheses.results(5)",
        ENGINE,
    ),
    Fault("serving/running_batches.py", "if under_way in self.alone or len(jobs) == 1:", "if True:", ENGINE),
    Fault("serving/jobs.py", "queue[request] = own  # behind the others", "pass", "serving/test_jobs.py"),
    Fault(
        "decoding/sentence_search.py",
        "shift(other, max(0, ahead))",
        "shift(other, max(0, ahead - 1))",
        "decoding/test_joining.py",
    ),
    Fault(
        "decoding/replay.py",
        "rows[len(slots) :] = rows[0]",
        "pass",
        "decoding/test_bursts.py",
    ),
    Fault(
        "serving/running_batches.py",
        "and self.first[slot] <= number]",
        "]",
        "serving/test_running_batches.py",
    ),
    Fault(
        "serving/running_batches.py",
        "len(self.ordered) < self.slots.depth and self.active",
        "len(self.ordered) < self.slots.depth",
        "serving/test_engine.py",
    ),
    Fault(
        "decoding/device_search.py",
        "row = np.where(there, self.parents[slot, step, row], row)",
        "row = row + 0 * step",
        "decoding/test_device_search.py",
    ),
    Fault("decoding/device_search.py", "self.last[slots] = beam - 1", "pass", "decoding/test_device_search.py"),
]

INTEROP = [
    Fault(
        "interop/run_pack.py",
        '"config.toml": tomli_w.dumps(without_folders(config)).encode()',
        '"config.toml": tomli_w.dumps(config).encode()',
        "interop/test_run_pack.py",
    ),
    Fault("io/packs.py", "if start + entry.file_size > size:", "if start > size:", "io/test_packs.py"),
    Fault("io/packs.py", "if known is None or known[0] != version:", "if known is None:", "io/test_packs.py"),
    Fault(
        "data/sentencepiece.py",
        '4: section["squeeze"]',
        '4: section["prefix"]',
        "data/test_sentencepiece.py",
    ),
    Fault(
        "interop/m2m100.py",
        "behind = first + len(languages)",
        "behind = first + len(languages) - 1",
        "interop/test_tokenizer_files.py",
    ),
    Fault(
        "interop/m2m100.py",
        '"special": name not in words',
        '"special": True',
        "interop/test_tokenizer_files.py",
    ),
    Fault("interop/numbering.py", "len(rows) <= row <=", "len(rows) < row <=", "interop/test_tokenizer_files.py"),
    Fault(
        "training/adapters.py",
        "/ len(parts)",
        "/ 1",
        "training/test_adapters.py",
    ),
    Fault("training/adapters.py", "each.adapter.merged = True", "pass", "training/test_adapters.py"),
    Fault(
        "tasks/plan.py",
        "table[PAD] if table.ndim > 1 else NEVER",
        "table[PAD]",
        "tasks/test_extension.py",
    ),
    Fault("data/preparation.py", "share * total", "share", "data/test_preparation.py tasks/test_plan.py"),
    Fault("data/pre_tokenizer.py", " and not is_inside(text[end])", "", "data/test_pre_tokenizer.py"),
    Fault(
        "data/corpus.py",
        '"source_column" if side == "source" else "target_column"',
        '"source_column"',
        "data/test_corpus.py",
    ),
]

FAULTS = HOST + OTHERS + SERVING + INTEROP


def copy_tree(home: Path) -> None:
    """Copy the tree as it is now, so that further work in this one does not interfere."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, home / name, ignore=shutil.ignore_patterns("__pycache__", "stored_runs"))
        else:
            shutil.copy(ROOT / name, home / name)


def path_of(fault: Fault, home: Path) -> Path:
    """Return the path of a fault's file."""
    return home / "src" / (fault.file if fault.file.startswith("regard_") else f"regard/{fault.file}")


def is_there(fault: Fault, home: Path) -> bool:
    """Return whether the line is in the source exactly once, and the tests exist."""
    path = path_of(fault, home)
    files = [home / "tests" / file for file in fault.tests.split()]
    once = path.exists() and path.read_text(encoding="utf-8").count(fault.line) == 1
    return once and all(file.exists() for file in files)


def is_seen(fault: Fault, home: Path) -> bool:
    """Return whether one of the fault's tests fails with the fault in the source."""
    path = path_of(fault, home)
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace(fault.line, fault.fault), encoding="utf-8")
    try:
        return not passes(home, fault.tests.split())
    finally:
        path.write_text(before, encoding="utf-8")


def passes(home: Path, files: Sequence[str]) -> bool:
    """Return whether all tests in these files pass, in a process of their own."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            status = run_tests(home, files)
        finally:
            os._exit(status)
    _, how = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(how)
    if status in (3, 4, 5, 99):  # pytest ran no tests
        raise RuntimeError(f"{', '.join(files)}: pytest ended with status {status}")
    return status == 0


def run_tests(home: Path, files: Sequence[str]) -> int:
    """Return the status of pytest, which stops at the first failure; its output is discarded."""
    import pytest

    os.chdir(home)
    sys.path[:0] = [str(home / "src")]
    sys.dont_write_bytecode = True  # bytecode would hide a change within the same second
    os.environ.update(PYTHONPATH=str(home / "src"), PYTHONDONTWRITEBYTECODE="1")
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    marks = "not slow and not gpu and not browser and not compile"
    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-m", marks, *(f"tests/{file}" for file in files)]))


def main() -> None:
    """Plant the faults in files whose names contain one of the given words, or all faults, and print the results."""
    os.environ.update(OMP_NUM_THREADS="1", REGARD_NO_TYPECHECK="1", TRITON_INTERPRET="1")
    with contextlib.suppress(ImportError):  # loaded once for every forked process
        import torch  # noqa: F401
        import triton  # noqa: F401
    chosen = [each for each in FAULTS if not sys.argv[1:] or any(word in each.file for word in sys.argv[1:])]
    seen = 0
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        copy_tree(home)
        wrong = [each for each in chosen if not is_there(each, home)]
        for each in wrong:
            print(f"not there once: {each.file}: {each.line.strip()}, or its tests: {each.tests}")
        planted = [each for each in chosen if each not in wrong]
        files = list(dict.fromkeys(file for each in planted for file in each.tests.split()))
        failing = [] if passes(home, files) else [file for file in files if not passes(home, [file])]
        for file in failing:
            print(f"fails without any fault: {file}", flush=True)
        for each in planted:
            begun = time.perf_counter()
            word = "failing" if set(each.tests.split()) & set(failing) else "seen" if is_seen(each, home) else "UNSEEN"
            seen += word == "seen"
            what = each.fault.strip() or f"without {each.line.strip()}"
            print(f"{word:7} {time.perf_counter() - begun:5.0f} s  {each.file}: {what}", flush=True)
    print(f"{seen} of {len(chosen)} seen")
    sys.exit(seen < len(chosen))


if __name__ == "__main__":
    main()
