"""From settings to a run folder."""

import itertools
import json
import random
import subprocess
import sys
from types import SimpleNamespace

import pytest
import tomli_w
import torch
from cli.typing_in import Command
from forked import fork_for_spawn
from tiny import same_tensors, table, write_pairs

from regard.config import read
from regard.data import Position
from regard.errors import CheckpointError, ConfigError, DataError, TrainingError
from regard.report import report
from regard.tasks.plan import plan_run
from regard.tasks.run_start import (
    LARGEST_BATCHES,
    Stopwatch,
    batch_size,
    dry_run,
    measure_apart,
    open_group,
    put_largest_first,
    report_data,
    start,
    trained_share,
)
from regard.tasks.settings import read_settings
from regard.training import Checkpoints, Progress, read_checkpoint


def test_positions_that_a_model_does_not_know(tmp_path):
    """The length is refused before training, not at the first long sentence."""
    given = table(tmp_path)
    given["model"] = {"kind": "transformer", "preset": "tiny", "positions": "learned", "length": 3}
    with pytest.raises(ConfigError, match="model.length: 3 given, expected at least"):
        start(given, tmp_path / "run")
    given["model"] = {"kind": "luong", "preset": "tiny", "score": "location", "length": 3}
    with pytest.raises(ConfigError, match="model.length: 3 given, expected at least"):
        start(given, tmp_path / "run")


def test_the_folder_says_what_was_trained(tmp_path, monkeypatch):
    given = table(tmp_path)
    monkeypatch.chdir(tmp_path)
    given["data"] |= {"source": "pairs/source.txt", "target": "pairs/target.txt"}
    start(given, tmp_path / "run")
    written = read(tmp_path / "run/config.toml")
    assert written["data"]["source"] == str(tmp_path / "pairs/source.txt")  # any folder can resume it
    assert read_settings(written).table() == written
    assert {"config.toml", "tokenizer.json", "metrics.jsonl", "checkpoints"} <= {
        p.name for p in (tmp_path / "run").iterdir()
    }
    monkeypatch.chdir("/")
    assert (
        start({**written, "training": {**written["training"], "steps": 9}}, tmp_path / "run", resume=True).result.step
        == 9
    )


def test_other_data_is_not_a_resume(tmp_path):
    start(table(tmp_path, training__steps=1), tmp_path / "run")
    given = table(tmp_path, training__steps=2)
    given["data"]["source"], given["data"]["target"] = write_pairs(tmp_path / "other", seed=5)
    with pytest.raises(CheckpointError, match="step-000001: made with data"):
        start(given, tmp_path / "run", resume=True)


def test_from_another_run(tmp_path):
    first = start(table(tmp_path), tmp_path / "first")
    given = table(tmp_path, training__steps=1, training__rate=1e-30)
    given["data"]["source"], given["data"]["target"] = write_pairs(tmp_path / "other", seed=5, longest=3)
    second = start(given, tmp_path / "second", base=tmp_path / "first")
    assert second.task.prepared.tokenizers.hash == first.task.prepared.tokenizers.hash
    assert same_tensors(
        read_checkpoint(Checkpoints(tmp_path / "second").last()).model,
        read_checkpoint(Checkpoints(tmp_path / "first").best()).model,
    )
    start({**given, "training": {**given["training"], "steps": 2}}, tmp_path / "second", resume=True)
    with pytest.raises(CheckpointError, match="not a run folder"):
        start(given, tmp_path / "third", base=tmp_path / "nothing")


def test_a_corpus_that_is_not_there(tmp_path):
    given = table(tmp_path)
    given["data"]["source"] += ".gone"
    with pytest.raises(DataError, match="source.txt.gone: no such file"):
        start(given, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_of_the_first_edition_is_resumed_on_it(tmp_path):
    given = table(tmp_path)
    given["data"] = {"builtin": "phrasebook", "count": 40, "builtin_options": ["longest=5"], "cache": str(tmp_path)}
    run, one_more = tmp_path / "run", {**given, "training": {**given["training"], "steps": 2}}
    given["training"]["steps"] = 1
    start({**given, "data": {**given["data"], "builtin_edition": 1}}, run)
    text = (run / "config.toml").read_text(encoding="utf-8")
    assert "builtin_edition = 1\n" in text
    (run / "config.toml").write_text(text.replace("builtin_edition = 1\n", ""), encoding="utf-8")  # as written then
    assert start(one_more, run, resume=True).settings.data.builtin_edition == 1
    assert "builtin_edition = 1\n" in (run / "config.toml").read_text(encoding="utf-8")
    start(given, tmp_path / "new")
    assert "builtin_edition = 2\n" in (tmp_path / "new/config.toml").read_text(encoding="utf-8")


# ---- data from which a model cannot learn, through the command: one sentence refuses it, or one line reports it


pytestmark = pytest.mark.unchecked  # typer uses other classes than it documents
COMMAND = Command("train")
SYLLABLES = ["ba", "de", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "va", "we", "xi", "yo", "zu"]
SHORT = ("--steps", "1", "--batch-tokens", "256", "--device", "cpu", "--preset", "tiny")
SHORT += ("--set", "training.validate_rows=4", "--set", "training.log_every=1")


def sentences(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Draw sentences and their "translations": words are reversed, numbers and names unchanged."""
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
    """Return the arguments of the three commands that check the data."""
    return [["--check"], ["--dry-run"], ["--out", str(tmp_path / "run")]]


def assert_refused(tmp_path, arguments, *words):
    """Check that each command refuses in one sentence with these words, leaves no run, and offers `--anyway`."""
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


def test_anyway_trains_and_warnings_are_printed_before_the_first_step(tmp_path, files):
    sources = sentences(300)[0]
    sources += sources[:5]
    shown = COMMAND.typed(*files(sources, sources), *SHORT, "--out", tmp_path / "run", "--anyway")
    assert shown.exit_code == 0, shown.output
    for words in ("every target is a copy of its source", "5 of 305 pairs repeat an earlier one"):
        assert shown.stderr.index(words) < shown.stderr.index("finished after 1 step")


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


# ---- a dry run: the largest batches first, and the same figures as in training


def planned(folder, **changes):
    settings = read_settings(table(folder, **changes))
    with open_group(settings.training) as group:
        return plan_run(settings, group, Progress())


def test_the_largest_batches_come_first(tmp_path):
    task = planned(tmp_path, training__batch_tokens=48).task
    epoch = [plan for _, plan in itertools.takewhile(lambda each: each[0].epoch == 0, task.stream(Position()))]
    mean, sizes = put_largest_first(task)
    first = [plan for _, plan in itertools.islice(task.stream(Position()), LARGEST_BATCHES + 5)]
    largest = sorted((batch_size(task, plan) for plan in epoch), reverse=True)
    assert [batch_size(task, plan) for plan in first[: LARGEST_BATCHES - 1]] == largest[: LARGEST_BATCHES - 1]
    longest = max(int(task.prepared.train.lengths[plan].max()) for plan in epoch)
    assert int(task.prepared.train.lengths[first[LARGEST_BATCHES - 1]].max()) == longest
    assert all((one == other).all() for one, other in zip(first[LARGEST_BATCHES:], epoch[:5], strict=True))
    assert mean == pytest.approx(sum(largest) / len(largest))
    assert sizes[:LARGEST_BATCHES] == [batch_size(task, plan) for plan in first[:LARGEST_BATCHES]]


def test_a_step_behind_a_validation_is_not_timed(monkeypatch):
    watch, clock = Stopwatch(torch.device("cpu")), iter(range(100))
    monkeypatch.setattr("regard.tasks.run_start.time.monotonic", lambda: float(next(clock)))
    watch.begin("", [], None)
    for step in range(LARGEST_BATCHES + 4):
        watch.step({})
        if step == LARGEST_BATCHES + 1:
            next(clock)
            watch.valid({})
    assert watch.timed() == {LARGEST_BATCHES: 1.0, LARGEST_BATCHES + 1: 1.0, LARGEST_BATCHES + 3: 1.0}


def test_a_trained_model_writes_as_much_as_the_references(tmp_path):
    task = planned(tmp_path).task
    task.validation_samples = [SimpleNamespace(output="1 2 3 4 5 6 7", reference="1 2 3")] * 3  # and END
    assert trained_share(task) == 0.5
    task.validation_samples = []
    assert trained_share(task) == 1.0


def test_a_mistake_in_the_measured_steps_is_told(tmp_path, monkeypatch):
    fork_for_spawn(monkeypatch)  # test_steps_and_validations_are_counted starts a new one
    settings = read_settings(table(tmp_path, training__steps=4))
    with pytest.raises(TrainingError, match="no folder of this name has a checkpoint|not a run folder"):
        measure_apart(settings, tmp_path / "none", False, report)


PEAK = """
import os, subprocess, sys
_, status, usage = os.wait4(subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL).pid, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="it counts no memory")
def test_memory_and_time_are_those_of_the_training(tmp_path):
    """Within 15 % of the training's memory and 25 % of its time; a busy machine may need several attempts."""
    config = table(tmp_path, training__steps=400, training__validate_every=100, training__threads=1)
    (tmp_path / "config.toml").write_text(tomli_w.dumps(config))
    for attempt in range(4):
        estimate = dry_run(read_settings(config), Progress(), report)
        out = tmp_path / f"run-{attempt}"
        command = [sys.executable, "-m", "regard", "train", str(tmp_path / "config.toml"), "--out", str(out)]
        # Started by a small process: Linux counts the parent's memory in the peak of a new process.
        peak = int(subprocess.check_output([sys.executable, "-c", PEAK, *command], stderr=subprocess.DEVNULL))
        peak *= 1 if sys.platform == "darwin" else 1024
        assert estimate.measured.memory == pytest.approx(peak, rel=0.15)
        lines = (out / "metrics.jsonl").read_text().splitlines()
        steps = [record for record in map(json.loads, lines) if record["kind"] == "step"]
        first, last = steps[0], steps[-1]  # the time between the steps: a run's seconds begin when it reads its data
        seconds = (last["seconds"] - first["seconds"]) * last["step"] / (last["step"] - first["step"])
        if estimate.seconds == pytest.approx(seconds, rel=0.25):
            return
    pytest.fail(f"{estimate.seconds:.2f} s estimated, {seconds:.2f} s taken, in the last of four attempts")


def test_steps_and_validations_are_counted(tmp_path):
    config = table(tmp_path, training__steps=130, training__validate_every=100)
    estimate = dry_run(read_settings(config), Progress(), report)
    assert (estimate.steps, estimate.validations) == (130, 2)
    assert dict(estimate.facts)["data"].startswith("190 pairs")
    measured = estimate.measured
    assert estimate.seconds == pytest.approx(130 * measured.step + 2 * measured.validation)
    assert list(tmp_path.glob("run*")) == []
