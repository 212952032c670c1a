"""Lines that do not fit: cut or split, and joined again."""

import dataclasses
import itertools

from hypothesis import given
from hypothesis import strategies as st

from regard.data import sentence_split, train
from regard.decoding.translate_file import LineFitter, Processes, join_outputs
from regard.run import Translation


class Words:
    """A tokenizer whose tokens are words."""

    def encode_batch(self, texts: list[str]) -> list[list[str]]:
        return [text.split() for text in texts]


def output(text: str, score: float, links=()) -> Translation:
    return Translation(text, score, 2 * score, tuple(text.split()), True, tuple(links))


def test_lines_that_fit_are_left_alone():
    warned: list[str] = []
    lines = ["a  b c", "", "  ", "x. Y!"]
    assert LineFitter(Words(), 3, None, warn=warned.append).parts(lines, "f") == [
        [sentence_split.Piece(0, len(line), line)] for line in lines
    ]
    assert warned == []


def test_cut_lines_are_named_and_then_counted():
    warned: list[str] = []
    fit = LineFitter(Words(), 2, None, warn=warned.append)
    found = [fit.parts(["a b", "a b c d"], "file", first)[1] for first in range(1, 25, 2)]
    assert found == [[sentence_split.Piece(0, 3, "a b")]] * 12
    assert (
        warned[0]
        == "file, line 2: 4 tokens, truncated to 2, as the model takes at most 2; --split translates all of it"
    )
    assert len(warned) == 10
    fit.end(Processes())
    assert warned[-1] == "2 more lines were truncated to 2 tokens"


def test_split_lines_have_their_sentences():
    warned: list[str] = []
    fit = LineFitter(Words(), 3, None, split=True, warn=warned.append)
    found = fit.parts(["One two. Three four five six seven.", "", "a b"], "file")
    assert [[piece.text for piece in each] for each in found] == [
        ["One two.", "Three four five", "six seven."],
        [""],
        ["a b"],
    ]
    fit.end(Processes())
    assert warned == []


def test_every_sentence_has_the_tag_of_its_line():
    fit = LineFitter(Words(), 4, None, split=True, tags=["<2de>", "<2fr>"])
    two_tags = "<2de> One. <2fr> Two. Three."
    lines = ["<2fr> One two. Three four five six.", "One. Two.", "<2xx> One. Two.", "<2de>", two_tags]
    found = fit.parts(lines, "file")
    assert [[piece.text for piece in each] for each in found] == [
        ["<2fr> One two.", "<2fr> Three four five", "<2fr> six."],
        ["One.", "Two."],  # a tag applies to its own line
        ["<2xx> One.", "Two."],
        [""],
        ["<2de> One.", "<2fr> Two.", "<2fr> Three."],
    ]
    # Links count the line's words; the tag occurs once.
    outputs = [[output("a b", -1, [(0, 0), (1, 0), (2, 1)])], [output("c", -1, [(0, 0), (2, 0)])], [output("d", -1)]]
    assert join_outputs(lines[0], found[0], outputs, 1)[0].alignment == ((0, 0), (1, 0), (2, 1), (4, 2))


SCORES = st.lists(st.integers(-9, 0).map(float), min_size=1, max_size=3)


@given(st.lists(SCORES, min_size=1, max_size=3), st.integers(1, 4))
def test_the_best_of_a_line_are_the_best_combinations(scores, count):
    """Compare with all combinations."""
    parts = [sentence_split.Piece(i, i + 1, "x") for i in range(len(scores))]
    outputs = [
        [output(f"{i}.{j}", each) for j, each in enumerate(sorted(row, reverse=True)[:count])]
        for i, row in enumerate(scores)
    ]
    found = join_outputs("x" * len(scores), parts, outputs, count)
    every = sorted((sum(each.score for each in row) for row in itertools.product(*outputs)), reverse=True)
    assert [each.score for each in found] == every[: len(found)]
    assert len(found) == (min(count, len(every)) if len(scores) > 1 else len(outputs[0]))
    for each in found:
        chosen = [outputs[int(i)][int(j)] for i, _, j in (word.partition(".") for word in each.text.split())]
        assert each.score == sum(part.score for part in chosen)
        assert each.log_prob == sum(part.log_prob for part in chosen)
        assert each.tokens == tuple(each.text.split())


def test_links_count_words_of_the_whole_line():
    line = "One two. Three four five"
    parts = sentence_split.pieces(line, lambda text: len(text.split()), 2)
    assert [part.text for part in parts] == ["One two.", "Three four", "five"]
    outputs = [[output("a b", -1, [(0, 1), (1, 0)])], [output("", -1)], [output("c", -1, [(0, 0)])]]
    assert join_outputs(line, parts, outputs, 1)[0].alignment == ((0, 1), (1, 0), (4, 2))
    # A word cut in two is one word of the line.
    parts = sentence_split.pieces("abcd ef", len, 3)
    assert [part.text for part in parts] == ["abc", "d", "ef"]
    outputs = [[output(part.text, -1, [(0, 0)])] for part in parts]
    assert join_outputs("abcd ef", parts, outputs, 1)[0].alignment == ((0, 0), (0, 1), (1, 2))


def test_words_that_were_left_out_are_counted_in_the_whole_line():
    def left_out(*spans: tuple[int, int]) -> Translation:
        return dataclasses.replace(output("a", -1), untranslated=spans)

    line = "One two three four. Five six seven eight."
    parts = sentence_split.pieces(line, lambda text: len(text.split()), 4)
    outputs = [[left_out((0, 3))], [left_out((1, 4))]]
    assert join_outputs(line, parts, outputs, 1)[0].untranslated == ((0, 3), (5, 8))
    assert join_outputs(line, parts, [[output("a", -1)], outputs[1]], 1)[0].untranslated is None
    tagged = [
        sentence_split.Piece(0, 19, f"<2de> {parts[0].text}"),
        parts[1],
    ]  # a tag before a piece is not a word of the line
    outputs = [[left_out((1, 4))], [left_out()]]
    assert join_outputs(line, tagged, outputs, 1)[0].untranslated == ((0, 3),)


def test_samples_are_put_together_in_their_order():
    outputs = [[output("a", -5), output("b", -1)], [output("c", -2), output("d", -9)]]
    parts = [sentence_split.Piece(0, 1, "x"), sentence_split.Piece(2, 3, "y")]
    assert [each.text for each in join_outputs("x y", parts, outputs, 2, ranked=False)] == ["a c", "b d"]


def test_the_shorter_of_two_limits_counts():
    tokenizer = train(["a b c d"], "word")
    for longest, limit, kept in ((3, None, "a b c"), (3, 2, "a b"), (2, 3, "a b")):
        fit = LineFitter(tokenizer, longest, limit)
        assert [part[0].text for part in fit.parts(["a b c d", "b"], "f")] == [kept, "b"]
        assert fit.cut == 1
