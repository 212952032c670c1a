"""Scores of text, against sacreBLEU's own command and by hand."""

import sacrebleu

from regard.evaluation.text import bleu, chrf, exact

OUTPUTS = ["the cat sat on the mat .", "a dog", "", "it rains today , I think"]
REFERENCES = ["the cat is on the mat .", "a dog barks", "nothing", "it rains today , I think"]


def test_bleu_and_chrf_are_sacrebleus():
    assert bleu(OUTPUTS, REFERENCES) == sacrebleu.BLEU(force=True).corpus_score(OUTPUTS, [REFERENCES]).score
    assert chrf(OUTPUTS, REFERENCES) == sacrebleu.CHRF().corpus_score(OUTPUTS, [REFERENCES]).score


def test_the_same_is_perfect_and_nothing_is_nothing():
    assert bleu(REFERENCES, REFERENCES) > 99.99
    assert chrf(REFERENCES, REFERENCES) == 100
    assert exact(REFERENCES, REFERENCES) == 1
    assert bleu([""] * 4, REFERENCES) == chrf([""] * 4, REFERENCES) == exact([""] * 4, REFERENCES) == 0


def test_exact_counts_white_space_as_one_space():
    assert exact(["a  b", "c", "d ", "e"], ["a b", "C", "d", "e f"]) == 0.5
    assert exact([], []) == 0
