"""The built-in corpora, byte for byte: sentences, links, trees and pictures equal the recorded ones.

A run names its corpus by its options and a seed, and may be resumed years later, so the generated corpora must not
change. `RECORDED` holds the start of a SHA-256 over each example's fields. An intended change needs a new edition
(`regard.data.builtin.EDITIONS`).
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Iterator

import pytest

from regard.data import Example, generate
from regard.errors import ArgumentError
from regard_corpora import Pictured, find_example, name_relations
from regard_corpora.phrasebook import derive

PAIRS = ("en-de", "en-fr")
QUESTIONS = ("none", "which-size", "which-shape", "which-colour")
FORMS = ("any", "long", "spoken", "ordinal", "british", "american", "weekday", "dots", "short", "slashes")
SEEDS = ("train", 0), ("train", 3), ("valid", 1), ("test", 2)
TYPED = (
    "I ate pizza yesterday.",
    "I don't like Anna's dog.",
    "this pizza isn't too bad",
    "i dont see anna",
    "Where is the station?",
    "She's older than my brother.",
    "When it rains, we stay at home.",
    "Anna see likes.",
    "I see a xylophone.",
)


def describe(example: Example) -> bytes:
    """Serialise all fields of an example."""
    if not isinstance(example, Pictured):
        return repr(dataclasses.astuple(example)).encode()
    values = [getattr(example, field.name) for field in dataclasses.fields(Example)]
    shapes = [(*shape, shape.words, shape.reach) for shape in example.scene.shapes]
    values += [shapes, example.scene.question, example.size, example.speaks_of, example.boxes]
    masks = [example.mask(i).tobytes() for i in range(len(shapes))]
    return b"".join([repr(values).encode(), example.picture().tobytes(), *masks])


def digest(parts: Iterable[bytes]) -> str:
    code = hashlib.sha256()
    for part in parts:
        code.update(len(part).to_bytes(8, "big") + part)
    return code.hexdigest()[:16]


def read(name: str, counts: Iterable[int], **options) -> Iterator[bytes]:
    """Yield examples of each of SEEDS; if a corpus has fewer, those that it lists and its message."""
    for (split, seed), count in zip(SEEDS, counts, strict=True):
        try:
            yield from map(describe, generate(name, count, split=split, seed=seed, **options))
        except ArgumentError as error:
            yield str(error).encode()


def cases() -> Iterator[tuple[str, str, tuple[int, ...], dict]]:
    """Yield the compared cases: an id, a corpus, the number of examples of each of SEEDS, and its options."""
    for pair, edition, longest in itertools.product(PAIRS, (1, 2), (6, 14, 25)):
        options = {"pair": pair, "edition": edition, "longest": longest}
        yield f"phrasebook {pair} {edition} {longest}", "phrasebook", (400, 100, 25, 25), options
    yield "phrasebook long", "phrasebook", (40, 10, 1, 1), {"shortest": 12, "longest": 40}
    for edition, denied, (shortest, longest) in itertools.product((1, 2), (0, 30, 100), ((1, 1), (2, 8), (5, 20))):
        options = {"edition": edition, "denied": denied, "shortest": shortest, "longest": longest}
        yield f"reviews {edition} {denied} {longest}", "reviews", (150, 50, 4, 4), options
    for question, (shapes, size) in itertools.product(QUESTIONS, ((1, 32), (3, 64), (2, 97))):
        options = {"question": question, "shapes": shapes, "size": size}
        yield f"scenes {question} {shapes}", "scenes", (40, 10, 3, 3), options
    for language, direction in itertools.product(("en", "de", "fr"), ("to-digits", "to-words")):
        options = {"language": language, "direction": direction}
        yield f"numbers {language} {direction}", "numbers", (200, 100, 20, 20), options
        yield f"numbers {language} {direction} all", "numbers", (2000, 1, 1, 1), {**options, "highest": 1999}
        high = {**options, "lowest": 900_000, "highest": 999_999_999}
        yield f"numbers {language} {direction} high", "numbers", (200, 100, 20, 20), high
    for direction, form in itertools.product(("to-iso", "from-iso"), FORMS):
        years = {"first": 1950, "last": 2049} if form == "short" else {}
        options = {"direction": direction, "form": form, **years}
        yield f"dates {direction} {form}", "dates", (100, 50, 5, 5), options
    yield "dates all", "dates", (9000, 1, 1, 1), {"first": 2007, "last": 2008}
    for name in ("reverse", "sort", "copy"):
        yield name, name, (300, 100, 20, 20), {}
        yield f"{name} all", name, (2000, 1, 40, 40), {"shortest": 1, "longest": 4, "symbols": 5}
        yield f"{name} many", name, (100, 50, 5, 5), {"shortest": 2, "longest": 30, "symbols": 1000}


CASES = {case[0]: case[1:] for case in cases()}
RECORDED = {
    "phrasebook en-de 1 6": "b8f917c7f8c54f4d",
    "phrasebook en-de 1 14": "95f46796dbbaf462",
    "phrasebook en-de 1 25": "c07d1df63f3b0464",
    "phrasebook en-de 2 6": "8863d58fb5421e2e",
    "phrasebook en-de 2 14": "16c84484f6c24451",
    "phrasebook en-de 2 25": "cbf73e5ac2008206",
    "phrasebook en-fr 1 6": "b36fe7c5ff4ad4c2",
    "phrasebook en-fr 1 14": "ef14df152406dede",
    "phrasebook en-fr 1 25": "9eef2bd65c47c2ae",
    "phrasebook en-fr 2 6": "bc901b0915ad970a",
    "phrasebook en-fr 2 14": "deb0d6e883adc510",
    "phrasebook en-fr 2 25": "facb1850980e79e6",
    "phrasebook long": "6e31f86078bfe0c1",
    "reviews 1 0 1": "c424322114060861",
    "reviews 1 0 8": "4397c58d87e7f686",
    "reviews 1 0 20": "771c79a4da8dcef3",
    "reviews 1 30 1": "4012bad895312687",
    "reviews 1 30 8": "1a63e2bc5b16e8a2",
    "reviews 1 30 20": "1d6f424bf4482e28",
    "reviews 1 100 1": "a2826c291508ade2",
    "reviews 1 100 8": "a8535e9fd519294b",
    "reviews 1 100 20": "f17773e1e68ccc53",
    "reviews 2 0 1": "eea8a60e16b048e1",
    "reviews 2 0 8": "466b18ae6fe60d31",
    "reviews 2 0 20": "35294551bb7eddb8",
    "reviews 2 30 1": "348b0a9bcf4baacf",
    "reviews 2 30 8": "6b1ead442ea64c9b",
    "reviews 2 30 20": "3cebda3dd98489da",
    "reviews 2 100 1": "c1439a8b70308881",
    "reviews 2 100 8": "226de0a3e34f8b26",
    "reviews 2 100 20": "8647fa68dc9df4b2",
    "scenes none 1": "8bec601f2f5903e9",
    "scenes none 3": "ca22a410a0d72b12",
    "scenes none 2": "f284c52d85bfcfd1",
    "scenes which-size 1": "07e24626a48ecbb6",
    "scenes which-size 3": "1e260de4592141a0",
    "scenes which-size 2": "2c372600de931a6a",
    "scenes which-shape 1": "e7f33291ede7d0b5",
    "scenes which-shape 3": "164c30ae566a22b5",
    "scenes which-shape 2": "e2785ac64bbbb98d",
    "scenes which-colour 1": "e04b2fd26eebfa25",
    "scenes which-colour 3": "7623dd767853129c",
    "scenes which-colour 2": "d3699a1423aa9c72",
    "numbers en to-digits": "84046d4a5d593e0c",
    "numbers en to-digits all": "0974b98525dac68a",
    "numbers en to-digits high": "03fe799e10410cd5",
    "numbers en to-words": "d1fbfcb50b4c5e51",
    "numbers en to-words all": "fe1ab203e01f4c85",
    "numbers en to-words high": "217e7c56fc11bb31",
    "numbers de to-digits": "cfdfd676bc2296ab",
    "numbers de to-digits all": "4e6d11644975028d",
    "numbers de to-digits high": "155cf4f3287e9fac",
    "numbers de to-words": "ad1948fe883a22a3",
    "numbers de to-words all": "63ebbe541161a010",
    "numbers de to-words high": "9d64d5d921f8e96b",
    "numbers fr to-digits": "7d4c791ecfed9990",
    "numbers fr to-digits all": "bf98c7af45990313",
    "numbers fr to-digits high": "47b4cba0919fab86",
    "numbers fr to-words": "b0854ab3ac9db3fb",
    "numbers fr to-words all": "93fe095006732769",
    "numbers fr to-words high": "e4e5c98b8ec1fff5",
    "dates to-iso any": "e922cb1c067ded73",
    "dates to-iso long": "0f19a65d2f112439",
    "dates to-iso spoken": "7e8de45a0cbf12a6",
    "dates to-iso ordinal": "97b0c20193a1e013",
    "dates to-iso british": "b9d0377d97fd142a",
    "dates to-iso american": "770b246748cd267a",
    "dates to-iso weekday": "4b21b3916348f759",
    "dates to-iso dots": "18373ef4f30a3a2e",
    "dates to-iso short": "847ddf1b93bed02e",
    "dates to-iso slashes": "e6a00fc3c3a251f5",
    "dates from-iso any": "dd6421ee0ba51cb9",
    "dates from-iso long": "dd6421ee0ba51cb9",
    "dates from-iso spoken": "c641cecd8b66d458",
    "dates from-iso ordinal": "c621ec647cb2e96e",
    "dates from-iso british": "70667b7be160f16a",
    "dates from-iso american": "127b3c23a52d9882",
    "dates from-iso weekday": "c812f66fd246c5d4",
    "dates from-iso dots": "139d7aaaef96f02e",
    "dates from-iso short": "d7ad73d35f93c2ea",
    "dates from-iso slashes": "649521e4f8cb6118",
    "dates all": "454da9703cf93521",
    "reverse": "fef6e903afbe903c",
    "reverse all": "e99e33aeee670d55",
    "reverse many": "86bf3ac63fd6deed",
    "sort": "18efbfa96ba0f063",
    "sort all": "60ea42e355cd5f96",
    "sort many": "3be03e01182b1f89",
    "copy": "41aebfff1c868143",
    "copy all": "c636b384fc280b4a",
    "copy many": "0377367178e31f03",
    "derive en-de 1": "bcc23858b019c13c",
    "derive en-de 2": "0bdaa457022fa303",
    "relations en-de": "5d65b60200a3026e",
    "derive en-fr 1": "6b424a288b778e0d",
    "derive en-fr 2": "e0e37104dff32dc8",
    "relations en-fr": "3d258857584ec2e9",
    "many en-de 1": "78783a51291954de",
    "many en-de 2": "bdb9e1d4972cd242",
    "many en-fr 1": "6beb211f8c8a8d80",
    "many en-fr 2": "3a3e9e8de7f97172",
}


@pytest.mark.parametrize("case", CASES)
def test_examples(case):
    name, counts, options = CASES[case]
    assert digest(read(name, counts, **options)) == RECORDED[case]


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("edition", [1, 2])
def test_derivations(pair, edition):
    """Sentences of the corpus are found with their links and trees, and others are not found, as recorded."""
    found = [derive(each.source, pair, 5000, edition) for each in generate("phrasebook", 10, seed=5, edition=edition)]
    found += [derive(text, pair, 5000, edition) for text in TYPED]
    found += [find_example(text, pair, edition, tries=5000) for text in TYPED]
    assert (
        digest(repr(each and dataclasses.astuple(each)).encode() for each in found)
        == RECORDED[f"derive {pair} {edition}"]
    )


@pytest.mark.parametrize("pair", PAIRS)
def test_names_of_relations(pair):
    examples = generate("phrasebook", 500, seed=9, pair=pair, edition=1, longest=18)
    assert digest(repr(name_relations(each)).encode() for each in examples) == RECORDED[f"relations {pair}"]


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("edition", [1, 2])
def test_many_sentences(pair, edition):
    examples = generate("phrasebook", 20_000, seed=11, pair=pair, edition=edition, longest=18)
    assert digest(map(describe, examples)) == RECORDED[f"many {pair} {edition}"]
