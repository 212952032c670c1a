"""One input gives one output without losing a sentence: each sentence is translated, by whatever route a text comes.

Texts come as an argument, typed, from a file with --split, through Python, the API, and LibreTranslate's protocol. For
unsplit files and pipes, one line on standard error counts the lines with several sentences.
"""

import json
import os
import pty
import random
import re

import pytest
from child import command, fork, fork_ranks, regard
from cli.typing_in import Command
from serving.served import serve

from regard import load
from regard.data import sentence_split

pytestmark = pytest.mark.unchecked  # typer uses other classes than it documents
COMMAND = Command("translate")
SENTENCES = ["I see the dog.", "Where is my friend?", "We eat bread!", "She sleeps here.", "The child drinks water."]
NOTE = (
    "lines with several sentences: {} of {}; trained on single ones, the model may leave some out; --split translates"
)


@pytest.fixture(scope="module")
def desk(furnish):
    """Create runs: one of sentences, one of digits, one with tags, and one trained on several sentences at a time."""
    home = furnish(book="phrasebook", tagged="tagged", stories="phrasebook")
    (home / "stories" / sentence_split.FILE).write_text(sentence_split.SentenceShare(10_000, 501).dumps())
    return home


@pytest.fixture
def at_desk(desk, monkeypatch):
    monkeypatch.chdir(desk)
    return desk


def draw_texts(count):
    """Draw texts of several sentences, with and without capitals, with odd white space, and tokenised."""
    seed = random.randrange(2**32)
    print("seed", seed)
    rng, texts = random.Random(seed), []
    for _ in range(count):
        some = rng.choices(SENTENCES, k=rng.choice([1, 2, 3, 7]))
        if rng.random() < 0.3:
            some = [text.lower() for text in some]
        if rng.random() < 0.3:
            some = [re.sub(r"([.?!])", r" \1", text) for text in some]
        texts.append((rng.choice([" ", "  ", "\t"]).join(some), some))
    return texts


def one_by_one(run, some, **options):
    """Return the outputs of sentences, each translated by itself, joined by spaces."""
    return " ".join(filter(None, run.translate(some, split=False, **options)))


def said(*arguments, stdin=None):
    shown = COMMAND.typed(*arguments, stdin=stdin)
    assert shown.exit_code == 0, shown.output
    return shown.stdout.splitlines()


@pytest.mark.parametrize("count", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_every_sentence_is_translated_whichever_way_it_comes(at_desk, count):
    run, texts = load("book"), draw_texts(count)
    expected = [one_by_one(run, some) for _, some in texts]
    assert run.translate([text for text, _ in texts], split=True) == expected
    for (text, _), output in zip(texts[:3], expected, strict=False):
        assert said("book", text) == said("book", text, "--split") == [output]
    (at_desk / "in.txt").write_text("".join(f"{text}\n" for text, _ in texts))
    rows = [json.loads(line) for line in said("book", "in.txt", "--split", "--json")]
    assert [(row["source"], row["translations"][0]["text"]) for row in rows] == [
        (text, output) for (text, _), output in zip(texts, expected, strict=True)
    ]
    with serve("book", languages=["book=en-de"]) as served:
        given = [text for text, _ in texts]
        for fields in ({}, {"split": None}, {"split": True}):
            answers = served.results("/v1/translate", {"texts": given, **fields})
            assert [answer["text"] for answer in answers] == expected
        answer = served.post("/translate", {"q": given, "source": "en", "target": "de"}).json()
        assert answer["translatedText"] == expected
        html = served.post(
            "/translate",
            {"q": "".join(f"<p>{text}</p>" for text in given), "source": "en", "target": "de", "format": "html"},
        ).json()["translatedText"]
        assert re.findall("<p>(.*?)</p>", html) == expected


def test_a_line_stays_a_line_with_nbest_links_scores_and_prefixes(at_desk):
    run, (one, two) = load("book"), SENTENCES[:2]
    text = f"{one} {two}"
    parts = list(run.stream([one, two], prefixes=["Ich", ""], alignment=True, nbest=2, split=False))
    options = ("--nbest", 2, "--alignment", "--prefix", "Ich")
    (row,) = [json.loads(line) for line in said("book", text, "--json", *options)]
    best, second = row["translations"]
    assert best["text"] == " ".join(each[0].text for each in parts)
    assert best["score"] == pytest.approx(sum(each[0].score for each in parts), abs=1e-4)
    assert second["score"] <= best["score"]
    words, before = len(one.split()), len(parts[0][0].text.split())
    later = [[i + words, j + before] for i, j in parts[1][0].alignment]
    assert best["alignment"] == [*map(list, parts[0][0].alignment), *later]
    assert [line.split(" ||| ")[0] for line in said("book", text, *options)] == ["0", "0"]
    assert len(said("book", text, "--scores", "--alignment")[0].split("\t")) == 3
    with serve("book") as served:
        fields = {"texts": [text], "nbest": 2, "alignment": True, "scores": True, "prefixes": ["Ich"]}
        (result,) = served.results("/v1/translate", fields)
    assert [each["text"] for each in result["outputs"]] == [best["text"], second["text"]]
    assert result["outputs"][0]["alignment"] == best["alignment"]
    assert sum(result["outputs"][0]["scores"]) <= 0
    assert next(run.stream([text], prefixes=["Ich"], alignment=True, nbest=2, split=True))[0].text == best["text"]


def test_ensembles_and_tags(at_desk):
    text = " ".join(SENTENCES[:2])
    both = load("book", "book")
    assert said("book", "book", text) == [one_by_one(both, SENTENCES[:2])]
    assert both.sentence_share == load("book").sentence_share
    tagged, lower = load("tagged"), text.lower()
    expected = one_by_one(tagged, [f"<2fr> {each.lower()}" for each in SENTENCES[:2]])
    assert said("tagged", f"<2fr> {lower}") == [expected]
    with serve("tagged") as served:
        assert served.results("/v1/translate", {"texts": [f"<2fr> {lower}"]})[0]["text"] == expected


def test_files_and_pipes_are_counted_and_not_split(at_desk):
    text, single = " ".join(SENTENCES[:2]), SENTENCES[2]
    run = load("book")
    expected = run.translate([text, single], split=False)
    (at_desk / "two.txt").write_text(f"{text}\n{single}\n")
    (at_desk / "two.tsv").write_text(f"{text}\tx\n{single}\ty\n")
    for arguments, stdin in ((["two.txt"], None), ([], f"{text}\n{single}\n"), (["two.tsv"], None)):
        shown = COMMAND.typed("book", *arguments, stdin=stdin)
        assert shown.stdout.splitlines() == expected
        notes = [line for line in shown.stderr.splitlines() if "several sentences" in line]
        assert notes == [f"regard: {NOTE.format(1, 2)} each"]
        for flag in ("--split", "--no-split"):
            shown = COMMAND.typed("book", *arguments, flag, stdin=stdin)
            assert "several sentences" not in shown.stderr
            if flag == "--no-split":
                assert shown.stdout.splitlines() == expected
    assert "several sentences" not in COMMAND.typed("book", stdin=f"{single}\n").stderr
    assert said("book", text, "--no-split") == expected[:1]


def test_two_processes_count_together(at_desk):
    text = " ".join(SENTENCES[:2])
    (at_desk / "many.txt").write_text(f"{text}\n" * 9 + f"{SENTENCES[0]}\n")
    ranks = fork_ranks(command("translate", "book", "many.txt", "--device", "cpu"))
    assert {ended.status for ended in ranks} == {0}, ranks
    notes = [line for ended in ranks for line in ended.stderr.splitlines() if "several sentences" in line]
    assert notes == [f"regard: {NOTE.format(9, 10)} each"]


def test_python_says_so_once_a_call(at_desk, capsys):
    text, run, told = " ".join(SENTENCES[:2]), load("book"), []
    alone = run.translate([text], split=False)
    assert capsys.readouterr() == ("", "")
    assert run.translate([text, SENTENCES[2]])[:1] == alone
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("regard: texts with several sentences: 1 of 2; ")
    assert "--split" in err
    run.translate(SENTENCES)
    assert capsys.readouterr() == ("", "")
    load("book", warn=told.append).translate([text])
    assert ["several sentences" in each for each in told] == [False, True]  # the first message is about unknown words


def test_a_run_that_was_trained_on_several_sentences_reads_them_together(at_desk):
    text, run = " ".join(SENTENCES[:2]), load("stories")
    expected = run.translate([text])
    assert said("stories", text) == expected
    shown = COMMAND.typed("stories", stdin=f"{text}\n")
    assert shown.stdout.splitlines() == expected
    assert "several sentences" not in shown.stderr
    assert said("stories", "book", text) != said("book", "stories", text), "an ensemble follows its first run"
    assert said("stories", text, "--split") == [one_by_one(load("book"), SENTENCES[:2])]
    longer = " ".join(SENTENCES * 40)  # longer than the model takes: nothing is truncated
    assert said("stories", longer) == said("stories", longer, "--split")
    with serve("stories", "book") as served:
        cards = {card["name"]: card for card in served.get("/v1/models").json()["models"]}
        assert (cards["stories"]["split"], cards["book"]["split"]) == (False, True)
        given = {"model": "stories", "texts": [text, longer]}
        results = served.results("/v1/translate", given)
        assert [each["text"] for each in results] == [expected[0], *said("stories", longer)]
        assert not any(each["cut"] for each in results)
        assert served.results("/v1/translate", {**given, "split": False})[1]["cut"]


def test_what_is_typed_in_a_terminal_is_split(at_desk):
    text, run = " ".join(SENTENCES[:2]), load("book")
    master, slave = pty.openpty()
    os.write(master, f"{text}\n\x04".encode())
    child = fork(command("translate", "book", "--device", "cpu"), before=lambda: os.dup2(slave, 0))
    status, out, err = child.wait()
    os.close(master)
    os.close(slave)
    assert status == 0, err
    assert out.splitlines() == [one_by_one(run, SENTENCES[:2])], err
    assert "several sentences" not in err


def test_the_new_process_says_the_same(at_desk):
    text = " ".join(SENTENCES[:2])
    shown = regard("translate", "book", text, "--device", "cpu")
    assert (shown.status, shown.stdout) == (0, one_by_one(load("book"), SENTENCES[:2]) + "\n")
