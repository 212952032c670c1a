"""Marian's folders, imported and exported, against Transformers; every trap, and every kind of damage."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from interop.test_real_folders import Both, compare_all, compare_configurations
from pretrained import TEXTS, marian_folder

from regard import export_model, import_model, load
from regard.attention import watch
from regard.data import END, PAD, START, UNKNOWN
from regard.decoding import tokens_of
from regard.errors import ConfigError, RegardError
from regard.interop.formats import model_type
from regard_bench.serving import write_run

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
SOURCES = ["the dog sees a cat .", "a man", "we eat bread in the morning , and the woman laughs ."]
TARGETS = ["der Hund sieht eine Katze .", "ein alter Mann reitet", "sie lacht ."]
CASES = {
    "opus": {},
    "separate": {"share_encoder_decoder_embeddings": False, "activation_function": "relu", "scale_embedding": False},
    "untied": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False, "decoder_layers": 1},
    "one vocabulary": {"share_encoder_decoder_embeddings": False, "separate": False, "activation_function": "gelu"},
    "four heads": {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_layers": 1, "d_model": 24},
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("marian")


@pytest.fixture(scope="module")
def opus(desk) -> Path:
    marian_folder(desk / "opus")
    import_model(desk / "opus", desk / "run")
    return desk


@pytest.fixture(scope="module")
def beside(opus) -> Both:
    return Both.open(opus / "opus", opus / "run")


@torch.no_grad()
def compare(both: Both) -> None:
    """Compare logits, log-probabilities and attention of pairs."""
    inputs = both.tokenizer(SOURCES, text_target=TARGETS, padding=True, return_tensors="pt")
    labels, tokenizers = inputs["labels"], both.run.tokenizers
    sources, targets = tokenizers.source.encode_batch(SOURCES), tokenizers.target.encode_batch(TARGETS)
    start = torch.full((len(labels), 1), both.net.config.decoder_start_token_id)
    read = torch.cat([start, labels[:, :-1]], 1)
    texts = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    out = both.net(**texts, decoder_input_ids=read, output_attentions=True)
    with watch(both.run.model) as looks:
        memory = both.run.model.encode(tokens_of(sources))
        hidden, _ = both.run.model.decode(memory, tokens_of([[START, *target] for target in targets]))
    logits = both.run.model.output(hidden)
    real = [i for i, row in enumerate(both.target) if row is not None]
    columns = [both.target[i] for i in real]
    assert sorted(columns) == list(range(out.logits.shape[-1]))  # every score, once
    scores = both.run.score(SOURCES, TARGETS)
    for row, (target, label) in enumerate(zip(targets, labels, strict=True)):
        n = len(target) + 1
        assert [both.target[i] for i in (*target, END)] == label[:n].tolist()
        torch.testing.assert_close(logits[row, :n, real], out.logits[row, :n, columns], rtol=0, atol=1e-5)
        likely = out.logits[row, :n].log_softmax(-1).gather(-1, label[:n, None])[:, 0]
        torch.testing.assert_close(torch.tensor(scores[row].tokens), likely, rtol=0, atol=1e-4)
        for layer, theirs in enumerate(out.cross_attentions):
            own = looks[f"decoder.blocks.{layer}.cross"].weights[row, :, :n, : len(sources[row])]
            torch.testing.assert_close(own, theirs[row, :, :n, : len(sources[row])], rtol=0, atol=1e-5)


def test_as_transformers_has_it(beside):
    compare(beside)


@pytest.mark.parametrize(("beam", "longest"), [(1, 4), (1, 12), (5, 6), (5, 30)])
def test_searches_as_transformers(beside, beam, longest):
    beside.compare_outputs(SOURCES, beam, longest)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case != "opus"])
def test_other_forms_as_transformers(case, tmp_path):
    marian_folder(tmp_path / "theirs", seed=len(case), **CASES[case])
    compare_all(tmp_path / "theirs", tmp_path, SOURCES, SOURCES)
    compare(Both.open(tmp_path / "theirs", tmp_path / "run"))


def test_in_and_out_is_the_same(opus, tmp_path):
    export_model(opus / "run", tmp_path / "again", to="marian")
    compare_configurations(opus / "opus", tmp_path / "again")
    one, other = (json.loads((each / "vocab.json").read_text()) for each in (opus / "opus", tmp_path / "again"))
    assert one == other


# ---- traps


@torch.no_grad()
def test_start_is_their_padding_and_ours_is_never_written(beside):
    config, model = beside.net.config, beside.run.model
    assert (beside.target[START], beside.target[PAD]) == (config.pad_token_id, None)
    embeddings = beside.net.model.decoder.embed_tokens.weight
    assert torch.equal(model.target.tokens.weight[START], embeddings[config.pad_token_id])
    assert torch.equal(model.readout.bias[START], beside.net.final_logits_bias[0, config.pad_token_id])
    assert float(model.readout.bias[PAD]) == -1e4
    assert not model.target.tokens.weight[PAD].any()
    half = model.readout.bias.half().log_softmax(-1)
    assert torch.isfinite(half).all()  # label smoothing sums all of them


def test_sources_end_and_targets_begin_as_theirs(beside):
    tokenizers = beside.run.tokenizers
    assert beside.run.settings.tokenizer.after == ("</s>",)
    assert tokenizers.source.encode("a man")[-1] == END
    assert tokenizers.target.encode("ein Mann")[-1] != END
    assert tokenizers.source.encode("") == []
    assert tokenizers.source.decode(tokenizers.source.encode("a man")) == "a man"


def test_two_segmentations_of_one_vocabulary(beside):
    source, target = beside.run.tokenizers.source, beside.run.tokenizers.target
    assert source.names == target.names
    own = set(target.pieces(target.encode(" ".join(TEXTS["target"]))))
    assert own != set(source.pieces(source.encode(" ".join(TEXTS["target"]))))
    for text in ("ü", "üb", "für ü x", "ß Ü", "日本 ü日"):  # characters that only the other side can spell, or neither
        theirs = beside.tokenizer([text])["input_ids"][0]
        assert [beside.source[i] for i in source.encode(text)] == theirs, text
    assert UNKNOWN in source.encode("日")


def test_a_code_is_one_piece(tmp_path):
    marian_folder(tmp_path / "theirs", codes=(">>deu<<", ">>nld<<"))
    import_model(tmp_path / "theirs", tmp_path / "run")
    both = Both.open(tmp_path / "theirs", tmp_path / "run")
    ids = both.run.tokenizers.source.encode(">>deu<< a man")
    assert [both.source[i] for i in ids] == both.tokenizer([">>deu<< a man"])["input_ids"][0]
    both.run.set_languages(target="deu")
    assert both.run.settings.tokenizer.before == (">>deu<<",)
    assert both.run.tokenizers.source.encode("a man") == ids


def test_what_the_run_says_of_itself(opus):
    manifest = json.loads((opus / "run" / "checkpoints" / "step-000000" / "manifest.json").read_text())
    assert manifest["imported"]["format"] == "marian"
    assert set(manifest["imported"]["files"]) == {
        "config.json", "source.spm", "target.spm", "vocab.json", "tokenizer_config.json", "model.safetensors",
    }  # fmt: skip
    settings = load(opus / "run").settings
    assert (settings.data.languages, settings.data.longest) == ("en-de", 63)
    assert (settings.model.sines, settings.model.activation, settings.model.norm) == ("halves", "silu", "post")


def test_a_pickle_of_weights(opus, tmp_path):
    shutil.copytree(opus / "opus", tmp_path / "theirs")
    net = transformers.MarianMTModel.from_pretrained(opus / "opus")
    (tmp_path / "theirs" / "model.safetensors").unlink()
    torch.save(net.state_dict(), tmp_path / "theirs" / "pytorch_model.bin")
    import_model(tmp_path / "theirs", tmp_path / "run")
    one, other = load(opus / "run").model.state_dict(), load(tmp_path / "run").model.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


# ---- bad input


class Attack:
    def __reduce__(self):
        return os.system, ("touch attacked",)


def break_config(**changes):
    def change(folder):
        table = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**table, **changes}))

    return change


def break_tensors(change):
    def apply(folder):
        from safetensors.torch import load_file, save_file

        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return apply


def write_pickle(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"weights": Attack()}, folder / "pytorch_model.bin")


def cut(name, count):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:count])


def drop(*names):
    return break_tensors(lambda tensors: [tensors.pop(name) for name in names])


FC1 = [f"model.{side}.layers.{layer}.fc1.{kind}" for side in ("encoder", "decoder") for layer in (0, 1)
       for kind in ("weight", "bias")]  # fmt: skip
BROKEN = {
    "no spm": (lambda folder: (folder / "source.spm").unlink(), r"source\.spm: missing"),
    "no vocabulary": (lambda folder: (folder / "vocab.json").unlink(), r"vocab\.json: missing"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "no weights in it, expected model.safetens"),
    "cut weights": (cut("model.safetensors", 900), r"model\.safetensors: not a safetensors file"),
    "cut spm": (cut("source.spm", 100), r"source\.spm"),
    "cut vocabulary": (cut("vocab.json", 100), r"vocab\.json"),
    "a class in a pickle": (write_pickle, r"pytorch_model\.bin: holds posix\.system beside weights, which is not run"),
    "missing tensors": (drop(*FC1), r"tensors model.*fc1.* and 3 more missing, which config\.json asks for"),
    "a missing tensor": (drop(FC1[0]), rf"tensor {FC1[0]} missing"),
    "unknown tensor": (break_tensors(lambda t: t.update(extra=torch.ones(2))), "tensor extra given, which no part"),
    "wrong shape": (
        break_config(encoder_ffn_dim=25, decoder_ffn_dim=25),
        r"fc1\.weight is \[24, 16\], expected \[25, 1",
    ),
    "NaN": (break_tensors(lambda t: t[FC1[0]].fill_(float("nan"))), "has NaN in it"),
    "norm before": (break_config(normalize_before=True), r"config\.json: normalize_before is true, expected false"),
    "final norm": (break_config(add_final_layer_norm=True), "add_final_layer_norm is true, expected false"),
    "learned positions": (break_config(static_position_embeddings=False), "static_position_embeddings is false"),
    "embedding norm": (break_config(normalize_embedding=True), "normalize_embedding is true"),
    "activation": (break_config(activation_function="gelu_new"), 'activation_function is "gelu_new", expected one of'),
    "two widths": (break_config(decoder_ffn_dim=48), "decoder_ffn_dim is 48, encoder_ffn_dim 24; expected the same"),
    "two heads": (break_config(decoder_attention_heads=4), "decoder_attention_heads is 4, encoder_attention_heads 2"),
    "no width": (break_config(d_model="16"), 'd_model is "16", expected a whole number'),
    "huge": (break_config(d_model=10**9), "d_model is 1000000000, expected a whole number from 1 to"),
    "end": (break_config(eos_token_id=5), "eos_token_id is 5, expected the number of </s>, which is 0 in vocab.json"),
    "start": (break_config(decoder_start_token_id=5), "decoder_start_token_id is 5, expected the number of <s>"),
    "half tied": (break_config(tie_word_embeddings=False), "tie_word_embeddings is false with share_encoder"),
    "size": (break_config(vocab_size=58101), r"vocab\.json: .* pieces, expected 58101, as config\.json says"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_named_and_nothing_is_left(case, opus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(opus / "opus", tmp_path / "theirs")
    change, problem = BROKEN[case]
    change(tmp_path / "theirs")
    with pytest.raises(RegardError, match=problem) as caught:
        import_model("theirs", "run")
    assert str(caught.value).count("\n") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


@pytest.mark.slow
def test_flipped_bytes_are_refused_or_harmless(opus, tmp_path):
    """A flipped byte in any file gives one sentence or a run, but no traceback and no partial folder."""
    generator = torch.Generator().manual_seed(0)
    for number in range(60):
        folder = tmp_path / f"theirs{number}"
        shutil.copytree(opus / "opus", folder)
        path = sorted(folder.iterdir())[int(torch.randint(len(list(folder.iterdir())), (1,), generator=generator))]
        content = bytearray(path.read_bytes())
        content[int(torch.randint(len(content), (1,), generator=generator))] ^= 1 << number % 8
        path.write_bytes(content)
        message = ""
        try:
            import_model(folder, tmp_path / f"run{number}")
        except RegardError as error:
            message = str(error)
        assert "\n" not in message
        assert (tmp_path / f"run{number}").exists() == (not message)
    assert not list(tmp_path.glob(".*"))


# ---- out


def write_native(folder: Path, **model) -> Path:
    return write_run(folder, {"size": 16, "heads": 2, "layers": 2, "hidden": 24, "tied": "all", **model}, 60)


@torch.no_grad()
def test_a_native_run_as_transformers_opens_it(tmp_path):
    """Regard alternates sines and cosines, Marian stores halves: the export permutes the states; logits stay equal."""
    native = write_native(tmp_path / "native", norm="post", positions="sinusoidal")
    export_model(native, tmp_path / "out", to="marian")
    net, run = transformers.MarianMTModel.from_pretrained(tmp_path / "out").eval(), load(native)
    assert net.config.decoder_start_token_id == START
    ids = torch.randint(4, run.tokenizers.source.size, (3, 9))
    target = torch.cat([torch.full((3, 1), START), torch.randint(4, run.tokenizers.target.size, (3, 6))], 1)
    theirs = net(input_ids=ids, decoder_input_ids=target).logits
    own = run.model.output(run.model.decode(run.model.encode(tokens_of(ids.tolist())), tokens_of(target.tolist()))[0])
    torch.testing.assert_close(own, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ({"norm": "pre"}, 'model.norm: "pre" given, but marian has only "post"'),
        ({"norm": "post", "positions": "rotary"}, 'model.positions: "rotary" given, but marian has only "sinusoidal"'),
        ({"norm": "post", "mixing": "convolution"}, 'model.mixing: "convolution" given'),
        ({"norm": "post", "score": "additive"}, 'model.score: "additive" given'),
        ({"norm": "post", "split": "input"}, 'model.split: "input" given'),
        ({"norm": "post", "join": "concatenate"}, 'model.join: "concatenate" given'),
        ({"norm": "post", "sines": "fairseq"}, 'model.sines: "fairseq" given'),
    ],
)
def test_what_marian_has_no_form_for(model, problem, tmp_path):
    run = write_native(tmp_path / "run", **model)
    with pytest.raises(ConfigError, match=problem):
        export_model(run, tmp_path / "out", to="marian")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.slow
@pytest.mark.skipif("REGARD_MODELS" not in os.environ, reason="REGARD_MODELS names no folder of downloaded models")
def test_real_folders(tmp_path):
    """Test downloaded folders: set REGARD_MODELS=~/models, for example with opus-mt-en-de in it."""
    folders = [path.parent for path in Path(os.environ["REGARD_MODELS"]).expanduser().glob("*/config.json")]
    marian = [folder for folder in folders if model_type(folder) == "marian"]
    assert marian, "no folder of Marian's in REGARD_MODELS"
    for folder in marian:
        import_model(folder, tmp_path / folder.name)
        both = Both.open(folder, tmp_path / folder.name)
        compare(both)
        both.compare_outputs(SOURCES, 1, 40)
