"""The command line in a process of its own: start-up, signals, completion, help and old names of options."""

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from cli.typing_in import Command
from typer.testing import CliRunner

import regard
from regard.cli.program import OLD_NAMES, SECTIONS, app

pytestmark = pytest.mark.unchecked  # typer uses other classes than it documents
SCRIPT = str(Path(sys.executable).with_name("regard"))

# The command line with an extra command, `act`, that runs the test's code.
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

    assert any(once() < 0.5 for _ in range(5))  # the fastest of up to five


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


# A shell without job control starts `&` commands with SIGINT ignored; children inherit that, and so does this test.
HEARD = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
IGNORED = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"


def test_control_c_is_one_line():
    shown = act(f"{HEARD}; print('so far'); signal.raise_signal(signal.SIGINT)")
    assert (shown.returncode, shown.stdout, shown.stderr) == (130, "so far\n", "regard: stopped\n")


def test_control_c_that_is_ignored_stays_ignored():
    """As in `regard … &` in a script: an interrupt is meant for the foreground process."""
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
        ("regard align --outp", []),  # an old name, which still works and is not offered
    ],
)
def test_completion(typed, completions):
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    shown = regard_(env={**os.environ, "_REGARD_COMPLETE": "complete_bash", **words})
    assert shown.stdout.split() == completions


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_completion_in_bash():
    """Bash runs the script that --show-completion prints as it does when a user presses Tab."""
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


# ---- help, and former names of options

GROUP = typer.main.get_command(app)
MODULES = {"import": "import_"}  # of commands whose names are Python keywords
NAMES = sorted(GROUP.commands)


def help_of(name: str, width: int = 80) -> str:
    return CliRunner().invoke(app, [name, "--help"], terminal_width=width).stdout


def test_every_command_stands_in_one_section():
    assert sorted(name for names in SECTIONS.values() for name in names) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_summary_is_one_whole_line(name):
    summary = GROUP.commands[name].short_help
    assert len(summary) <= 65  # it fits beside the longest name, on 80 columns
    assert not summary.endswith(".")
    assert summary == help_of(name, 200).splitlines()[2].strip().removesuffix(".")


@pytest.mark.parametrize("name", NAMES)
def test_help_ends_with_two_examples(name):
    *_, first, second = (line.strip() for line in help_of(name).rstrip("\n").splitlines())
    examples = importlib.import_module(f"regard.cli.commands.{MODULES.get(name, name)}").EXAMPLES
    assert (first, second) == examples
    assert max(map(len, examples)) <= 78
    for example in examples:
        program, command, *words = shlex.split(example.partition(" > ")[0])
        assert (program, command) == ("regard", name)
        with GROUP.make_context("regard", [name]) as above:  # an unknown option is an error
            GROUP.commands[name].make_context(name, words, parent=above)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("classify", "--scores,--json,document,picture"),
        ("sample", "--count,--prefix,--top-k,[1 to 1,000,000],language model"),
        ("score", "--source,--normalise,--tokens,log-probability"),
        ("serve", "--port,--device,--grace,--languages,--config,NAME=RUN,SIGHUP,ensemble"),
        ("train", "--set,--resume,--from,--check,--source,Train a model into a run folder"),
        ("translate", "--beam,--json,make an ensemble,[default: 5],--prefixes,--split"),
    ],
)
def test_help_can_be_read(name, words):
    text = help_of(name)
    assert all(word in text for word in re.split(r",(?!0)", words))
    assert "None" not in text


@pytest.mark.parametrize("name", NAMES)
def test_values_are_named_as_people_name_them(name):
    text = help_of(name)
    assert not re.search(r"<[a-z]|\bINTEGER\b|\{[a-z]+\}|list\[", text), "a type of Python, not a name for people"
    for option in GROUP.commands[name].params:
        if option.param_type_name == "option" and not option.is_flag:
            assert re.fullmatch(r"[A-Z][A-Z=,…]*( or [A-Z]+)?", option.metavar or ""), option.name
    named = {each for option in GROUP.commands[name].params for each in option.opts}
    assert ("--out" in named) == ("-o" in named)
    assert "--output" not in named


@pytest.mark.parametrize("name", OLD_NAMES)
def test_old_names_work_and_are_not_listed(name):
    known = {each for option in GROUP.commands[name].params for each in option.opts}
    for old, new in OLD_NAMES[name].items():
        assert new in known
        assert not re.search(rf"{old}\b", help_of(name, 200))
        option = next(each for each in GROUP.commands[name].params if new in each.opts)
        value = [] if option.is_flag else ["a.txt"]
        for typed in (old, new):
            with GROUP.make_context("regard", [name]) as above:
                context = GROUP.commands[name].make_context(name, ["run", typed, *value], parent=above)
            assert str(context.params[option.name]) == (value[0] if value else "True")


def test_a_mistake_with_an_old_name_is_one_sentence():
    assert Command("eval").refused("run", "--output").startswith("option '--output' requires an argument")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "--stesp", "5"], "no such option: --stesp; did you mean --steps?"),
        (["align", "run", "--layer", "9"], "no such option: --layer; see regard align --help"),
        (["trian"], "no such command 'trian'; did you mean train?"),
        (["paint"], "no such command 'paint'; see regard --help"),
        (["train", "a.en", "a.de", "b.de"], "more arguments than expected: a.de b.de; see regard train --help"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_nearest(words, said):
    assert Command(words[0]).refused(*words[1:]).replace("see root", "see regard") == said
