"""What `regard align` checks, writes and prints, without a model."""

import pytest

from regard.cli.alignment import check_options, write_links
from regard.errors import CommandError
from regard.evaluation import alignment_scores
from regard.inspection import AlignmentSettings, corpus_alignment

RIGHT = {
    "source": "a",
    "target": "b",
    "translations": None,
    "reverse": None,
    "symmetrise": "union",
    "choose": None,
    "agree": False,
    "dependencies": False,
}


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"source": None}, "--source"),
        ({"symmetrise": "most"}, "--symmetrise"),
        ({"target": None, "choose": "gold"}, "--target"),
        ({"translations": "out"}, "--translations"),
        ({"agree": True}, "--agree"),
        ({"agree": True, "reverse": "run", "choose": "gold"}, "--agree"),
    ],
)
def test_options_that_do_not_go_together_are_refused(changes, flag):
    check_options(**RIGHT)
    with pytest.raises(CommandError, match=f"^{flag}: "):
        check_options(**{**RIGHT, **changes})


@pytest.mark.parametrize("changes", [{"source": None, "dependencies": True}, {"agree": True, "reverse": "run"}])
def test_options_that_go_together(changes):
    check_options(**{**RIGHT, **changes})


def test_links_are_written_chunk_by_chunk(tmp_path, capsys):
    chunks = [
        [corpus_alignment.AlignedPair("a b", "x\ty", [(0, 1), (1, 0)])],
        [corpus_alignment.AlignedPair("c", "", [])],
    ]
    gold = [alignment_scores.parse_links("0-1"), alignment_scores.parse_links("")]
    settings = AlignmentSettings("decoder.blocks.0.cross", 1)
    write_links(settings, iter(chunks), 2, tmp_path / "links", tmp_path / "texts", gold, tmp_path / "gold")
    assert (tmp_path / "links").read_text() == "0-1 1-0\n\n"
    assert (tmp_path / "texts").read_text() == "x y\n\n"  # a line is a line
    first, scores = capsys.readouterr().err.splitlines()
    assert first == f"regard: 2 pairs, read from {settings}"
    assert scores.startswith("regard: AER 33.33%, alignment precision 50.00%, alignment recall 100.00%")
    write_links(settings, iter(chunks[:1]), 1, tmp_path / "links", None, None, None)
    assert capsys.readouterr().err == f"regard: 1 pair, read from {settings}\n"
