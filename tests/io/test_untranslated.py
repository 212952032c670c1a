"""Lines whose outputs leave source words out are named in one sentence."""

from regard.io.untranslated import LISTED, UntranslatedReport, quote
from regard.run import Translation


def output(*spans: tuple[int, int]) -> Translation:
    return Translation("", 0.0, 0.0, (), True, untranslated=spans)


def test_a_single_line_is_not_numbered():
    said: list[str] = []
    report = UntranslatedReport(said.append, 1)
    report.look(1, "I see the dog. I see\tthe cat.", [output((0, 3), (4, 8)), output()])
    report.tell()
    report.tell()  # nothing new
    assert said == ["perhaps not translated: “I see the”, “I see the cat.”"]


def test_lines_are_named_and_then_counted():
    said: list[str] = []
    report = UntranslatedReport(said.append, None)
    for number in range(1, 2 * LISTED + 2):
        report.look(number, "a b c d", [output((0, 3)) if number % 2 else output()])
    report.tell()
    assert said[0].startswith("perhaps not translated: “a b c” (line 1); “a b c” (line 3); ")
    assert said[0].endswith("“a b c” (line 11) and in 1 more line")
    report.look(20_000, "a b c d", [output((1, 4))])
    report.tell()
    assert said[1:] == ["perhaps not translated: “b c d” (line 20,000)"]


def test_what_covers_everything_or_was_not_asked_is_not_named():
    said: list[str] = []
    report = UntranslatedReport(said.append, 1)
    report.look(1, "a b c d", [output()])
    report.look(1, "a b c d", [Translation("", 0.0, 0.0, (), True)])
    report.tell()
    assert said == []


def test_words_are_quoted_on_one_line_that_moves_no_cursor():
    assert quote(["a\x1b[2J", "b", "c"]) == "“a\\x1b[2J b c”"
    long = quote([f"word{number}" for number in range(100)])
    assert len(long) < 100
    assert long.startswith("“word0 word1")
    assert long.endswith("word99”")
    assert " … " in long
