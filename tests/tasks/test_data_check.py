"""Data that cannot teach, through the command: refused in one sentence, or reported in one line."""

import random

import pytest
from cli.typing_in import Command

from regard.tasks.data_check import report_data
from regard.tasks.settings import read_settings

pytestmark = pytest.mark.unchecked  # typer's own classes are not those it documents
COMMAND = Command("train")
SYLLABLES = ["ba", "de", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "va", "we", "xi", "yo", "zu"]
SHORT = ("--steps", "1", "--batch-tokens", "256", "--device", "cpu", "--preset", "tiny")
SHORT += ("--set", "training.validate_rows=4", "--set", "training.log_every=1")


def sentences(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Sentences of drawn words and their "translations": each word from behind, a number and a name as they are."""
    draw = random.Random(seed)
    sources, targets = [], []
    for _ in range(count):
        words = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(draw.randint(2, 25))]
        sources.append(" ".join(words))
        targets.append(" ".join(word[::-1] for word in words))
    return sources, targets


def write(folder, name: str, lines: list[str]) -> str:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return str(path)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def make(sources: list[str], targets: list[str]) -> list[str]:
        return ["--source", write(tmp_path, "a.en", sources), "--target", write(tmp_path, "a.de", targets)]

    return make


def modes(tmp_path):
    """The three commands that look at the data."""
    return [["--check"], ["--dry-run"], ["--out", str(tmp_path / "run")]]


def assert_refused(tmp_path, arguments, *words):
    """Each command refuses in one sentence with these words, and leaves no run; `--anyway` insists."""
    for mode in modes(tmp_path):
        sentence = COMMAND.refused(*arguments, *mode, *SHORT)
        assert sentence.endswith("; --anyway trains all the same")
        for word in words:
            assert word in sentence
    assert not (tmp_path / "run").exists()
    shown = COMMAND.typed(*arguments, "--check", "--anyway")
    assert (shown.exit_code, shown.stdout) == (0, "the configuration is valid\n")
    assert words[-1] in shown.stderr


def test_swapped_columns_are_named_with_the_line_to_type(tmp_path, files):
    texts, _ = sentences(359)
    rows = [f"{text}\t{'good' if i % 2 else 'bad'}" for i, text in enumerate([*texts, texts[0]])]
    arguments = ["--documents", write(tmp_path, "reviews.tsv", rows)]
    assert_refused(tmp_path, arguments, "reviews.tsv: 358 of 359 different labels occur once", "columns are swapped")
    sentence = COMMAND.refused(*arguments, "--check")
    options = sentence.split("swapped: ")[1].split("; --anyway")[0].split()
    assert options == ["--set", "data.label_column=2", "--set", "data.text_column=1"]
    shown = COMMAND.typed(*arguments, "--check", *options)
    assert (shown.exit_code, "labels" in shown.stderr) == (0, False), shown.output


def test_a_file_given_for_both_sides_is_refused(tmp_path, files):
    sources, _ = sentences(300)
    arguments = files(sources, sources)
    assert_refused(tmp_path, arguments, "a.en and ", "every target is a copy of its source")
    arguments[3] = arguments[1]
    assert_refused(tmp_path, arguments, "a.en: ", "every target is a copy of its source")


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("first", [0, 150])
def test_a_side_that_is_shifted_is_refused(tmp_path, files, side, first):
    sources, targets = sentences(300)
    del (sources if side == "source" else targets)[first]
    (targets if side == "source" else sources).pop()
    lost = "a.en" if side == "source" else "a.de"
    where = "from the first line on" if not first else "from about line 1"
    assert_refused(tmp_path, files(sources, targets), "shifted by one line", where, f"add what {lost} lacks")


def test_anyway_trains(tmp_path, files):
    sources, _ = sentences(300)
    shown = COMMAND.typed(*files(sources, sources), *SHORT, "--out", tmp_path / "run", "--anyway")
    assert shown.exit_code == 0, shown.output
    assert "every target is a copy of its source" in shown.stderr


WRONG = {
    "duplicates": (
        lambda s, t: (s + s[:120], t + t[:120]),
        "120 of 4,120 pairs repeat an earlier one, such as line 4,001",
    ),
    "copies": (
        lambda s, t: (s, t[:-134] + s[-134:]),
        "134 of 4,000 pairs are copies: the target is the source, such as line 3,867",
    ),
    "entities": (
        lambda s, t: (s, [f"{x} &amp; &#39;{x}&#39;" if i % 24 == 5 else x for i, x in enumerate(t)]),
        "167 of 4,000 targets have HTML in them (&amp;), such as line 6",
    ),
    "markup": (
        lambda s, t: (s, ["<b>bold</b> " + t[0], *t[1:]]),
        "1 of 4,000 targets have HTML in them (<b>), such as line 1",
    ),
    "script": (
        lambda s, t: (["Это другое письмо", *s[1:]], t),
        "1 of 4,000 sources are mostly in another script (Cyrillic) than the rest (Latin), such as line 1",
    ),
    "empty": (
        lambda s, t: (s, ["", "", *t[2:]]),
        "2 of 4,000 pairs have an empty side and are dropped, such as line 1",
    ),
    "lengths": (
        lambda s, t: (s, [x + " " + " ".join(t[:8]) if i < 100 else x for i, x in enumerate(t)]),
        "pairs are over 3 times longer on one side than is usual",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_some_lines_is_a_warning(tmp_path, files, name):
    change, words = WRONG[name]
    sources, targets = sentences(4_000, seed=3)
    arguments = files(*change(sources, targets))
    shown = COMMAND.typed(*arguments, "--check")
    assert shown.exit_code == 0, shown.output
    (line,) = shown.stderr.splitlines()
    assert words in line
    assert line.startswith(f"regard: {arguments[1]} and {arguments[3]}: ")


def test_warnings_are_printed_before_the_first_step(tmp_path, files):
    sources, targets = sentences(100)
    shown = COMMAND.typed(*files(sources + sources[:5], targets + targets[:5]), *SHORT, "--out", tmp_path / "run")
    assert shown.exit_code == 0, shown.output
    assert "5 of 105 pairs repeat an earlier one" in shown.stderr
    assert shown.stderr.index("repeat an earlier one") < shown.stderr.index("finished after 1 step")


def test_few_pairs_are_told_what_to_do_instead(tmp_path, files):
    shown = COMMAND.typed(*files(*sentences(60)), "--check")
    assert "60 pairs are few" in shown.stderr
    assert "regard import" in shown.stderr
    assert "--from RUN" in shown.stderr


def test_clean_data_say_nothing(tmp_path, files):
    shown = COMMAND.typed(*files(*sentences(3_200)), "--check")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "the configuration is valid\n", "")


@pytest.mark.parametrize("name", ["copy", "sort", "reverse"])
def test_built_in_tasks_are_never_refused(name):
    assert list(report_data(read_settings({"data": {"builtin": name}}))) == []
    assert COMMAND.typed("--set", f"data.builtin={name}", "--check").exit_code == 0


def test_files_that_are_not_there_do_not_make_a_configuration_wrong(tmp_path):
    shown = COMMAND.typed("--source", tmp_path / "no.en", "--target", tmp_path / "no.de", "--check")
    assert (shown.exit_code, shown.stdout) == (0, "the configuration is valid\n")
    assert shown.stderr == ""


def test_a_language_model_may_have_one_text_twice(tmp_path, files):
    sources, _ = sentences(100)
    settings = {"source": files(sources, sources)[1], "target": files(sources, sources)[3]}
    ((_name, report),) = report_data(read_settings({"task": "language-model", "data": settings}))
    assert (report.findings, report.rows) == ((), 100)


def test_a_label_with_one_example_and_the_columns_of_other_things(tmp_path, files):
    texts, _ = sentences(300)
    rows = [f"{'good' if i % 2 else 'bad'}\t{text}" for i, text in enumerate(texts)]
    rows[7] = f"odd\t{texts[7]}"
    shown = COMMAND.typed("--documents", write(tmp_path, "a.tsv", rows), "--check")
    assert "1 label has one example (odd), too few to train on and to validate, such as line 8" in shown.stderr
    rows = [f"{text}\t{text[::-1]}" for text in texts]
    sentence = COMMAND.refused("--documents", write(tmp_path, "b.tsv", rows), "--check")
    assert "swapped" not in sentence
    assert "data.label_column" in sentence
