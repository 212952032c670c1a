"""Import of CTranslate2's folders: every form, number format and version; errors name what is wrong or unsupported."""

import contextlib
import json
import random
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from documented import ROOT
from interop.random_models import TOKENIZERS, draw_model, draw_sources
from interop.test_ctranslate2 import OPTIONS

from regard import export_model, import_model, load
from regard.errors import DataError, RegardError
from regard.interop.ctranslate2 import convert, library, pieces_of
from regard.interop.ctranslate2_import import ModelFile, read_ctranslate2, read_model_file
from regard.interop.export import verify_export
from regard.tasks import ModelEngine

pytest.importorskip("ctranslate2")
AREN = ROOT.parent / "shared" / "data" / "pretrained" / "aren-transliteration"
NAMES = """
    محمد فاطمة أحمد علي عبدالله خالد يوسف إبراهيم سارة مريم عائشة حسن حسين نور ليلى زينب عمر عثمان سلمان طارق سعيد هدى
    جمال كريم ناصر سمير رشيد ياسين بلال وليد هشام رامي باسم ماجد فيصل تركي نايف سلطان بندر جاسم حمد راشد مبارك عادل منى
    شريف توفيق صلاح مصطفى محمود إسماعيل إسحاق يعقوب موسى عيسى زكريا سليمان داود أيوب يونس هارون القاهرة دمشق بغداد بيروت
"""


def write_folder(folder: Path, quantize: str = "float32", count: int = 40, seed: int = 0, **options):
    """Write a random Transformer as a CTranslate2 folder without Regard's own files; return the model."""
    model = draw_model(seed, **options)
    folder.mkdir()
    pieces = pieces_of(TOKENIZERS.source)
    convert(model, folder, pieces, pieces, quantize=quantize, positions=model.limit or count)
    return model


def read_model(folder: Path, tmp_path: Path):
    import_model(folder, tmp_path / "run")
    return load(tmp_path / "run")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_weights_and_scores_are_those_of_the_model_that_was_exported(options, tmp_path):
    model = write_folder(tmp_path / "theirs", **options)
    run = read_model(tmp_path / "theirs", tmp_path)
    own = run.model.state_dict()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(own[name], tensor, rtol=0, atol=1e-6)
    config = {key: getattr(run.settings.model, key) for key in options if key != "depth"}
    assert config == {key: value for key, value in options.items() if key != "depth"}
    sources, targets = draw_sources(1, 8)[1:], draw_sources(2, 8)[:-1]
    scores = ModelEngine(model, TOKENIZERS, torch.device("cpu")).score(sources, targets)
    for one, two in zip(scores, run.engine.score(sources, targets), strict=True):
        assert two.tokens == pytest.approx(one.tokens, abs=1e-4)


@pytest.mark.parametrize("tied", [*(pytest.param(each, marks=pytest.mark.slow) for each in ("none", "output")), "all"])
@pytest.mark.parametrize("quantize", ["float16", "bfloat16", "int16", "int8", "int8_float16"])
def test_rounded_weights_are_what_ctranslate2_makes_of_them(quantize, tied, tmp_path):
    model = write_folder(tmp_path / "theirs", quantize=quantize, tied=tied)
    run = read_model(tmp_path / "theirs", tmp_path)
    assert run.settings.model.tied == tied
    translator = library().Translator(str(tmp_path / "theirs"), compute_type="float32", intra_threads=1)
    sources, targets = draw_sources(1, 12)[1:], draw_sources(2, 12)[1:]
    theirs = translator.score_batch(*[[TOKENIZERS.source.pieces(row) for row in rows] for rows in (sources, targets)])
    for one, two in zip(run.engine.score(sources, targets), theirs, strict=True):
        assert one.tokens == pytest.approx(two.log_probs, abs=5e-2 if quantize == "bfloat16" else 1e-3)  # its positions
    largest = max(
        (own - other).abs().max()
        for own, other in zip(run.model.state_dict().values(), model.state_dict().values(), strict=True)
    )
    assert 0 < largest < 0.02


@pytest.mark.parametrize("first", ["<s>", "</s>", "w7", "<pad>"])
def test_a_target_begins_with_what_the_configuration_says(first, tmp_path):
    write_folder(tmp_path / "theirs", tied="all")
    change_config(tmp_path / "theirs", decoder_start_token=first, add_source_eos=True)
    run = read_model(tmp_path / "theirs", tmp_path)
    assert run.settings.tokenizer.after == ("</s>",)
    assert run.settings.model.start_as_end == (first == "</s>")
    translator = library().Translator(str(tmp_path / "theirs"), intra_threads=1)
    texts = [[f"w{i}" for i in row] for row in ([3, 5, 8], [30, 2, 11, 12, 1], [9])]
    targets = [[f"w{i}" for i in row] for row in ([4, 6], [31, 20, 10], [13])]
    theirs = translator.score_batch(texts, targets)
    ours = run.score([" ".join(row) for row in texts], [" ".join(row) for row in targets])
    for one, two in zip(ours, theirs, strict=True):
        assert one.tokens == pytest.approx(two.log_probs, abs=1e-4)


def test_a_run_of_regard_comes_back_with_its_tokenizer(furnish, tmp_path):
    desk = furnish(run="phrasebook")
    export_model(desk / "run", tmp_path / "out", to="ctranslate2")
    import_model(tmp_path / "out", tmp_path / "back")
    one, two = load(desk / "run"), load(tmp_path / "back")
    texts = ["the man sleeps .", "i see the old dog ."]
    assert one.translate(texts, beam=5) == two.translate(texts, beam=5)
    assert one.tokenizers.dumps() == two.tokenizers.dumps()
    report = export_model(tmp_path / "back", tmp_path / "again", to="ctranslate2")
    assert "the run is as out, which it was imported from" in str(report.verification)
    assert "the run is as out" in str(verify_export(tmp_path / "again"))


# ---- the trained model


@pytest.fixture(scope="module")
def aren(tmp_path_factory) -> Path:
    if not AREN.is_dir():
        pytest.skip("no ../shared/data/pretrained/aren-transliteration")
    run = tmp_path_factory.mktemp("aren") / "run"
    import_model(AREN, run)
    return run


@pytest.mark.parametrize("beam", [1, 5])
def test_arabic_names_are_written_as_ctranslate2_writes_them(beam, aren):
    letters = [piece for piece in (AREN / "source_vocabulary.txt").read_text().split("\n") if "ء" <= piece <= "ي"]
    draw = random.Random(0)
    names = [*NAMES.split(), *("".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(230))]
    translator = library().Translator(str(AREN), intra_threads=1)
    options = {"max_decoding_length": 64, "length_penalty": 0.0}
    theirs = translator.translate_batch([list(name) for name in names], beam_size=beam, **options)
    ours = load(aren).translate(names, beam=beam, length_penalty=0.0, longest=64, shortest=1)
    assert ours == ["".join(each.hypotheses[0]) for each in theirs]


# ---- unsupported and damaged folders


def change_config(folder: Path, **values) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def write_file(path: Path, file: ModelFile, version: int = 6, **changes) -> None:
    """Write a model.bin with changed variables in CTranslate2's own serialisation."""
    variables = {**file.variables, **{name.replace("__", "/"): value for name, value in changes.items()}}
    variables = {name: np.asarray(value) for name, value in variables.items() if value is not None}
    kinds = ["float32", "int8", "int16", "int32", "float16"]

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    parts = [struct.pack("<I", version), text(file.specification), struct.pack("<II", file.revision, len(variables))]
    for name, value in variables.items():
        kind = kinds.index(value.dtype.name) if version >= 4 else value.dtype.itemsize
        size = value.nbytes if version >= 4 else value.size
        parts += [text(name), struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)]
        parts += [struct.pack("<BI", kind, size), value.tobytes()]
    if version >= 3:
        parts += [struct.pack("<I", len(file.aliases)), *(text(each) for pair in file.aliases.items() for each in pair)]
    path.write_bytes(b"".join(parts))


NORM = np.ones(24, np.float32)
FORMLESS = {
    "gated": ({"encoder__layer_0__ffn__linear_0_noact__weight": np.ones((20, 24), np.float32)}, "linear_0_noact"),
    "embedding norm": ({"encoder__layernorm_embedding__gamma": NORM}, "encoder/layernorm_embedding/gamma is given"),
    "relative": (
        {"encoder__layer_1__self_attention__relative_position_keys": np.ones((9, 8), np.float32)},
        "relative_pos",
    ),
    "alibi": ({"decoder__alibi": np.int8(1)}, "decoder/alibi is given: it has biases by distance"),
    "activation": (
        {"encoder__activation": np.int8(1), "decoder__activation": np.int8(1)},
        "activation is GELU by tanh",
    ),
    "two activations": ({"encoder__activation": np.int8(2)}, "decoder/activation is 0, encoder/activation 2"),
    "root mean square": ({"encoder__layer_0__ffn__layer_norm__beta": None}, "it is a root mean square norm"),
    "no final norm": ({"encoder__layer_norm__gamma": None}, "encoder/layer_norm/gamma is missing"),
    "scaled outputs": ({"decoder__scale_outputs": np.float32(0.5)}, "its outputs are scaled"),
    "window": ({"encoder__sliding_window": np.int32(9)}, "limited to a window"),
    "few heads": ({"encoder__num_heads": np.int16(5), "decoder__num_heads": np.int16(5)}, "width is 24, which 5 heads"),
    "no heads": ({"encoder__num_heads": np.int16(0), "decoder__num_heads": np.int16(0)}, "heads is 0, expected 1 to"),
    "odd scale": ({"encoder__scale_embeddings": np.float32(3)}, "encoder/scale_embeddings is 3, expected 1 or"),
    "missing": ({"decoder__layer_1__attention__linear_1__weight": None}, "linear_1/weight is missing"),
    "a hole": ({"decoder__layer_7__ffn__linear_0__bias": NORM}, "3 layers of the decoder"),
    "NaN": ({"decoder__layer_norm__gamma": NORM * np.nan}, "NaN"),
    "shape": ({"decoder__layer_norm__gamma": NORM[:7]}, "is \\[7\\], expected \\[24\\]"),
    "rank": ({"decoder__layer_norm__gamma": NORM[None]}, "is \\[1, 24\\], expected 1 dimensions"),
    "int32": ({"decoder__projection__weight": np.ones((40, 24), np.int32)}, "int32 numbers, expected floats, int8 or"),
    "no scale": ({"decoder__projection__weight": np.ones((40, 24), np.int8)}, "projection/weight_scale is missing"),
    "few rows": (
        {"encoder__embeddings__weight": np.ones((39, 24), np.float32)},
        "embeddings are \\[39, 24\\], expected",
    ),
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("theirs") / "folder"
    write_folder(folder, tied="none")
    return folder


def refuse(folder: Path, problem: str, tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=problem) as caught:
        import_model(folder, tmp_path / "run")
    assert str(caught.value).count("\n") == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("case", FORMLESS)
def test_what_has_no_form_here_is_named(case, theirs, tmp_path):
    folder = shutil.copytree(theirs, tmp_path / "folder")
    changes, problem = FORMLESS[case]
    write_file(folder / "model.bin", read_model_file(theirs / "model.bin"), **changes)
    refuse(folder, problem, tmp_path)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"layer_norm_epsilon": 0.0}, "layer_norm_epsilon is 0.0, expected a number above 0, at most 1"),
        ({"layer_norm_epsilon": "x"}, 'layer_norm_epsilon is "x", expected a number above 0, at most 1'),
        ({"decoder_start_token": None}, "decoder_start_token is null, expected the piece"),
        ({"decoder_start_token": "w99"}, 'no "w99" in it, expected the piece that config.json names as decoder_start'),
        ({"eos_token": 3}, "eos_token is 3, expected a piece"),
        ({"multi_query_attention": True}, "multi_query_attention is true"),
        ({"quantization_type": 1}, "quantization_type is 1"),
    ],
)
def test_a_configuration_that_has_no_form_here_is_named(values, problem, theirs, tmp_path):
    folder = shutil.copytree(theirs, tmp_path / "folder")
    change_config(folder, **values)
    refuse(folder, problem, tmp_path)


@pytest.mark.parametrize("epsilon", [None, 1e-6, 1e-5, 0.05])
def test_what_layer_norms_add_is_that_of_the_folder(epsilon, theirs, tmp_path):
    """OpenNMT-py's models have 1e-6; a large epsilon shows that the run and a second export use it."""
    folder = shutil.copytree(theirs, tmp_path / "folder")
    change_config(folder, layer_norm_epsilon=epsilon)
    run = read_model(folder, tmp_path)
    assert run.settings.model.norm_epsilon == pytest.approx(epsilon or 1e-5)
    sources, targets = draw_sources(1, 6)[1:], draw_sources(2, 6)[1:]
    sides = run.tokenizers.source, run.tokenizers.target
    (tmp_path / "again").mkdir()
    convert(run.model, tmp_path / "again", *map(pieces_of, sides))
    rows = [[side.pieces(row) for row in ids] for side, ids in zip(sides, (sources, targets), strict=True)]
    for place in (folder, tmp_path / "again"):
        scored = library().Translator(str(place), intra_threads=1).score_batch(*rows)
        for one, two in zip(run.engine.score(sources, targets), scored, strict=True):
            assert one.tokens == pytest.approx(two.log_probs, abs=1e-4)


@pytest.mark.parametrize("version", [2, 3, 4, 5, 6])
def test_older_files_are_read_as_ctranslate2_reads_them(version, theirs, tmp_path):
    """Up to version 5 attributes replace config.json; before version 4 only the size of a number gives its type."""
    folder = shutil.copytree(theirs, tmp_path / "folder")
    file = read_model_file(theirs / "model.bin")
    variables = {name: file.variables[target] for name, target in file.aliases.items()}
    whole = ModelFile(version, file.specification, file.revision, {**file.variables, **variables}, {})
    if version < 4:  # these have no integers but those of one byte
        whole = ModelFile(version, "TransformerBase", 2, drop_numbers(whole.variables), {})
        whole.variables["num_heads"] = np.int8(3)
    write_file(folder / "model.bin", whole, version)
    if version < 6:
        (folder / "config.json").unlink()
    run = read_model(folder, tmp_path)
    translator = library().Translator(str(folder), intra_threads=1)
    sources, targets = draw_sources(1, 6)[1:], draw_sources(2, 6)[1:]
    scored = translator.score_batch(*[[TOKENIZERS.source.pieces(row) for row in rows] for rows in (sources, targets)])
    for one, two in zip(run.engine.score(sources, targets), scored, strict=True):
        assert one.tokens == pytest.approx(two.log_probs, abs=1e-4)


def drop_numbers(variables) -> dict:
    return {name: value for name, value in variables.items() if value.dtype != np.int16}


def test_a_file_that_is_cut_or_flipped_is_one_sentence(theirs, tmp_path):
    """Any cut or flipped byte gives one sentence or a whole run; sizes that a file claims take no memory."""
    content, path, draw = (theirs / "model.bin").read_bytes(), tmp_path / "model.bin", random.Random(0)
    for _ in range(60):
        changed = bytearray(content)
        changed[draw.randrange(400) if draw.random() < 0.7 else draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        with contextlib.suppress(DataError):  # a changed weight is no error
            read_model_file(path)
    claims = [
        content[:26] + struct.pack("<I", 2**32 - 1) + content[30:],
        content + b"more",
        bytes(5000),
        b"\xff" * 5000,
    ]
    cuts = [content[:size] for size in (0, 3, 4, 20, 27, 60, len(content) // 2, len(content) - 1)]
    for data in (*cuts, *claims):
        path.write_bytes(data)
        with pytest.raises(DataError, match="not a model of CTranslate2") as caught:
            read_model_file(path)
        assert str(caught.value).count("\n") == 0


def test_lists_of_pieces(theirs, tmp_path):
    """The vocabulary is JSON or lines, shared or one per side."""
    folder = shutil.copytree(theirs, tmp_path / "folder")
    pieces = json.loads((folder / "shared_vocabulary.json").read_text())
    (folder / "shared_vocabulary.json").unlink()
    refuse(folder, "source_vocabulary.json: missing, as is shared_vocabulary.json", tmp_path)
    for side in ("source", "target"):
        (folder / f"{side}_vocabulary.txt").write_text("".join(f"{piece}\r\n" for piece in pieces))
    assert read_ctranslate2(folder).tokenizers.source.names == TOKENIZERS.source.names
    (folder / "target_vocabulary.txt").write_bytes(b"\xff\n")
    refuse(folder, "target_vocabulary.txt: byte 0 is not UTF-8", tmp_path)
    (folder / "target_vocabulary.json").write_text('{"a": 1}')
    refuse(folder, "target_vocabulary.json: not a list of pieces", tmp_path)
