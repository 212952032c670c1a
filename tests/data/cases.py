"""Shared texts and pairs of the data tests, and a definition of normalisation."""

import random
import unicodedata

TEXTS = [
    "The house is small.",
    "Das Haus ist klein, sehr klein.",
    "Ein Mann in grün hält eine Gitarre.",
    "<s> tags </s> and <0x41> <pad> are text <unk>",
    "A man rides a horse.",
    "Der Mann reitet 2024 Pferde: 12 + 30!",
] * 5
KINDS = ["bpe", "unigram", "character", "word"]
NOUNS, VERBS = ["man", "woman", "dog", "horse", "child", "bird"], ["sees", "rides", "likes", "hears", "finds"]
WORDS = ["der", "Mann", "die", "Frau", "Hund", "sieht", "grün", "hört", "Pferd", "Kind"]


def normalised(text):
    """Normalise as specified, in Python: its white space without the four characters that Unicode excludes."""
    text = unicodedata.normalize("NFC", text).replace("▁", "_")
    spaces = {c: " " for c in map(chr, range(0x3001)) if c.isspace() and c not in "\x1c\x1d\x1e\x1f"}
    return " ".join(filter(None, text.translate(str.maketrans(spaces)).split(" ")))


def sentences(count, seed=0):
    draw = random.Random(seed)
    rows = []
    for i in range(count):
        source = f"the {draw.choice(NOUNS)} {draw.choice(VERBS)} a {draw.choice(NOUNS)} {i}"
        rows.append((source, " ".join(draw.choices(WORDS, k=draw.randint(1, 9))) + "."))
    return rows


def texts(prepared, encoded):
    return [
        (prepared.tokenizers.source.decode(source), prepared.tokenizers.target.decode(target))
        for source, target in map(encoded.pair, range(len(encoded)))
    ]
