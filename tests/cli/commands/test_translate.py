"""`regard translate` from the command line: files, pipes, processes, odd text and mistakes."""

import gzip
import io
import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.run
import typer
from child import command, fork_ranks, forked
from cli.typing_in import Command
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tiny import free_port, table

from regard import load
from regard.cli.program import app
from regard.data import sentence_split
from regard.io import parse_pharaoh
from regard.tasks import start

COMMAND = Command("translate")
typed, right, refused = COMMAND.typed, COMMAND.right, COMMAND.refused
LONGEST = 12
LINES = ["1 2 3", "", "4 5 6 7", "   ", "9", "0 8 1 5 2", "7 7"]


def said(*arguments, stdin=None) -> list[str]:
    shown = right(*arguments, stdin=stdin)
    assert shown.stderr == ""
    assert shown.stdout_bytes.endswith(b"\n") or not shown.stdout_bytes
    return shown.stdout_bytes.decode().split("\n")[:-1]


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    """Create runs that roughly reverse digits, and a file to translate."""
    folder, threads = tmp_path_factory.mktemp("desk"), torch.get_num_threads()
    common = {
        "data__longest": LONGEST,
        "training__batch_tokens": 256,
        "training__rate": 0.02,
        "training__validate_every": 60,
    }
    start(table(folder / "data", training__steps=60, **common), folder / "run")
    start(table(folder / "data", "rnnsearch", training__steps=10, **common), folder / "other")
    start(table(folder / "data", "rnn", training__steps=2, **common), folder / "plain")
    start(table(folder / "data", tokenizer={"kind": "bpe", "size": 300}, training__steps=2, **common), folder / "bpe")
    model = {"kind": "encoder", "size": 16, "heads": 2, "layers": 1, "hidden": 16}
    start(table(folder / "data", task="language-model", model=model, training__steps=2), folder / "lm")
    torch.set_num_threads(threads)
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in LINES))
    return folder


# ---- lines


def test_order_is_kept_and_empty_lines_stay_empty(at_desk):
    expected = load("run").translate(LINES)
    assert said("run", "in.txt") == expected
    assert expected[1] == expected[3] == ""
    assert len(set(expected)) > 4  # otherwise the order would mean little
    assert said("run", "in.txt", "--beam", 1) == load("run").translate(LINES, beam=1)


def test_a_file_a_pipe_and_what_is_packed_are_the_same(at_desk, tmp_path):
    expected, text = said("run", "in.txt"), Path("in.txt").read_bytes()
    (tmp_path / "packed").write_bytes(gzip.compress(text))
    (tmp_path / "windows.txt").write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n").removesuffix(b"\r\n"))
    assert said("run", stdin=text) == expected
    assert said("run", "-", stdin=gzip.compress(text)) == expected
    assert said("run", tmp_path / "packed") == expected
    assert said("run", tmp_path / "windows.txt") == expected
    assert said("run", os.devnull) == said("run", stdin=b"") == []


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n")), max_size=20))
@example(["a\u2028b", "\x85", "\ufeff", "x\ry", "𝔸 😀", "\x1c", "▁", "</s> <unk>", "\u200b"])
def test_any_text_gives_as_many_lines(at_desk, texts):
    shown = right("bpe", "--beam", 1, "--longest", 4, stdin="".join(f"{text}\n" for text in texts).encode())
    assert shown.stdout_bytes.count(b"\n") == len(texts)
    found = shown.stdout_bytes.decode().split("\n")[: len(texts)]
    normalise = load("bpe").tokenizers.source.normalise
    assert all(not output for text, output in zip(texts, found, strict=True) if not normalise(text))


def test_chunks_do_not_matter(at_desk, monkeypatch):
    expected = said("run", "in.txt", "--nbest", 2)
    for size in (1, 2, 3):
        monkeypatch.setattr("regard.io.inputs.CHUNK", size)
        assert [line.rpartition(" ||| ")[0] for line in said("run", "in.txt", "--nbest", 2)] == [
            line.rpartition(" ||| ")[0] for line in expected
        ]


def test_long_lines_are_cut_with_a_warning(at_desk, tmp_path):
    words = [str(i % 10) for i in range(10_000)]
    (tmp_path / "long.txt").write_text(f"1 2\n{' '.join(words)}\n{' '.join(words[:LONGEST])}\n")
    shown = right("run", tmp_path / "long.txt", "--beam", 1)
    assert shown.stdout.splitlines() == load("run").translate(["1 2", *[" ".join(words[:LONGEST])] * 2], beam=1)
    assert shown.stderr == (
        f"regard: {tmp_path / 'long.txt'}, line 2: 10,000 tokens, truncated to {LONGEST}, "
        f"as the model takes at most {LONGEST}; --split translates all of it\n"
    )


def test_many_long_lines_are_counted(at_desk):
    shown = typed("run", "--beam", 1, "--longest", 1, stdin="1 2 3 4 5 6 7 8 9 1 2 3 4\n" * 15)
    assert shown.stdout.count("\n") == 15
    assert len(shown.stderr.splitlines()) == 11
    assert shown.stderr.splitlines()[-1] == f"regard: 5 more lines were truncated to {LONGEST} tokens"


def test_split_translates_all_of_a_line(at_desk):
    line = " ".join(str(i % 10) for i in range(1000))
    parts = [piece.text for piece in sentence_split.pieces(line, lambda text: len(text.split()), LONGEST)]
    assert len(parts) > 80
    expected = " ".join(filter(None, load("run").translate(parts, beam=1)))
    assert said("run", "--split", "--beam", 1, stdin=f"1 2\n\n{line}\n") == [
        said("run", "--beam", 1, stdin="1 2\n")[0],
        "",
        expected,
    ]


def test_split_keeps_scores_links_and_prefixes(at_desk):
    source = "1 2 3 . 4 5 ! 6"  # the marks are unknown words, but still end sentences before digits
    row = json.loads(said("run", "--split", "--json", "--alignment", "--prefix", "7", "--nbest", 2, stdin=source)[0])
    parts = list(load("run").stream(["1 2 3 .", "4 5 !", "6"], prefixes=["7", "", ""], alignment=True, nbest=2))
    best, second = row["translations"]
    assert best["text"] == " ".join(part[0].text for part in parts if part[0].text)
    assert best["text"].startswith("7")
    assert best["log_prob"] == pytest.approx(sum(part[0].log_prob for part in parts), abs=1e-4)
    assert second["score"] == pytest.approx(
        best["score"] - min(part[0].score - part[1].score for part in parts), abs=1e-4
    )
    words = source.split(), best["text"].split()
    assert best["alignment"] == sorted(best["alignment"], key=lambda link: link[1])
    assert all(0 <= i < len(words[0]) and 0 <= j < len(words[1]) for i, j in best["alignment"])
    first = len(parts[0][0].text.split())
    assert {i for i, j in best["alignment"] if j < first} <= {0, 1, 2, 3}
    assert {i for i, j in best["alignment"] if j >= first} <= {4, 5, 6, 7}


# ---- output


def test_nbest_lists_are_those_of_moses(at_desk):
    rows = [line.split(" ||| ") for line in said("run", "in.txt", "--nbest", 3, "--alignment")]
    assert [int(row[0]) for row in rows] == [0, 0, 0, 1, 2, 2, 2, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6]
    for i, line in enumerate(LINES):
        own = [row for row in rows if int(row[0]) == i]
        scores = [float(row[2]) for row in own]
        assert scores == sorted(scores, reverse=True)
        assert len({row[1] for row in own}) == len(own)
        for _, text, _, links in own:
            assert all(a < len(line.split()) and b < len(text.split()) for a, b in parse_pharaoh(links))
    assert [row[1] for i, row in enumerate(rows) if i == 0 or rows[i - 1][0] != row[0]] == said("run", "in.txt")


def test_json_has_everything(at_desk):
    found = [json.loads(line) for line in said("run", "in.txt", "--json", "--nbest", 2, "--alignment")]
    assert [row["source"] for row in found] == LINES
    for row, outputs in zip(found, load("run").stream(LINES, nbest=2, alignment=True), strict=True):
        assert len(row["translations"]) == len(outputs)
        for written, output in zip(row["translations"], outputs, strict=True):
            assert (written["text"], written["finished"]) == (output.text, output.finished)
            assert written["score"] == pytest.approx(output.score, abs=1e-5)
            assert written["log_prob"] == pytest.approx(output.log_prob, abs=1e-5)
            assert written["tokens"] == list(output.tokens)
            assert written["alignment"] == [list(link) for link in output.alignment]


def test_columns_stand_behind_tabs(at_desk):
    rows = [line.split("\t") for line in said("run", "in.txt", "--scores", "--alignment")]
    assert [row[0] for row in rows] == said("run", "in.txt")
    for row, (output, *_) in zip(rows, load("run").stream(LINES, alignment=True), strict=True):
        assert float(row[1]) == pytest.approx(output.score, abs=1e-3)
        assert parse_pharaoh(row[2]) == list(output.alignment)
    assert [line.split("\t")[1] for line in said("run", "in.txt", "--alignment")] == [row[2] for row in rows]


def test_outputs_begin_with_their_prefix(at_desk, tmp_path):
    found = said("run", "in.txt", "--prefix", "5 6")
    assert [text[:3] for text in found] == ["5 6" if line.strip() else "" for line in LINES]
    begun = ["1", "", "2 2", "x", "", "9", "8 8 8"]
    (tmp_path / "prefixes").write_text("".join(f"{text}\n" for text in begun))
    found = said("run", "in.txt", "--prefixes", tmp_path / "prefixes")
    assert all(text.startswith(prefix) for text, prefix, line in zip(found, begun, LINES, strict=True) if line.strip())
    assert found[4] == said("run", "in.txt")[4]
    assert said("run", "--prefixes", tmp_path / "prefixes", stdin=Path("in.txt").read_bytes()) == found


def test_samples_hang_on_the_seed(at_desk):
    drawn = [said("run", "in.txt", "--sample", "--nbest", 3, "--seed", seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert said("run", "in.txt", "--sample", "--top-k", 1) == load("run").translate(LINES, beam=1)


def test_several_runs_are_an_ensemble(at_desk):
    assert said("run", "other", "in.txt", "--scores") != said("run", "in.txt", "--scores")
    assert said("run", "other", "in.txt") == load("run", "other").translate(LINES)
    assert said("run", "run", "-", stdin=Path("in.txt").read_bytes()) == said("run", "in.txt")


def test_options_reach_the_search(at_desk):
    given = {"beam": 4, "length_penalty": 1.5, "coverage_penalty": 0.2, "shortest": 3, "longest": 5, "no_repeat": 1}
    flags = [each for name, value in given.items() for each in (f"--{name.replace('_', '-')}", value)]
    assert said("run", "in.txt", *flags) == load("run").translate(LINES, **given)
    assert said("run", "in.txt", "--checkpoint", "last", "--batch-tokens", 9, "--device", "cpu") == said(
        "run", "in.txt"
    )
    given = {"beam": 4, "nbest": 4, "groups": 2, "diversity": 3.0}
    flags = [each for name, value in given.items() for each in (f"--{name}", value)]
    found = [line.split(" ||| ")[1] for line in said("run", "in.txt", *flags)]
    assert found == [each.text for outputs in load("run").stream(LINES, **given) for each in outputs]


def test_unknown_words_are_replaced(at_desk):
    source = "1 x 3 y\n"
    replaced = typed("run", "--replace-unknown", "--prefix", "zzz", stdin=source)  # the prefix forces an unknown word
    assert "<unk>" in typed("run", "--prefix", "zzz", stdin=source).stdout
    assert "<unk>" not in replaced.stdout
    assert replaced.stdout.split()[0] in source.split()
    assert replaced.stderr == "regard: x and y were never seen in training\n"


def test_a_file_is_written_whole(at_desk, tmp_path):
    assert said("run", "in.txt", "--out", tmp_path / "out.txt") == []
    assert (tmp_path / "out.txt").read_text().split("\n")[:-1] == said("run", "in.txt")
    assert said("run", "in.txt", "--out", tmp_path / "out.gz") == []
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()) == (tmp_path / "out.txt").read_bytes()
    assert said("run", "in.txt", "--out", os.devnull) == []
    assert Path(os.devnull).is_char_device()
    # The second line arrives too late for a check in advance, and the existing output stays.
    assert "line 2" in refused("run", "--out", tmp_path / "out.txt", stdin=b"1 2\n\0\n")
    assert (tmp_path / "out.txt").read_text().split("\n")[:-1] == said("run", "in.txt")
    assert {path.name for path in tmp_path.iterdir()} == {"out.txt", "out.gz"}


# ---- pipes and processes


def test_a_line_is_answered_before_the_next(at_desk):
    """In a new interpreter that shows all warnings, no warning reaches the pipe or standard error."""
    command = [sys.executable, "-m", "regard", "translate", "run"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, env=environment, bufsize=0, **pipes) as process:
        answers: queue.Queue[bytes] = queue.Queue()
        reader = threading.Thread(target=lambda: [answers.put(line) for line in process.stdout])
        reader.start()
        try:
            found = []
            for line in LINES:
                process.stdin.write(f"{line}\n".encode())
                found.append(answers.get(timeout=60).decode().removesuffix("\n"))
            assert found == load("run").translate(LINES)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 128 + signal.SIGTERM
            assert process.stderr.read() == b"regard: stopped by SIGTERM\n"
        finally:
            process.kill()
            reader.join()


def by_ranks(*words):
    """Return the results of two processes with the environment variables that torchrun sets."""
    return fork_ranks(command(*words))


def by_torchrun(*words):
    """Return the result of torchrun with two processes."""
    given = ["--nproc-per-node", "2", "--master-port", str(free_port()), "-m", "regard", *words]
    return [forked(lambda: torch.distributed.run.main(given))]


@pytest.mark.parametrize("share", [by_ranks, pytest.param(by_torchrun, marks=pytest.mark.slow)])
def test_two_processes_share_a_file(at_desk, tmp_path, share):
    """Two processes write one result, the same as that of one process."""
    lines = [f"{i % 10} {i // 10 % 10} {i // 100}" for i in range(101)]
    (tmp_path / "many.txt").write_text("\n".join(lines))
    ranks = share("translate", "run", str(tmp_path / "many.txt"), "--json")
    assert {ended.status for ended in ranks} == {0}, ranks
    shared, alone = (
        [json.loads(line) for line in text.splitlines()]
        for text in ("".join(ended.stdout for ended in ranks), "\n".join(said("run", tmp_path / "many.txt", "--json")))
    )
    assert [row["source"] for row in shared] == lines
    for one, other in zip(shared, alone, strict=True):
        assert one["translations"][0]["text"] == other["translations"][0]["text"]
        assert one["translations"][0]["score"] == pytest.approx(other["translations"][0]["score"], abs=1e-4)


def test_a_bar_is_drawn_on_a_terminal(at_desk, tmp_path, monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    commands = typer.main.get_command(app)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "stderr", Terminal())
    commands.main(["translate", "run", "in.txt", "--out", str(tmp_path / "out")], standalone_mode=False)
    assert "7/7" in sys.stderr.getvalue()
    assert "lines/s" in sys.stderr.getvalue()
    assert capsys.readouterr().out == ""
    sys.stderr.truncate(0)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    commands.main(["translate", "run", "in.txt"], standalone_mode=False)  # results to the terminal would mix
    assert sys.stderr.getvalue().strip("\0") == ""


# ---- mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("none", "none: no such folder, expected a run folder first, as in: regard translate runs/en-de FILE"),
        ("data", "data: not a run folder, it has no config.toml; regard runs lists run folders"),
        ("run none.txt", "none.txt: no such file; if it is a text, add --text"),
        ("run bpe in.txt", "bpe: its tokenizer differs from that of run"),
        ("lm in.txt", "lm: its task is language-model, expected translate; use regard sample"),
        ("run in.txt --beam 0", "--beam: 0 given, expected at least 1"),
        ("run in.txt --nbest 6", "--nbest: 6 given, expected at most the beam, 5"),
        ("run in.txt --top-p 0.5", "--top-p: 0.5 given without --sample"),
        ("run in.txt --sample --temperature 0", "--temperature: 0.0 given, expected more than 0"),
        ("run in.txt --length-penalty nan", "--length-penalty: nan given, expected a finite number"),
        ("run in.txt --out run", "--out: run is a folder, expected a file to write"),
        ("run in.txt --out none/out.txt", "--out: none/out.txt: no folder none to write it into"),
        ("run in.txt --out in.txt", "--out: in.txt is an input file, expected another"),
        ("run in.txt --prefix 1 --prefixes in.txt", "--prefix: given together with --prefixes"),
        ("run in.txt --prefixes two.txt", "--prefixes: two.txt has 2 lines and in.txt has 7; expected the same number"),
        ("run in.txt --prefixes none.txt", "none.txt: no such file"),
        ("run in.txt --longest 2 --prefix '1 2 3'", "prefix 1: 3 tokens given, expected at most 2"),
        ("run in.txt --device tpu", "--device: 'tpu' given, expected auto, cpu, mps, cuda, or cuda:1"),
        ("run in.txt --checkpoint first", "run/checkpoints: no checkpoint first in it"),
        ("plain in.txt --alignment", "plain: a model of kind rnn has no attention to its source"),
        ("run binary", "binary, line 2: byte 3 is NUL, as in binary files; expected UTF-8 text"),
        ("run run/checkpoints/last/model.safetensors", "run/checkpoints/last/model.safetensors, line 1: byte "),
    ],
)
def test_mistakes_are_one_sentence(at_desk, arguments, message):
    Path("two.txt").write_text("1\n2\n")
    Path("binary").write_bytes(b"1 2\n3 \0\n")
    before = sorted(path.name for path in at_desk.iterdir())
    assert refused(*shlex.split(arguments)).startswith(message)
    assert sorted(path.name for path in at_desk.iterdir()) == before


def test_mistakes_in_a_pipe(at_desk):
    shown = typed("run", "--prefixes", "in.txt", stdin="1\n2\n")
    assert (shown.exit_code, len(shown.stdout.splitlines())) == (2, 2)
    assert shown.stderr == "regard: --prefixes: in.txt has 7 lines and standard input has 2; expected the same number\n"
    assert "standard input has at least 8" in refused("run", "--prefixes", "in.txt", stdin="1\n" * 8)
    assert refused("run", stdin=b"\xff\xfe1\0\n").startswith("standard input, line 1: looks like UTF-16")


def test_memory_that_runs_out_is_one_sentence(at_desk, monkeypatch):
    def stream(*_, **__):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr("regard.run.Run.stream", stream)
    assert refused("run", "in.txt") == "in.txt, lines 1 to 7: out of memory; lower --batch-tokens or --beam"


def test_processes_share_no_pipe(at_desk, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    expected = "standard input: cannot be shared among 2 processes, expected a file"
    assert refused("run", stdin="1\n") == expected
    assert refused("run", "in.txt", "--prefixes", "-", stdin="1\n") == expected


def test_a_keyboard_is_greeted(at_desk, monkeypatch, capsys):
    from regard.io import SourceLines

    class Keyboard(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Keyboard())
    SourceLines("-")
    assert capsys.readouterr() == ("", "reading from the keyboard: one sentence per line, Ctrl-D to end\n")


def test_a_text_is_translated_as_it_is_typed(at_desk):
    assert said("run", "1 2 3") == said("run", stdin="1 2 3\n")
    assert said("run", "7", "--text") == said("run", stdin="7\n")
    assert said("run", "1 2\n3 4") == said("run", stdin="1 2\n3 4\n")
    assert said("run", "1 2 3", "", "7", "4 5") == said("run", stdin="1 2 3\n\n7\n4 5\n")
    assert said("run", "") == said("run", "  ") == said("run", "", "--text") == [""]
    words = ("7", "in.txt", "-")
    expected = [typed("run", each, "--text").stdout for each in words]
    assert typed("run", *words, "--text").stdout == "".join(expected)
    assert said("run", "run", "1 2 3", "4") == load("run", "run").translate(["1 2 3", "4"])
    assert refused("run", "7") == "7: no such file; if it is a text, add --text"
    assert refused("run", "--text") == "--text: missing a text; give one after the run folder"


LONG = " ".join(["we were here and the dog sleeps"] * 3)
STORED = Path(__file__).parents[2] / "stored_runs"


def test_what_a_typed_text_says_and_its_output_leaves_out_is_reported(tmp_path):
    """A single output token gives its source a total attention of one: most of 21 words get next to nothing."""
    shown = right(STORED / "transformer", LONG, "--longest", 1)
    (said,) = [line for line in shown.stderr.splitlines() if "not translated" in line]
    assert said.startswith("regard: perhaps not translated: “")
    assert "line" not in said
    shown = typed(STORED / "transformer", f"we were\n{LONG}", "--longest", 1)
    (said,) = [line for line in shown.stderr.splitlines() if "not translated" in line]
    assert said.endswith("(line 2)")
    assert "(line 1)" not in said
    assert "not translated" not in typed(STORED / "transformer", LONG, "--longest", 1, "--no-coverage").stderr


def test_of_files_and_pipes_it_is_reported_where_it_is_asked_for(tmp_path):
    file = tmp_path / "file"
    file.write_text(f"we were\n{LONG}\n")
    for path, stdin in ((file, None), ("-", file.read_text())):
        silent = typed(STORED / "transformer", path, "--longest", 1, stdin=stdin)
        assert "not translated" not in silent.stderr
        asked = typed(STORED / "transformer", path, "--longest", 1, "--coverage", "--json", stdin=stdin)
        assert asked.stderr.count("perhaps not translated") == 1
        assert "(line 2)" in asked.stderr
        first, second = (json.loads(line)["translations"][0] for line in asked.stdout.splitlines())
        assert first["untranslated"] == []
        assert all(end - start >= 3 for start, end in second["untranslated"])
        assert second["untranslated"]
        # The result is the same with and without the report on missing words.
        assert [json.loads(line)["translations"][0]["text"] for line in asked.stdout.splitlines()] == (
            silent.stdout.splitlines()
        )


def test_a_run_without_attention_says_nothing_of_what_is_missing():
    shown = right(STORED / "rnn", LONG, "--longest", 1)
    assert "not translated" not in shown.stderr
    assert "a model of kind rnn has no attention to its source" in refused(STORED / "rnn", LONG, "--coverage")


def test_several_files_are_read_one_after_the_other(at_desk, tmp_path):
    (tmp_path / "two.tsv").write_text("1 2\tx\n3 4\ty\n")
    found = right("run", "in.txt", tmp_path / "two.tsv", "-", "--nbest", 1, "--json", stdin="9 9\n")
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    sources = [*LINES, "1 2", "3 4", "9 9"]
    assert [row["source"] for row in rows] == sources
    assert [row["translations"][0]["text"] for row in rows] == load("run").translate(sources)
    numbers = [line.split(" ||| ")[0] for line in said("run", "in.txt", "in.txt", "--nbest", 2)]
    assert list(dict.fromkeys(numbers)) == [str(i) for i in range(2 * len(LINES))]
    (tmp_path / "long.txt").write_text(" ".join("12" * 40) + "\n")
    shown = typed("run", "in.txt", tmp_path / "long.txt")
    assert f"{tmp_path / 'long.txt'}, line 1: 80 tokens, truncated" in shown.stderr
    assert refused("run", "in.txt", "in.txt", "--out", "in.txt") == "--out: in.txt is an input file, expected another"


def test_one_odd_byte_does_not_stop_the_lines_after_it(at_desk, tmp_path):
    """The byte may be in a file, a pipe, a packed file or an argument; it is reported, and each input has an output."""
    data = b"1 2 3\n4 \xe9 5\n6 7\n"
    (tmp_path / "odd.txt").write_bytes(data)
    (tmp_path / "odd.gz").write_bytes(gzip.compress(data))
    expected = load("run").translate(["1 2 3", "4 � 5", "6 7"])
    for arguments, stdin, name in (
        ([tmp_path / "odd.txt"], None, tmp_path / "odd.txt"),
        ([tmp_path / "odd.gz"], None, tmp_path / "odd.gz"),
        ([], data, "standard input"),
        ([os.fsdecode(data)], None, "the text"),
    ):
        shown = typed("run", *arguments, stdin=stdin)
        assert (shown.exit_code, shown.stdout.splitlines()) == (0, expected)
        note = "1 line has bytes that are not UTF-8 and were read as �: line 2, byte 3 (0xe9); convert it to UTF-8"
        option = "" if name == "the text" else ", or add --encoding cp1252 (it looks like Windows-1252 (Latin-1))"
        assert f"regard: {name}: {note}{option}\n" in shown.stderr
