"""Scripts of texts."""

import unicodedata

from regard.data.scripts import SCRIPTS, find_foreign, scripts_of


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
