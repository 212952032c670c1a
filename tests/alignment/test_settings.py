"""What is read as an alignment: kept with a run, read again, and chosen for those that have none."""

import json

import pytest
from alignment.planted import Planted

from regard.alignment.settings import FILE, AlignmentSettings
from regard.errors import ArgumentError, DataError


def test_written_and_read(tmp_path):
    for chosen in (
        AlignmentSettings("layers.0.cross", 1, 1, 0.25, "gold links of 8 pairs", 0.3, "union", 5),
        AlignmentSettings("layers.0.cross"),
    ):
        assert chosen.write(tmp_path) == tmp_path / FILE
        assert AlignmentSettings.read(tmp_path / FILE) == chosen == AlignmentSettings.of(tmp_path, Planted((0, 0)))
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    (tmp_path / FILE).write_text('{"view": "layers.0.cross", "head": null, "offset": 0, "more": 1}')
    assert AlignmentSettings.read(tmp_path / FILE) == AlignmentSettings("layers.0.cross")


@pytest.mark.parametrize(("layers", "usual"), [(1, 0), (2, 1), (3, 2), (4, 2), (6, 4)])
def test_the_usual_layer(tmp_path, layers, usual):
    assert AlignmentSettings.of(tmp_path, Planted(*[(0,)] * layers)) == AlignmentSettings(f"layers.{usual}.cross")


@pytest.mark.parametrize(
    ("training", "view", "head"),
    [
        ("guided = 0.1", "layers.2.cross", 0),
        ("guided = 0.1\nguided_layer = 0\nguided_head = 3", "layers.0.cross", 3),
        ("guided = 0.0\nguided_layer = 0", "layers.2.cross", None),
    ],
)
def test_what_was_guided_is_read(tmp_path, training, view, head):
    (tmp_path / "config.toml").write_text(f"[training]\n{training}\n")
    chosen = AlignmentSettings.of(tmp_path, Planted(*[(0,) * 4] * 4))
    assert (chosen.view, chosen.head, chosen.offset) == (view, head, 0)
    assert (chosen.by, chosen.threshold) == (("", None) if head is None else ("guided in training", 0.2))


def test_no_attention(tmp_path):
    with pytest.raises(ArgumentError, match="the model has no attention to its source"):
        AlignmentSettings.of(tmp_path, Planted())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[]", "no view in it, expected the name of an attention"),
        ('{"head": 0}', "no view in it"),
        ('{"view": "layers.7.cross"}', 'view "layers.7.cross", expected one of layers.0.cross, layers.1.cross'),
        ({"head": -1}, "head -1, expected a head from 0, or null: the mean"),
        ({"head": True}, "head true, expected"),
        ({"offset": 2}, "offset 2, expected 0 or 1"),
        ({"offset": None}, "offset null, expected 0 or 1"),
        ({"threshold": 0}, "threshold 0, expected a share up to 1, or null"),
        ({"join": "grow"}, 'join "grow", expected intersection, union, grow-diag or null'),
        ({"balance": 1.5}, "balance 1.5, expected a number of rounds"),
        ({"aer": "low"}, 'aer "low", expected a number or null'),
    ],
)
def test_a_file_that_is_wrong(tmp_path, content, message):
    text = content if isinstance(content, str) else json.dumps({"view": "layers.0.cross", **content})
    (tmp_path / FILE).write_text(text)
    with pytest.raises(DataError) as caught:
        AlignmentSettings.of(tmp_path, Planted((0,), (0,)))
    assert str(caught.value).startswith(f"{tmp_path / FILE}: {message}")


@pytest.mark.parametrize(
    ("view", "head", "words"),
    [
        ("decoder.blocks.0.cross", 2, "layer 1, head 3, of"),
        ("decoder.stack.blocks.11.cross", None, "layer 12, mean of the heads, of"),
        ("layers.1.cross", 0, "layer 2, head 1, of"),
        ("attention", 0, "the attention to the source, head 1, of"),
        ("upper.cross", 0, "upper.cross, head 1, of"),  # of a plugin, which may have several without a number
    ],
)
def test_people_read_layers_and_heads_from_1(view, head, words):
    assert str(AlignmentSettings(view, head)).startswith(words)
