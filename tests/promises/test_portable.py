"""Regard works alike wherever Python runs: the same bytes in and out, whatever the system, locale or code page.

The tests run on Linux, and simulate the differences of Windows (tests/windows.py): a session of training, resuming,
translating and looking, with mistakes, must have the same output byte by byte.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = ["Ärger über süße Äpfel", "我昨天吃了披萨", "أكلت البيتزا أمس", "pizza 🍕 yesterday", "plain words"]
RUN = "Läufe/run 🙂"
SMALL = ["model.size=16", "model.heads=2", "model.layers=1", "model.hidden=16", "model.kind=transformer"]
SMALL += ["tokenizer.kind=word", "data.held_out=0.1", "training.batch_tokens=64", "training.validate_every=2"]
SMALL += ["training.metric=chrf", "training.validate_rows=4", "training.log_every=1", "training.device=cpu"]


def settings(*given: str) -> list[str]:
    return [word for setting in given for word in ("--set", setting)]


FILES = ["--source", "Sätze.txt", "--target", "译文.txt"]
LEARN = [
    ["train", *FILES, "--out", RUN, *settings(*SMALL, "training.steps=3")],
    ["train", "--resume", RUN, *settings("training.steps=4")],
]
USE = [
    ["translate", RUN, "neu.txt", "--json", "--prefix", WORDS[0].split()[0]],
    ["translate", RUN, "--out", "aus.txt", "--prefixes", "neu.txt"],  # from standard input
    ["score", RUN, "--source", "Sätze.txt", "--target", "译文.txt", "--json"],
    ["align", RUN, "--source", "neu.txt", "--target", "neu.txt", "--out", "Verbindungen.txt"],
    ["look", RUN, WORDS[0], "--out", "Blick.html"],
    ["data", "phrasebook", "--out", "Daten", "--count", "5", "--valid", "2", "--test", "2"],
    ["configs"],
]
MISTAKES = [
    ["translate", RUN, "Läufe"],
    ["translate", RUN, "nichts.txt"],
    ["translate", "Läufe", "neu.txt"],
    ["train", "Läufe"],
    ["train", "--source", "Läufe", "--target", "Läufe", "--out", "x"],
    ["train", *FILES, "--out", RUN],
    ["train", *FILES, "--out", "neu.txt"],
    ["train", "--documents", "Läufe.tsv", "--out", "x"],
    ["score", RUN, "--source", "neu.txt", "--target", "Läufe"],
    ["data", "phrasebook", "--out", "neu.txt"],
]
FEW = settings("training.steps=2", "training.validate_every=1", "training.device=cpu")
TINY = settings("model.channels=4", "model.stages=2", "model.size=8", "model.embedding=8", "data.image_size=32")
PICTURES = ["--images", "Bilder/images", "--captions", "Bilder/train.captions.tsv"]
PICTURES += ["--valid-captions", "Bilder/valid.captions.tsv"]
DOCUMENTS = ["--documents", "Meinungen/train.tsv", "--valid-documents", "Meinungen/valid.tsv"]
OTHER_TASKS = [  # pictures stay mapped into memory while other files are written
    ["data", "scenes", "--out", "Bilder", "--count", "9", "--valid", "3", "--test", "2", "--set", "size=32"],
    ["train", *PICTURES, "--out", "Läufe/Bilder", *FEW, *TINY],
    ["train", "--resume", "Läufe/Bilder", *settings("training.steps=3")],
    ["caption", "Läufe/Bilder", "Bilder/images/test-000000.png"],
    ["caption", "Läufe/Bilder", "."],
    ["look", "Läufe/Bilder", "Bilder/images/test-000000.png", "--out", "Bild.html"],
    ["data", "reviews", "--out", "Meinungen", "--count", "40", "--valid", "5", "--test", "5"],
    ["train", *DOCUMENTS, "--out", "Läufe/Meinungen", *FEW, *settings("model.size=8", "model.embedding=8")],
    ["classify", "Läufe/Meinungen", "neu.txt"],
    ["eval", "Läufe/Meinungen", "--documents", "Meinungen/test.tsv"],
]
CHILD = """
import json, os, signal, sys
sessions = json.loads(sys.argv[1])
if len(sessions) > 1:
    import jaxtyping, matplotlib.pyplot, numpy, PIL.Image, portalocker, rich, safetensors.torch, sacrebleu, tokenizers
    import tomli_w, torch, torch._dynamo, torch.utils.tensorboard, typer

def work(home, commands, system, encoding):
    signal.alarm(120)
    for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        os.dup2(os.open(f"{home}.{number}", os.O_RDWR), number)
        if encoding:
            stream.reconfigure(encoding=encoding, errors="strict" if number < 2 else "backslashreplace")
    os.chdir(home)
    os.environ["REGARD_CACHE"] = os.path.join(home, "cache")
    if system == "windows":
        import windows
        windows.become()
    from regard.cli.program import main
    for words in commands:
        sys.argv = ["regard", *words]
        try:
            main()
            status = 0
        except SystemExit as ended:
            status = ended.code or 0
        for stream in (sys.stdout, sys.stderr):
            print(f"\\n== {status}", file=stream, flush=True)

children = []
for session in sessions:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work(*session)
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    children.append(child)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


@dataclass(frozen=True)
class Session:
    """The results of some commands."""

    home: Path
    out: list[tuple[bytes, bytes]]  # each command's standard output and status
    said: list[tuple[bytes, bytes]]  # each command's standard error and status

    def files(self) -> dict[str, bytes]:
        """The files that were written, except those with times or paths."""
        times = {"metrics.jsonl", "log.txt", "report.html", "manifest.json", "trainer.safetensors", "best.json"} | {
            "commands.jsonl"
        }
        paths = [path for path in self.home.rglob("*") if path.is_file() and not path.is_symlink()]
        own = {path.relative_to(self.home).as_posix(): path for path in paths if path.name not in times}
        home = str(self.home).encode()
        return {
            name: path.read_bytes().replace(home, b"HOME")
            for name, path in own.items()
            if not name.startswith("cache/") and "tensorboard" not in path.parts
        }


def hold(
    *sessions: tuple[Path, list[list[str]], str], encodings: tuple[str, ...] = (), **environment: str
) -> list[Session]:
    """Run sessions, each with a folder, commands and a system, in processes forked from one new Python.

    `encodings` are those of their standard streams, unless the environment decides.
    """
    lines = [f"{WORDS[i % 5]} {WORDS[(i * 3) % 5]}" for i in range(40)]
    for home, _, _ in sessions:
        home.mkdir(exist_ok=True)
        (home / "Sätze.txt").write_bytes("".join(f"{line}\r\n" for line in lines).encode())  # as Windows editors do
        (home / "译文.txt").write_bytes("".join(f"{line}\n" for line in reversed(lines)).encode())
        (home / "neu.txt").write_bytes("".join(f"{line}\n" for line in WORDS).encode())
        for number, text in enumerate(["".join(f"{line}\n" for line in WORDS), "", ""]):
            Path(f"{home}.{number}").write_bytes(text.encode())
    given = [(str(home), *how, encoding) for (home, *how), encoding in zip_longest(sessions, encodings, fillvalue="")]
    done = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-c", CHILD, json.dumps(given)],
        capture_output=True,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith(("LC_", "PYTHONUTF8"))},
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]),
            "OMP_NUM_THREADS": "1",
            "MPLBACKEND": "Agg",
            "LANG": "C.UTF-8",
            **environment,
        },
        timeout=120,
        check=False,
    )
    written = [[Path(f"{home}.{number}").read_bytes() for number in (1, 2)] for home, _, _ in sessions]
    ends = [done.stderr, *(err for _, err in written)]
    assert done.returncode == 0, b"".join(ends).decode(errors="replace")[-3000:]
    held = []
    for (home, commands, _), streams in zip(sessions, written, strict=True):
        parts = [re.findall(rb"(.*?)\n== (\d)\n", stream, re.DOTALL) for stream in streams]
        assert [len(part) for part in parts] == [len(commands)] * 2, streams[1].decode(errors="replace")[-3000:]
        held.append(Session(home, *parts))
    return held


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> list[Session]:
    """Run the same commands as usual, and as on Windows."""
    folder, commands = tmp_path_factory.mktemp("both"), [*LEARN, *USE, *MISTAKES]
    usual, there = (folder / "usual", commands, ""), (folder / "there", commands, "windows")
    return hold(usual, there, encodings=("", "cp1252"))


@pytest.fixture
def usual(both) -> Session:
    return both[0]


def test_the_session_is_worth_something(usual):
    """All commands succeed or fail as they should, and their output contains the words."""
    assert [status for _, status in usual.out] == [b"0"] * (len(LEARN) + len(USE)) + [b"2"] * len(MISTAKES)
    for name in ("aus.txt", "Blick.html", f"{RUN}/tokenizer.json", "Daten/train.de"):
        assert name in usual.files()
    out, said = (b"".join(text for text, _ in part).decode() for part in (usual.out, usual.said))
    log = (usual.home / RUN / "log.txt").read_text(encoding="utf-8")
    for word in " ".join(WORDS).split():
        assert word in log
        assert word in out
    assert "finished after 4 steps" in said
    assert WORDS[0].split()[0] in usual.files()["Blick.html"].decode()
    assert "\r" not in out
    assert not any(b"\r" in content for name, content in usual.files().items() if name in ("aus.txt", "Blick.html"))
    assert said.count("Traceback") == 0


def test_as_on_windows(both):
    """Without POSIX modules, signals, calls and links; folders cannot be synced, and open files cannot be moved."""
    usual, there = both
    assert there.out == usual.out
    assert there.files() == usual.files()
    for words, one, other in zip(MISTAKES, there.said[-len(MISTAKES) :], usual.said[-len(MISTAKES) :], strict=True):
        assert one == other, words
    for folder, folders, files in os.walk(there.home):
        names = [name.casefold() for name in (*folders, *files)]
        assert len(set(names)) == len(names), f"{folder}: names that differ by case alone"


@pytest.mark.slow
def test_pictures_and_documents_as_on_windows(tmp_path):
    here, there = hold((tmp_path / "here", OTHER_TASKS, ""), (tmp_path / "there", OTHER_TASKS, "windows"))
    assert [status for _, status in here.out] == [b"0"] * len(OTHER_TASKS), here.said
    assert there.out == here.out
    assert there.files() == here.files()


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("cp1252:strict", marks=pytest.mark.slow)])
def test_whatever_the_locale(usual, tmp_path, encoding):
    shutil.copytree(usual.home, tmp_path / "home", symlinks=True)
    for name in ("aus.txt", "Verbindungen.txt", "Blick.html"):
        (tmp_path / "home" / name).unlink()
    shutil.rmtree(tmp_path / "home" / "Daten")
    plain = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": encoding}
    (there,) = hold((tmp_path / "home", USE, ""), **plain)
    assert there.out == usual.out[len(LEARN) : -len(MISTAKES)]
    assert there.files().keys() == usual.files().keys()
    for name in ("aus.txt", "Verbindungen.txt", "Blick.html", "Daten/train.de", "Daten/train.en"):
        assert there.files()[name] == usual.files()[name]


def test_words_of_the_command_line(tmp_path):
    """Messages repeat words in the bytes in which they were typed."""
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT / "src")}
    name = " ".join(WORDS) + ".toml"
    shown = subprocess.run(
        [sys.executable, "-m", "regard", "train", name],
        env={**os.environ, **plain},
        capture_output=True,
        cwd=tmp_path,
        check=False,
    )
    assert shown.returncode == 2
    assert shown.stderr.decode().startswith(f"regard: {name}: no such file")


SHOWN = """
import mmap, os, sys
from pathlib import Path
import windows

windows.become()
kept, held = open("kept", "w+b"), open("mapped", "w+b")
held.write(b"12345678"), held.flush()
with open("mapped", "rb") as file:
    pages = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
held.close()
Path("folder/inner").mkdir(parents=True)
for name in ("free", "other", "read"):
    Path(name).write_bytes(b"")
opened = open("folder/inner/file", "wb")
own = {"__name__": "regard.anything"}
REFUSED = {
    "exec('import fcntl', own)": ModuleNotFoundError,
    "exec('from resource import getrlimit', own)": ModuleNotFoundError,
    "exec('import os; os.fork()', own)": AttributeError,
    "exec('from os import O_DIRECTORY', own)": ImportError,
    "exec('import signal; signal.SIGHUP', own)": AttributeError,
    "exec('import select; select.select([0], [], [], 0)', own)": OSError,
    "exec('open(name)', {**own, 'name': 'free'})": EncodingWarning,
    "os.symlink('free', 'link')": OSError,
    "Path('link').symlink_to('free')": OSError,
    "os.open('folder', os.O_RDONLY)": PermissionError,
    "open('folder')": PermissionError,
    "os.fsync(os.open('read', os.O_RDONLY))": OSError,
    "os.replace('free', 'kept')": PermissionError,
    "Path('free').replace('mapped')": PermissionError,
    "os.rename('kept', 'new')": PermissionError,
    "os.rename('folder', 'new')": PermissionError,
    "os.remove('mapped')": PermissionError,
    "Path('kept').unlink()": PermissionError,
    "os.rename('free', 'other')": FileExistsError,
    "os.replace('free', 'folder')": PermissionError,
    "open('a:b', 'w')": OSError,
    "Path('nul.txt').write_bytes(b'')": OSError,
    "Path('ends.').mkdir()": OSError,
}
for code, error in REFUSED.items():
    try:
        eval(code)
    except error:
        continue
    sys.exit(f"{code} was allowed")
exec("import os, signal; assert os.name == 'nt' and signal.SIGTERM and os.path.exists('free')", own)
os.replace("free", "other"), os.rename("other", "new"), os.remove("new"), pages.close()
os.remove("mapped")
"""


def test_the_other_system_refuses_what_windows_refuses(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    shown = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-c", SHOWN],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert shown.returncode == 0, shown.stderr


# ---- the source does not depend on the locale or the system


OTHERS = {"Image", "tarfile", "zipfile", "os"}  # their `open` opens no text
READING = {"open": "r", "fdopen": "r", "TextIOWrapper": "w", "NamedTemporaryFile": "w+b", "TemporaryFile": "w+b"}


def without_encoding(tree: ast.AST) -> list[int]:
    """List the lines of calls that read or write text without a set encoding or line end."""
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and not says_how(node)]


def says_how(call: ast.Call) -> bool:
    """Whether a call sets the encoding and line ends, or handles no text."""
    owner, name = None, getattr(call.func, "id", "")
    if isinstance(call.func, ast.Attribute):
        owner, name = getattr(call.func.value, "id", "?"), call.func.attr
    given = {keyword.arg: getattr(keyword.value, "value", ...) for keyword in call.keywords}
    utf8 = given.get("encoding") == "utf-8"
    if owner == "subprocess":
        return utf8 or not (given.get("text") or given.get("universal_newlines"))
    if name == "read_text":
        return utf8
    if name == "write_text":
        return utf8 and given.get("newline") == "\n"
    if name not in READING or (name == "open" and owner in OTHERS):
        return True
    first = name.endswith("TemporaryFile") or (name == "open" and owner not in (None, "io", "gzip"))  # Path.open(mode)
    place = [getattr(argument, "value", ...) for argument in call.args][0 if first else 1 :]
    mode = given.get("mode", place[0] if place else "rb" if owner == "gzip" else READING[name])
    if name == "TextIOWrapper":
        mode = READING[name]
    if isinstance(mode, str) and "b" in mode:
        return True
    reads = isinstance(mode, str) and not set(mode) & set("wax+")
    return isinstance(mode, str) and utf8 and (reads or given.get("newline") in ("", "\n"))


def test_every_text_is_utf8_and_every_line_ends_alike():
    files = [path for folder in ("src", "docs", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 200
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in files
        for line in without_encoding(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("code", "right"),
    [
        ("open(p)", False),
        ("open(p, 'w', encoding='utf-8')", False),
        ("open(p, mode)", False),
        ("open(p, 'w', encoding='latin-1', newline='\\n')", False),
        ("p.open('w')", False),
        ("p.open()", False),
        ("io.open(p)", False),
        ("gzip.open(p, 'rt')", False),
        ("p.read_text()", False),
        ("p.write_text(t, encoding='utf-8')", False),
        ("subprocess.run(c, text=True)", False),
        ("os.fdopen(f, 'w')", False),
        ("io.TextIOWrapper(f)", False),
        ("tempfile.NamedTemporaryFile('w')", False),
        ("open(p, 'rb')", True),
        ("open(p, encoding='utf-8')", True),
        ("p.open('rb')", True),
        ("gzip.open(p)", True),
        ("Image.open(p, formats=f())", True),
        ("p.write_text(t, encoding='utf-8', newline='\\n')", True),
        ("subprocess.run(c, text=True, encoding='utf-8')", True),
        ("os.open(p, os.O_RDONLY)", True),
        ("os.fdopen(f, 'r+b')", True),
        ("tempfile.NamedTemporaryFile()", True),
        ("opened(p)", True),
    ],
)
def test_a_slip_would_be_found(code, right):
    assert without_encoding(ast.parse(code)) == ([] if right else [1])


@pytest.mark.slow
@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_nothing_is_called_that_a_system_lacks(tmp_path, system):
    """Check with mypy, whose types of Python's library know what each system has."""
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--platform", system, "--cache-dir", str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, cwd=ROOT, encoding="utf-8", check=False)
    assert shown.returncode == 0, shown.stdout
