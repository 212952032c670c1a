"""Tokenizers of exported folders: Transformers' own classes open them, and split texts as the run does.

Words and a language that are added to an imported model replace fillers, and every format exports them.
"""

import json
import re
from pathlib import Path

import pytest
import torch
from cli.typing_in import Command
from pretrained import TEXTS, m2m100_folder, marian_folder
from safetensors.torch import load_file

from regard import export_model, import_model, load
from regard.data import END, special_pieces
from regard.decoding import tokens_of
from regard.errors import DataError
from regard.interop.numbering import added_rows, export_rows, marian_rows
from regard_bench.serving import write_run

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
FAMILIES = {
    "marian": (marian_folder, {"codes": (">>deu<<",)}, {}),
    "m2m100": (m2m100_folder, {}, {"source_language": "en", "target_language": "de"}),
    "nllb": (m2m100_folder, {"family": "nllb"}, {"source_language": "eng_Latn", "target_language": "deu_Latn"}),
}
CODES = {"marian": (">>gsw<<", "before"), "m2m100": ("__gsw__", "first"), "nllb": ("gsw_Latn", "first")}
ALL = [*TEXTS["source"], *TEXTS["target"], "Grüezi , the dog", "a  b ½ ﬁn", "猫 the dog"]


def export_as(family: str, run: Path, out: Path) -> None:
    export_model(run, out, to="marian" if family == "marian" else "m2m100")


@pytest.fixture(scope="module", params=FAMILIES)
def family(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def desk(family, tmp_path_factory) -> Path:
    """Create a folder of Transformers, the run imported from it, and that run's export."""
    write, options, languages = FAMILIES[family]
    desk = tmp_path_factory.mktemp(family)
    write(desk / "theirs", **options)
    import_model(desk / "theirs", desk / "run", **languages)
    export_as(family, desk / "run", desk / "out")
    return desk


@pytest.fixture(scope="module")
def grown(desk, family, without_report) -> Path:
    """Train the imported run a tiny step with an additional word and language, and export the result."""
    code, key = CODES[family]
    for side in ("source", "target"):
        (desk / side).write_text("".join(f"Grüezi , {text}\n" for text in TEXTS[side] * 2))
    shown = Command("train").typed(
        "--from", desk / "run", "--source", desk / "source", "--target", desk / "target", "--out", desk / "grown",
        "--steps", "1", "--rate", "1e-12", "--set", "training.threads=1", "--set", f"data.cache={desk / 'cache'}",
        "--set", f'tokenizer.extend=["Grüezi", "{code}"]', "--set", f'tokenizer.{key}=["{code}"]',
    )  # fmt: skip
    assert shown.exit_code == 0, shown.output
    assert f"Added 2 pieces to the vocabulary: ▁Grüezi, {code}" in shown.output
    export_as(family, desk / "grown", desk / "grown-out")
    return desk / "grown-out"


def opened(folder: Path):
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_transformers_cuts_texts_with_it_as_with_the_folder_that_was_imported(desk, family):
    """Compare names: without rows in its configuration, Transformers numbers NLLB's <mask> before the languages."""
    one, other = opened(desk / "theirs"), opened(desk / "out")
    assert type(one) is type(other)
    for each in (one, other) if family != "marian" else ():
        each.src_lang, each.tgt_lang = FAMILIES[family][2].values()
    for text in ALL:
        for side in ("text", "text_target"):
            ids = [each(**{side: text}).input_ids for each in (one, other)]
            assert one.convert_ids_to_tokens(ids[0]) == other.convert_ids_to_tokens(ids[1]), text
            texts = [each.decode(row, skip_special_tokens=True) for each, row in zip((one, other), ids, strict=True)]
            assert texts[0] == texts[1]


def test_transformers_cuts_texts_into_the_rows_of_the_run(desk, family):
    """The exported tokenizer already selects the languages of the import."""
    tokenizer, both = opened(desk / "out"), load(desk / "run").tokenizers
    rows = export_rows(desk / "out") if family != "marian" else marian_rows(desk / "out")
    for text in TEXTS["source"]:
        assert tokenizer(text).input_ids == [rows[name] for name in both.source.pieces(both.source.encode(text))]
    for text in TEXTS["target"]:
        ours = both.target.pieces([*both.target.encode(text), END])
        assert tokenizer(text_target=text).input_ids == [rows[name] for name in ours]


def test_texts_to_texts_in_both(desk, family):
    """Transformers alone, from the exported folder, and the run translate texts to the same texts."""
    net = transformers.MarianMTModel if family == "marian" else transformers.M2M100ForConditionalGeneration
    net, tokenizer, run = net.from_pretrained(desk / "out").eval(), opened(desk / "out"), load(desk / "run")
    texts = TEXTS["source"][:4]
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        ids = net.generate(**inputs, num_beams=1, do_sample=False, max_new_tokens=8)
    theirs = tokenizer.batch_decode(ids, skip_special_tokens=True)
    ours = run.translate(texts, beam=1, longest=8)
    # M2M100Tokenizer writes a language in the middle of a text without spaces around it.
    assert [re.sub(r" *__[a-z]+__ *", "", text) for text in ours] == [re.sub("__[a-z]+__", "", each) for each in theirs]
    assert any(re.sub(r" *__[a-z]+__ *", "", text) for text in ours)


def test_what_was_written_is_imported(desk, family):
    import_model(desk / "out", desk / "again", **FAMILIES[family][2])
    one, other = (load(desk / name) for name in ("run", "again"))
    assert one.tokenizers.source.names == other.tokenizers.source.names
    for text in ALL:
        assert one.tokenizers.source.encode(text) == other.tokenizers.source.encode(text)
        assert one.tokenizers.target.encode(text) == other.tokenizers.target.encode(text)
    assert all(torch.equal(tensor, other.model.state_dict()[name]) for name, tensor in one.model.state_dict().items())


def test_fillers_become_pieces_and_texts_come_back(grown, family):
    before, after, code = load(grown.parent / "run"), load(grown.parent / "grown"), CODES[family][0]
    sides = [(each.tokenizers.source, each.tokenizers.target) for each in (before, after)]
    for old, new in zip(*sides, strict=True):
        fillers = [i for i, name in enumerate(old.names) if special_pieces.is_filler(name)]
        ids = [new.names.index("▁Grüezi"), new.names.index(code)]
        assert ids == [*fillers, old.size, old.size + 1][:2]
        assert new.size % 8 == 0
        assert all(new.names[i] == name for i, name in enumerate(old.names) if i not in ids)
        assert new.pieces(new.encode_bare(["Grüezi, the"])[0])[0] == "▁Grüezi"
        for text in ("Grüezi , Grüezi", "Grüezi", "e Grüezi , e"):
            assert new.decode(new.encode_bare([text])[0]) == text
        for text in (*TEXTS["source"], *TEXTS["target"], "Grüezimitenand"):
            assert new.encode_bare([text]) == old.encode_bare([text])
    # Codes are special at the start of a text for Marian, anywhere for M2M-100, and never for NLLB.
    spelled = after.tokenizers.source.encode_bare([f"{code} the dog"])[0]
    assert (after.tokenizers.source.names.index(code) in spelled) == (family != "nllb")
    after.set_languages(None, code.strip("_><"))
    around = after.tokenizers.source if family == "marian" else after.tokenizers.target
    assert around.pieces(around.before)[0] == code
    assert after.translate(["Grüezi , the dog"], beam=1, longest=5)


@torch.no_grad()
def test_scores_of_pieces_that_were_there_stay(grown, family):
    before, after = load(grown.parent / "run"), load(grown.parent / "grown")
    old, new = before.tokenizers.target.names, after.tokenizers.target.names
    same = [i for i, name in enumerate(old) if new[i] == name]
    assert len(same) >= len(old) - 2
    for text in TEXTS["source"]:
        ids = tokens_of([before.tokenizers.source.encode_bare([text])[0]])
        scores = [run.model(ids, tokens_of([[1, 5, 6, 7]]))[0] for run in (before, after)]
        assert torch.allclose(scores[1][:, same], scores[0][:, same], atol=1e-5)
    new_ids = [i for i, name in enumerate(new) if name in ("▁Grüezi", CODES[family][0])]
    assert float(scores[1][:, new_ids].min()) > -1e3  # every new piece can be written
    never = [i for i, name in enumerate(new) if special_pieces.is_filler(name)]
    assert not never or float(scores[1][:, never].max()) < -1e3


def test_ctranslate2_translates_new_words(grown):
    pytest.importorskip("ctranslate2")
    check = grown.parent / "check.txt"
    check.write_text("Grüezi , the dog\nGrüezi, the old woman .\n")
    report = export_model(grown.parent / "grown", grown.parent / "engine", to="ctranslate2", check=check)
    assert report.verification is not None
    assert report.verification.count == 2


def test_new_pieces_have_their_rows(grown, family):
    """Transformers finds an added piece by its row, decodes it, and never splits a text into it."""
    tokenizer, run, code = opened(grown), load(grown.parent / "grown"), CODES[family][0]
    names, rows = run.tokenizers.target.names, export_rows(grown) if family != "marian" else None
    rows = rows or json.loads((grown / "vocab.json").read_text())
    assert not any(map(special_pieces.is_filler, rows))
    own = run.model.source.tokens.weight[run.tokenizers.source.names.index("▁Grüezi")]
    assert torch.equal(load_file(grown / "model.safetensors")["model.shared.weight"][rows["▁Grüezi"]], own)
    for piece in ("▁Grüezi", code):
        assert tokenizer.convert_tokens_to_ids(piece) == rows[piece]
        assert tokenizer.convert_ids_to_tokens(rows[piece]) == piece
        assert piece in names
    known = [name for name in rows if not name.startswith("madeup") and name in tokenizer.get_vocab()]
    assert len(known) > 50
    assert all(tokenizer.get_vocab()[name] == rows[name] for name in known)
    ids = tokenizer("the dog", add_special_tokens=False).input_ids
    assert tokenizer.decode([*ids, rows["▁Grüezi"], *ids], skip_special_tokens=True) == "the dog Grüezi the dog"
    before = opened(grown.parent / "theirs")
    for text in ALL:
        assert tokenizer(text, add_special_tokens=False).input_ids == before(text, add_special_tokens=False).input_ids


def test_new_languages_are_imported_again(grown, family):
    import_model(grown, grown.parent / "grown-again", **FAMILIES[family][2])
    one, other = load(grown.parent / "grown"), load(grown.parent / "grown-again")
    code = CODES[family][0]
    other.set_languages(None, code.strip("_><"))
    side = other.tokenizers.source if family == "marian" else other.tokenizers.target
    assert code in side.pieces(side.before)
    rows = [each.model.source.tokens.weight[each.tokenizers.source.names.index(code)] for each in (one, other)]
    assert torch.equal(*rows)


@pytest.mark.parametrize(
    ("row", "token"),
    [("7", 3), ("7", {"content": 3}), ("7", {}), ("x", {"content": "a"}), ("9" * 5000, {"content": "a"})],
)
def test_rows_that_are_none_are_named(row, token, tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {row: token}}))
    with pytest.raises(
        DataError, match=rf'tokenizer_config\.json: added_tokens_decoder has "{row[0]}.*, expected rows with'
    ):
        added_rows(tmp_path)


@pytest.mark.parametrize(
    ("to", "model"),
    [
        ("marian", {"norm": "post"}),
        ("m2m100", {"norm": "pre", "tied": "all", "sines": "fairseq", "output_bias": False}),
    ],
)
def test_a_tokenizer_that_was_trained_here_is_a_vocabulary_alone(to, model, tmp_path):
    write_run(tmp_path / "run", {"size": 8, "heads": 2, "layers": 1, "hidden": 8, **model}, 20)
    export_model(tmp_path / "run", tmp_path / "out", to=to)
    names = load(tmp_path / "run").tokenizers.source.names
    assert set(json.loads((tmp_path / "out" / "vocab.json").read_text())) == {*names}
    assert not (tmp_path / "out" / "tokenizer_config.json").exists()
