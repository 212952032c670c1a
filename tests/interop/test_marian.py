"""Marian's folders: held against Transformers, in and out; every trap, and every way to be broken."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from pretrained import TEXTS, marian_folder

from regard import export_model, import_model, load
from regard.attention import watch
from regard.data import END, PAD, START, UNKNOWN
from regard.decoding import tokens_of
from regard.errors import CheckpointError, ConfigError, RegardError
from regard.interop.formats import model_type
from regard.interop.marian import rows_of
from regard.interop.numbering import marian_rows

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


class Beside:
    """A model of Transformers and the run that was made of its folder."""

    def __init__(self, folder: Path, run: Path):
        self.net = transformers.MarianMTModel.from_pretrained(folder, attn_implementation="eager").eval()
        self.tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
        self.run = load(run)
        second = "target_vocab.json" if (folder / "target_vocab.json").exists() else "vocab.json"
        both = self.run.tokenizers
        self.source = rows_of(both.source, marian_rows(folder))
        self.target = rows_of(both.target, marian_rows(folder, second))

    def encode(self, sources: list[str], targets: list[str]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ids of sources and labels with the mask of the sources, as Transformers makes them."""
        inputs = self.tokenizer(sources, text_target=targets, padding=True, return_tensors="pt")
        return inputs["input_ids"], inputs["attention_mask"], inputs["labels"]

    def to_rows(self, ids: list[int], side: str) -> list[int]:
        rows = getattr(self, side)
        return [rows[i] for i in ids]


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("marian")


@pytest.fixture(scope="module")
def opus(desk) -> Path:
    marian_folder(desk / "opus")
    import_model(desk / "opus", desk / "run")
    return desk


@pytest.fixture(scope="module")
def beside(opus) -> Beside:
    return Beside(opus / "opus", opus / "run")


@torch.no_grad()
def compare(both: Beside) -> None:
    """Ids, logits, log-probabilities and attention of pairs, and greedy and beam search."""
    ids, mask, labels = both.encode(SOURCES, TARGETS)
    tokenizers = both.run.tokenizers
    sources, targets = tokenizers.source.encode_batch(SOURCES), tokenizers.target.encode_batch(TARGETS)
    for own, theirs, length in zip(sources, ids, mask.sum(1), strict=True):
        assert both.to_rows(own, "source") == theirs[:length].tolist()
    start = torch.full((len(labels), 1), both.net.config.decoder_start_token_id)
    read = torch.cat([start, labels[:, :-1]], 1)
    out = both.net(input_ids=ids, attention_mask=mask, decoder_input_ids=read, output_attentions=True)
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
        assert both.to_rows([*target, END], "target") == label[:n].tolist()
        torch.testing.assert_close(logits[row, :n, real], out.logits[row, :n, columns], rtol=0, atol=1e-5)
        likely = out.logits[row, :n].log_softmax(-1).gather(-1, label[:n, None])[:, 0]
        torch.testing.assert_close(torch.tensor(scores[row].tokens), likely, rtol=0, atol=1e-4)
        for layer, theirs in enumerate(out.cross_attentions):
            own = looks[f"decoder.blocks.{layer}.cross"].weights[row, :, :n, : len(sources[row])]
            torch.testing.assert_close(own, theirs[row, :, :n, : len(sources[row])], rtol=0, atol=1e-5)


def search_theirs(both: Beside, beam: int, longest: int) -> list[list[int]]:
    ids, mask, _ = both.encode(SOURCES, TARGETS)
    options = {"length_penalty": 0.0, "early_stopping": False} if beam > 1 else {}
    settings = transformers.GenerationConfig.from_model_config(both.net.config)
    outputs = both.net.generate(
        input_ids=ids, attention_mask=mask, generation_config=settings, num_beams=beam, do_sample=False,
        max_new_tokens=longest, bad_words_ids=[[both.net.config.pad_token_id]], **options,
    )  # fmt: skip
    end, pad = both.net.config.eos_token_id, both.net.config.pad_token_id
    return [[i for i in row[1:] if i not in (end, pad)] for row in outputs.tolist()]


def search_ours(both: Beside, beam: int, longest: int) -> list[list[int]]:
    target = both.run.tokenizers.target
    outputs = both.run.stream(SOURCES, beam=beam, length_penalty=0.0, longest=longest)
    numbers = {piece: i for i, piece in enumerate(target.names)}
    return [both.to_rows([numbers[piece] for piece in each[0].tokens], "target") for each in outputs]


def test_as_transformers_has_it(beside):
    compare(beside)


@pytest.mark.parametrize("longest", [4, 12])
def test_greedy_as_transformers(beside, longest):
    assert search_ours(beside, 1, longest) == search_theirs(beside, 1, longest)


@torch.no_grad()
def total(both: Beside, source: str, rows: list[int], longest: int) -> float:
    """The log-probability of an output by Transformers, with its end unless it is as long as it may be."""
    ids = both.tokenizer([source], return_tensors="pt")["input_ids"]
    labels = [*rows, both.net.config.eos_token_id]
    read = torch.tensor([[both.net.config.decoder_start_token_id, *rows]])
    likely = both.net(input_ids=ids, decoder_input_ids=read).logits[0].log_softmax(-1)
    return float(likely.gather(-1, torch.tensor(labels)[:, None]).sum())


@pytest.mark.parametrize("longest", [6, 30])
def test_beam_as_transformers(beside, longest):
    """The same best hypothesis, where both end by themselves; else ours is at least as likely, END included."""
    ours, theirs = search_ours(beside, 5, longest), search_theirs(beside, 5, longest)
    for source, one, other in zip(SOURCES, ours, theirs, strict=True):
        if one != other:
            likely = [total(beside, source, rows, longest) for rows in (one, other)]
            assert likely[0] >= likely[1] - 1e-4, (source, one, other, likely)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case != "opus"])
def test_other_forms_as_transformers(case, tmp_path):
    marian_folder(tmp_path / "theirs", seed=len(case), **CASES[case])
    import_model(tmp_path / "theirs", tmp_path / "run")
    both = Beside(tmp_path / "theirs", tmp_path / "run")
    compare(both)
    assert search_ours(both, 1, 12) == search_theirs(both, 1, 12)
    round_trip(tmp_path / "theirs", tmp_path / "run", tmp_path)


def round_trip(folder: Path, run: Path, tmp_path: Path) -> None:
    """A run that is written again holds the weights and the numbers of the folder that it was made of."""
    report = export_model(run, tmp_path / "again", to="marian")
    assert {"config.json", "generation_config.json", "model.safetensors", "vocab.json"} <= set(report.files)
    for name in ("vocab.json", "target_vocab.json"):
        if (folder / name).exists():
            assert json.loads((tmp_path / "again" / name).read_text()) == json.loads((folder / name).read_text())
    one, other = (transformers.MarianMTModel.from_pretrained(each) for each in (folder, tmp_path / "again"))
    weights = one.state_dict()
    assert weights.keys() == other.state_dict().keys()
    for name, tensor in other.state_dict().items():
        assert torch.equal(tensor, weights[name]), name
    same = ("decoder_start_token_id", "pad_token_id", "eos_token_id", "scale_embedding", "tie_word_embeddings")
    for key in (*same, "activation_function", "decoder_layers", "share_encoder_decoder_embeddings", "vocab_size"):
        assert getattr(one.config, key) == getattr(other.config, key), key


def test_in_and_out_is_the_same(opus, tmp_path):
    round_trip(opus / "opus", opus / "run", tmp_path)


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
    for text in ("ü", "üb", "für ü x", "ß Ü", "日本 ü日"):  # what the other side alone spells, and nobody
        theirs = beside.tokenizer([text])["input_ids"][0]
        assert beside.to_rows(source.encode(text), "source") == theirs, text
    assert UNKNOWN in source.encode("日")


def test_a_code_is_one_piece(tmp_path):
    marian_folder(tmp_path / "theirs", codes=(">>deu<<", ">>nld<<"))
    import_model(tmp_path / "theirs", tmp_path / "run")
    both = Beside(tmp_path / "theirs", tmp_path / "run")
    ids = both.run.tokenizers.source.encode(">>deu<< a man")
    assert both.to_rows(ids, "source") == both.tokenizer([">>deu<< a man"])["input_ids"][0]
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
    """Any byte of any file: one sentence, or a run; never a traceback, never half a folder."""
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


@pytest.fixture(scope="module")
def native(desk, furnish_native) -> Path:
    return furnish_native(desk / "native", norm="post", positions="sinusoidal")


@pytest.fixture(scope="module")
def furnish_native():
    from regard_bench.serving import write_run

    def write(folder: Path, **model) -> Path:
        sizes = {"size": 16, "heads": 2, "layers": 2, "hidden": 24, "tied": "all"}
        return write_run(folder, {**sizes, **model}, 60)

    return write


@torch.no_grad()
def test_a_native_run_as_transformers_opens_it(native, tmp_path):
    """Sine and cosine in turn here, halves there: the states are permuted, and every logit is the same."""
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
def test_what_marian_has_no_form_for(model, problem, furnish_native, tmp_path):
    run = furnish_native(tmp_path / "run", **model)
    with pytest.raises(ConfigError, match=problem):
        export_model(run, tmp_path / "out", to="marian")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.slow
@pytest.mark.skipif("REGARD_MODELS" not in os.environ, reason="REGARD_MODELS names no folder of downloaded models")
def test_real_folders(tmp_path):
    """Folders as people download them, such as REGARD_MODELS=~/models with opus-mt-en-de in it."""
    folders = [path.parent for path in Path(os.environ["REGARD_MODELS"]).expanduser().glob("*/config.json")]
    marian = [folder for folder in folders if model_type(folder) == "marian"]
    assert marian, "no folder of Marian's in REGARD_MODELS"
    for folder in marian:
        import_model(folder, tmp_path / folder.name)
        both = Beside(folder, tmp_path / folder.name)
        compare(both)
        assert search_ours(both, 1, 40) == search_theirs(both, 1, 40)


def test_a_damaged_run_is_refused_as_any_other(opus, tmp_path):
    shutil.copytree(opus / "run", tmp_path / "run")
    path = tmp_path / "run" / "checkpoints" / "step-000000" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        load(tmp_path / "run")
