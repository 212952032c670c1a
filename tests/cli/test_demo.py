"""`regard demo`: the grammar, the translator, and the command in a short and in its full form."""

import subprocess
import sys

import pytest
import torch

from regard.demo import demonstrate
from regard.demo.grammar import draw, pairs, sentence, split
from regard.demo.lesson import Lesson
from regard.demo.translator import END, MECHANISMS, START, Translator, Vocabulary


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_the_grammar_says_what_it_should():
    plain = sentence("plain", "I", "eat", "pizza", "", "yesterday")
    assert plain.source == ("I", "ate", "pizza", "yesterday")
    assert plain.target == ("ich", "habe", "gestern", "Pizza", "gegessen")
    assert [sorted(link) for link in plain.links] == [[0], [0, 1], [3], [2], [1]]
    for form, english, german in [
        ("fronted", "today she bought the red car", "heute hat sie das rote Auto gekauft"),
        ("question", "did she buy the red car today", "hat sie heute das rote Auto gekauft"),
        ("because", "because she bought the red car today", "weil sie heute das rote Auto gekauft hat"),
        ("wish", "she wants to buy the red car today", "sie will heute das rote Auto kaufen"),
    ]:
        found = sentence(form, "she", "buy", "car", "red", "today")
        assert (" ".join(found.source), " ".join(found.target)) == (english, german)
    away = sentence("plain", "we", "travel", "to the station", "", "recently")
    assert " ".join(away.target) == "wir sind neulich zum Bahnhof gereist"


def test_every_sentence_is_distinct_and_linked():
    every = list(pairs())
    assert len({pair.source for pair in every}) == len(every) > 10_000
    for pair in every:
        assert len(pair.links) == len(pair.target)
        assert all(link and max(link) < len(pair.source) for link in pair.links)
    lexicon = {}  # content words come from one word each, wherever they stand
    for pair in every:
        for word, link in zip(pair.target, pair.links, strict=True):
            if len(link) == 1:
                lexicon.setdefault(word, set()).add(pair.source[min(link)])
    assert max(map(len, lexicon.values())) <= 2  # an infinitive and its past


def test_held_out_sentences_are_not_trained_on():
    first = sentence("plain", "I", "eat", "pizza", "", "yesterday")
    train, test = split(train=300, test=50, seed=7, first=first)
    assert (len(train), len(test), test[0]) == (300, 50, first)
    assert not {pair.source for pair in train} & {pair.source for pair in test}
    assert split(train=300, test=50, seed=7, first=first) == (train, test)
    assert split(train=300, test=50, seed=8, first=first) != (train, test)


@pytest.mark.parametrize("name", MECHANISMS)
def test_translating_step_by_step_is_teacher_forcing_on_what_was_written(name):
    import random

    found = [draw(random.Random(index)) for index in range(6)]
    words, targets = Vocabulary([p.source for p in found]), Vocabulary([p.target for p in found])
    model = Translator(len(words), len(targets), MECHANISMS[name].build(16), 16).eval()
    source = words.encode([pair.source for pair in found])
    written = model.translate(source, limit=7)
    read = torch.cat([torch.full((6, 1), START), written[:, :-1]], 1)
    assert torch.equal(model(source, read).argmax(-1), written)
    alone = words.encode([found[0].source])  # padding changes nothing
    torch.testing.assert_close(model(alone, read[:1]), model(source, read)[:1])
    weights = model.weights(source, read)
    assert weights.shape == (6, written.shape[1], source.shape[1])
    assert float(weights.masked_select((source == 0)[:, None].expand_as(weights)).abs().sum()) == 0
    assert END in targets.encode([found[0].target], end=True)[0]


def test_a_short_lesson_learns():
    train, test = split(train=200, test=20, seed=0)
    lesson = Lesson(train, test, seed=0)
    before, after = lesson.learn("scaled dot", steps=1), lesson.learn("scaled dot", steps=100)
    assert after.exact > before.exact
    assert after.aligned > before.aligned
    assert lesson.learn("scaled dot", steps=1).weights.equal(before.weights)  # the seed decides


def test_the_command_in_short(tmp_path):
    command = [sys.executable, "-c", "from regard.cli.main import main; main()", "demo", "--steps", "2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in MECHANISMS)
    assert "I ate pizza yesterday →" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert (tmp_path / "runs/demo/alignment.png").stat().st_size > 5000
    assert "picture: runs/demo/alignment.png" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_demonstration_in_full(tmp_path, seed):
    shown = demonstrate(tmp_path, seed=seed)
    for result in shown.results:
        local = result.mechanism == "local-p"
        assert result.exact >= (0.85 if local else 0.95), result.mechanism
        assert result.aligned >= (0.7 if local else 0.85), result.mechanism
        assert result.aligned > shown.unmoved + 0.1
        assert result.translation == shown.example.target
