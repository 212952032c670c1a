"""SentencePiece models that tests train or write by hand, and texts that are hard to normalise and to split."""

import io
import random
import struct

import pytest

LINE = (
    "the quick brown fox jumps over a lazy dog while aaa bbb aab hello world tests 1 22 333 4444 , . ... !! Ärger "
    "über Straße fenêtre ça déjà привет мир как дела 你好世界 日本語テスト 안녕하세요 مرحبا بالعالم שלום नमस्ते"
)
WORDS = [*LINE.split(), "ﬁn", "½", "™", "２０", "❤️", "😀"]
SIGNS = (
    "\x00|a\x00b|\u200d|👩‍👩‍👧|🇩🇪|\t|\n|\u3000|\u00a0|▁|a▁b|▁▁|\x01|\u200b|\ufeff|\u00a8|\ufdfa|<s>|</s>|<unk>|<0x41>|<pad>|"
    "\u0308|\u064b|e\u0301|<USR>|x<USR>y|ab<sep>cd|CLS|αβ|bab333|\ufffd|\u1112\u1161\u11ab|ŉ|\U0001d49c|ﷺ|\u0958|\u2126"
)
ODD = SIGNS.split("|")
RANGES = (
    (0x20, 0x250),
    (0x300, 0x370),
    (0x600, 0x700),
    (0x1100, 0x1200),
    (0x2000, 0x2100),
    (0x2E80, 0x3300),
    (0xA0, 0xD800),
    (0xF900, 0x10000),
    (0x10000, 0x20000),
    (0x1F300, 0x1FA00),
)


def train(lines=None, **options) -> bytes:
    """Train a model, with padding among its pieces."""
    package = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed: pip install 'regard[test]'")
    generator = random.Random(1)
    lines = lines or [" ".join(generator.choices(WORDS, k=generator.randint(1, 14))) for _ in range(800)]
    file = io.BytesIO()
    chosen = {"vocab_size": 700, "hard_vocab_limit": False, "character_coverage": 0.99, "pad_id": 3} | options
    package.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=file, minloglevel=2, **chosen)
    return file.getvalue()


def write(pieces, *, kind=1, normalisation=b"", training=b"") -> bytes:
    """Write a model by hand: pieces with scores and types."""
    body = b"".join(
        field(1, field(1, text.encode()) + field(2, struct.pack("<f", score), wire=5) + field(3, own))
        for text, score, own in pieces
    )
    return body + field(2, field(3, kind) + training) + field(3, normalisation)


def field(number: int, value, wire: int | None = None) -> bytes:
    """Write a field of a protocol buffer."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | (wire or 2)) + (varint(len(value)) if wire is None else b"") + value


def varint(value: int) -> bytes:
    low = value & 0x7F
    return bytes([low]) if value < 0x80 else bytes([low | 0x80]) + varint(value >> 7)


def draw(generator: random.Random) -> str:
    """Draw a text of words, marks and letters of all kinds, with missing and superfluous spaces."""
    parts = ["  "] if generator.random() < 0.1 else []
    for _ in range(generator.randrange(12)):
        chance = generator.random()
        if chance < 0.5:
            parts.append(generator.choice(WORDS))
        elif chance < 0.55:
            parts.append("".join(generator.choices("ab", k=generator.randint(1, 20))))
        elif chance < 0.65:
            parts += [chr(generator.randrange(*generator.choice(RANGES))) for _ in range(generator.randint(1, 6))]
        elif chance < 0.7:
            parts += [generator.choice("aeioAOn") + chr(generator.randrange(0x300, 0x370)) for _ in range(2)]
        elif chance < 0.75:
            parts += generator.choices(WORDS, k=generator.randint(2, 5))
        else:
            parts.append(generator.choice(ODD))
        parts.append(generator.choice([*[" "] * 8, "", "  ", "   ", "\u3000"]))
    text = "".join(parts)
    return "".join(c for c in text if not "\ud800" <= c < "\ue000") * (60 if generator.random() < 0.004 else 1)


def draw_texts(seed: int, count: int) -> list[str]:
    generator = random.Random(seed)
    return ["", " ", "a" * 3000, "你好世界" * 500, "the quick fox " * 300, *(draw(generator) for _ in range(count))]
