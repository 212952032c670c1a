"""Scores of text, against sacreBLEU's own command and by hand."""

import json
import subprocess
import sys

import pytest
import sacrebleu

from regard.errors import ArgumentError
from regard.evaluation.text import (
    TOKENIZERS,
    bleu,
    chrf,
    exact,
    measure_bleu,
    measure_chrf,
    measure_exact,
    measure_ter,
    ter,
)

OUTPUTS = ["the cat sat on the mat .", "a dog", "", "it rains today , I think", "Two Dogs (brown) run 3.5 miles."]
REFERENCES = [
    "the cat is on the mat .",
    "a dog barks",
    "nothing",
    "it rains today , I think",
    "two dogs, brown, run 3.5 miles",
]
SECOND = [
    "on the mat sat a cat .",
    "one dog barks",
    "not a thing",
    "I think it rains today",
    "Two Dogs (brown) run 3.5 miles.",
]


def test_they_are_sacrebleus():
    assert bleu(OUTPUTS, REFERENCES) == sacrebleu.BLEU(force=True).corpus_score(OUTPUTS, [REFERENCES]).score
    assert chrf(OUTPUTS, REFERENCES) == sacrebleu.CHRF().corpus_score(OUTPUTS, [REFERENCES]).score
    assert ter(OUTPUTS, REFERENCES) == sacrebleu.TER().corpus_score(OUTPUTS, [REFERENCES]).score


def test_scores_and_signatures_are_those_of_its_command(tmp_path):
    for name, texts in (("output", OUTPUTS), ("one", REFERENCES), ("two", SECOND)):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts))
    command = [sys.executable, "-m", "sacrebleu", "one", "two", "-i", "output", "-m", "bleu", "chrf", "ter", "-w", "10"]
    said = json.loads(subprocess.check_output([*command, "--force"], cwd=tmp_path, text=True))
    references = list(zip(REFERENCES, SECOND, strict=True))
    for each, measure in zip(said, (measure_bleu, measure_chrf, measure_ter), strict=True):
        score = measure(OUTPUTS, references).score()
        assert score.value == pytest.approx(each["score"], abs=1e-9)
        assert score.signature == each["signature"]


@pytest.mark.parametrize("tokenize", TOKENIZERS)
def test_options(tokenize):
    measured = measure_bleu(OUTPUTS, REFERENCES, lowercase=True, tokenize=tokenize)
    theirs = sacrebleu.BLEU(lowercase=True, tokenize=tokenize, force=True)
    assert measured.score().value == theirs.corpus_score(OUTPUTS, [REFERENCES]).score
    assert measured.signature == str(theirs.get_signature())
    assert f"case:lc|eff:no|tok:{tokenize}" in measured.signature
    lower = measure_chrf(OUTPUTS, REFERENCES, lowercase=True)
    assert lower.score().value == sacrebleu.CHRF(lowercase=True).corpus_score(OUTPUTS, [REFERENCES]).score


def test_a_tokenizer_that_is_none():
    with pytest.raises(ArgumentError, match="tokenize: '13b' given, no such tokenisation; did you mean '13a'?"):
        measure_bleu(OUTPUTS, REFERENCES, tokenize="13b")


def test_a_varying_number_of_references():
    references = [
        (REFERENCES[0], SECOND[0]),
        REFERENCES[1],
        (REFERENCES[2],),
        (REFERENCES[3],),
        (SECOND[4], REFERENCES[4]),
    ]
    streams = [[REFERENCES[0], *REFERENCES[1:4], SECOND[4]], [SECOND[0], None, None, None, REFERENCES[4]]]
    for measure, metric in ((measure_bleu, sacrebleu.BLEU(force=True)), (measure_chrf, sacrebleu.CHRF())):
        assert measure(OUTPUTS, references).score().value == metric.corpus_score(OUTPUTS, streams).score
        assert measure(OUTPUTS, references).signature.startswith("nrefs:var|")


def test_each_sentence_by_itself():
    measured = measure_chrf(OUTPUTS, REFERENCES)
    for value, output, reference in zip(measured.values(measured.rows), OUTPUTS, REFERENCES, strict=True):
        assert value == sacrebleu.sentence_chrf(output, [reference]).score


def test_the_same_is_perfect_and_nothing_is_nothing():
    nothing = [""] * len(REFERENCES)
    assert bleu(REFERENCES, REFERENCES) > 99.99
    assert chrf(REFERENCES, REFERENCES) == 100
    assert ter(REFERENCES, REFERENCES) == 0
    assert exact(REFERENCES, REFERENCES) == 1
    assert bleu(nothing, REFERENCES) == chrf(nothing, REFERENCES) == exact(nothing, REFERENCES) == 0
    assert ter(nothing, REFERENCES) == 100
    assert bleu([], []) == chrf([], []) == ter([], []) == exact([], []) == 0


def test_exact_counts_white_space_as_one_space():
    assert exact(["a  b", "c", "d ", "e"], ["a b", "C", "d", "e f"]) == 0.5
    assert exact(["a\u0308"], ["\xe4"]) == 1  # one letter, however it is put together
    lower = measure_exact(["a  b", "c", "d ", "e"], ["a b", ("x", "C"), "d", "e f"], lowercase=True).score()
    assert (lower.value, str(lower), lower.signature.split("|")[:2]) == (0.75, "75.00%", ["nrefs:var", "case:lc"])


def test_as_many_references_as_outputs():
    with pytest.raises(ArgumentError, match="references: 1 given for 2 outputs, expected as many"):
        bleu(["a", "b"], ["a"])
