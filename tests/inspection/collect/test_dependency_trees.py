"""Dependency trees: read from files, mapped to words, and followed by heads with planted weights."""

import time
from types import SimpleNamespace

import pytest
import torch
from inspection.subjects import PAIRS, exhibit_of_subject, subject

from regard.data import DataSettings, builtin, generate
from regard.errors import CommandError, DataError
from regard.inspection import exhibit_of
from regard.inspection.collect import dependency_trees
from regard.inspection.collect.dependency_trees import (
    ParsedTree,
    dependencies_of,
    find_trees,
    fit_words,
    phrasebook_tree,
    read_trees,
    relation_table,
)
from regard.inspection.collect.exhibit import View
from regard.tasks import Side

PIZZA = """# text = I ate pizza yesterday.
1\tI\tI\tPRON\t_\t_\t2\tnsubj\t_\t_
2\tate\teat\tVERB\t_\t_\t0\troot\t_\t_
3\tpizza\tpizza\tNOUN\t_\t_\t2\tobj\t_\t_
4\tyesterday\t_\tADV\t_\t_\t2\tadvmod\t_\t_
5\t.\t.\tPUNCT\t_\t_\t2\tpunct\t_\t_
"""
WORDS = ("I", "ate", "pizza", "yesterday", ".")
DU = """1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_
1\tde\t_\t_\t_\t_\t3\tcase\t_\t_
2\tle\t_\t_\t_\t_\t3\tdet\t_\t_
3\tpain\t_\t_\t_\t_\t0\troot\t_\t_
3.1\tempty\t_\t_\t_\t_\t_\t_\t_\t_
"""


def trees_of(tmp_path, text, name="trees.conllu"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_trees(tmp_path / name)


def test_a_treebank_is_read(tmp_path):
    first, second = trees_of(tmp_path, PIZZA + "\n\n" + DU)
    assert first.heads == (1, -1, 1, 1, 1)
    assert first.relations == ("nsubj", "root", "obj", "advmod", "punct")
    assert fit_words(first, WORDS) == (first.heads, first.relations)
    assert second.forms == (("du", 2), ("pain", 1))
    assert fit_words(second, ("Du", "pain")) == ((1, -1), ("case", "root"))


def test_words_may_hold_their_full_stop(tmp_path):
    (tree,) = trees_of(tmp_path, PIZZA)
    heads, relations = fit_words(tree, ("i", "ATE", "pizza", "yesterday."))
    assert heads == (1, -1, 1, 1)
    assert relations == ("nsubj", "root", "obj", "advmod")
    with pytest.raises(DataError, match="line 2: 'pizza' in the tree, and word 3, 'bread' in the text"):
        fit_words(tree, ("I", "ate", "bread", "yesterday."))
    with pytest.raises(DataError, match=r"'\.' in the tree, and the end in the text"):
        fit_words(tree, ("I", "ate", "pizza", "yesterday"))
    with pytest.raises(DataError, match="the tree ends before word 6, 'again'"):
        fit_words(tree, (*WORDS, "again"))


def test_four_columns(tmp_path):
    (tree,) = trees_of(tmp_path, "1 she 2 nsubj\n2 sleeps 0 root\n")
    assert (tree.heads, tree.relations) == ((1, -1), ("nsubj", "root"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "nothing in it"),
        ("# only a comment\n", "nothing in it"),
        ("she sleeps in bed\n", "a text given, expected its dependency tree, in CoNLL-U or as the number of each"),
        ("she sleeps .\n", "a text given, expected its dependency tree"),
        ("1 -1\n0 x\n", "line 2: '0 x' given, expected the number of each word's head"),
        ("1 -1 7\n", "line 1: the head of word 3 is not another of its 3 words"),
        ("0 -1\n", "line 1: the head of word 1 is not another"),
        ("1\tshe\n", "line 1: 2 columns given, expected ID, FORM, HEAD and DEPREL"),
        ("1\tshe\t2\n", "line 1: 3 columns given, expected ID, FORM, HEAD and DEPREL"),
        ("1\tshe\tx\tnsubj\n", "line 1: 'x' given, expected the number of a word"),
        ("1\tshe\t9\tnsubj\n", "line 1: the head of word 1 is not another of its 1 words"),
    ],
)
def test_what_is_no_tree(tmp_path, text, said):
    with pytest.raises(DataError, match=said):
        trees_of(tmp_path, text)


def test_the_phrasebooks_own_files(tmp_path):
    list(builtin.write_corpus("phrasebook", tmp_path, {"test": 30}))
    examples = list(generate("phrasebook", 30, split="test"))
    for side, name in (("en", "source"), ("de", "target")):
        trees = read_trees(tmp_path / f"test.{side}.heads")
        assert [tree.heads for tree in trees] == [getattr(each, f"{name}_heads") for each in examples]
        assert [tree.relations for tree in trees] == [getattr(each, f"{name}_relations") for each in examples]
    inputs = [each.source for each in examples[:3]]
    found = find_trees(None, [str(tmp_path / "test.en")], inputs)
    assert [tree.heads for tree in found] == [each.source_heads for each in examples[:3]]
    assert find_trees(None, ["a text", "another"], inputs) == [None] * 3
    assert find_trees(None, ["x" * 5000], ["x" * 5000]) == [None]
    with pytest.raises(CommandError, match="has 30 trees, but 31 texts are shown"):
        find_trees(str(tmp_path / "test.en.heads"), [], ["a"] * 31)


def test_relations_stand_beside_heads(tmp_path):
    (tmp_path / "some.heads").write_text("1 -1 1\n\n-1 0\n")
    assert [tree.relations for tree in read_trees(tmp_path / "some.heads")] == [(), ()]  # an earlier format
    (tmp_path / "some.relations").write_text("nsubj root obj\nroot punct\n")
    found = read_trees(tmp_path / "some.heads")
    assert [tree.relations for tree in found] == [("nsubj", "root", "obj"), ("root", "punct")]
    assert found[1].heads == (-1, 0)
    (tmp_path / "some.relations").write_text("nsubj root obj\nroot punct obj\n")
    with pytest.raises(DataError, match=r"some.relations, text 2: 3 relations given, but .*some.heads, line 3 has 2"):
        read_trees(tmp_path / "some.heads")
    (tmp_path / "some.relations").write_text("nsubj root obj\n")
    with pytest.raises(DataError, match=r"relations of 1 texts given, but .*some.heads has heads of 2"):
        read_trees(tmp_path / "some.heads")


def trained_on(task="translate", **data):
    """Return the part of a run that decides its trees."""
    settings = SimpleNamespace(task=task, data=DataSettings(**data))
    return SimpleNamespace(settings=settings, can=lambda action: action == task)


def test_the_phrasebook_knows_its_own_sentences():
    run = trained_on(builtin="phrasebook")
    tree = phrasebook_tree(run, "She ate the pizza.")
    assert tree.heads == (1, -1, 3, 1)
    assert tree.relations == ("nsubj", "root", "det", "obj")
    assert find_trees(None, ["She ate the pizza."], ["She ate the pizza."], run) == [tree]
    old = trained_on(builtin="phrasebook", builtin_edition=1)
    assert phrasebook_tree(old, "she ate the pizza .").relations == (*tree.relations, "punct")
    assert phrasebook_tree(old, "She ate the pizza.") is None  # that edition writes it differently


@pytest.mark.parametrize("share", [10, pytest.param(1, marks=pytest.mark.slow)], ids=["short", "whole"])
def test_many_texts_share_the_search(monkeypatch, share):
    """100 texts and 1000 texts take equally many tries in all."""
    spent, found = [], builtin.find_example

    def find(name, text, *, tries, **options):
        spent.append(tries)
        return found(name, text, tries=tries, **options)

    monkeypatch.setattr(builtin, "find_example", find)
    monkeypatch.setattr(dependency_trees, "BUDGET", dependency_trees.BUDGET // share)
    for count in (100, 1000):
        texts = ["Ate she pizza the."] * count  # words of the grammar in an order that it never produces
        begun = time.process_time()
        assert find_trees(None, texts, texts, trained_on(builtin="phrasebook")) == [None] * count
        assert time.process_time() - begun < 60 / share
        assert (len(spent), sum(spent)) == (count, dependency_trees.BUDGET)
        spent.clear()


@pytest.mark.parametrize("text", ["She ate the pizza!", "She ate SHE ate.", "She eated the pizza.", "Ate the she.", ""])
def test_no_tree_is_made_up(text):
    assert phrasebook_tree(trained_on(builtin="phrasebook"), text) is None
    for data in ({"builtin": "copy"}, {}, {"builtin": "phrasebook", "task": "language-model"}):  # runs without trees
        assert phrasebook_tree(trained_on(**data), "She ate the pizza.") is None


# ---- heads that follow a tree


def planted(weights, pieces, words, texts, rows="source"):
    side = Side(pieces, words, texts)
    role = "decoder" if rows == "read" else "encoder"
    return {rows: side}, [View("encoder.blocks.0.attention", "encoder, layer 1", role, 0, rows, rows, weights)]


def test_heads_that_follow_are_counted():
    """Head 1 attends to each word's head, head 2 always to the word before, head 3 to nothing."""
    pieces, words = ("I", "ate", "piz", "za", "yesterday", "."), (0, 1, 2, 2, 3, 4)
    weights = torch.zeros(3, 6, 6)
    weights[0, :, 1] = 1
    for row, column in [(1, 0), (2, 1), (3, 1), (4, 3), (5, 4)]:
        weights[1, row, column] = 1
    sides, views = planted(weights, pieces, words, WORDS)
    tree = ParsedTree((1, -1, 1, 1, 1), ("nsubj", "root", "obj", "advmod", "punct"))
    made = dependencies_of(tree, sides, views)
    assert made.side == "source"
    assert made.words == {"": 4, "advmod": 1, "nsubj": 1, "obj": 1, "punct": 1}
    assert [head.hits[""] for head in made.follows] == [4, 1, 0]
    assert made.follows[1].hits == {"": 1, "advmod": 0, "nsubj": 0, "obj": 1, "punct": 0}
    assert made.distances[""] == {1: 1, -1: 1, -2: 1, -3: 1}
    assert made.back == made.words
    nothing = dict.fromkeys(made.words, 0)
    assert [head.back for head in made.follows] == [nothing, {**nothing, "": 1, "nsubj": 1}, nothing]
    table = relation_table([made, made], views).splitlines()
    assert table[0].split("  ")[0] == "relation"
    assert "all       8      encoder, layer 1, head 1  1.00" in table[1]
    assert [line.split()[0] for line in table[2:]] == ["advmod", "nsubj", "obj", "punct"]


def test_weights_of_a_words_pieces_are_one():
    """Two pieces of one word, each with a small weight, outweigh another word with a larger weight than either."""
    weights = torch.zeros(1, 3, 3)
    weights[0, 0] = torch.tensor([0.4, 0.3, 0.3])
    sides, views = planted(weights, ("a", "b", "c"), (0, 1, 1), ("a", "bc"))
    made = dependencies_of(ParsedTree((1, -1)), sides, views)
    assert made.follows[0].hits == {"": 1}
    assert made.relations == ("", "")


def test_what_is_read_can_look_back_only():
    weights = torch.ones(1, 4, 4).tril()
    weights[0, 3, 1] = 5
    sides, views = planted(weights, ("<s>", "a", "b", "c"), (None, 0, 1, 2), ("a", "b", "c"), rows="read")
    made = dependencies_of(ParsedTree((1, -1, 0)), sides, views)
    assert made.words == {"": 1}  # the head of the first word comes after it
    assert made.follows[0].hits == {"": 1}
    assert made.back == {"": 1}  # the second word can attend back to the first, and does
    assert made.follows[0].back == {"": 1}


def test_a_verb_may_look_at_its_object():
    """One head attends from the verb to its object, another from the object to its verb."""
    weights = torch.zeros(2, 3, 3)
    weights[0, 1, 2] = weights[1, 2, 1] = 1
    sides, views = planted(weights, ("she", "ate", "pizza"), (0, 1, 2), ("she", "ate", "pizza"))
    made = dependencies_of(ParsedTree((1, -1, 1), ("nsubj", "root", "obj")), sides, views)
    assert [(head.hits["obj"], head.back["obj"]) for head in made.follows] == [(0, 1), (1, 0)]
    table = relation_table([made], views).splitlines()
    assert "obj       1      encoder, layer 1, head 2  1.00" in table[3]  # on a tie, the direction to the head wins
    only, views = planted(weights[:1], ("she", "ate", "pizza"), (0, 1, 2), ("she", "ate", "pizza"))
    table = relation_table([dependencies_of(ParsedTree((1, -1, 1), made.relations), only, views)], views).splitlines()
    assert "obj       1      encoder, layer 1, head 1, from the head  1.00" in table[3]
    assert table[2].split()[:4] == ["nsubj", "1", "none", "0.00"]


@pytest.mark.parametrize("name", ["transformer", "encoder-writes", "lstmn", "rnnsearch"])
def test_a_run_has_a_tree_beside_its_heads(name):
    example = PAIRS[3]
    made = exhibit_of(subject(name), example.source, longest=4, dependencies=ParsedTree(example.source_heads))
    tree = made.dependencies
    assert tree.side == ("read" if name == "encoder-writes" else "source")
    assert tree.heads == example.source_heads
    own = [view for view in made.views if view.rows == view.columns == tree.side]
    assert len(tree.follows) == sum(len(view.weights) for view in own)
    assert bool(tree.follows) == (name != "rnnsearch")
    assert all(0 <= head.hits[""] <= tree.words[""] for head in tree.follows)
    with pytest.raises(DataError, match="2 heads given, but the text has"):
        exhibit_of(subject(name), example.source, longest=4, dependencies=ParsedTree((1, -1), where="x"))
    assert exhibit_of_subject(name).dependencies is None
