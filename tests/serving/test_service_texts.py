"""Answers as JSON: outputs, and errors in the words of the command line."""

import math
import random
from itertools import islice

import pytest

from regard.data import sentence_split, train
from regard.decoding import file_translation
from regard.serving.errors import ApiError
from regard.serving.service import as_table, check_pairs, split_texts
from regard.tasks import Translation

WORDS = ["the", "child", "sleeps", "dog", "eats", "bread", ",", "."]
TOKENIZER = train([" ".join(WORDS)] * 3, "word")


def split(*texts, longest=8, split=True):
    return split_texts(texts, TOKENIZER, longest, split)


def copy_of(text, score=-1.0, **given):
    """Return an output that copies its source."""
    words = text.split()
    links = tuple((i, i) for i in range(len(words)))
    fields = {"log_prob": 2 * score, "tokens": tuple(words), "finished": True, "alignment": links}
    return Translation(text, score, **{**fields, "token_log_probs": tuple(-0.5 for _ in words), **given})


def random_text(rng, lines):
    """Draw lines of sentences, some long, some lines empty, with odd white space."""
    made = []
    for _ in range(lines):
        sentences = [
            rng.choice(["", " "]) + " ".join(rng.choices(WORDS[:-1], k=rng.choice([1, 3, 7, 30]))).capitalize() + "."
            for _ in range(rng.randint(0, 4))
        ]
        made.append(rng.choice([" ", "  "]).join(sentences))
    return "\n".join(made)


def test_a_sentence_is_left_as_it_is():
    (text,), ids = split("the child sleeps .")
    assert text.texts == ["the child sleeps ."]
    assert not text.cut
    assert ids == [TOKENIZER.encode("the child sleeps .")]


def test_sentences_are_split_and_the_tokens_are_theirs():
    texts, ids = split("the child sleeps. The dog eats.", "bread", "the dog eats bread , the child eats the dog")
    assert [each.texts for each in texts] == [
        ["the child sleeps.", "The dog eats."],
        ["bread"],
        ["the dog eats bread ,", "the child eats the dog"],
    ]
    assert ids == [TOKENIZER.encode(piece) for each in texts for piece in each.texts]
    assert max(map(len, ids)) <= 8


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_lines_are_kept(ending):
    given = ["The child sleeps. The dog eats.", "", "  ", "bread"]
    (text,), ids = split(ending.join(given))
    assert text.lines == tuple(given)
    assert [len(parts) for parts in text.parts] == [2, 1, 1, 1]
    assert text.texts == ["The child sleeps.", "The dog eats.", "", "", "bread"]
    (joined,) = text.join(iter([[copy_of(piece)] for piece in text.texts]), 1, True)
    assert joined.text == "The child sleeps. The dog eats.\n\n\nbread"
    assert [tokens for tokens in ids if not tokens] == [[], []]


def test_an_empty_text_has_one_empty_piece():
    texts, ids = split("", " ", "\n")
    assert [each.texts for each in texts] == [[""], [" "], ["", ""]]
    assert ids == [[], [], [], []]


def test_every_line_is_joined_as_the_command_joins_it():
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for count, ranked in [(1, True), (3, True), (2, False)]:
        text = random_text(rng, 5)
        (found,), ids = split(text)
        fit = file_translation.LineFitter(TOKENIZER, 8, None, split=True)
        parts = fit.parts(text.split("\n"), "text")
        expected_pieces = [piece.text for line in parts for piece in line]
        assert found.texts == expected_pieces or text == found.texts[0]
        outputs = [[copy_of(piece, rng.uniform(-9, 0)) for _ in range(count)] for piece in found.texts]
        if ranked:  # best first, as from a search
            outputs = [sorted(own, key=lambda output: -output.score) for own in outputs]
        each = iter(outputs)
        lines = [
            file_translation.join_outputs(line, own, list(islice(each, len(own))), count, ranked)
            for line, own in zip(text.split("\n"), parts, strict=True)
        ]
        joined = found.join(iter(outputs), count, ranked)
        assert joined[0].text == "\n".join(line[0].text for line in lines)
        assert joined[0].score == pytest.approx(sum(line[0].score for line in lines))
        assert joined[0].log_prob == pytest.approx(sum(line[0].log_prob for line in lines))
        assert joined[0].tokens == tuple(token for line in lines for token in line[0].tokens)
        assert len(joined[0].token_log_probs) == len(joined[0].tokens)
        assert len(ids) == len(outputs)


def test_links_are_counted_in_the_whole_text():
    text = "the child sleeps. The dog eats.\n\nbread , the dog\nthe dog eats bread , the child eats the dog"
    (split_text,), _ = split(text)
    (joined,) = split_text.join(iter([[copy_of(piece)] for piece in split_text.texts]), 1, True)
    words = text.split()
    assert joined.text.split() == words
    assert joined.alignment == tuple((i, i) for i in range(len(words)))


def test_the_best_combinations_of_all_pieces_come_first():
    (text,), _ = split("the child. The dog.\nbread")
    scores = [(-1.0, -4.0), (-2.0, -2.5), (-3.0, -3.25)]
    outputs = [
        [copy_of(f"{piece}{i}", score) for i, score in enumerate(own)]
        for piece, own in zip(text.texts, scores, strict=True)
    ]
    joined = text.join(iter(outputs), 2, True)
    assert [(each.text, each.score) for each in joined] == [
        ("the child.0 The dog.0\nbread0", -6.0),
        ("the child.0 The dog.0\nbread1", -6.25),
    ]
    sampled = text.join(iter(outputs), 2, False)  # in their original order, whatever their scores
    assert [each.text for each in sampled] == ["the child.0 The dog.0\nbread0", "the child.1 The dog.1\nbread1"]


def test_a_text_is_finished_when_all_of_it_is():
    (text,), _ = split("the child. The dog.")
    outputs = [[copy_of("the child.")], [copy_of("The dog.", finished=False)]]
    assert not text.join(iter(outputs), 1, True)[0].finished


def test_without_split_lines_are_cut_and_it_is_said():
    long = "the dog eats bread , the child eats the dog ."
    texts, ids = split(long, "The child sleeps. The dog eats.", f"bread\n{long}", "bread\nbread", split=False)
    assert [each.cut for each in texts] == [True, False, True, False]
    assert texts[0].texts == ["the dog eats bread , the child eats"]
    assert texts[1].texts == ["The child sleeps. The dog eats."]
    assert texts[2].texts == ["bread", "the dog eats bread , the child eats"]
    assert max(map(len, ids)) == 8
    (joined,) = texts[2].join(iter([[copy_of(piece)] for piece in texts[2].texts]), 1, True)
    assert joined.text == "bread\nthe dog eats bread , the child eats"


def test_nothing_of_a_text_is_lost():
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(20):
        text = random_text(rng, rng.randint(1, 4))
        (found,), ids = split(text, longest=5)
        assert " ".join(found.texts).split() == text.split()
        assert all(len(tokens) <= 5 for tokens in ids)
        for line, parts in zip(found.lines, found.parts, strict=True):
            assert len(parts) == max(1, len(sentence_split.pieces(line, lambda each: len(TOKENIZER.encode(each)), 5)))


# ---- tags


TAGS = ["<2de>", "<2fr>"]
TAGGED = train([" ".join(WORDS)] * 3, "word", tags=TAGS)


def split_tagged(*texts, longest=8, split=True):
    return split_texts(texts, TAGGED, longest, split, TAGS)


def test_a_tag_stands_before_every_piece():
    (text,), ids = split_tagged("<2de> the child sleeps. The dog eats.\nthe child\n\n<2fr> bread. The dog.", longest=50)
    assert text.texts == [
        "<2de> the child sleeps.",
        "<2de> The dog eats.",
        "<2de> the child",
        "",
        "<2fr> bread.",
        "<2fr> The dog.",
    ]
    assert ids == [TAGGED.encode(piece) for piece in text.texts]
    (text,), _ = split_tagged("<2de> the child sleeps. The dog eats.\nthe child", split=False, longest=50)
    assert text.texts == ["<2de> the child sleeps. The dog eats.", "<2de> the child"]
    # Without a tag, or with an unknown one, nothing is added.
    for given in ("the child. The dog.", "<2xx> the child. The dog."):
        (text,), _ = split_tagged(given, longest=50)
        assert not any("<2de>" in piece for piece in text.texts)


def test_a_line_with_nothing_but_a_tag_is_empty():
    (text,), ids = split_tagged("<2de> \nthe child")
    assert text.texts == ["", "<2de> the child"]
    assert ids[0] == []


def test_pieces_have_room_for_their_tag():
    (text,), ids = split_tagged("<2de> " + "the dog eats bread , the child eats the dog , " * 4)
    assert len(ids) > 4
    assert max(map(len, ids)) <= 8
    assert all(each.startswith("<2de> ") for each in text.texts)
    (text,), ids = split_tagged("the dog\n<2de> " + "the dog " * 20, split=False)
    assert max(map(len, ids)) <= 8
    assert text.cut


def test_links_are_counted_in_the_text_as_it_was_given():
    """If the output copies the source, every word is linked to itself in spite of the added tags."""
    given = "<2de> the child sleeps. The dog eats bread.\n the child. Bread."
    (text,), _ = split_tagged(given, longest=50)
    (joined,) = text.join(iter([[copy_of(piece)] for piece in text.texts]), 1, True)
    source, target = given.split(), joined.text.split()
    assert all(source[one] == target[two] for one, two in joined.alignment)
    assert {one for one, _ in joined.alignment} == set(range(len(source)))


def test_an_output_holds_what_was_asked_for_and_no_infinity():
    output = Translation("a b", -math.inf, -1.5, ("a", "b"), True)
    plain = {"text": "a b", "score": None, "log_prob": -1.5, "tokens": ["a", "b"], "finished": True}
    assert as_table(output) == plain
    more = Translation("a b", -1.0, -1.5, ("a", "b"), True, ((0, 1),), (-0.5, -math.inf))
    assert as_table(more) == {**plain, "score": -1.0, "alignment": [[0, 1]], "scores": [-0.5, None]}


def test_lists_of_other_lengths_are_refused():
    check_pairs(["a"], ["b"])
    with pytest.raises(ApiError, match="targets: 1 given, expected one for each of 2 texts"):
        check_pairs(["a", "b"], ["c"])
