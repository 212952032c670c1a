"""A manifest: one canonical form, of which every byte counts."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training.checkpoints import written

from regard.errors import CheckpointError
from regard.training.checkpoint import read_checkpoint
from regard.training.manifest import canonical, plain_weights_file, read_manifest

FACTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text().filter(lambda key: key not in ("sha256", "files", "format")), FACTS, max_size=4))
def test_the_canonical_form_is_a_fixed_point(facts):
    try:
        first = canonical(facts)
    except UnicodeEncodeError:  # half a surrogate pair is no text
        return
    read = json.loads(first)
    assert canonical({key: value for key, value in read.items() if key != "sha256"}) == first


def test_every_byte_of_the_manifest_counts(tmp_path):
    folder = written(tmp_path).folder / "step-000004"
    path = folder / "manifest.json"
    whole = path.read_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << random.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(CheckpointError, match="manifest.json: "):
            read_manifest(folder)
    for short in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:short])
        with pytest.raises(CheckpointError, match="manifest.json: "):
            read_manifest(folder)
    path.write_bytes(whole)
    read_manifest(folder)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"{}", b"[" * 100_000, b"\xff\xfe", b'{"sha256": 1}', b"1" * 5000]
)
def test_what_is_no_manifest(tmp_path, content):
    folder = written(tmp_path).folder / "step-000004"
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(CheckpointError, match="manifest.json: damaged"):
        read_manifest(folder)


def test_another_format_is_named(tmp_path):
    folder = written(tmp_path).folder / "step-000004"
    manifest = {key: value for key, value in read_manifest(folder).items() if key != "sha256"}
    (folder / "manifest.json").write_bytes(canonical({**manifest, "format": 99}))
    with pytest.raises(CheckpointError, match="format 99 given, this version of regard reads 1"):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    ("base", "key"), [(3, "base is 3"), ({"bytes": -1, "sha256": ""}, "base.bytes"), ({"bytes": 1}, "base.sha256")]
)
def test_what_it_says_of_a_base_is_checked(tmp_path, base, key):
    folder = written(tmp_path).folder / "step-000004"
    manifest = {key: value for key, value in read_manifest(folder).items() if key != "sha256"}
    (folder / "manifest.json").write_bytes(canonical({**manifest, "base": base}))
    with pytest.raises(CheckpointError) as refusal:
        read_manifest(folder)
    assert key in str(refusal.value)


def test_the_file_with_a_plain_models_names(tmp_path):
    folder = tmp_path / "run" / "checkpoints" / "step-000004"
    assert plain_weights_file(folder, {}) == folder / "model.safetensors"
    assert plain_weights_file(folder, {"base": {}}) == tmp_path / "run" / "base.safetensors"
