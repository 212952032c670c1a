"""Loading runs no code: every reader refuses or ignores a malicious pickle under any file name."""

import ast
import contextlib
import io
import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import table

import regard
from regard.config import parse, read
from regard.data import DataSettings, Tokenizers, TokenizerSettings, prepare
from regard.errors import RegardError
from regard.run import load
from regard.tasks import start
from regard.training import metrics

SOURCE = Path(regard.__file__).parent


class Malicious:
    """An object whose unpickling touches a file."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def forms(mark: Path) -> dict[str, bytes]:
    """Return the pickle alone, as torch and numpy save it, and as text that a TOML or JSON reader might evaluate."""
    torch_file, numpy_file = io.BytesIO(), io.BytesIO()
    torch.save({"w": Malicious(mark)}, torch_file)
    np.save(numpy_file, np.array([Malicious(mark)], dtype=object), allow_pickle=True)
    code = f"__import__('os').system('touch {mark}')"
    return {
        "pickle": pickle.dumps(Malicious(mark)),
        "text pickle": pickle.dumps(Malicious(mark), 0),
        "torch": torch_file.getvalue(),
        "numpy": numpy_file.getvalue(),
        "python": code.encode(),
        "json": json.dumps({"model": {"type": "BPE", "vocab": {}, "__reduce__": code}, "format": code}).encode(),
        "toml": f"[model]\nkind = '''{code}'''\n".encode(),
    }


FORMS = list(forms(Path("x")))


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("trained")
    start(table(home, training__steps=2, training__validate_every=2), home / "run")
    return home


@pytest.fixture
def home(trained, tmp_path) -> Path:
    """Copy a run with its data and cache, to damage it."""
    shutil.copytree(trained, tmp_path / "home", symlinks=True)
    return tmp_path / "home"


def given(home: Path, **changes):
    return table(home, training__steps=4, training__validate_every=2, **changes)


def test_the_pickles_do_run_when_they_are_loaded(tmp_path):
    """The pickles do run code, so the other tests mean something."""
    for name in ("pickle", "text pickle"):
        mark = tmp_path / name.replace(" ", "-")
        pickle.loads(forms(mark)[name])
        assert mark.exists()


@pytest.mark.parametrize("form", [FORMS[0], *(pytest.param(form, marks=pytest.mark.slow) for form in FORMS[1:])])
def test_under_every_name_of_a_run(home, trained, form):
    mark = home / "mark"
    content = forms(mark)[form]
    run = home / "run"
    names = [path for path in run.rglob("*") if path.is_file() and path.parent.name != "tensorboard"]
    assert {"config.toml", "tokenizer.json", "metrics.jsonl", "manifest.json"} <= {path.name for path in names}
    for path in names:
        path.write_bytes(content)
        for act in (lambda: load(run), lambda: start(given(home), run, resume=True)):
            with contextlib.suppress(RegardError):
                act()
            assert not mark.exists(), f"{path} was run"
        metrics.read_records(run / "metrics.jsonl")
        shutil.rmtree(run)
        shutil.copytree(trained / "run", run, symlinks=True)
    assert not mark.exists()


def test_in_the_cache(home):
    """Regard rebuilds a damaged cache."""
    mark = home / "mark"
    caches = [path for path in (home / "cache").rglob("*") if path.is_file()]
    assert len(caches) >= 9
    for number, path in enumerate(caches):
        path.write_bytes(forms(mark)[FORMS[number % len(FORMS)]])
        prepare(parse(DataSettings, given(home)["data"]), TokenizerSettings(kind="word"))
        assert not mark.exists()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz", "x.tsv", "x.jsonl", "x.json.gz"])
def test_as_a_corpus(home, form, name):
    mark, path = home / "mark", home / name
    path.write_bytes(forms(mark)[form])
    data = {"source": str(path), "target": str(path)} if ".txt" in name else {"corpora": [{"file": str(path)}]}
    settings = parse(DataSettings, {**data, "held_out": 0.0, "cache": str(home / "new")}, "data")
    with contextlib.suppress(RegardError):
        prepare(settings, TokenizerSettings(kind="character"))
    assert not mark.exists()


@pytest.mark.parametrize("form", FORMS)
def test_as_a_given_tokenizer(home, form):
    mark, path = home / "mark", home / "given.json"
    path.write_bytes(forms(mark)[form])
    with pytest.raises(RegardError):
        Tokenizers.load(path)
    assert not mark.exists()


def test_a_zip_in_place_of_safetensors(home):
    """torch.load would unpack this zip file."""
    mark = home / "mark"
    path = home / "run/checkpoints/step-000002/model.safetensors"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Malicious(mark)))
        archive.writestr("archive/version", "3\n")
    with pytest.raises(RegardError, match="model.safetensors"):
        load(home / "run")
    assert not mark.exists()


def test_a_plugin_that_a_run_names_is_not_imported(home, monkeypatch):
    """A file of that name may lie in any folder on the path."""
    mark, run = home / "mark", home / "run"
    code = f"__import__('os').system('touch {mark}')"
    for folder in (home, run):
        (folder / "evil.py").write_text(code)
    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend(home)
    config = (run / "config.toml").read_text()
    for named in ("evil.py", "evil", str(home / "evil.py"), "../home/evil.py"):
        (run / "config.toml").write_text(f"plugins = ['{named}']\n{config}")
        for act in (lambda: load(run), lambda: start(read(run / "config.toml"), run, resume=True)):
            with pytest.raises(RegardError, match="it needs the plugin .*; give --plugin"):
                act()
            assert not mark.exists()


# ---- the source has no call that could run code


FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "code"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_ATTRIBUTES = {("torch", "load"), ("yaml", "load"), ("os", "system"), ("os", "popen"), ("np", "load"),
                        ("numpy", "load"), ("np", "fromfile"), ("pandas", "read_pickle")}  # fmt: skip


def violations(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        line = f"{path.name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            found += [f"{line} {a.name}" for a in node.names if a.name.split(".")[0] in FORBIDDEN_MODULES]
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
            found.append(f"{line} {node.module}")
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in FORBIDDEN_CALLS:
                found.append(f"{line} {called.id}()")
            names = (getattr(getattr(called, "value", None), "id", None), getattr(called, "attr", None))
            tensors_alone = any(k.arg == "weights_only" and getattr(k.value, "value", 0) is True for k in node.keywords)
            if names in FORBIDDEN_ATTRIBUTES and not (names == ("torch", "load") and tensors_alone):
                found.append(f"{line} {'.'.join(map(str, names))}()")
            for keyword in node.keywords:
                if keyword.arg == "allow_pickle" and not (
                    isinstance(keyword.value, ast.Constant) and not keyword.value.value
                ):
                    found.append(f"{line} allow_pickle")
                if keyword.arg == "shell" and not (isinstance(keyword.value, ast.Constant) and not keyword.value.value):
                    found.append(f"{line} shell")
    return found


def test_the_source_has_no_way_to():
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 50
    assert [each for path in files for each in violations(path)] == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "eval(x)",
        "torch.load(f)",
        "np.load(f, allow_pickle=True)",
        "import shelve",
    ],
)
def test_it_would_be_found(tmp_path, code):
    (tmp_path / "bad.py").write_text(code)
    assert violations(tmp_path / "bad.py")
