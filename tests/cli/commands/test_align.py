"""`regard align` from the command line, and `regard eval --gold`, with mistakes."""

import json
import shlex
from pathlib import Path

import pytest
from cli.typing_in import Command

from regard import load
from regard.alignment import AlignmentSettings, flip_links, symmetrise
from regard.cli.commands.align import write_links
from regard.evaluation import alignment_scores
from regard.inspection import corpus_alignment
from regard.io import format_pharaoh, parse_pharaoh

COMMAND = Command("align")
typed, right, said, refused = COMMAND.typed, COMMAND.right, COMMAND.said, COMMAND.refused
measured, not_measured = Command("eval").typed, Command("eval").refused
SOURCES = ["1 2 3", "4 5", "", "7 8 9 0", "5"]
TARGETS = ["3 2 1", "5 4", "1", "0 9 8 7", "5"]
PAIR = "--source source.txt --target target.txt"


@pytest.fixture(scope="module")
def desk(furnish) -> Path:
    folder = furnish(run="transformer", back="luong", plain="rnn")
    gold = ["2-0 1-1 0-2", "1-0 0?1", "", "3-0 2-1 1-2 0-3", "0-0"]
    one = ["3-1 2-2 1-3", "2-1 1?2", "", "4-1 3-2 2-3 1-4", "1-1"]
    files = {"source.txt": SOURCES, "target.txt": TARGETS, "gold.txt": gold, "one.txt": one, "two.txt": ["1", "2"]}
    files |= {"bad.txt": ["0-0", "0-0", "x", "y"], "out.txt": ["0-3", *[""] * 4]}
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return folder


@pytest.fixture
def at_desk(desk, monkeypatch) -> Path:
    monkeypatch.chdir(desk)
    for run in ("run", "back"):
        (desk / run / "alignment.json").unlink(missing_ok=True)
    return desk


def test_a_line_a_pair(at_desk, tmp_path):
    run = load("run")
    lines = said("run", *PAIR.split())
    assert [parse_pharaoh(line) for line in lines] == list(run.links(zip(SOURCES, TARGETS, strict=True)))
    assert lines[2] == ""  # nothing to link
    for number, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        if source:
            weights = run.align(source, target).weights
            assert parse_pharaoh(lines[number]) == [(int(row.argmax()), i) for i, row in enumerate(weights)]
    assert said("run", *PAIR.split(), "--out", tmp_path / "links") == []
    assert (tmp_path / "links").read_text().splitlines() == lines
    assert list(run.links(zip(SOURCES, TARGETS, strict=True), chunk=2)) == [parse_pharaoh(line) for line in lines]


def test_both_sides_of_a_table(at_desk, tmp_path):
    rows = tmp_path / "pairs.tsv"
    rows.write_text("".join(f"{source}\t{target}\n" for source, target in zip(SOURCES, TARGETS, strict=True)))
    assert said("run", "--source", rows, "--target", rows) == said("run", *PAIR.split())


def test_what_is_translated_just_now(at_desk, tmp_path):
    found = [outputs[0] for outputs in load("run").stream(SOURCES, alignment=True, beam=2)]
    lines = said("run", "--source", "-", "--translations", tmp_path / "said", "--beam", 2, stdin="\n".join(SOURCES))
    assert lines == [format_pharaoh(each.alignment) for each in found]
    assert (tmp_path / "said").read_text().splitlines() == [each.text for each in found]


@pytest.mark.parametrize("method", ["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"])
def test_both_directions(at_desk, method):
    forward = load("run").links(zip(SOURCES, TARGETS, strict=True))
    backward = load("back").links(zip(TARGETS, SOURCES, strict=True))
    expected = [symmetrise(one, flip_links(two), method) for one, two in zip(forward, backward, strict=True)]
    lines = said("run", *PAIR.split(), "--reverse", "back", "--symmetrise", method)
    assert [parse_pharaoh(line) for line in lines] == expected


def test_choosing_is_kept_and_used(at_desk):
    plain = said("run", *PAIR.split())
    shown = right("run", *PAIR.split(), "--choose", "gold.txt")
    head, *rows = shown.stdout.splitlines()
    assert head.split()[:5] == ["layer", "head", "AER", "precision", "recall"]
    assert [row.split()[:2] for row in rows[:3]] == [["1", "1"], ["1", "2"], ["1", "mean"]]
    assert not any("blocks" in row for row in rows)  # the table counts layers and heads from 1
    chosen = AlignmentSettings.read("run/alignment.json")
    assert rows[-1] == f"run: {chosen}: AER {chosen.aer:.2%}, by gold links of 4 pairs"
    again = said("run", *PAIR.split(), "--gold", "gold.txt")
    assert [parse_pharaoh(line) for line in again] == list(load("run").links(zip(SOURCES, TARGETS, strict=True)))
    usual = ["--head", "mean", "--offset", 0, "--threshold", 0, "--join", "none", "--balance", 0, "--view", 1]
    assert said("run", *PAIR.split(), *usual) == plain
    outputs = list(load("run").stream(SOURCES, alignment=True, beam=1))
    assert [format_pharaoh(each[0].alignment) for each in outputs] == said("run", "--source", "source.txt", "--beam", 1)


def test_the_error_rate_is_said_and_measured(at_desk, tmp_path):
    shown = typed("run", *PAIR.split(), "--gold", "gold.txt", "--out", tmp_path / "links")
    rates = shown.stderr.splitlines()[-1]
    whole = measured("run", "--source", "source.txt", "--reference", "target.txt", "--gold", "gold.txt", "--json")
    scores = json.loads(whole.stdout)["scores"]
    assert rates == "regard: " + ", ".join(f"{each['name']} {each['value']:.2%}" for each in scores.values())
    one = ["--gold", "one.txt", "--from-one"]
    assert typed("run", *PAIR.split(), *one, "--out", tmp_path / "more").stderr.splitlines()[-1] == rates
    table = measured("--hypothesis", tmp_path / "links", "--gold", "gold.txt").stdout.splitlines()
    assert table[0] == f"{tmp_path / 'links'}: 5 sentences"
    assert [row.split("  ")[0] for row in table[3:]] == [each["name"] for each in scores.values()]
    assert f"{scores['aer']['value']:.2%}" in table[3]
    perfect = json.loads(measured("--hypothesis", "gold.txt", "--gold", "gold.txt", "--json").stdout)["scores"]
    assert {key: each["value"] for key, each in perfect.items()} == {"aer": 0, "precision": 1, "recall": 1, "f1": 1}


def test_two_runs_choose_each_other(at_desk):
    shown = right("run", *PAIR.split(), "--reverse", "back", "--agree")
    one, two = (AlignmentSettings.read(f"{run}/alignment.json") for run in ("run", "back"))
    assert one.aer == two.aer
    assert one.by == two.by == "agreement with a reverse run on 4 pairs"
    assert shown.stderr.splitlines() == [f"regard: {run}/alignment.json written" for run in ("run", "back")]
    assert two.view == "attention"


def test_heads_of_words(at_desk, monkeypatch):
    monkeypatch.setattr("regard.alignment.dependencies.EXAMPLES", 7)
    lines = said("run", "--dependencies")
    assert lines[0].startswith("encoder: words that attend most to their head, of ")
    assert lines[1].split() == ["layer", "head", "1", "head", "2"]
    assert lines[2].split()[0] == "1"
    assert len(lines[2].split()) == 3
    assert any(line.startswith("always the word ") for line in lines)
    assert refused("back", "--dependencies") == "model: no self-attention in it, expected a model with self-attention"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run", "--source: missing, expected a text file of sources"),
        ("run --source source.txt --target two.txt", "source.txt has 5 lines and two.txt has 2"),
        ("run --source none.txt --target two.txt", "none.txt: no such file"),
        (f"run {PAIR} --choose bad.txt", "bad.txt, line 3: 'x' given, expected source-target"),
        (f"run {PAIR} --choose two.txt", "two.txt, line 1: '1' given, expected source-target"),
        (f"run {PAIR} --choose out.txt", "out.txt, line 1: 0-3 given, but the target has 3 words there"),
        (f"run {PAIR} --choose gold.txt --from-one", "gold.txt, line 1: '2-0' given, expected words that are"),
        ("run --source source.txt --choose gold.txt", "--target: missing, expected the translations"),
        (f"run {PAIR} --agree", "--agree: add --reverse"),
        (f"run {PAIR} --agree --reverse back --choose gold.txt", "--agree: add --reverse, and leave out"),
        (f"run {PAIR} --translations x", "--translations: nothing is translated with --target; leave out one of them"),
        (f"run {PAIR} --symmetrise grow", "--symmetrise: grow given, expected one of intersection, union"),
        (f"run {PAIR} --view 2", "--view: 2 given, expected 1, the only layer"),
        (f"run {PAIR} --head 3", "head 3: layer 1 has 2 heads, numbered 1 to 2"),
        (f"run {PAIR} --head all", "--head: all given, expected a number from 1, or mean"),
        (f"run {PAIR} --threshold 2", "--threshold: 2.0 given, expected at most 1"),
        (f"run {PAIR} --join grow", "--join: grow given, expected one of intersection, union, grow-diag or none"),
        (f"run {PAIR} --out target.txt", "--out: target.txt is an input file, expected another"),
        (f"plain {PAIR}", "plain: the model has no attention to its source"),
    ],
)
def test_mistakes_are_one_sentence(at_desk, arguments, message):
    assert refused(*shlex.split(arguments)).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run --gold gold.txt", "--gold: give a run with --source and --reference, or --hypothes"),
        ("--hypothesis bad.txt --gold gold.txt", "bad.txt, line 3: 'x' given, expected source-target"),
        ("--hypothesis gold.txt --gold none", "none: no such file"),
        (
            "run --source source.txt --reference target.txt --gold out.txt",
            "out.txt, line 1: 0-3 given, but the target has 3 words there",
        ),
        (
            "--hypothesis gold.txt --gold gold.txt --metrics bleu",
            "--gold: give only --source and --reference with it, or --hypothesis",
        ),
    ],
)
def test_mistakes_of_measuring(at_desk, arguments, message):
    assert not_measured(*shlex.split(arguments)).startswith(message)


def test_links_are_written_chunk_by_chunk(tmp_path, capsys):
    chunks = [
        [corpus_alignment.AlignedPair("a b", "x\ty", [(0, 1), (1, 0)])],
        [corpus_alignment.AlignedPair("c", "", [])],
    ]
    gold = [alignment_scores.parse_links("0-1"), alignment_scores.parse_links("")]
    settings = AlignmentSettings("decoder.blocks.0.cross", 1)
    write_links(settings, iter(chunks), 2, tmp_path / "links", tmp_path / "texts", gold, tmp_path / "gold")
    assert (tmp_path / "links").read_text() == "0-1 1-0\n\n"
    assert (tmp_path / "texts").read_text() == "x y\n\n"  # the file keeps its lines
    first, scores = capsys.readouterr().err.splitlines()
    assert first == f"regard: 2 pairs, read from {settings}"
    assert scores.startswith("regard: AER 33.33%, alignment precision 50.00%, alignment recall 100.00%")
    write_links(settings, iter(chunks[:1]), 1, tmp_path / "links", None, None, None)
    assert capsys.readouterr().err == f"regard: 1 pair, read from {settings}\n"
