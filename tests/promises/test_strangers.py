"""An untrusted run folder is usable or refused in one sentence, within bounded time and memory.

The tests remove each value of each file in turn, or replace it by one of another type or size, and renew the hashes, so
that only the readers' own checks remain. In binary files they flip bytes.
"""

import copy
import hashlib
import json
import os
import random
import resource
import shutil
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from tiny import table
from typer.testing import CliRunner
from untrained import STEP, change_tokenizer, make_run, replace_file, write_manifest

from regard.alignment import AlignmentSettings
from regard.cli import app
from regard.config import read
from regard.errors import RegardError
from regard.inspection import write
from regard.run import load
from regard.tasks import start
from regard.training import Checkpoints, read_manifest

pytestmark = pytest.mark.unchecked
GONE = object()
OTHERS: list[Any] = [GONE, None, 0, "", [], {}, True, -1, 10**39, 1e308, [[[[[[]]]]]], "x" * 10_000, {"a": {"b": None}}]
SECONDS, MIB = 10, 400


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every entry in tables and lists; of long ones only three entries."""
    if path:
        yield path
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    for key in keys if len(keys) <= 30 else [keys[0], keys[5], keys[-1]]:
        yield from paths(value[key], (*path, key))


def replaced(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """Return a copy with another value at one path."""
    value = copy.deepcopy(value)
    inside = value
    for part in path[:-1]:
        inside = inside[part]
    if other is GONE:
        del inside[path[-1]]
    else:
        inside[path[-1]] = other
    return value


def mutations(value: Any, most: int | None) -> Iterator[Any]:
    """Yield copies with every other value at every path, or `most` random ones."""
    every = [(path, other) for path in paths(value) for other in OTHERS]
    for path, other in every if most is None else random.sample(every, min(most, len(every))):
        yield replaced(value, path, other)


def memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (2**20 if sys.platform == "darwin" else 2**10)


def refused(act: Callable[[], Any]) -> str | None:
    """Return the one sentence of the error, or None without an error; check time, memory and global state."""
    before, begun = memory(), time.perf_counter()
    said = None
    try:
        act()
    except RegardError as error:
        said = str(error)
    assert torch.is_grad_enabled()  # a failure leaves no global state behind
    assert time.perf_counter() - begun < SECONDS
    assert memory() - before < MIB
    if said is not None:
        assert said
        assert "\n" not in said
        assert len(said) < 1500, said
    return said


TRIES = [pytest.param(20, id="some"), pytest.param(None, marks=pytest.mark.slow, id="all")]
KINDS = ["transformer", "han", "convnet", "captioner"]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("strangers")
    return {kind: make_run(home / kind, kind) for kind in KINDS}


@pytest.fixture
def copied(made, tmp_path) -> Callable[[str], Path]:
    def copy_of(kind: str) -> Path:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        return Path(shutil.copytree(made[kind], tmp_path / "run", symlinks=True))

    return copy_of


def answer(run: Path) -> Any:
    """Return the results of the run's task as plain values."""
    opened = load(run)
    if opened.settings.task == "translate":
        return [(each.text, each.log_prob) for each in next(opened.stream(["1 2 3"], beam=2, nbest=2, longest=4))]
    picture = torch.full((3, 32, 32), 100, dtype=torch.uint8)
    if opened.settings.task == "caption":
        return opened.caption([picture], longest=4)
    return opened.classify([picture] if opened.settings.kind == "convnet" else ["1 2 3"])


def same_or_refused(run: Path, expected: Any) -> None:
    found: list[Any] = []
    if refused(lambda: found.append(answer(run))) is None:
        assert found[0] == expected


def something_or_refused(run: Path, expected: Any) -> None:
    """Accept a refusal, or any answer of the same type: another model or other labels may be valid."""
    found: list[Any] = []
    if refused(lambda: found.append(answer(run))) is None:
        assert type(found[0]) is type(expected)


@pytest.mark.parametrize("tries", TRIES)
@pytest.mark.parametrize("kind", KINDS)
def test_manifests(copied, kind, tries):
    run = copied(kind)
    expected = answer(run)
    whole = read_manifest(run / "checkpoints" / STEP)
    for manifest in mutations({key: value for key, value in whole.items() if key != "sha256"}, tries):
        write_manifest(run, manifest)
        renamed = isinstance(manifest.get("task"), dict) and manifest["task"].get("labels") != whole["task"].get(
            "labels"
        )
        (something_or_refused if renamed else same_or_refused)(run, expected)
    write_manifest(run, whole)
    assert answer(run) == expected


@pytest.mark.parametrize("tries", TRIES)
@pytest.mark.parametrize("kind", KINDS)
def test_configurations(copied, kind, tries):
    run = copied(kind)
    expected = answer(run)
    whole = read(run / "config.toml")
    for config in mutations(whole, tries):
        try:
            text = tomli_w.dumps(config)
        except TypeError:  # TOML has no null
            continue
        (run / "config.toml").write_text(text)
        same_or_refused(run, expected)
    for text in ("a." * 20_000 + "a = 1", "a = " + "[" * 20_000, "a = " + "1" * 5000, "\x00", "[model]\n" * 2):
        (run / "config.toml").write_text(text)
        assert f"{run / 'config.toml'}: " in (refused(lambda: load(run)) or "")
    with open(run / "config.toml", "wb") as file:
        file.truncate(2**40)
    assert "config.toml: 1,099,511,627,776 bytes given" in (refused(lambda: load(run)) or "")


@pytest.mark.parametrize("tries", [pytest.param(12, id="some"), pytest.param(400, marks=pytest.mark.slow, id="many")])
def test_tokenizers(copied, tries):
    run = copied("transformer")
    expected = answer(run)
    whole = (run / "tokenizer.json").read_bytes()
    for content in mutations(json.loads(whole), tries):
        change_tokenizer(run, json.dumps(content).encode())
        something_or_refused(run, expected)  # words with other names
    for content in (b"", b"null", b"[" * 10_000, b'{"model": ' + b"1" * 5000 + b"}", b'{"source": 1, "target": 2}'):
        change_tokenizer(run, content)
        assert f"{run / 'tokenizer.json'}" in (refused(lambda: load(run)) or "")
    change_tokenizer(run, whole)
    assert answer(run) == expected


# ---- safetensors


def heading(content: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def joined(table: Any, data: bytes) -> bytes:
    text = json.dumps(table).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize("tries", [pytest.param(30, id="some"), pytest.param(3000, marks=pytest.mark.slow, id="many")])
def test_headings_of_weights(copied, tries):
    run = copied("transformer")
    expected = answer(run)
    whole = (run / "checkpoints" / STEP / "model.safetensors").read_bytes()
    head, data = heading(whole)
    every = [mutated for mutated in mutations(head, tries) if json.dumps(mutated)]
    first, second = [name for name in head if name != "__metadata__"][:2]
    overlap = copy.deepcopy(head)
    overlap[second]["data_offsets"] = overlap[first]["data_offsets"]
    odd = [replaced(head, (first, "dtype"), dtype) for dtype in ("F8_E8M0", "F4", "X", "C128", "U64", "f32", "BOOL")]
    shapes = [[10**18, 10**18], [1] * 1000, [0, 10**18], [2**62, 4], [-1], [1.5], [True]]
    odd += [replaced(head, (first, "shape"), shape) for shape in shapes]
    odd += [{**head, name: head[first]} for name in ("a\nb", "\x1b[31m", "n" * 10_000, "", "\u202e")]
    odd += [{name: each for name, each in head.items() if name != first} | {"a\nb": head[first]}]
    for changed in (*every, overlap, *odd):
        replace_file(run, joined(changed, data))
        same_or_refused(run, expected)
    for length in (0, 1, 7, 2**20, 2**31, 2**40, 2**63, 2**64 - 1):
        replace_file(run, struct.pack("<Q", length) + whole[8:])
        assert "model.safetensors: " in (refused(lambda: load(run)) or "")
    for content in (b"", b"\x00" * 7, struct.pack("<Q", 10_000) + b"[" * 10_000, joined("[" * 100, data), whole[:-1]):
        replace_file(run, content)
        assert "model.safetensors: " in (refused(lambda: load(run)) or "")
    replace_file(run, whole)
    assert answer(run) == expected


@pytest.mark.parametrize("tries", [pytest.param(20, id="some"), pytest.param(2000, marks=pytest.mark.slow, id="many")])
def test_flipped_and_hashed_anew(copied, tries):
    """A flipped bit in the weights may give another valid model, which then answers."""
    run = copied("transformer")
    expected = answer(run)
    for name in ("model.safetensors", "trainer.safetensors"):
        whole = (run / "checkpoints" / STEP / name).read_bytes()
        for _ in range(tries):
            content = bytearray(whole)
            for _ in range(random.randint(1, 3)):
                # Half of them in the header, which is short.
                place = random.randrange(min(len(content), random.choice([300, len(content)])))
                content[place] ^= 1 << random.randrange(8)
            replace_file(run, bytes(content), name)
            something_or_refused(run, expected)
        replace_file(run, whole, name)


# ---- files of reports and alignments


RECORDS: list[dict[str, Any]] = [
    {"kind": "step", "step": 2, "steps": 8, "epoch": 0, "loss": 3.2, "rate": 1e-3, "unit": "tokens", "seconds": 0.5},
    {"kind": "valid", "step": 4, "loss": 2.5, "bleu": 3.1, "best": True, "samples": [{"source": "a", "output": "b"}]},
    {"kind": "step", "step": 6, "steps": 8, "epoch": 1, "loss": 2.2, "skipped": 2, "tokens_per_second": 50.0},
]


def reported(run: Path, records: list[Any]) -> None:
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert refused(lambda: write(run)) is None
    assert (run / "report.html").stat().st_size > 1000


@pytest.mark.parametrize("tries", [pytest.param(3, id="some"), pytest.param(300, marks=pytest.mark.slow, id="many")])
def test_metrics(copied, tries):
    """A report covers all readable records."""
    run = copied("transformer")
    reported(run, RECORDS)
    for records in mutations(RECORDS, tries):
        reported(run, records)
    bad = [b"[" * 100_000, b"1" * 5000, b"\xff\xfe", b"null", b"3", b'"x"', b'{"step": 1e999}', b"{", b"\x00" * 100]
    (run / "metrics.jsonl").write_bytes(b"\n".join([*bad, *(json.dumps(record).encode() for record in RECORDS)]))
    assert refused(lambda: write(run)) is None
    os.truncate(run / "metrics.jsonl", 2**40)
    assert "metrics.jsonl: 1,099,511,627,776 bytes given" in (refused(lambda: write(run)) or "")


@pytest.mark.parametrize("tries", [pytest.param(20, id="some"), pytest.param(None, marks=pytest.mark.slow, id="all")])
def test_alignments(copied, tries):
    run = copied("transformer")
    opened = load(run)
    chosen = AlignmentSettings(
        opened.model.alignment_attention, 0, aer=0.2, by="words", threshold=0.2, join="union", balance=2
    )
    whole = json.loads(chosen.write(run).read_text())
    for changed in mutations(whole, tries):
        (run / "alignment.json").write_text(json.dumps(changed))
        refused(lambda: list(load(run).links([("1 2 3", "3 2 1")])))
    for content in (b"[" * 10_000, b"1" * 5000, b"\xff", b"", b"{}"):
        (run / "alignment.json").write_bytes(content)
        assert "alignment.json: " in (refused(lambda: load(run).align("1 2", "3")) or "")


# ---- resume, and start from a run


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("trained")
    start(table(home, training__steps=2, training__validate_every=2, training__ema=0.9), home / "run")
    return home


@pytest.mark.parametrize("tries", [pytest.param(4, id="some"), pytest.param(None, marks=pytest.mark.slow, id="all")])
def test_a_resume(trained, tmp_path, tries):
    given = table(trained, training__steps=4, training__validate_every=2, training__ema=0.9)
    step = "checkpoints/step-000002"

    def attempt(change: Callable[[Path], None]) -> None:
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(trained / "run", run, symlinks=True)
        change(run / step)
        refused(lambda: start(given, run, resume=True))
        shutil.rmtree(tmp_path / "new", ignore_errors=True)
        refused(lambda: start(given, tmp_path / "new", base=run))

    from regard.training.checkpoint import canonical

    whole = read_manifest(trained / "run" / step)
    plain = {key: value for key, value in whole.items() if key != "sha256"}
    assert Checkpoints(trained / "run").last() == trained / "run" / step
    for manifest in mutations(plain, tries):
        attempt(lambda folder, m=manifest: (folder / "manifest.json").write_bytes(canonical(m)))

    content = (trained / "run" / step / "trainer.safetensors").read_bytes()
    head, data = heading(content)
    for changed in mutations(head, tries):

        def put(folder: Path, changed: Any = changed) -> None:
            other = joined(changed, data)
            (folder / "trainer.safetensors").write_bytes(other)
            facts = {"bytes": len(other), "sha256": hashlib.sha256(other).hexdigest()}
            files = {**plain["files"], "trainer.safetensors": facts}
            (folder / "manifest.json").write_bytes(canonical({**plain, "files": files}))

        attempt(put)


# ---- through the command line


def test_the_command_line(copied):
    """The named cases, through the command line."""
    said = {
        "missing files": lambda m: m.pop("files"),
        "no task": lambda m: m.update(task=None),
        "labels = 3": lambda m: m["task"].update(labels=3),
        "a model of layers": lambda m: m["task"]["model"].update(layers=10**9),
        "step": lambda m: m.update(step="x"),
    }
    for name, change in said.items():
        run = copied("han" if "labels" in name else "transformer")
        manifest = read_manifest(run / "checkpoints" / STEP)
        change(manifest)
        write_manifest(run, manifest)
        shown = CliRunner().invoke(app, ["translate", str(run)], input="1 2 3\n")
        assert shown.exit_code == 2, name
        assert isinstance(shown.exception, SystemExit)
        assert shown.stderr.startswith(f"regard: {run}")
        assert shown.stderr.count("\n") == 1
