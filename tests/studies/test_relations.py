"""The study of relations: their names, how it counts heads and judges, and, in the slow form, its findings."""

import pytest
import torch

from regard.alignment import dependencies as dependency_links
from regard.data import Example, generate
from regard.tasks import build_model, read_settings, start
from regard_corpora import RELATIONS, name_relations
from regard_studies import Setting, relations
from regard_studies.relations import (
    ALL,
    FAR,
    GROUPS,
    Best,
    Counts,
    RelationFigures,
    best_distance,
    best_head,
    count,
    judge_heads,
    run,
    single_head,
    tables,
    verdicts,
)
from regard_studies.seed_statistics import SeedStatistics


@pytest.mark.parametrize(
    ("text", "heads", "expected"),
    [
        ("the girl reads a new book .", (1, 2, -1, 5, 5, 2, 2), "determiner subject - determiner adjective object"),
        ("which dog do you see ?", (1, 4, 4, 4, -1, 4), "determiner object auxiliary subject -"),
        ("she looks for her book .", (1, -1, 4, 4, 1, 1), "subject - preposition determiner -"),
        ("he does not know Anna 's dog .", (3, 3, 3, -1, 6, 4, 3, 3), "subject auxiliary negation - - - object"),
        ("I see her because she sings .", (1, -1, 1, 5, 5, 1, 1), "subject - object conjunction subject -"),
    ],
)
def test_words_are_named_by_what_they_are_to_their_heads(text, heads, expected):
    wanted = [None if each == "-" else each for each in expected.split()]
    assert name_relations(Example(text, "", (), heads))[0] == [*wanted, "punctuation"]


def test_what_is_linked_is_called_the_same():
    example = Example(
        "the dog sleeps .", "der Hund schläft .", ((0, 0), (1, 1), (2, 2), (3, 3)), (1, 2, -1, 2), (1, 2, -1, 2)
    )
    assert name_relations(example) == (["determiner", "subject", None, "punctuation"],) * 2
    apart = Example(example.source, example.target, ((0, 0), (1, 1), (3, 3)), *(example.source_heads,) * 2)
    assert name_relations(apart)[1] == ["determiner", None, None, None]  # their heads are not linked


def test_all_relations_occur_and_no_others():
    examples = list(generate("phrasebook", 150, split="test", pair="en-de", seed=0, edition=1, longest=18))
    found = {name for example in examples for side in name_relations(example) for name in side}
    assert found == {*RELATIONS, None}


def counts(words, heads, distances):
    def whole(some):
        return {**dict.fromkeys(GROUPS, 0), **some}

    return Counts(
        whole(words),
        {key: whole(some) for key, some in heads.items()},
        {key: whole(some) for key, some in distances.items()},
    )


ONE, OTHER = ("encoder.blocks.0.attention", 1), ("encoder.blocks.2.attention", 0)


def test_the_best_is_chosen_on_one_half_and_counted_on_the_other():
    words = {"subject": 10, "object": 10, ALL: 20}
    chosen = counts(words, {ONE: {"subject": 9, "object": 0}, OTHER: {"subject": 5, "object": 5}}, {1: {"subject": 4}})
    tested = counts(words, {ONE: {"subject": 3, "object": 1}, OTHER: {"subject": 8, "object": 2}}, {-1: {"subject": 9}})
    assert best_head(chosen, tested, "subject") == Best("1.2", 30.0)
    assert best_head(chosen, tested, "object") == Best("3.1", 20.0)
    assert single_head(chosen, tested, ["subject", "object"]) == Best("3.1", 50.0)
    assert best_distance(chosen, tested, "subject") == Best("+1", 0.0)


def test_heads_are_counted_as_they_are_elsewhere(tmp_path, monkeypatch):
    """The counts over all words equal those of `dependencies`, and each group is a part of them."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    table = tables(quick=True)["transformer"]
    table["data"]["count"] = 300
    table["model"] = {"kind": "transformer", "size": 16, "heads": 2, "layers": 2, "hidden": 16, "tied": "all"}
    table["training"] |= {"steps": 1, "validate_every": 1, "warmup": 1, "device": "cpu"}
    start(table, tmp_path / "run")
    from regard import load

    opened = load(tmp_path / "run")
    torch.manual_seed(5)
    model = build_model(opened.settings, opened.tokenizers).eval()
    examples = list(generate("phrasebook", 30, split="test", pair="en-de", seed=0, edition=1))
    found = count(model, opened.tokenizers, examples)
    for heed in dependency_links.measure_dependencies(model, opened.tokenizers, examples):
        side = found[heed.side]
        assert side.words[ALL] == heed.words
        assert side.share(side.heads[heed.view, heed.head], ALL) == pytest.approx(100 * heed.share)
    for side in dependency_links.SIDES:
        whole = found[side]
        assert sum(right[ALL] for right in whole.distances.values()) == whole.words[ALL]
        assert whole.words[FAR] == sum(right[ALL] for far, right in whole.distances.items() if abs(far) >= 3)
        for right in (*whole.heads.values(), *whole.distances.values()):
            assert all(0 <= right[group] <= whole.words[group] for group in GROUPS)
            assert sum(right[group] for group in RELATIONS) <= right[ALL]


def figures(trained, distance, course, every):
    groups = [ALL, FAR, "subject", "object"]
    return RelationFigures(
        groups,
        dict.fromkeys(groups, 100),
        {group: Best("+1", distance) for group in groups},
        {**{group: SeedStatistics((trained,)) for group in groups}, ALL: SeedStatistics((every,))},
        {group: SeedStatistics((5.0,)) for group in groups},
        dict.fromkeys(groups, "1.1"),
        [SeedStatistics((each,)) for each in course],
        SeedStatistics((40.0,)),
    )


def test_verdicts_follow_the_figures():
    paper = figures(80.0, 30.0, [20.0, 40.0, 60.0, 70.0, 80.0], 34.0)
    assert [verdict.agrees for verdict in verdicts(paper)] == [True] * 5
    steady = figures(80.0, 30.0, [20.0, 79.0, 79.0, 80.0, 80.0], 34.0)  # all of the gain is in the first quarter
    assert [verdict.agrees for verdict in verdicts(steady)] == [True, True, True, False, True]
    other = figures(35.0, 30.0, [50.0, 52.0, 48.0, 50.0, 51.0], 60.0)
    assert [verdict.agrees for verdict in verdicts(other)] == [False] * 5


def test_groups_of_few_words_are_left_out():
    words = {ALL: 100, "subject": 100, "object": 3}
    some = counts(words, {ONE: {ALL: 30, "subject": 60}}, {1: {ALL: 20, "subject": 50}})
    found = judge_heads([[(some, some), (some, some)]])
    assert found.groups == [ALL, "subject"]
    assert found.relations == ["subject"]
    assert found.course[-1].mean == found.single.mean == pytest.approx(60.0)


def test_the_table_is_one_system():
    for quick in (True, False):
        (settings,) = (read_settings(table) for table in tables(quick).values())
        assert settings.training.steps % settings.training.validate_every == 0
        assert settings.training.keep == settings.training.steps // settings.training.validate_every


def test_a_page_of_a_hardly_trained_study(shorten):
    setting = shorten(
        relations,
        data={"count": 300},
        model={"size": 16, "hidden": 16},
        training={"steps": 4, "validate_every": 1, "batch_tokens": 128},
        generate=lambda name, number, **options: generate(name, 160, **options),
        FEWEST=10,
        exact_share=lambda run, examples: 0.0,
    )
    page = run(setting)
    assert len(page.tables) == 3
    assert len(page.tables[2].rows[0]) == 7
    assert page.write(setting.out).is_file()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_claim_holds(tmp_path):
    page = run(Setting((0,), quick=True, device="cpu", out=tmp_path))
    # Not asserted: distant words, to which two small layers hardly attend, and a gain in every quarter.
    for verdict in page.verdicts[:3]:
        assert verdict.agrees, verdict.evidence
