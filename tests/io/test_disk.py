"""Files that are complete or unchanged, locks, folders, and links that lead outside."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from unittest.mock import Mock

import pytest

from regard.io import disk
from regard.io.disk import lock, make_folder, outward_link, remove_leftovers, replacing, sync, try_lock, write_whole

WRITING = """
import sys, time
from regard.io.disk import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    time.sleep(60)
"""


def test_a_file_is_whole_or_as_it_was(tmp_path):
    path = tmp_path / "file"
    write_whole(path, "first\nä")
    assert path.read_bytes() == "first\nä".encode()
    with contextlib.suppress(KeyError), replacing(path) as file:
        file.write(b"second")
        raise KeyError
    assert path.read_bytes() == "first\nä".encode()
    write_whole(path, b"third")
    assert path.read_bytes() == b"third"
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "outside").write_text("mine")
    (tmp_path / "file").symlink_to("outside")
    write_whole(tmp_path / "file", "new")
    assert (tmp_path / "outside").read_text() == "mine"
    assert not (tmp_path / "file").is_symlink()


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_what_fails_names_the_file(tmp_path, monkeypatch, call):
    write_whole(tmp_path / "file", "first")
    monkeypatch.setattr(os, call, Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match="No space") as caught:
        write_whole(tmp_path / "file", "second")
    assert caught.value.filename == str(tmp_path / "file")
    assert disk.reason(caught.value) == "the disk is full"
    assert [path.read_text() for path in tmp_path.iterdir()] == ["first"]


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    path = tmp_path / "file"
    killed, living = (
        subprocess.Popen([sys.executable, "-c", WRITING, path], stdout=subprocess.PIPE, text=True) for _ in range(2)
    )
    try:
        for each in (killed, living):
            assert each.stdout.readline() == "writing\n"
        assert len(list(tmp_path.iterdir())) == 2
        killed.kill()
        killed.wait()
        (tmp_path / ".file.4711").write_text("of an earlier version")
        (tmp_path / ".file.4712").symlink_to("/")
        for other in (".file.txt", ".other.1234", "file.1", ".file.1-2"):
            (tmp_path / other).write_text("somebody's own")
        write_whole(path, "whole")
        left = {each.name for each in tmp_path.iterdir()} - {".file.txt", ".other.1234", "file.1", ".file.1-2", "file"}
        assert len(left) == 1
        assert f".{living.pid}-" in left.pop()
    finally:
        for each in (killed, living):
            each.kill()
            each.wait()
            each.stdout.close()
    write_whole(path, "again")
    assert not [each for each in tmp_path.iterdir() if f".{living.pid}-" in each.name]


def test_without_locks_only_what_is_old_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "LOCKS", False)
    for name, age in ((".file.1", 2 * disk.STALE), (".file.2", 10)):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    write_whole(tmp_path / "file", "")
    assert {path.name for path in tmp_path.iterdir()} == {".file.2", "file"}


# ---- locks


@pytest.mark.parametrize("locks", [True, False])
def test_one_at_a_time(tmp_path, monkeypatch, locks):
    monkeypatch.setattr(disk, "LOCKS", locks)
    path = tmp_path / ".lock"
    for _ in range(2):
        with lock(path):
            with pytest.raises(BlockingIOError) as caught, lock(path):
                pass
            assert caught.value.errno == (errno.EWOULDBLOCK if locks else errno.EEXIST)
        assert not path.exists()


def test_a_lock_that_a_killed_process_left_is_nobodys(tmp_path):
    path = tmp_path / ".lock"
    child = os.fork()
    if child == 0:
        with lock(path):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert path.exists()
    with lock(path):
        pass
    assert not path.exists()


def test_a_lock_does_not_write_through_a_link(tmp_path):
    (tmp_path / "outside").write_text("mine")
    (tmp_path / ".lock").symlink_to("outside")
    with pytest.raises(OSError, match="symbolic"), lock(tmp_path / ".lock"):
        pass
    assert (tmp_path / "outside").read_text() == "mine"


def test_a_lock_that_was_removed_meanwhile_is_not_taken(tmp_path, monkeypatch):
    """Two processes open the lock and a third releases and removes it: one of the two holds a deleted file."""
    path, opened = tmp_path / ".lock", []
    real = disk.open_lock

    def open_lock(where):
        found = real(where)
        if not opened:  # between opening and locking, another process removes it and makes its own
            opened.append(found)
            path.unlink()
            path.write_text("")
        return found

    monkeypatch.setattr(disk, "open_lock", open_lock)
    with lock(path), open(path, "r+b") as file:
        assert try_lock(file) is False  # the lock on the existing file is held


# ---- folders


def test_folders_that_were_made(tmp_path):
    assert make_folder(tmp_path / "a/b/c") == [tmp_path / "a", tmp_path / "a/b", tmp_path / "a/b/c"]
    assert make_folder(tmp_path / "a/b/d") == [tmp_path / "a/b/d"]
    assert make_folder(tmp_path / "a") == []
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels"):
        make_folder(tmp_path / "loop")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        make_folder(tmp_path / "file/below")


@pytest.mark.parametrize(
    ("number", "outcome"),
    [(errno.EINVAL, contextlib.nullcontext()), (errno.EIO, pytest.raises(OSError, match="rror"))],  # a failing disk
)
def test_a_system_that_syncs_no_folders(tmp_path, monkeypatch, number, outcome):
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(number, os.strerror(number))))
    with outcome:
        sync(tmp_path)


def test_links_that_lead_out(tmp_path):
    home = tmp_path / "home"
    (home / "inner").mkdir(parents=True)
    for name, target in (("inside", "inner"), ("back", "../home/inner"), ("whole", str(home / "none"))):
        (home / name).symlink_to(target)
    assert outward_link(home, home.iterdir()) is None
    # A circle of links cannot be written to, and is refused as well.
    for number, target in enumerate(("..", "/", "../none", "../home-other", "link-4")):
        link = home / f"link-{number}"
        link.symlink_to(target)
        assert outward_link(home, [link]) == link
    (home / "inner/first").symlink_to("../second")
    (home / "second").symlink_to("../outside")
    assert outward_link(home, [home / "inner/first"]) == home / "inner/first"


def test_leftovers_of_any_name(tmp_path):
    for name in (".a.png.12", ".b.png.13-0a1b2c3d", ".hidden", "a.png"):
        (tmp_path / name).write_text("")
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {".hidden", "a.png"}
