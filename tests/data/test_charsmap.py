"""SentencePiece's table of characters: the walk against the package, against Unicode, and damaged tables."""

import random
import unicodedata

import pytest
from interop.pieces import train

from regard.data.charsmap import Charsmap
from regard.errors import DataError
from regard.interop.sentencepiece import parse

package = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed: pip install 'regard[test]'")

RULES = ("nmt_nfkc", "nfkc", "nfkc_cf", "nmt_nfkc_cf")
CODES = [code for code in range(1, 0x20000) if not 0xD800 <= code < 0xE000]


@pytest.fixture(scope="module", params=RULES)
def rules(request):
    """The package's normaliser, and the walk through the same table."""
    table = parse(train(vocab_size=100, normalization_rule_name=request.param)).charsmap
    options = {"add_dummy_prefix": False, "escape_whitespaces": False, "remove_extra_whitespaces": False}
    return request.param, package.SentencePieceNormalizer(rule_name=request.param, **options), Charsmap(table)


def walk(charsmap, text):
    return "".join(charsmap.apply(text)[0])


def test_every_character(rules):
    _, right, charsmap = rules
    for code in random.sample(CODES, 5_000):
        assert walk(charsmap, chr(code)) == right.normalize(chr(code)), hex(code)


def test_texts(rules):
    _, right, charsmap = rules
    marks = [*range(0x300, 0x370), *range(0x64B, 0x653), *range(0x1100, 0x1200), 0x200D, 0xFE0F, 0x20, 0x41, 0x65]
    for _ in range(2_000):
        codes = random.choices(CODES, k=3) + random.choices(marks, k=6) + random.choices(range(0x20, 0x7F), k=6)
        random.shuffle(codes)
        text = "".join(map(chr, codes))
        assert walk(charsmap, text) == right.normalize(text), ascii(text)


def test_composition_is_that_of_unicode(rules):
    """A letter and one mark become one character where Unicode has it."""
    name, _, charsmap = rules
    for letter in "AEIOUaeioun":
        for mark in "\u0300\u0301\u0302\u0303\u0308":
            expected = unicodedata.normalize("NFKC", letter + mark)
            expected = expected.lower() if name.endswith("cf") else expected
            assert walk(charsmap, f"x{letter}{mark}y") == f"x{expected}y"


def test_nothing_is_dropped(rules):
    """Marks and joiners that no rule names stay: the library's own normaliser loses some of them."""
    _, _, charsmap = rules
    for text in ("a\u0308\u0323\u0308", "👩\u200d👩", "क\u094d\u200dष", "e\u0301\u0301\u0301"):
        kept = [sign for sign in unicodedata.normalize("NFKD", text) if sign != " "]
        assert len(kept) == len([c for c in unicodedata.normalize("NFKD", walk(charsmap, text)) if c != " "])


def test_no_rules():
    assert Charsmap(b"").apply("a  \u00e9 ") == (["a", " ", " ", "\u00e9", " "], False)


def test_fixed_texts_stay():
    table = parse(train(vocab_size=100)).charsmap
    assert walk(Charsmap(table, ["½", "½½x"]), "½½x½¼") == "½½x½1⁄4"
    assert walk(Charsmap(table), "½½x½¼") == "1⁄21⁄2x1⁄21⁄4"
    assert Charsmap(b"", ["  b"]).apply("a  b")[0] == ["a", "  b"]


@pytest.mark.parametrize("table", [b"\x04", b"\x03\0\0\0abcd", b"\x08\0\0\0abcdef", b"\0\0\0\0abcd", b"\xff" * 8])
def test_damaged_tables_are_refused(table):
    with pytest.raises(DataError, match="table of characters is damaged"):
        Charsmap(table)


def test_any_units_end_the_walk():
    """Whatever stands in a table, a text is walked through to its end."""
    for _ in range(200):
        units = random.randbytes(4 * random.randrange(1, 300))
        charsmap = Charsmap(len(units).to_bytes(4, "little") + units + random.randbytes(random.randrange(1, 50)))
        for text in ("the quick é\u0301 漢字 \x00", " ", "a"):
            charsmap.apply(text)
            charsmap.joins_space(text)
