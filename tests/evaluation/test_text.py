"""Scores of text, against sacreBLEU's command and by hand; edit distances against the quadratic table."""

import json
import subprocess
import sys
import time

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ArgumentError
from regard.evaluation.text import (
    TOKENIZERS,
    bleu,
    bleu_tokenizer,
    chrf,
    edit_distance,
    error_rate,
    exact,
    is_installed,
    measure_bleu,
    measure_chrf,
    measure_errors,
    measure_exact,
    measure_ter,
    ter_takes_minutes,
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


def ter(outputs, references):
    return measure_ter(outputs, references).score().value


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


@pytest.mark.parametrize("tokenize", [name for name in TOKENIZERS if name != "auto" and is_installed(name)])
def test_options(tokenize):
    measured = measure_bleu(OUTPUTS, REFERENCES, lowercase=True, tokenize=tokenize)
    theirs = sacrebleu.BLEU(lowercase=True, tokenize=tokenize, force=True)
    assert measured.score().value == theirs.corpus_score(OUTPUTS, [REFERENCES]).score
    assert measured.signature == str(theirs.get_signature())
    assert f"case:lc|eff:no|tok:{tokenize}" in measured.signature
    lower = measure_chrf(OUTPUTS, REFERENCES, lowercase=True)
    assert lower.score().value == sacrebleu.CHRF(lowercase=True).corpus_score(OUTPUTS, [REFERENCES]).score


JAPANESE = ["犬が庭で走っています。", "彼は昨日ピザを食べました。", "とても良い天気ですね。"]
KOREAN = ["개가 정원에서 뛰고 있습니다.", "그는 어제 피자를 먹었습니다."]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (REFERENCES, "13a"),
        (["Собака бежит.", "Он ел пиццу."], "13a"),
        (["狗在花园里跑。", "他昨天吃了比萨饼。"], "zh"),
        (["他昨天在カラオケ店里唱了很久的歌，然后和朋友们一起回家了。今天天气非常好，我们去公园散步吧。"], "zh"),
        (JAPANESE, "ja-mecab"),
        (KOREAN, "ko-mecab"),
        (["หมาวิ่งในสวน", "เขากินพิซซ่าเมื่อวาน"], "char"),
        (["狗 在 花园 里 跑 。", "他 昨天 吃 了 比萨饼 。"], "13a"),  # already split into words
        ([""], "13a"),
        ([], "13a"),
    ],
)
def test_the_tokenisation_suits_the_script(texts, expected):
    expected = expected if is_installed(expected) else "char"
    assert bleu_tokenizer(texts) == expected
    if texts:
        assert f"tok:{expected}" in measure_bleu(texts, texts).signature


@pytest.mark.parametrize("texts", [JAPANESE, KOREAN])
def test_a_text_without_spaces_is_not_one_word(texts):
    almost = [text[:-3] + text[-1] for text in texts]
    assert 30 < bleu(almost, texts) < 100
    assert bleu(texts, texts) == pytest.approx(100)


def test_a_tokenisation_that_is_not_installed_is_named():
    for name, extra in (("ja-mecab", "ja"), ("ko-mecab", "ko")):
        if not is_installed(name):
            with pytest.raises(ArgumentError, match=rf"tokenize: {name} needs MeCab .* 'sacrebleu\[{extra}\]'"):
                measure_bleu(["a"], ["a"], tokenize=name)


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
    assert exact(["a\u0308"], ["\xe4"]) == 1  # one letter, composed or decomposed
    lower = measure_exact(["a  b", "c", "d ", "e"], ["a b", ("x", "C"), "d", "e f"], lowercase=True).score()
    assert (lower.value, str(lower), lower.signature.split("|")[:2]) == (0.75, "75.00%", ["nrefs:var", "case:lc"])


def test_as_many_references_as_outputs():
    with pytest.raises(ArgumentError, match="references: 1 given for 2 outputs, expected as many"):
        bleu(["a", "b"], ["a"])


def test_text_that_is_too_long_for_ter():
    assert not ter_takes_minutes(["a b c"] * 3000)
    assert ter_takes_minutes([("a " * 1000, "a " * 1000)])


few = st.text("ab", max_size=12)
long = st.text("abc", min_size=55, max_size=140)  # longer than a machine word
any_text = st.text(max_size=30)


def table(one, other):
    """Return Wagner and Fischer's 1974 distance, cell by cell."""
    above = list(range(len(other) + 1))
    for i, x in enumerate(one, 1):
        row = [i]
        for j, y in enumerate(other, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y)))
        above = row
    return above[-1]


@given(st.one_of(st.tuples(few, few), st.tuples(long, long), st.tuples(few, long), st.tuples(any_text, any_text)))
def test_distance_is_the_tables(pair):
    assert edit_distance(*pair) == table(*pair)


@given(
    st.lists(st.sampled_from(["a", "b", "cc", "a b"]), max_size=9), st.lists(st.sampled_from(["a", "cc"]), max_size=9)
)
def test_distance_of_lists(one, other):
    assert edit_distance(one, other) == table(one, other) == edit_distance(other, one)
    assert edit_distance(one, one) == 0


def test_ten_thousand_pairs_in_a_moment():
    import random

    draw = random.Random(0)
    rows = [[draw.randrange(500) for _ in range(30)] for _ in range(10_000)]
    others = [[word if draw.random() < 0.6 else draw.randrange(500) for word in row] for row in rows]
    start = time.process_time()
    for row, other in zip(rows, others, strict=True):
        edit_distance(row, other)
    assert time.process_time() - start < 3


def test_phonemes_with_several_pronunciations():
    """Three words, by hand: the first word's second pronunciation; one phoneme of four is wrong; one is superfluous."""
    references = [("T AH M EY T OW", "T AH M AA T OW"), ("K AE T S",), ("R EH D", "R IY D")]
    outputs = ["T AH M AA T OW", "K AH T S", "R IY D Z"]
    score = error_rate(outputs, references)
    assert score.value == (0 + 1 + 1) / (6 + 4 + 3)
    assert (score.name, score.unit, str(score)) == ("token error rate", "share", "15.38%")
    assert score.signature.startswith("nrefs:var|case:mixed|unit:token|regard:")
    assert exact(outputs, references) == 1 / 3  # the word error rate is 2/3


def test_the_nearest_is_the_longest_of_those_with_the_fewest_edits():
    measured = measure_errors(["a b c"], [("a b", "a b c d", "x y z a b c")])
    assert measured.rows.tolist() == [[1, 4]]


def test_characters_with_their_spaces():
    assert error_rate(["ab  cd "], ["ab cd"], "character").value == 0
    assert error_rate(["abcd", ""], ["ab cd", "xyz"], "character").value == (1 + 3) / (5 + 3)
    assert error_rate(["Über"], ["über"], "character").value == 0.25
    assert error_rate(["Über"], ["über"], "character", lowercase=True).value == 0


def test_a_rate_can_exceed_one_and_nothing_is_no_error():
    assert error_rate(["a b c"], ["x"]).value == 3
    assert error_rate([""], [""]).value == 0
    assert error_rate(["a"], [""]).value == 1
    assert error_rate([], []).value == 0


def test_as_many_references_as_outputs_for_error_rates():
    with pytest.raises(ValueError, match="shorter"):
        error_rate(["a", "b"], ["a"])
