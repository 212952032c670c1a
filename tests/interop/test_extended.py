"""Words and a language added to an imported model: in the place of fillers, and out again in every format."""

import json
from pathlib import Path

import pytest
import torch
from cli.typing_in import Command
from pretrained import TEXTS, m2m100_folder, marian_folder
from safetensors.torch import load_file

from regard.data import special_pieces
from regard.decoding import tokens_of
from regard.interop.export import export_model
from regard.interop.importing import import_model
from regard.interop.numbering import export_rows, marian_rows
from regard.run import load

CODES = {"marian": ">>gsw<<", "nllb": "gsw_Latn"}


@pytest.fixture(scope="module", params=[*CODES])
def grown(request, without_report, tmp_path_factory):
    """The folder of a run that was imported, and of one that began with it; a step of almost nothing lies between."""
    pytest.importorskip("transformers")
    folder, family = tmp_path_factory.mktemp("extended"), request.param
    if family == "nllb":
        m2m100_folder(folder / "folder", family="nllb")
        import_model(folder / "folder", folder / "base", source_language="eng_Latn", target_language="deu_Latn")
    else:
        marian_folder(folder / "folder", codes=(">>deu<<",))
        import_model(folder / "folder", folder / "base")
    for side in ("source", "target"):
        (folder / side).write_text("".join(f"Grüezi , {text}\n" for text in TEXTS[side] * 2))
    key, code = ("first" if family == "nllb" else "before"), CODES[family]
    shown = Command("train").typed(
        "--from", folder / "base", "--source", folder / "source", "--target", folder / "target", "--out",
        folder / "new", "--steps", "1", "--set", "training.rate=1e-12", "--set", "training.threads=1",
        "--set", f"data.cache={folder / 'cache'}",
        "--set", f'tokenizer.extend=["Grüezi", "{code}"]', "--set", f'tokenizer.{key}=["{code}"]',
    )  # fmt: skip
    assert shown.exit_code == 0, shown.output
    assert f"Added 2 pieces to the vocabulary: ▁Grüezi, {code}" in shown.output
    return family, folder


def test_fillers_become_pieces_and_texts_come_back(grown):
    family, folder = grown
    before, after, code = load(folder / "base"), load(folder / "new"), CODES[family]
    for old, new in (
        (before.tokenizers.source, after.tokenizers.source),
        (before.tokenizers.target, after.tokenizers.target),
    ):
        fillers = [i for i, name in enumerate(old.names) if special_pieces.is_filler(name)]
        ids = [new.names.index("▁Grüezi"), new.names.index(code)]
        assert ids == [*fillers, old.size, old.size + 1][:2]
        assert new.size % 8 == 0
        assert [new.names[i] for i in range(old.size) if i not in ids] == [
            old.names[i] for i in range(old.size) if i not in ids
        ]
        assert new.pieces(new.encode_bare(["Grüezi, the"])[0])[0] == "▁Grüezi"
        for text in ("Grüezi , Grüezi", "Grüezi", "e Grüezi , e"):
            assert new.decode(new.encode_bare([text])[0]) == text
        for text in (*TEXTS["source"], *TEXTS["target"], "Grüezimitenand"):
            assert new.encode_bare([text]) == old.encode_bare([text])
    # As the codes that it has: at the beginning of a text for Marian, and never there for NLLB.
    spelled = after.tokenizers.source.encode_bare([f"{code} the dog"])[0]
    assert (after.tokenizers.source.names.index(code) in spelled) == (family == "marian")
    after.set_languages(None, "gsw" if family == "marian" else code)
    around = after.tokenizers.source if family == "marian" else after.tokenizers.target
    assert around.pieces(around.before)[0] == code
    assert after.translate(["Grüezi , the dog"], beam=1, longest=5)


@torch.no_grad()
def test_scores_of_pieces_that_were_there_stay(grown):
    family, folder = grown
    before, after = load(folder / "base"), load(folder / "new")
    old, new = before.tokenizers.target.names, after.tokenizers.target.names
    same = [i for i, name in enumerate(old) if new[i] == name]
    assert len(same) >= len(old) - 2
    for text in TEXTS["source"]:
        ids = tokens_of([before.tokenizers.source.encode_bare([text])[0]])
        scores = [run.model(ids, tokens_of([[1, 5, 6, 7]]))[0] for run in (before, after)]
        assert torch.allclose(scores[1][:, same], scores[0][:, same], atol=1e-5)
    new_ids = [i for i, name in enumerate(new) if name in ("▁Grüezi", CODES[family])]
    assert float(scores[1][:, new_ids].min()) > -1e3  # no piece that is never written
    never = [i for i, name in enumerate(new) if special_pieces.is_filler(name)]
    assert not never or float(scores[1][:, never].max()) < -1e3


def test_exports_have_them(grown):
    family, folder = grown
    form = "m2m100" if family == "nllb" else "marian"
    run = load(folder / "new")
    export_model(folder / "new", folder / form, to=form)
    rows = export_rows(folder / form) if family == "nllb" else marian_rows(folder / form)
    assert {"▁Grüezi", CODES[family]} <= rows.keys()
    assert not any(map(special_pieces.is_filler, rows))
    own = run.model.source.tokens.weight[run.tokenizers.source.names.index("▁Grüezi")]
    tensors = load_file(Path(folder / form / "model.safetensors"))
    assert torch.equal(tensors["model.shared.weight"][rows["▁Grüezi"]], own)


def test_ctranslate2_translates_them(grown):
    pytest.importorskip("ctranslate2")
    _, folder = grown
    check = folder / "check.txt"
    check.write_text("Grüezi , the dog\nGrüezi, the old woman .\n")
    export_model(folder / "new", folder / "engine", to="ctranslate2", check=check)
    manifest = json.loads((folder / "engine" / "manifest.json").read_text())
    assert manifest["verification"]["count"] == 2
