"""Encodings: guessed from a sentence of each language, and never without a likely candidate."""

import pytest

from regard.errors import DataError
from regard.io.encodings import EncodedFile, check_encoding, encoding_of, guess_encoding, hint, transcode

TEXTS = {
    "German": ("Die Größe der Häuser überrascht die Gäste, aber schön.", "cp1252 latin-1 utf-16 utf-16-le utf-16-be"),
    "French": ("L’élève a été très étonné de voir où la forêt s’arrête, ça va.", "cp1252"),
    "Spanish": ("El niño mañana irá a España, ¿verdad? Sí, señor.", "latin-1"),
    "Polish": ("Zażółć gęślą jaźń, proszę o książkę; dziękuję łódź są", "cp1250"),
    "Czech": ("Příliš žluťoučký kůň úpěl ďábelské ódy, že něco řekl.", "cp1250"),
    "Russian": ("Это предложение написано по-русски, и оно длинное.", "cp1251 koi8-r iso8859-5 utf-16 utf-16-le"),
    "Ukrainian": ("Це речення українською мовою, її знають усі.", "cp1251"),
    "Greek": ("Αυτή είναι μια πρόταση στα ελληνικά και είναι μεγάλη.", "cp1253"),
    "Hebrew": ("זה משפט בעברית והוא ארוך מאוד", "cp1255"),
    "Arabic": ("هذه جملة باللغة العربية وهي طويلة", "cp1256"),
    "Japanese": ("これは日本語の文章です。とても長いテキストになります。", "shift_jis euc_jp"),
    "Chinese": ("这是一个中文句子，它的内容很长，我们要认真地读它。", "gb18030"),
    "Traditional": ("這是一個中文句子，它的內容很長，我們要認真地讀它。", "big5"),
    "Korean": ("이것은 한국어 문장입니다. 매우 긴 문장이 됩니다.", "euc_kr"),
}  # fmt: skip
CASES = [(name, encoding) for name, (_, encodings) in TEXTS.items() for encoding in encodings.split()]


@pytest.mark.parametrize(("name", "encoding"), CASES)
def test_a_guess_reads_the_text_as_it_was(name, encoding):
    text = TEXTS[name][0] + "\n"
    raw = text.encode(encoding)
    guess = guess_encoding(raw)
    assert guess is not None
    assert raw.decode(guess.encoding) == text
    assert check_encoding(guess.encoding) == ""
    assert f"add --encoding {guess.encoding} " in hint(raw)
    for size in (1, 2, 3, 7):  # bytes in small portions
        blocks = [raw[i : i + size] for i in range(0, len(raw), size)]
        assert b"".join(transcode(blocks, "a", encoding)).decode("utf-8-sig") == text


@pytest.mark.parametrize(
    "raw", [b"", b"abc", b"b\xffc", b"\x80\x00\x01", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"\xc3(", bytes(range(256))]
)
def test_nothing_is_guessed_where_nothing_is_likely(raw):
    assert guess_encoding(raw) is None
    assert hint(raw) == ""


def test_names_of_encodings():
    for name in ("utf-8", "UTF8", "latin-1", "cp1252", "shift_jis", "utf-16", "GB18030"):
        assert check_encoding(name) == ""
    for name in ("rot13", "hex", "idna", "unicode_escape", "undefined", "nothing", "", "a\0b"):
        assert check_encoding(name).startswith("no such encoding")


def test_a_byte_that_is_not_of_the_encoding_is_named_with_its_line():
    with pytest.raises(DataError, match=r"a.txt, line 3: byte 0x81 is not valid in cp1252"):
        list(transcode([b"one\ntwo\nth\x81ree\n"], "a.txt", "cp1252"))
    with pytest.raises(DataError, match="line 2: .* is not valid in ascii"):
        list(transcode([b"one\n", b"tw\xff"], "a.txt", "ascii"))
    with pytest.raises(DataError, match="is not valid in utf-16"):
        list(transcode(["a".encode("utf-16") + b"x"], "a.txt", "utf-16"))


def test_an_encoding_goes_with_the_name_of_a_file():
    file = EncodedFile("a.txt", "cp1252")
    assert (file, encoding_of(file), encoding_of("a.txt")) == ("a.txt", "cp1252", None)
