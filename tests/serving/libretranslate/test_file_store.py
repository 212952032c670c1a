"""Translated files: few, small, not for long, and under names that nobody guesses."""

from regard.serving.libretranslate import translation
from regard.serving.libretranslate.translation import FileStore, clean_name


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_a_file_is_held_for_a_while():
    clock = Clock()
    store = FileStore(clock)
    key = store.add("letter.txt", b"text")
    assert store.get(key) == ("letter.txt", b"text")
    assert store.get("letter.txt") is None
    clock.now = translation.SECONDS - 1
    assert store.get(key) is not None
    clock.now = translation.SECONDS + 1
    assert store.get(key) is None
    assert store.size == 0


def test_names_are_secret_and_never_the_same():
    store = FileStore()
    keys = {store.add("a.txt", b"") for _ in range(50)}
    assert len(keys) == 50
    assert all(len(key) > 32 and key.endswith(".a.txt") and "/" not in key for key in keys)


def test_the_oldest_goes_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(translation, "FILES", 3)
    store = FileStore()
    keys = [store.add("a.txt", b"x") for _ in range(5)]
    assert [store.get(key) is not None for key in keys] == [False, False, True, True, True]
    monkeypatch.setattr(translation, "BYTES", 10)
    large = store.add("b.txt", b"x" * 10)
    assert store.get(large) is not None
    assert store.get(keys[-1]) is None
    assert store.size == 10
    too_large = store.add("c.txt", b"x" * 11)
    assert store.get(too_large) is None
    assert store.size == 0


def test_names_of_files_are_harmless():
    assert clean_name("letter.txt") == "letter.txt"
    assert clean_name("../../etc/passwd") == "passwd"
    assert clean_name("C:\\x\\y.srt") == "y.srt"
    assert clean_name('a"\r\nb: c.html') == "a_b_c.html"
    assert clean_name("Übung 1.txt") == "_bung_1.txt"
    assert clean_name("") == clean_name("...") == "file"
    assert len(clean_name("x" * 1000 + ".txt")) == 100
