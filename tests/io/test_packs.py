"""A path into a pack is read like a path into a folder, and an incomplete pack is refused."""

import hashlib
import random
import stat
import threading
import zipfile

import pytest

from regard.errors import CheckpointError
from regard.io import packs
from regard.io.packs import DIGITS, MARK
from regard.io.reading import Unreadable, read_bytes

MEMBERS = {"config.toml": b"a = 1\n", "checkpoints/step-000001/manifest.json": b"{}", "checkpoints/best.json": b"best"}


def write(path, members=MEMBERS, method=zipfile.ZIP_STORED, spoil=lambda content: content):
    """Write a pack of these members, whose checksum is right for any content."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items() if isinstance(members, dict) else members:
            archive.writestr(name, content)
        archive.comment = MARK + b"0" * DIGITS
    content = spoil(path.read_bytes()[:-DIGITS])
    path.write_bytes(content + hashlib.sha256(content).hexdigest().encode())
    return path


def test_it_is_read_as_a_folder_is(tmp_path):
    pack = write(tmp_path / "any name")
    assert packs.is_pack(pack)
    assert packs.is_folder(pack)
    assert not packs.is_file(pack)
    assert packs.list_names(pack) == ["config.toml", "checkpoints"]
    assert packs.is_folder(pack / "checkpoints" / "step-000001")
    assert packs.list_names(pack / "checkpoints") == ["step-000001", "best.json"]
    assert not packs.is_folder(pack / "check")
    assert packs.is_file(pack / "config.toml")
    for name, content in MEMBERS.items():
        assert read_bytes(pack / name) == content
    with pytest.raises(FileNotFoundError):
        read_bytes(pack / "none.json")
    with pytest.raises(IsADirectoryError):
        read_bytes(pack / "checkpoints")
    with pytest.raises(Unreadable, match="4 bytes given, expected at most 3"):
        read_bytes(pack / "checkpoints/best.json", 3)


def test_what_is_no_pack_stays_what_it_is(tmp_path):
    (tmp_path / "text").write_text("PK a text")
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("config.toml", "a = 1")
    for name in ("text", "zip"):
        assert not packs.is_pack(tmp_path / name)
        assert not packs.is_folder(tmp_path / name)
        assert packs.is_file(tmp_path / name)
        assert packs.find_pack(tmp_path / name / "config.toml") is None
        with pytest.raises(NotADirectoryError):
            read_bytes(tmp_path / name / "config.toml")
    assert packs.find_pack("a text\0with NUL") is None
    assert packs.find_pack("x" * 5000) is None
    assert packs.list_names(tmp_path / "none") == []


@pytest.mark.parametrize("name", ["../out", "/etc/x", "a/../../b", ".hidden", "a\\b", "a b", "a/", "ü", "a/b/c/d/e"])
def test_names_that_lead_elsewhere(tmp_path, name):
    pack = write(tmp_path / "pack", {name: b"x"})
    with pytest.raises(CheckpointError, match="a member is called"):
        packs.open_pack(pack)


def test_twice_the_same_name(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"):
        pack = write(tmp_path / "pack", [("a", "1"), ("a", "2")])
    with pytest.raises(CheckpointError, match="a member is called 'a'"):
        packs.open_pack(pack)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFDIR, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_a_member_that_is_no_file(tmp_path, kind):
    link = zipfile.ZipInfo("words.txt")
    link.external_attr = (kind | 0o777) << 16
    pack = write(tmp_path / "pack", [*MEMBERS.items(), (link, b"/etc/passwd")])
    with pytest.raises(CheckpointError, match=r"words\.txt is a link or a device, expected the files of a run folder"):
        packs.open_pack(pack)


def test_members_that_would_have_to_be_unpacked(tmp_path):
    with pytest.raises(CheckpointError, match="compressed or encrypted"):
        packs.open_pack(write(tmp_path / "pack", {"a": b"0" * 10_000}, zipfile.ZIP_DEFLATED))


def test_more_members_than_a_run_has(tmp_path):
    with pytest.raises(CheckpointError, match="1,001 members given"):
        packs.open_pack(write(tmp_path / "pack", {f"a{i}": b"" for i in range(1001)}))


def test_a_directory_of_members_that_lies(tmp_path):
    """The checksum is right, as if forged. Sizes and positions that lead out of the file are refused."""
    end = len(write(tmp_path / "pack").read_bytes())
    refused, rng = 0, random.Random(0)
    for _ in range(120):
        place = rng.randrange(end - DIGITS - len(MARK))

        def spoil(content, place=place):
            return content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :]

        write(tmp_path / "pack", spoil=spoil)
        try:
            members = packs.read_members(tmp_path / "pack")
        except CheckpointError:
            refused += 1
        else:
            assert all(start >= 0 and start + size <= end for start, size in members.values())
    assert refused > 8


def test_a_member_that_would_end_outside(tmp_path):
    def spoil(content):
        entry = content.index(b"PK\x01\x02")  # in the directory: two sizes, from its 20th byte on
        return content[: entry + 20] + (10_000).to_bytes(4, "little") * 2 + content[entry + 28 :]

    with pytest.raises(CheckpointError, match=r"config.toml would end outside of it"):
        packs.open_pack(write(tmp_path / "pack", spoil=spoil))


def test_a_changed_file_is_checked_again(tmp_path):
    pack = write(tmp_path / "pack")
    first = packs.open_pack(pack)
    assert packs.open_pack(pack) is first
    write(pack, {"config.toml": b"another"})
    assert read_bytes(pack / "config.toml") == b"another"
    content = bytearray(pack.read_bytes())
    content[40] ^= 1
    pack.unlink()
    pack.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged, its contents do not match its own checksum"):
        read_bytes(pack / "config.toml")


def test_threads_open_it_once(tmp_path, monkeypatch):
    calls = []
    read = packs.read_members
    monkeypatch.setattr(packs, "read_members", lambda path: calls.append(path) or read(path))
    pack = write(tmp_path / "pack")
    threads = [threading.Thread(target=packs.open_pack, args=(pack,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
