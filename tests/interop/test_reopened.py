"""Exported folders, opened again with Transformers: equal to their run, and every fault of the writer is detected."""

import json
from pathlib import Path

import pytest
from pretrained import TEXTS, m2m100_folder, marian_folder
from safetensors.torch import load_file, save_file

from regard import export_model, import_model, load
from regard.errors import DataError, VerificationError
from regard.interop import m2m100, marian, stacks
from regard.interop.export import verify, verify_export
from regard.interop.formats import read_manifest
from regard_bench.serving import write_run

FAMILIES = {
    "marian": (marian.write_marian, marian.open_marian),
    "m2m100": (m2m100.write_m2m100, m2m100.open_m2m100),
}
SIZES = {"size": 16, "heads": 2, "layers": 2, "hidden": 24}


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    """Import runs, and write a file of sentences."""
    pytest.importorskip("transformers")
    desk = tmp_path_factory.mktemp("reopened")
    marian_folder(desk / "theirs-marian")
    m2m100_folder(desk / "theirs-m2m100")
    import_model(desk / "theirs-marian", desk / "marian")
    import_model(desk / "theirs-m2m100", desk / "m2m100", source_language="en", target_language="de")
    (desk / "check.en").write_text("".join(f"{text}\n" for text in TEXTS["source"]))
    return desk


@pytest.fixture(scope="module", params=FAMILIES)
def family(request) -> str:
    return request.param


# ---- equal to the run


def test_an_export_is_verified_and_again(desk, family, tmp_path):
    report = export_model(desk / family, tmp_path / "out", to=family)
    found = report.verification
    assert found is not None
    assert (found.sentences, found.count, found.equal) == ("drawn", 200, None)
    assert found.log_prob_difference < 1e-5
    manifest = read_manifest(tmp_path / "out", family)
    assert manifest["verification"] == json.loads(json.dumps(vars(found)))
    assert set(found.versions) == {"regard", "torch"}
    assert verify_export(tmp_path / "out", desk / family) == found
    again = verify_export(tmp_path / "out", desk / family, desk / "check.en")
    assert (again.sentences, again.count, again.equal, again.ties) == ("file", 9, 9, 0)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("marian", {"norm": "post", "tied": "all"}),
        ("marian", {"norm": "post", "sines": "halves", "tied": "none", "output_bias": False, "activation": "silu"}),
        ("m2m100", {"norm": "pre", "tied": "all", "sines": "fairseq", "output_bias": False, "decoder_layers": 1}),
    ],
)
def test_runs_that_were_trained_here(name, model, tmp_path):
    write_run(tmp_path / "run", {**SIZES, **model}, 41)
    found = export_model(tmp_path / "run", tmp_path / "out", to=name).verification
    assert found is not None
    assert found.log_prob_difference < 1e-4
    assert verify_export(tmp_path / "out") == found


# ---- faults


def change_tensors(change):
    def apply(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")

    return apply


def change_json(name, change):
    def apply(folder: Path) -> None:
        table = json.loads((folder / name).read_text())
        change(table)
        (folder / name).write_text(json.dumps(table))

    return apply


def flip(tensors):
    weight = tensors["model.encoder.layers.1.fc2.weight"].view(-1)
    weight[weight.abs().argmax()] *= -1


def swap_heads(tensors):
    for kind in ("weight", "bias"):
        name = f"model.decoder.layers.0.encoder_attn.q_proj.{kind}"
        tensors[name] = tensors[name].unflatten(0, (2, -1)).flip(0).flatten(0, 1)


def transpose(tensors):
    name = "model.encoder.layers.0.self_attn.v_proj.weight"
    tensors[name] = tensors[name].mT


def swap_rows(table):
    """Exchange the rows of two pieces."""
    one, other = list(table)[10:12]
    table[one], table[other] = table[other], table[one]


FAULTS = {
    "a flipped weight": change_tensors(flip),
    "swapped heads": change_tensors(swap_heads),
    "a transposed matrix": change_tensors(transpose),
    "swapped pieces": change_json("vocab.json", swap_rows),
    "other heads": change_json(
        "config.json", lambda table: table.update(encoder_attention_heads=4, decoder_attention_heads=4)
    ),
    "another scale": change_json("config.json", lambda table: table.update(scale_embedding=False)),
    "another activation": change_json("config.json", lambda table: table.update(activation_function="gelu")),
}


def test_faults_are_seen(desk, family, tmp_path):
    write, reopen = FAMILIES[family]
    run = load(desk / family)
    for number, (fault, change) in enumerate(FAULTS.items()):
        folder = tmp_path / fault
        folder.mkdir()
        write(run, folder)
        change(folder)
        with pytest.raises(VerificationError, match="not verified"):
            verify(run, reopen(folder, run), desk / "check.en" if number % 2 else None)


@pytest.mark.parametrize(("name", "norm"), [("marian", "post"), ("m2m100", "pre")])
def test_sines_in_another_order_are_seen(name, norm, tmp_path, monkeypatch):
    """A config.json gives the order of sines by its model_type alone, so another order would be misread."""
    model = {**SIZES, "norm": norm, "tied": "all", "output_bias": False, "positions": "sinusoidal"}
    write_run(tmp_path / "run", model | {"sines": {"marian": "interleaved", "m2m100": "halves"}[name]}, 41)
    if name == "marian":
        monkeypatch.setattr(stacks, "permute_stream", lambda tensors, order: tensors)
    else:
        monkeypatch.setattr(stacks, "check_exported", lambda *arguments: None)
    with pytest.raises(VerificationError, match="log-probabilities differ by .*, expected at most 0.001"):
        export_model(tmp_path / "run", tmp_path / "out", to=name)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"static_position_embeddings": False}, "static_position_embeddings is false, expected true"),
        ({"model_type": "m2m_100"}, 'model_type is "m2m_100", expected "marian"'),
        ({"encoder_layers": 1}, "which no part of the model is called"),
        ({"vocab_size": 5}, "pieces, expected 5, as config.json says"),
    ],
)
def test_a_folder_that_cannot_be_opened_leaves_nothing(desk, changes, problem, tmp_path, monkeypatch):
    real = marian.config_of
    monkeypatch.setattr(marian, "config_of", lambda *arguments: {**real(*arguments), **changes})
    with pytest.raises(VerificationError, match=f"not verified: .*/out/.*{problem}"):
        export_model(desk / "marian", tmp_path / "out", to="marian")
    assert list(tmp_path.iterdir()) == []


def test_a_piece_that_the_run_does_not_know(desk, tmp_path):
    run = load(desk / "marian")
    marian.write_marian(run, tmp_path)
    table = json.loads((tmp_path / "vocab.json").read_text())
    name = list(table)[9]
    (tmp_path / "vocab.json").write_text(json.dumps({("new" if key == name else key): i for key, i in table.items()}))
    with pytest.raises(DataError, match=r"vocab\.json: 1 of .* pieces not known here, the first in row 9"):
        marian.open_marian(tmp_path, run)
