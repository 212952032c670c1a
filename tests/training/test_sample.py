"""Where an output differs from its reference."""

from hypothesis import given
from hypothesis import strategies as st

from regard.training.sample import Sample, bracketed, clip, differing, nearest

WORDS = st.text(alphabet="abc dé\u0301漢字", max_size=24)


def test_pieces_of_a_known_pair():
    assert bracketed("Ein Mann fährt Pferd .", "Ein Mann reitet ein Pferd .") == "Ein Mann [fährt] Pferd ."
    assert bracketed("Ein Pferd .", "Ein braunes Pferd .") == "Ein ‸ Pferd ."
    assert bracketed("", "etwas") == "‸"
    assert bracketed("etwas", "") == "[etwas]"
    assert bracketed("", "") == ""
    assert bracketed("23.5.1998", "23.4.1998") == "23.[5].1998"
    assert bracketed("我昨天吃", "我昨日吃") == "我昨[天]吃"
    assert bracketed("e\u0301", "e\u0300") == "[e\u0301]"  # a mark stays with its letter


@given(WORDS, WORDS)
def test_pieces_are_the_output_and_the_rest_is_common(output, reference):
    pieces = differing(output, reference)
    assert " ".join("".join(text for text, _ in pieces).split()) == " ".join(output.split())
    assert any(differs for _, differs in pieces) == (output.split() != reference.split())
    rest = iter(" ".join(reference.split()))  # what does not differ stands in the reference, in that order
    assert all(letter in rest for text, differs in pieces if not differs for letter in text if letter != " ")


def test_a_label_is_right_or_wrong_as_a_whole():
    wrong = Sample("a film", "positive", "negative", label=True)
    assert wrong.pieces == [("negative", True)]
    assert bracketed("very bad", "very good", label=True) == "[very bad]"
    assert Sample("a film", "positive", "positive", label=True).pieces == [("positive", False)]
    assert wrong.record() == {"source": "a film", "reference": "positive", "output": "negative", "label": True}
    assert set(Sample("a", "b", "c").record()) == {"source", "reference", "output"}


def test_the_nearest_reference():
    references = ["a dog runs", "two dogs play in the grass", "dogs"]
    assert nearest("two dogs run in the grass", references) == references[1]
    assert nearest("", references) == references[0]


@given(text=st.text(alphabet="ab é語 ", max_size=40), width=st.integers(4, 30))
def test_a_line_is_cut_at_a_screens_width(text, width):
    def columns(line):
        return sum(2 if letter == "語" else 1 for letter in line)

    cut = clip(text, width)
    assert columns(cut) <= width
    assert cut == text if columns(text) <= width else (cut.endswith(" …") and text.startswith(cut[:-2]))
