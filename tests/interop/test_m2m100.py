"""M2M-100 and NLLB, imported and exported, against Transformers: languages, the two starts, and damage."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cli.typing_in import Command
from pretrained import m2m100_folder

from regard import export_model, import_model, load
from regard.attention import watch
from regard.data import END, PAD, START
from regard.decoding import tokens_of
from regard.errors import CommandError, ConfigError, RegardError
from regard.interop.formats import model_type
from regard.interop.m2m100 import THEIR_START, rows_of
from regard.interop.numbering import export_rows, m2m100_rows
from regard_bench.serving import write_run

transformers = pytest.importorskip("transformers")
SOURCES = ["the dog sees a cat .", "a man", "we eat bread , and the woman laughs ."]
TARGETS = ["der Hund sieht eine Katze .", "ein alter Mann reitet", "sie lacht ."]
LANGUAGES = {"m2m100": ("en", "de", "fr", "__{}__"), "nllb": ("eng_Latn", "deu_Latn", "fra_Latn", "{}")}


class Beside:
    """A model of Transformers and the run that was imported from its folder."""

    def __init__(self, folder: Path, run: Path):
        self.net = transformers.M2M100ForConditionalGeneration.from_pretrained(folder, attn_implementation="eager")
        self.net.eval()
        self.run = load(run)
        self.rows = rows_of(self.run.tokenizers.target, m2m100_rows(folder))

    def encode(self) -> tuple[list[list[int]], list[list[int]]]:
        both = self.run.tokenizers
        return both.source.encode_batch(SOURCES), both.target.encode_batch(TARGETS)

    def batch(self, sources: list[list[int]]) -> dict[str, torch.Tensor]:
        width = max(map(len, sources))
        ids = [[self.rows[i] for i in row] + [1] * (width - len(row)) for row in sources]
        return {"input_ids": torch.tensor(ids), "attention_mask": (torch.tensor(ids) != 1).long()}


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("m2m100")


@pytest.fixture(scope="module")
def theirs(desk) -> Path:
    m2m100_folder(desk / "m2m100")
    import_model(desk / "m2m100", desk / "m2m100-run", source_language="en", target_language="de")
    return desk / "m2m100"


@pytest.fixture(scope="module", params=["m2m100", pytest.param("nllb", marks=pytest.mark.slow)])
def family(request, desk, theirs) -> str:
    if request.param == "nllb":
        m2m100_folder(desk / "nllb", family="nllb")
        import_model(desk / "nllb", desk / "nllb-run", source_language="eng_Latn", target_language="deu_Latn")
    return request.param


@pytest.fixture
def beside(desk, family) -> Beside:
    return Beside(desk / family, desk / f"{family}-run")


@torch.no_grad()
def test_as_transformers_has_it(beside):
    sources, targets = beside.encode()
    inputs = beside.batch(sources)
    scores, real = (
        beside.run.score(SOURCES, TARGETS),
        [i for i, row in enumerate(beside.rows) if row is not None and i != START],
    )
    columns = [beside.rows[i] for i in real]
    assert sorted(columns) == list(range(beside.net.config.vocab_size))  # every score, once
    for row, target in enumerate(targets):
        read = torch.tensor([[beside.rows[i] for i in (START, *target)]])
        assert int(read[0, 0]) == beside.net.config.decoder_start_token_id
        one = {name: tensor[row : row + 1] for name, tensor in inputs.items()}
        out = beside.net(**one, decoder_input_ids=read, output_attentions=True)
        with watch(beside.run.model) as looks:
            memory = beside.run.model.encode(tokens_of([sources[row]]))
            logits = beside.run.model.output(beside.run.model.decode(memory, tokens_of([[START, *target]]))[0])
        torch.testing.assert_close(logits[0][:, real], out.logits[0][:, columns], rtol=0, atol=1e-5)
        labels = torch.tensor([beside.rows[i] for i in (*target, END)])
        likely = out.logits[0].log_softmax(-1).gather(-1, labels[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(scores[row].tokens), likely, rtol=0, atol=1e-4)
        for layer, theirs in enumerate(out.cross_attentions):
            own, length = looks[f"decoder.blocks.{layer}.cross"].weights[0], len(sources[row])
            torch.testing.assert_close(own[..., :length], theirs[0, ..., :length], rtol=0, atol=1e-5)


@pytest.mark.parametrize("beam", [1, 5])
def test_searches_as_transformers(beside, beam):
    sources, _ = beside.encode()
    first = beside.rows[beside.run.tokenizers.target.before[0]]
    options = {"length_penalty": 0.0, "early_stopping": False} if beam > 1 else {}
    settings = transformers.GenerationConfig.from_model_config(beside.net.config)
    theirs = beside.net.generate(
        **beside.batch(sources), generation_config=settings, num_beams=beam, do_sample=False, max_new_tokens=14,
        forced_bos_token_id=first, suppress_tokens=[1], **options,
    )  # fmt: skip
    found = [[i for i in row[2:] if i not in (1, 2)] for row in theirs.tolist()]
    numbers = {piece: i for i, piece in enumerate(beside.run.tokenizers.target.names)}
    outputs = beside.run.stream(SOURCES, beam=beam, length_penalty=0.0, longest=14)
    own = [[beside.rows[numbers[piece]] for piece in each[0].tokens] for each in outputs]
    for source, one, other in zip(sources, own, found, strict=True):
        if beam == 1:
            assert one == [i for i in other if i != 0]  # their <s> is not text
        elif one != other:  # of two different hypotheses ours is at least as likely, including END
            assert total(beside, source, first, one) >= total(beside, source, first, other) - 1e-4


@torch.no_grad()
def total(beside: Beside, source: list[int], first: int, rows: list[int]) -> float:
    read = torch.tensor([[2, first, *rows]])
    likely = beside.net(**beside.batch([source]), decoder_input_ids=read).logits[0].log_softmax(-1)
    return float(likely.gather(-1, torch.tensor([first, *rows, 2])[:, None]).sum())


def test_in_and_out_is_the_same(desk, family, tmp_path):
    export_model(desk / f"{family}-run", tmp_path / "again", to="m2m100")
    one, other = (
        transformers.M2M100ForConditionalGeneration.from_pretrained(each)
        for each in (desk / family, tmp_path / "again")
    )
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name
    for key in ("decoder_start_token_id", "pad_token_id", "eos_token_id", "scale_embedding", "activation_function"):
        assert getattr(one.config, key) == getattr(other.config, key), key
    forced = other.generation_config.forced_bos_token_id
    assert export_rows(tmp_path / "again")[LANGUAGES[family][3].format(LANGUAGES[family][1])] == forced


# ---- traps


@torch.no_grad()
def test_two_starts(beside):
    """START is read as </s> and never written; their <s> keeps its place in the softmax, and is not text."""
    model, tokenizer = beside.run.model, beside.run.tokenizers.target
    assert torch.equal(model.target.tokens.weight[START], model.target.tokens.weight[END])
    assert (float(model.readout.bias[START]), float(model.readout.bias[END])) == (-1e4, 0.0)
    number = tokenizer.library.token_to_id(THEIR_START)
    assert beside.rows[number] == 0
    assert tokenizer.decode([number]) == ""
    assert number not in tokenizer.encode(f"{THEIR_START} <s>")
    assert beside.rows[PAD] == 1


def test_languages_around_texts(beside, family):
    source, target, other, form = LANGUAGES[family]
    both = beside.run.tokenizers
    assert beside.run.settings.data.languages == f"{source}-{target}"
    assert both.source.pieces(both.source.encode("a man")) == [form.format(source), "▁a", "▁man", "</s>"]
    assert both.target.pieces(both.target.encode("ein"))[0] == form.format(target)
    assert both.target.decode(both.target.encode("ein Mann")) == "ein Mann"
    assert both.source.words(both.source.encode("a man")) == [None, 0, 1, None]
    beside.run.set_languages(target=other)
    (translations,) = beside.run.stream(["a man"], nbest=3, beam=3, longest=6)
    assert all(form.format(other) not in each.tokens for each in translations)  # forced, and stripped
    assert beside.run.settings.tokenizer.first == (form.format(other),)
    scored = beside.run.score(["a man"], [""])
    assert len(scored[0].tokens) == 2  # the language and END
    with pytest.raises(CommandError, match='--target-language: "xx" given, which the run does not know'):
        beside.run.set_languages(target="xx")


def test_commands_take_languages(desk, family, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source, _, other, _ = LANGUAGES[family]
    run, both = desk / f"{family}-run", ["--source-language", source, "--target-language", other]
    for name, arguments in {
        "translate": ["a man", "--longest", "4"],
        "score": ["--source", "a man", "--target", "ein Mann", "--tokens"],
        "look": ["a man", "--longest", "4", "-o", "look.html"],
    }.items():
        shown = Command(name).typed(run, *arguments, *both)
        assert shown.exit_code == 0, shown.output
        wrong = Command(name).refused(run, *arguments, "--target-language", "tlh")
        assert wrong.startswith('--target-language: "tlh" given, which the run does not know')
    assert Command("translate").typed(run, "a man", *both[:2]).exit_code == 0


def test_fine_tuned_and_written_back(desk, theirs, tmp_path, monkeypatch):
    """The configuration sets another language, which begins every target; pieces outside M2M-100's form stay."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    for name, texts in (("source.txt", SOURCES), ("target.txt", TARGETS)):
        Path(name).write_text("".join(f"{text}\n" for text in texts * 4))
    data = ["--source", "source.txt", "--target", "target.txt", "--set", 'tokenizer.first=["__fr__"]']
    training = ["--steps", "6", "--rate", "0.01", "--set", "training.threads=1", "--set", "training.smoothing=0.1"]
    training += ["--set", "training.weight_decay=0.1", "--quiet", "--out", "tuned"]
    shown = Command("train").typed("--from", desk / "m2m100-run", *data, *training)
    assert shown.exit_code == 0, shown.output
    run = load("tuned")
    assert (run.settings.tokenizer.before, run.settings.tokenizer.first) == (("__en__",), ("__fr__",))
    before = load(desk / "m2m100-run").model
    assert torch.equal(run.model.readout.bias, before.readout.bias)
    assert not torch.allclose(run.model.target.tokens.weight[END], before.target.tokens.weight[END], atol=1e-3)
    found = export_model("tuned", "out", to="m2m100").verification
    assert found is not None
    assert (found.sentences, found.equal) == ("validation", found.count)
    again = export_model("tuned", "exported", to="ctranslate2").verification
    assert again is not None
    assert again.equal == again.count
    both = Beside(Path("out"), Path("tuned"))
    test_as_transformers_has_it(both)
    theirs = both.net.model.shared.weight
    assert torch.equal(run.model.target.tokens.weight[END], theirs[2])


@pytest.mark.parametrize(
    ("name", "row", "problem"),
    [
        ("readout.bias", 7, "model.output_bias: it was trained, but m2m100 has none"),
        ("source.tokens.weight", START, "model.tied: START and </s> were trained apart"),
    ],
)
def test_a_run_with_a_bias_or_a_start_of_its_own_is_refused(theirs, tmp_path, name, row, problem):
    """Without the import's options, training may have changed these weights."""
    import_model(theirs, tmp_path / "run")
    run = load(tmp_path / "run")
    run.model.config = replace(run.model.config, start_as_end=False, fixed_bias=False)
    with torch.no_grad():
        run.model.state_dict()[name][row] += 0.01
    with pytest.raises(ConfigError, match=problem):
        export_model(run, tmp_path / "out", to="m2m100")


# ---- bad input


def change_config(**changes):
    def change(folder):
        table = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**table, **changes}))

    return change


BROKEN = {
    "no model": (lambda folder: (folder / "sentencepiece.bpe.model").unlink(), r"sentencepiece\.bpe\.model"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "no weights in it"),
    "untied": (change_config(tie_word_embeddings=False), "tie_word_embeddings is false, expected true"),
    "start": (change_config(decoder_start_token_id=0), "decoder_start_token_id is 0, expected the number of </s>"),
    "padding": (change_config(pad_token_id=3), "pad_token_id is 3, expected the number of <pad>, which is 1"),
    "activation": (change_config(activation_function="tanh"), 'activation_function is "tanh"'),
    "depth": (change_config(encoder_layers=3), r"missing, which config\.json asks for"),
    "size": (change_config(vocab_size=7), "vocab_size is 7"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_named_and_nothing_is_left(case, theirs, tmp_path):
    shutil.copytree(theirs, tmp_path / "theirs")
    change, problem = BROKEN[case]
    change(tmp_path / "theirs")
    with pytest.raises(RegardError, match=problem) as caught:
        import_model(tmp_path / "theirs", tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


@torch.no_grad()
def test_a_native_run_as_transformers_opens_it(tmp_path):
    model = {"size": 16, "heads": 2, "layers": 2, "hidden": 24, "tied": "all", "sines": "fairseq", "output_bias": False}
    write_run(tmp_path / "run", model, 40)
    export_model(tmp_path / "run", tmp_path / "out", to="m2m100")
    net, run = (
        transformers.M2M100ForConditionalGeneration.from_pretrained(tmp_path / "out").eval(),
        load(tmp_path / "run"),
    )
    order = [START, PAD, END, *range(3, run.tokenizers.target.size)]
    row = {i: number for number, i in enumerate(order)}
    ids = torch.randint(4, len(order), (2, 7)).tolist()
    target = [[START, *torch.randint(4, len(order), (5,)).tolist()] for _ in ids]
    theirs = net(
        input_ids=torch.tensor([[row[i] for i in each] for each in ids]),
        decoder_input_ids=torch.tensor([[row[i] for i in each] for each in target]),
    ).logits
    own = run.model.output(run.model.decode(run.model.encode(tokens_of(ids)), tokens_of(target))[0])
    torch.testing.assert_close(own[..., order], theirs, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif("REGARD_MODELS" not in os.environ, reason="REGARD_MODELS names no folder of downloaded models")
def test_real_folders(tmp_path):
    """Test downloaded folders: set REGARD_MODELS=~/models, for example with nllb-200-distilled-600M in it."""
    folders = [path.parent for path in Path(os.environ["REGARD_MODELS"]).expanduser().glob("*/config.json")]
    for folder in folders:
        if model_type(folder) == "m2m_100":
            import_model(folder, tmp_path / folder.name)
            test_as_transformers_has_it(Beside(folder, tmp_path / folder.name))
