"""The commands of the page on import and export run in order, with small random models in place of real ones."""

import re
import shlex
from pathlib import Path

import pytest
from cli.typing_in import Command
from documented import ROOT, spans
from interop.random_models import TOKENIZERS, draw_model
from pretrained import TEXTS, m2m100_folder, marian_folder

from regard.interop import convert
from regard.interop.ctranslate2 import pieces_of

pytest.importorskip("transformers")
PIECES = pieces_of(TOKENIZERS.source)
PAGE = (ROOT / "docs" / "guide" / "interop.md").read_text(encoding="utf-8")
SHORT = {"train": ["--steps", "2", "--set", "training.threads=1", "--quiet"], "translate": ["--longest", "4"]}
SHORT |= {"eval": ["--beam", "1"]}


@pytest.mark.usefixtures("without_report")
def test_the_page_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    marian_folder(tmp_path / "opus-mt-en-de")
    m2m100_folder(tmp_path / "nllb-200-distilled-600M", family="nllb")
    (tmp_path / "aren-transliteration").mkdir()
    convert(draw_model(), tmp_path / "aren-transliteration", PIECES, PIECES)
    for name in ("test", "talks"):
        for side, language in (("source", "en"), ("target", "de")):
            Path(f"{name}.{language}").write_text("".join(f"{text}\n" for text in TEXTS[side]))
    commands = [shlex.split(line)[1:] for line in spans(PAGE)[0] if line.startswith("regard ")]
    assert [words[0] for words in commands].count("import") == 3
    for words in commands:
        if words[0] == "serve":  # tests/serving covers it
            continue
        shown = Command(words[0]).typed(*words[1:], *SHORT.get(words[0], ()))
        assert shown.exit_code == 0, (words, shown.output)
    assert (tmp_path / "talks-marian" / "model.safetensors").exists()
    assert re.search(r"Nobody has run this with the downloaded weights of these families yet", PAGE)
