"""Reports on corpora: samples of any size, and what they count."""

import random
import time
import unicodedata

from regard.data.check import (
    READ,
    SCRIPTS,
    check_documents,
    check_pairs,
    check_texts,
    find_foreign,
    scripts_of,
    take_sample,
)


def rows(count: int) -> list[tuple[str, str]]:
    draw = random.Random(count)
    return [(f"source {draw.random()}", f"target {i}") for i in range(count)]


def test_a_sample_has_stretches_from_everywhere():
    sample = take_sample(rows(20_000), most=4_000)
    assert 2_000 <= len(sample) <= 4_000
    assert sample.rows == 20_000
    assert sample.lines[0] == 1
    assert sample.lines[-1] > 16_000
    assert [sample.seconds[i] for i in (0, 600, -1)] == [f"target {sample.lines[i] - 1}" for i in (0, 600, -1)]
    assert len(take_sample(rows(300))) == 300
    assert len(take_sample(iter(()))) == 0


def test_repetitions_are_estimated_from_rows_chosen_by_content():
    once = rows(8_000)
    report = check_pairs(once + once[:2_000])
    (finding,) = report.findings
    assert (finding.name, finding.count, finding.line) == ("duplicates", 2_000, 8_001)
    sample = take_sample(once + once[:2_000], most=1_500)
    assert sample.thinned
    assert 500 < sample.hashed <= 1_500
    assert 0.15 < len(sample.repeated) / sample.hashed < 0.25


def test_no_more_than_a_million_rows_are_read():
    def endless():
        while True:
            yield "", ""

    assert take_sample(endless(), most=10, read=5_000).rows == 5_000
    assert READ == 1_000_000


def test_counts_are_those_of_the_corpus():
    pairs = [(f"{one} word", f"{two} wort") for one, two in rows(3_000)]
    for i in range(0, 3_000, 10):
        pairs[i] = (pairs[i][0], pairs[i][0])
    (finding,) = check_pairs(pairs).findings
    assert (finding.name, finding.count, finding.line, finding.fatal) == ("copies", 300, 1, False)


def test_labels_of_few_documents_are_labels():
    assert check_documents([(f"text {i}", str(i)) for i in range(5)]).fatal is None
    report = check_documents([(f"text {i}", str(i)) for i in range(50)])
    assert report.fatal is not None
    assert report.fatal.name == "labels"
    assert report.labels == 50


def test_texts_alone():
    report = check_texts(["a &lt; b", "c", "c", "Fish & chips; AT&T"])
    assert [(each.name, each.count, each.line) for each in report.findings] == [
        ("duplicates", 1, 3),
        ("entities", 1, 1),
    ]


def test_a_large_corpus_takes_seconds():
    pairs = [(f"{one} " * 5, f"{two} " * 5) for one, two in rows(100_000)]
    began = time.process_time()
    check_pairs(pairs)
    assert time.process_time() - began < 5


# ---- scripts: which lines are written in another than the rest of their side


def test_letters_are_counted_by_script():
    texts = ["abc äß", "", "Да, yes", "日本語のテキスト", "한국어", "שלום", "123 ×÷ 😀"]
    counts = scripts_of(texts)
    found = [{SCRIPTS[i]: int(n) for i, n in enumerate(row) if n} for row in counts]
    assert found == [
        {"Latin": 5}, {}, {"Cyrillic": 2, "Latin": 3}, {"Chinese and Japanese": 8}, {"Korean": 3}, {"Hebrew": 4}, {},
    ]  # fmt: skip


def test_names_of_characters_agree():
    """What Unicode calls a letter of a script is counted as one of it."""
    words = {name.split()[0].upper(): name for name in SCRIPTS}
    words |= {"CJK": "Chinese and Japanese", "HIRAGANA": "Chinese and Japanese", "KATAKANA": "Chinese and Japanese"}
    words |= {"HANGUL": "Korean", "MYANMAR": "Burmese"}
    for code in range(0x20, 0x10000):
        character = chr(code)
        if unicodedata.category(character) not in ("Lu", "Ll", "Lo"):
            continue
        script = words.get(unicodedata.name(character, "").split(" ")[0])
        counts = scripts_of([character])[0]
        mine = [SCRIPTS[i] for i, n in enumerate(counts) if n]
        if script is not None and mine:
            assert mine == [script], hex(code)


def test_lines_of_another_script_are_found():
    foreign = find_foreign(["Ein Satz.", "Это предложение", "noch einer" * 4, "и", "Ω = 5", "Ελληνικά λόγια"])
    assert (foreign.own, foreign.lines) == (("Latin", "Cyrillic"), (5,))
    foreign = find_foreign(["Ein Satz."] * 20 + ["Это предложение", "и так", "Да"])
    assert (foreign.own, foreign.lines, foreign.others) == (("Latin",), (20, 21), ("Cyrillic",))
    assert find_foreign([]).lines == find_foreign(["", "12"]).lines == ()


def test_a_side_of_two_scripts_has_both():
    assert find_foreign(["Москва Moskva"] * 10).lines == ()
