"""A failing disk costs no more than the work since the last checkpoint.

Failing calls: each write, sync, rename and new folder of a short training fails once, and ends in one sentence.
Failing power: at every moment, unsynced data may be lost; the remaining files load and resume.
"""

import builtins
import errno
import hashlib
import io
import os
import random
import shutil
from pathlib import Path

import pytest
import torch
from forked import ended, forked
from tiny import same_tensors, table

from regard.config import read
from regard.run import load
from regard.tasks import start
from regard.training import Checkpoints, metrics, read_checkpoint
from regard.training.metrics import Trackers

STEPS = {"training__steps": 6, "training__validate_every": 2, "training__keep": 2, "training__average": 2}
LOSSES = [9.0, 5.0, 7.0, 4.0]  # after the steps 2, 4 and 6, and of the average of the last two
BEST = [None, "step-000002", "step-000004", "step-000004", "average"]  # after so many validations


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    """Use one thread, as a forked process has no others, and no TensorBoard, which would start one."""
    monkeypatch.setattr(metrics, "open_trackers", lambda names, folder, resume_step: Trackers({}))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """Create data, their cache, and an undisturbed run."""
    home = tmp_path_factory.mktemp("home")
    trained(home, home / "unhurt")
    assert Checkpoints(home / "unhurt").best().name == "average"
    return home


def trained(home: Path, out: Path, **changes) -> None:
    """Train or resume, with validations scripted by the step."""
    resume = Checkpoints(out).last() is not None

    with pytest.MonkeyPatch.context() as patch:
        scripted(patch)
        start(table(home, **{**STEPS, **changes}), out, resume=resume)


def scripted(patch: pytest.MonkeyPatch) -> None:
    """Script the validations by the step that they follow."""
    from regard.training import Trainer

    real = Trainer.average

    def measure(self):
        Clock.validations = 4 if Clock.averaging else self.now.step // 2
        return {"loss": LOSSES[Clock.validations - 1]}, []

    def average(self):
        Clock.averaging = True
        real(self)

    Clock.averaging, Clock.validations = False, 0
    patch.setattr(Trainer, "measure", measure)
    patch.setattr(Trainer, "average", average)


class Clock:
    """The progress of this process's training."""

    averaging, validations = False, 0


def whole(home: Path, run: Path) -> None:
    """Check that a run equals the undisturbed one in the end."""
    unhurt = home / "unhurt"
    for name in (path.name for path in Checkpoints(unhurt).steps()):
        mine, its = (read_checkpoint(each / "checkpoints" / name) for each in (unhurt, run))
        assert same_tensors(mine.model, its.model)
        assert same_tensors(mine.trainer, its.trainer)
    assert load(run).step in (4, 6)  # the average, unless the training was interrupted while it computed that
    assert not list(run.rglob(".*"))


# ---- calls that fail


class Failing:
    """An open file that counts its writes."""

    def __init__(self, file, count):
        self._file, self._count = file, count

    def write(self, content):
        if self._count():
            self._file.write(content[: len(content) // 2])
            self._file.flush()
            raise OSError(self._count.number, os.strerror(self._count.number))
        return self._file.write(content)

    def __enter__(self):
        return self

    def __exit__(self, *given):
        self._file.close()

    def __getattr__(self, name):
        return getattr(self._file, name)


class Count:
    """A counter that tells when the call that must fail has come."""

    def __init__(self, call: int, number: int):
        self.left, self.number = call, number

    def __call__(self) -> bool:
        self.left -= 1
        return self.left == 0


def fail_at(call: int, number: int) -> Count:
    """From now on in this process, let the `call`-th write, sync, rename or mkdir fail with errno `number`."""
    count = Count(call, number)

    def failing(name, real):
        def act(*arguments, **options):
            if count():
                raise OSError(number, os.strerror(number), *map(str, arguments[: name != "fsync"]))
            return real(*arguments, **options)

        return act

    for name in ("fsync", "rename", "replace", "mkdir"):
        setattr(os, name, failing(name, getattr(os, name)))
    real_open = builtins.open

    def opened(path, mode="r", *arguments, **options):
        file = real_open(path, mode, *arguments, **options)
        return Failing(file, count) if set(mode) & set("wax+") else file

    builtins.open = io.open = opened
    return count


def failed_at(call: int, number: int, home: Path, run: Path, cache: Path) -> tuple[bool, str]:
    """Train in a child whose `call`-th call fails; return whether the training came that far, and its message."""
    told, tell = os.pipe()

    def work():
        with pytest.MonkeyPatch.context() as patch:
            scripted(patch)
            given = table(home, **STEPS)
            given["data"]["cache"] = str(cache)
            count = fail_at(call, number)
            said = ended(lambda: start(given, run, resume=Checkpoints(run).last() is not None))
        os.write(tell, f"{int(count.left <= 0)}{said}".encode())
        os._exit(0)

    child = forked(work)
    os.close(tell)
    with os.fdopen(told, "rb") as file:
        answer = file.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    return answer[0] == "1", answer[1:]


@pytest.mark.parametrize("cached", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("how", ["some", pytest.param("all", marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
def test_a_call_that_fails_ends_in_a_sentence(home, tmp_path, number, cached, how):
    calls = range(1, 1000) if how == "all" else sorted(random.sample(range(1, 60), 4))
    for call in calls:
        run = tmp_path / str(call)
        cache = home / "cache" if cached else tmp_path / f"cache-{call}"
        reached, said = failed_at(call, number, home, run, cache)
        if not reached:
            assert how == "all", "there are fewer calls than were drawn from"
            break
        # A failure to create a link or to remove a folder is no reason to stop.
        assert "traceback" not in said
        assert "\n" not in said
        if said:
            assert str(tmp_path) in said or "cache" in said, said
            assert "disk is full" in said or os.strerror(number) in said, said
        last = Checkpoints(run).last()
        if last is None:
            assert not run.exists() or (run / "metrics.jsonl").read_bytes(), f"call {call}: {said}"
        else:
            best = load(run)
            read_checkpoint(last)
            assert best.step <= int(last.name[5:])
        trained(home, run)
        whole(home, run)
        shutil.rmtree(run)
    assert call > 40 or how == "some"


# ---- power failures


class Node:
    """A file or a folder: as it is, and as it would be if the power failed now."""

    def __init__(self, folder: bool):
        self.folder = folder
        self.entries: dict[str, Node | str] = {}  # a link stores its target
        self.synced: dict[str, Node | str] | bytes = {} if folder else b""


class Disk:
    """A record of this process's changes below a folder, and of which of them are safe.

    A file's bytes are safe once the file was synced, a folder's names once the folder was. `states` holds, for each
    call, what may remain if the power fails just after it.
    """

    def __init__(self, root: Path):
        self.root, self.node, self.states = root, Node(True), []
        self.seen: set[str] = set()

    def at(self, path) -> tuple[Node, str] | None:
        """Return the node of a path's folder, and the path's name in it."""
        path = Path(os.path.abspath(path))
        if not path.is_relative_to(self.root) or path == self.root:
            return None
        node = self.node
        *parents, name = path.relative_to(self.root).parts
        for part in parents:
            node = node.entries[part]
        return node, name

    def record(self, patch: pytest.MonkeyPatch) -> None:
        """Watch every call that changes the disk."""
        for name in ("mkdir", "rmdir", "unlink", "remove", "rename", "replace", "symlink", "fsync", "open"):
            patch.setattr(os, name, self.watching(name, getattr(os, name)))
        real = builtins.open

        def opened(path, mode="r", *arguments, **options):
            file = real(path, mode, *arguments, **options)
            if set(mode) & set("wax+") and not isinstance(path, int):
                self.made(path, "w" in mode)
            return file

        patch.setattr(builtins, "open", opened)
        patch.setattr(io, "open", opened)

    def watching(self, name, real):
        def act(*given, dir_fd=None, **options):
            if dir_fd is not None:
                options["dir_fd"] = dir_fd
            result = real(*given, **options)
            paths = list(given)
            if dir_fd is not None:
                paths[0] = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), given[0])
            self.happened(name, paths)
            return result

        return act

    def happened(self, name: str, given: list) -> None:
        if name == "open":
            if given[1] & os.O_CREAT:
                self.made(given[0], False)
            return
        if name == "fsync":
            path = os.readlink(f"/proc/self/fd/{given[0]}")
            if Path(path) == self.root:
                node = self.node
            elif (place := self.at(path)) is None:
                return
            else:
                node = place[0].entries[place[1]]
            node.synced = dict(node.entries) if node.folder else Path(path).read_bytes()
        elif name in ("rename", "replace"):
            one, other = self.at(given[0]), self.at(given[1])
            if one is None or other is None:
                return
            other[0].entries[other[1]] = one[0].entries.pop(one[1])
        elif (place := self.at(given[1 if name == "symlink" else 0])) is None:
            return
        elif name == "mkdir":
            place[0].entries[place[1]] = Node(True)
        elif name == "symlink":
            place[0].entries[place[1]] = str(given[0])
        else:
            place[0].entries.pop(place[1], None)
        self.snapshot()

    def made(self, path, emptied: bool) -> None:
        place = self.at(path)
        if place is not None and place[1] not in place[0].entries:
            place[0].entries[place[1]] = Node(False)
            self.snapshot()

    def snapshot(self) -> None:
        """Record what may remain: only safe data; all names, but only safe bytes; or some of each."""
        for how in ("safe", "names", "some"):
            tree = self.tree(self.node, how)
            key = hashlib.sha256(repr(sorted(tree.items())).encode()).hexdigest()
            if key not in self.seen:
                self.seen.add(key)
                self.states.append((Clock.validations, tree))

    def tree(self, node: Node, how: str, at: str = "") -> dict[str, bytes | str | None]:
        names = node.entries if how == "names" or (how == "some" and random.random() < 0.5) else node.synced
        found: dict[str, bytes | str | None] = {}
        for name, each in names.items():
            path = f"{at}/{name}" if at else name
            if isinstance(each, str):
                found[path] = each
            elif each.folder:
                found[path] = None
                found |= self.tree(each, how, path)
            else:
                found[path] = each.synced
        return found


def laid_out(tree: dict[str, bytes | str | None], folder: Path) -> Path:
    """Write a state of the disk as files."""
    folder.mkdir()
    for path, content in tree.items():
        if content is None:
            (folder / path).mkdir()
        elif isinstance(content, str):
            (folder / path).symlink_to(content)
        else:
            (folder / path).write_bytes(content)
    return folder


@pytest.mark.parametrize("how", ["some", pytest.param("all", marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
def test_what_was_not_synced_may_be_lost(home, tmp_path, how):
    (tmp_path / "disk").mkdir()
    disk = Disk(tmp_path / "disk")
    with pytest.MonkeyPatch.context() as patch:
        scripted(patch)
        disk.record(patch)
        start(table(home, **STEPS), tmp_path / "disk/run")
        disk.snapshot()
    assert len(disk.states) > 60
    steps, bests = set(), set()
    drawn = disk.states if how == "all" else random.sample(disk.states[:-1], 30) + disk.states[-1:]
    for number, (validations, tree) in enumerate(drawn):
        state = laid_out(tree, tmp_path / f"state-{number}")
        run = state / "run"
        if (run / "config.toml").exists():
            read(run / "config.toml")
        last = Checkpoints(run).last()
        if last is None:
            assert validations <= 1
        else:
            steps.add(read_checkpoint(last).step)
            # The checkpoint before the last validation was saved, and the one after it may be.
            assert validations - 1 <= int(last.name[5:]) // 2 <= validations
            found = load(run)
            best = Checkpoints(run).best().name.removeprefix(".old-")
            bests.add(best)
            assert best in BEST[validations - 1 : validations + 1]
            assert found.step == read_checkpoint(run / "checkpoints" / Checkpoints(run).best().name).step
        if how == "all" or number % 10 == 0:
            trained(home, run)
            whole(home, run)
        shutil.rmtree(state)
    if how == "all":
        assert steps == {2, 4, 6}
        assert bests == {"step-000002", "step-000004", "average"}


def test_at_the_end_everything_is_on_the_disk(home, tmp_path):
    """No file that a run needs later is still waiting for the system to write it."""
    (tmp_path / "disk").mkdir()
    disk = Disk(tmp_path / "disk")
    with pytest.MonkeyPatch.context() as patch:
        scripted(patch)
        disk.record(patch)
        start(table(home, **STEPS), tmp_path / "disk/run")
    safe = disk.tree(disk.node, "safe")
    for path in (tmp_path / "disk/run").rglob("*"):
        name = str(path.relative_to(tmp_path / "disk"))
        if path.is_file() and not path.is_symlink() and "/checkpoints/best/" not in name:
            assert safe.get(name) == path.read_bytes(), name
