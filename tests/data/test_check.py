"""Reports on corpora: samples of any size, and what they count."""

import random
import time

from regard.data.check import READ, check_documents, check_pairs, check_texts, take_sample


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
