"""Encoded corpora on disk: written data is read back, damage is reported, and folders appear whole."""

import contextlib
import os
import pickle
import signal
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import cache
from regard.data.cache import Encoded, Writer, damage, publish, seal, workplace
from regard.errors import DataError

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=6)


def write(folder, pairs, sizes=(3,)):
    writer, start = Writer(folder), 0
    for size in [*sizes, len(pairs)]:
        writer.write([s for s, _ in pairs[start : start + size]], [t for _, t in pairs[start : start + size]])
        start += size
    writer.close()
    assert writer.count == len(pairs)


@settings(max_examples=30)
@given(pairs=st.lists(st.tuples(IDS, IDS), max_size=12), size=st.integers(1, 5))
def test_what_is_written_is_read(tmp_path_factory, pairs, size):
    folder = tmp_path_factory.mktemp("cache") / "train"
    write(folder, pairs, (size, size))
    encoded = Encoded(folder)
    assert len(encoded) == len(pairs)
    assert [[part.tolist() for part in encoded.pair(i)] for i in range(len(pairs))] == [[s, t] for s, t in pairs]
    assert encoded.lengths.tolist() == [[len(s), len(t)] for s, t in pairs]
    assert encoded.lengths.dtype == encoded.tokens.dtype == np.int32
    again = pickle.loads(pickle.dumps(encoded))
    assert np.array_equal(again.lengths, encoded.lengths)


def test_nothing_is_copied_into_memory(tmp_path):
    write(tmp_path / "train", [([5, 6], [7])])
    encoded = Encoded(tmp_path / "train", [0])
    for array in (encoded.tokens, encoded.lengths, encoded.pair(0)[0]):
        while not isinstance(array, np.memmap):
            assert array.base is not None
            array = array.base
    assert len(pickle.dumps(encoded)) < 500


def sealed(folder, pairs=(([5, 6], [7, 8, 9]), ([4], [4]))):
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "train", list(pairs))
    (folder / "note.txt").write_text("text")
    seal(folder, counts={"pairs": 2})
    return folder


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda f: cut_short(f / "train/tokens.bin"), "train/tokens.bin has 43 bytes, expected 44"),
        (lambda f: (f / "train/lengths.bin").write_bytes(b""), "train/lengths.bin has 0 bytes, expected"),
        (lambda f: flip(f / "train/offsets.bin", 0), "train/offsets.bin begins with unexpected bytes"),
        (lambda f: flip(f / "train/tokens.bin", -1), "train/tokens.bin does not match its checksum"),
        (lambda f: flip(f / "note.txt", 0), "note.txt does not match its checksum"),
        (lambda f: (f / "train/tokens.bin").unlink(), "no tokens.bin in the folder"),
        (lambda f: (f / "manifest.json").unlink(), "no manifest.json in the folder"),
        (lambda f: (f / "manifest.json").write_text(""), "unreadable"),
        (lambda f: (f / "manifest.json").write_text("[]"), "unreadable"),
        (lambda f: (f / "manifest.json").write_text('{"format": 0}'), "format 0, expected"),
        (lambda f: (f / "manifest.json").write_text('{"format": 1, "files": 3}'), "unreadable"),
    ],
)
def test_damage_is_told(tmp_path, harm, message):
    folder = sealed(tmp_path / "key")
    assert damage(folder) is None
    harm(folder)
    assert message in damage(folder)


def test_large_caches_are_checked_by_size_and_heading(tmp_path, monkeypatch):
    folder = sealed(tmp_path / "key")
    flip(folder / "train/tokens.bin", -1)
    monkeypatch.setattr(cache, "CHECKED_IN_FULL", 0)
    assert damage(folder) is None
    cut_short(folder / "train/tokens.bin")
    assert "bytes, expected" in damage(folder)


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    with contextlib.suppress(KeyError), workplace(tmp_path / "home") as folder:
        sealed(folder)
        raise KeyError
    assert os.listdir(tmp_path / "home") == []
    with workplace(tmp_path / "home") as folder:
        sealed(folder)
        publish(folder, tmp_path / "home" / "key")
    assert os.listdir(tmp_path / "home") == ["key"]
    assert damage(tmp_path / "home" / "key") is None


def test_the_first_to_rename_wins(tmp_path):
    first, second = sealed(tmp_path / "a"), sealed(tmp_path / "b")
    publish(first, tmp_path / "key")
    stamp = (tmp_path / "key").stat().st_ino
    publish(second, tmp_path / "key")
    assert (tmp_path / "key").stat().st_ino == stamp
    cut_short(tmp_path / "key" / "train/tokens.bin")
    publish(second, tmp_path / "key")
    assert (tmp_path / "key").stat().st_ino != stamp
    assert damage(tmp_path / "key") is None
    assert sorted(os.listdir(tmp_path)) == ["key"]


@pytest.mark.parametrize("turn", range(5))
def test_many_at_once_leave_one_that_is_whole(tmp_path, turn):
    folders = [sealed(tmp_path / f"p{i}") for i in range(8)]
    final = sealed(tmp_path / "key")
    cut_short(final / "train/tokens.bin")  # so that all processes want to replace it
    open_before = Encoded(sealed(tmp_path / "held") / "train")
    threads = [threading.Thread(target=publish, args=(folder, final)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert damage(final) is None
    assert open_before.pair(0)[0].tolist() == [5, 6]
    assert not list(tmp_path.glob(".damaged-*"))


def test_what_a_killed_process_left_is_swept_at_once(tmp_path):
    """A folder that a living process is writing stays, however long it takes."""

    def killed(folder):
        os.kill(os.getpid(), signal.SIGKILL)

    def waiting(folder):
        os.write(ready, str(folder).encode())
        os.read(go, 1)
        assert folder.is_dir()

    def child(work):
        number = os.fork()
        if number == 0:
            with contextlib.suppress(BaseException), workplace(tmp_path / "home") as folder:
                sealed(folder)
                work(folder)
                os._exit(0)
            os._exit(1)
        return number

    (at, ready), (go, leave) = os.pipe(), os.pipe()
    living = child(waiting)
    name = os.path.basename(os.read(at, 1000).decode())
    os.waitpid(child(killed), 0)
    assert len(list((tmp_path / "home").glob(".partial-*[!k]"))) == 2
    with workplace(tmp_path / "home") as folder:
        assert {path.name for path in (tmp_path / "home").glob(".partial-*[!k]")} == {name, folder.name}
    os.write(leave, b".")
    assert os.waitpid(living, 0)[1] == 0
    with workplace(tmp_path / "home"):
        pass
    assert os.listdir(tmp_path / "home") == []
    for each in (at, ready, go, leave):
        os.close(each)


def test_a_name_leads_to_a_cache_without_links(tmp_path, monkeypatch):
    def refuse(*given, **options):
        raise OSError(1314, "A required privilege is not held by the client")

    final = sealed(tmp_path / "0123abcd")
    assert cache.resolve_alias(final) == final
    assert not cache.resolve_alias(tmp_path / "4567").exists()
    with monkeypatch.context() as patch:
        patch.setattr(os, "symlink", refuse)
        assert cache.find_or_fill(tmp_path / "4567", lambda _: final, pytest.fail) == (final, False)
    assert cache.resolve_alias(tmp_path / "4567") == final
    (tmp_path / "89ab").symlink_to(final.name)  # as earlier versions wrote it
    assert cache.resolve_alias(tmp_path / "89ab") == final
    for content in ("../elsewhere", "/", "", "0123abcd/..", "\x00"):
        (tmp_path / "odd").write_text(content)
        assert cache.resolve_alias(tmp_path / "odd") == tmp_path / "odd"
        assert damage(tmp_path / "odd") is not None


def test_what_was_left_behind_is_swept(tmp_path):
    for name in (".partial-old", ".damaged-old"):
        (tmp_path / name).mkdir()
    (tmp_path / ".partial-old.lock").touch()
    with workplace(tmp_path):
        pass
    assert os.listdir(tmp_path) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(DataError, match=r"file/cache: encoded corpora cannot be written here: .*data.cache"),
        workplace(tmp_path / "file" / "cache"),
    ):
        pass


def test_a_full_disk_is_named(tmp_path):
    def build():
        with workplace(tmp_path), open("/dev/full", "wb") as file:
            file.write(b"x" * 100)

    with pytest.raises(DataError, match=r"No space left on device; choose another folder with data.cache"):
        build()
    assert os.listdir(tmp_path) == []
