"""Any configuration that is accepted can be trained, or ends with a sentence that says why not.

Each accepted value, and each limit of each number, is tried in a process forked from this one. A traceback, a signal
and a process that never ends are failures. A refused run leaves no folder.
"""

import copy
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import odd
import pytest
import torch
from tiny import caption_table, document_table, question_table, table

from regard.cli.program import handle_errors
from regard.errors import ConfigError
from regard.machine import memory
from regard.models import KINDS
from regard.report import train_and_report
from regard.tasks import read_settings
from regard.tasks.memory import count_weights
from regard.training import metrics, run_folder
from regard.training.metrics import Trackers

pytestmark = pytest.mark.unchecked
SECONDS = 300
BYTES = 8 * 2**30  # a test must not exhaust the machine's memory
SLOW = [pytest.mark.slow, pytest.mark.timeout(1200)]
SMALL: dict[str, dict[str, Any]] = {
    "lstmn": {"size": 8, "embedding": 8, "hidden": 8},
    "pointer": {"size": 8, "embedding": 8, "hidden": 8},
    "ntm": {"size": 8, "embedding": 8, "slots": 6, "width": 4},
}
PICTURED = {"images", "captions", "valid_captions", "train_list", "valid_list", "image_size", "flip", "crop", "workers"}
DOCUMENTED = {"documents", "valid_documents", "label_column", "text_column", "sentence_mark", "document_tokens"}
# Ten million examples and pictures of a million pixels take minutes; tests/compile covers compiled models.
LONG = {("count", "most"), ("image_size", "most"), ("compile", "true")}
BUILT_IN = {"builtin", "pair", "count", "builtin_seed", "builtin_options"}


BASES: dict[Any, dict[str, Any]] = {}  # pictures are drawn once


def small_table(folder: Path, section: str, key: str) -> dict[str, Any]:
    """Return a copy of a configuration that trains in a moment, and to which the key applies."""
    if (folder, section, key) not in BASES:
        BASES[folder, section, key] = made_table(folder, section, key)
    return copy.deepcopy(BASES[folder, section, key])


def made_table(folder: Path, section: str, key: str) -> dict[str, Any]:
    """Make such a configuration."""
    kind = section[7:-1] if section.startswith("model (") else "transformer"
    if kind == "captioner" or key in PICTURED:
        found = caption_table(folder)
    elif kind == "convnet" or key == "labels":
        found = question_table(folder)
    elif kind in ("han", "encoder") or key in DOCUMENTED:
        found = document_table(folder, "encoder" if kind == "encoder" else "han")
    elif kind in SMALL:
        found = {**table(folder), "model": {"kind": kind, **SMALL[kind]}}
    else:
        found = table(folder, kind)
    if key in BUILT_IN:
        found["data"] = {"builtin": "copy", "count": 60, "cache": found["data"]["cache"]}
    pair = {"source": found["data"].get("source", ""), "target": found["data"].get("target", "")}
    if section == "data.corpora[0]":
        found["data"] = {"corpora": [pair], "held_out": 0.05, "cache": found["data"]["cache"]}
    if section == "data.valid[0]":
        found["data"]["valid"] = [pair]
    found["training"] |= {"steps": 2, "validate_every": 2, "validate_rows": 2, "minutes": 0.05, "log_every": 1}
    return found


def accepted(folder: Path, section: str, field: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return all accepted values of a key, including the limits of a number, as whole configurations."""
    limits = {name: field.metadata[name] for name in ("least", "most") if name in field.metadata}
    found: list[tuple[str, dict[str, Any]]] = []
    read = []
    for name, value in {**odd.VALUES, **limits}.items():
        if (field.name, name) in LONG:
            continue
        whole = small_table(folder, section, field.name)
        inside: Any = whole
        for part in section.partition(" ")[0].removesuffix("[0]").split("."):
            inside = inside.setdefault(part, {})
        (inside[0] if section.endswith("[0]") else inside)[field.name] = value
        try:
            settings = read_settings(whole)
            settings.data.require()
        except ConfigError:
            continue
        if settings not in read:  # 0 and 0.0 are equal
            found.append((name, whole))
            read.append(settings)
    return found


def trained(whole: dict[str, Any], out: Path, said: Path) -> int:
    """Train like the command in a child process, and return its status: negative for a signal."""
    child = os.fork()
    if child == 0:
        try:
            os.chdir(said.parent)  # an odd text may be taken as a folder's name
            with open(said, "wb") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS)
            resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
            # TensorBoard would start a thread, and loads slowly.
            metrics.open_trackers = lambda names, folder, resume_step: Trackers({})
            try:
                with handle_errors():
                    train_and_report(whole, out)
            except SystemExit as end:
                sys.stderr.flush()
                os._exit(int(end.code or 0))
            sys.stderr.flush()
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def check(whole: dict[str, Any], folder: Path, name: str) -> None:
    """Check that the training succeeds, or is refused in one printable line without leaving a folder."""
    out, said = folder / "run", folder / "said.txt"
    status = trained(whole, out, said)
    text = said.read_text(encoding="utf-8", errors="replace")
    assert status in (0, 2), f"{name}: status {status}: {text[-2000:]}"
    if status == 2:
        message = [line for line in text.splitlines() if line.startswith("regard: ")]
        assert len(message) == 1, f"{name}: {text[-2000:]}"
        assert message[0].isprintable()
        assert len(message[0]) < 5000
        if out.exists():
            assert run_folder.has_begun(out), f"{name}: refused ({message[0]}), and left {list(out.iterdir())}"
    if out.exists():
        import shutil

        shutil.rmtree(out)


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a forked process has no other threads
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "kind", [kind if kind in ("transformer", "ntm") else pytest.param(kind, marks=SLOW) for kind in KINDS]
)
def test_whatever_a_model_accepts_has_a_size(kind, tmp_path):
    """The size is counted from shapes alone, without building the model, in a moment even if it is huge."""
    section = f"model ({kind})"
    for owner, field in odd.all_keys():
        if owner == section:
            for name, whole in accepted(tmp_path, owner, field):
                start = time.process_time()
                count = count_weights(read_settings(whole), 60, 60)
                assert count > 0
                assert time.process_time() - start < 5, (field.name, name)


FEW = [("training", "keep"), ("tokenizer", "size"), ("model (captioner)", "weights")]


@pytest.mark.parametrize(
    ("section", "key"),
    [
        (section, field.name) if (section, field.name) in FEW else pytest.param(section, field.name, marks=SLOW)
        for section, field in odd.all_keys()
    ],
)
def test_what_is_accepted_is_trained(section, key, tmp_path, one_thread):
    field = next(field for owner, field in odd.all_keys() if (owner, field.name) == (section, key))
    for name, whole in accepted(tmp_path, section, field):
        check(whole, tmp_path, f"{section}.{key} = {name}")


@pytest.mark.skipif(memory() is None, reason="this system does not say how much memory it has")
@pytest.mark.parametrize(
    "kind", [kind if kind in ("transformer", "ntm") else pytest.param(kind, marks=SLOW) for kind in KINDS]
)
def test_a_model_that_has_no_room(kind, tmp_path, one_thread):
    """With every width at its limit, a run is refused for its memory before the corpus is read."""
    whole = small_table(tmp_path, f"model ({kind})", "size")
    for owner, field in odd.all_keys():
        if owner == f"model ({kind})" and field.name in ("size", "embedding", "hidden", "channels", "layers"):
            whole["model"][field.name] = field.metadata["most"]
    whole["data"]["cache"] = str(tmp_path / "cache of this one")
    out, said = tmp_path / "run", tmp_path / "said.txt"
    assert trained(whole, out, said) == 2
    message = said.read_text(encoding="utf-8")
    assert " weights would take " in message
    assert "; make model." in message
    assert not out.exists()
    assert not (tmp_path / "cache of this one").exists()
