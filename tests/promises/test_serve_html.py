"""HTML that a server translates keeps its tags, attributes and nesting, and all of its text stays text."""

import html
import random
import re
from collections import Counter

import pytest
from serving.libretranslate.test_markup import Reader
from serving.served import serve_process, stored

from regard.data import generate

INLINE = ("b", "i", "a", "span", "sub", "custom-tag")
BLOCKS = ("p", "div", "li", "h1", "td")
POINTS = ('<img src="a&amp;b.png" alt="1 > 0">', "<wbr>", "<!-- <b> -->", '<a id="x"></a>', "<input disabled>")
STAY = ("<code>a &lt; b</code>", '<span translate="no">Regard <b>it</b></span>', "<kbd>Ctrl</kbd>")
ODD = ("<", "&", '"', "<b>", "&lt;", "</p>", "<!--", "]]>", "'")
SENTENCES = [example.source for example in generate("phrasebook", 200)]


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    flags = ["--quiet", "--languages", "rnn=fr-de"]  # a model without attention
    with serve_process(*stored("transformer", "rnn"), folder=folder, flags=flags, characters=1_000_000) as found:
        yield found


def draw_inline(rng, words, depth, linked=False):
    """Draw words, some inside tags, with punctuation between them; no link inside a link, which HTML forbids."""
    parts = []
    at = 0
    while at < len(words):
        count = rng.randint(1, len(words) - at)
        inner = words[at : at + count]
        at += count
        if depth and rng.random() < 0.6:
            name = rng.choice([each for each in INLINE if each != "a" or not linked])
            value = html.escape(rng.choice(("x", "a b", "<b>", '"q"', "1&2")))
            parts.append(
                f'<{name} data-x="{value}">{draw_inline(rng, inner, depth - 1, linked or name == "a")}</{name}>'
            )
        else:
            parts.append(" ".join(html.escape(word, quote=False) for word in inner))
        if rng.random() < 0.2:
            parts.append(rng.choice([each for each in POINTS if not (linked and each.startswith("<a"))]))
        if rng.random() < 0.1:
            parts.append(rng.choice(STAY))
    return " ".join(parts)


def draw_page(rng):
    """Draw a page, and return it with the text of each block."""
    blocks, texts = [], []
    for _ in range(rng.randint(1, 3)):
        words = rng.choice(SENTENCES).split()[:12]
        if rng.random() < 0.3:
            words.insert(rng.randrange(len(words)), rng.choice(ODD))
        name = rng.choice(BLOCKS)
        blocks.append(f'<{name} class="y">{draw_inline(rng, words, 3)}</{name}>')
        texts.append(words)
    return "\n".join(blocks), texts


def list_stays(page):
    """List the texts that are not translated."""
    return [text for each in STAY for text in Reader(each).text * page.count(each)]


def letters(texts):
    return Counter(c for text in texts for c in text if not c.isspace())


def check(process, source, count, seed):
    print("seed", seed)
    rng = random.Random(seed)
    pages = [draw_page(rng) for _ in range(count)]
    with process.client() as client:
        fields = {"q": [page for page, _ in pages], "source": source, "target": "de", "format": "html"}
        answer = client.post("/translate", json=fields).raise_for_status().json()["translatedText"]
        texts = sorted({" ".join(words) for _, blocks in pages for words in blocks})
        plain = dict(zip(texts, translate_all(client, source, texts), strict=True))
    for (page, blocks), result in zip(pages, answer, strict=True):
        before, after = Reader(page), Reader(result)
        assert before.well_formed
        assert after.well_formed, (page, result)
        assert Counter(after.tags) == Counter(before.tags), (page, result)
        assert Counter(after.other) == Counter(before.other), (page, result)
        expected = [plain[" ".join(words)] for words in blocks]
        assert letters(after.text) == letters([*expected, *list_stays(page)]), (page, result)
        for raw in STAY:
            assert result.count(raw) == page.count(raw), (page, result)
        # Blocks keep their order.
        names = list(re.findall(r"<(\w+) class", page))
        assert re.findall(r"<(\w+) class", result) == names


def translate_all(client, source, texts):
    """Return the translations of plain texts."""
    found = []
    for first in range(0, len(texts), 100):
        fields = {"q": texts[first : first + 100], "source": source, "target": "de"}
        found += client.post("/translate", json=fields).raise_for_status().json()["translatedText"]
    return found


LONG = pytest.param(10, 100, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])


@pytest.mark.parametrize("source", ["en", "fr"])
@pytest.mark.parametrize(("rounds", "count"), [(1, 25), LONG])
def test_pages(process, source, rounds, count):
    for _ in range(rounds):
        check(process, source, count, random.randrange(2**32))
