"""The command line as a person meets it: in a process of its own."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import regard

SCRIPT = str(Path(sys.executable).with_name("regard"))

# The command line with one more command, `act`, that does what the test says.
WITH_COMMAND = """
import sys
from regard.cli import program
from regard.errors import CommandError

def act(often: int = 1) -> None:
    "Do it."
    {body}

program.app.command("act")(program.handle_errors()(act))
program.main()
"""


def regard_(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=False, timeout=60, **options)


def act(body: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = WITH_COMMAND.format(body=body)
    command = [sys.executable, "-c", code, "act", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_help_names_every_command():
    shown = regard_("--help")
    folder = Path(regard.__file__).parent / "cli" / "commands"
    files = {path.stem.removesuffix("_") for path in folder.glob("[a-z]*.py")}
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "--version" in shown.stdout
    assert "--show-completion" in shown.stdout
    listed = re.findall(r"^  ([a-z]+) +[A-Z]", shown.stdout.partition("Train:")[2], re.MULTILINE)
    assert sorted(listed) == sorted(files)


def test_help_groups_commands_in_the_order_of_work():
    shown = regard_("--help", env={**os.environ, "COLUMNS": "80"}).stdout
    titles = re.findall(r"^([A-Z][a-z ]+):$", shown, re.MULTILINE)
    assert titles == ["Options", "Train", "Use", "Measure", "Look inside", "In and out", "Data", "More"]
    listed = shown.partition("Train:")[2].splitlines()
    lines = [line for line in listed if line.strip() and not line.endswith(":")]
    assert all(re.match(r"  [a-z]+ +[A-Z].*[a-z)]$", line) for line in lines), "a description on two lines, or cut off"
    assert max(map(len, lines)) <= 80


def test_no_arguments_is_help():
    assert regard_().stdout == regard_("--help").stdout


def test_version():
    shown = regard_("--version")
    assert (shown.returncode, shown.stdout) == (0, f"regard {regard.__version__}\n")


@pytest.mark.parametrize("wrong", [("attend",), ("--attend",), ("--version=3",)])
def test_wrong_words_are_status_2(wrong):
    shown = regard_(*wrong)
    assert shown.returncode == 2
    assert shown.stdout == ""
    assert "Traceback" not in shown.stderr
    assert "attend" in shown.stderr or "version" in shown.stderr


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_under_half_a_second(flag):
    def once() -> float:
        start = time.perf_counter()
        regard_(flag)
        return time.perf_counter() - start

    assert any(once() < 0.5 for _ in range(5))  # as the shortest of five, without those that follow it


def test_help_imports_nothing_heavy():
    heavy = {"torch", "numpy", "matplotlib", "PIL", "jaxtyping"}
    code = f"""
import sys
from regard.cli.program import main
try:
    main()
finally:
    print(sorted({heavy} & set(sys.modules)), file=sys.stderr)
"""
    shown = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    assert shown.stderr.strip() == "[]"


def test_a_mistake_is_one_sentence():
    shown = act("raise CommandError(f'no study is called {often}')", "--often", "7")
    assert (shown.returncode, shown.stdout, shown.stderr) == (2, "", "regard: no study is called 7\n")


def test_a_missing_file_is_one_sentence(tmp_path):
    shown = act(f"open({str(tmp_path / 'none.txt')!r})")
    assert (shown.returncode, shown.stderr) == (2, f"regard: {tmp_path / 'none.txt'}: No such file or directory\n")


def test_a_bug_keeps_its_traceback():
    shown = act("1 / 0")
    assert shown.returncode == 1
    assert "ZeroDivisionError" in shown.stderr


# What a shell without job control starts with `&` ignores interrupts, and so does all that it starts; this test, too.
HEARD = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
IGNORED = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"


def test_control_c_is_one_line():
    shown = act(f"{HEARD}; print('so far'); signal.raise_signal(signal.SIGINT)")
    assert (shown.returncode, shown.stdout, shown.stderr) == (130, "so far\n", "regard: stopped\n")


def test_control_c_that_is_ignored_stays_ignored():
    """As in `regard … &` of a script: an interrupt is for what is in the foreground."""
    shown = act(f"{IGNORED}; signal.raise_signal(signal.SIGINT); print('to the end')")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "to the end\n", "")


@pytest.mark.parametrize("often", ["1", "100000"])
def test_a_broken_pipe_is_silent(often):
    read, write = os.pipe()
    os.close(read)
    code = WITH_COMMAND.format(body="for _ in range(often): print('a line of what comes out')")
    shown = subprocess.run(
        [sys.executable, "-c", code, "act", "--often", often], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (shown.returncode, shown.stderr) == (1, b"")


@pytest.mark.parametrize(
    ("typed", "completions"),
    [
        ("regard --vers", ["--version"]),
        ("regard tr", ["train", "translate"]),
        ("regard translate --ba", ["--batch-tokens"]),
        ("regard align --g", ["--gold"]),
        ("regard align --outp", []),  # an old name, which works and is not offered
    ],
)
def test_completion(typed, completions):
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    shown = regard_(env={**os.environ, "_REGARD_COMPLETE": "complete_bash", **words})
    assert shown.stdout.split() == completions


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_completion_in_bash():
    """The script that --show-completion prints, as bash runs it when a person presses Tab."""
    press_tab = "COMP_WORDS=(regard tra); COMP_CWORD=1; _regard_completion regard; echo ${COMPREPLY[@]}"
    shown = subprocess.run(
        ["bash", "--norc", "-c", f'script="$(regard --show-completion)"; eval "$script"; {press_tab}'],
        env={**os.environ, "PATH": f"{Path(SCRIPT).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert shown.stdout.split() == ["train", "translate"]
