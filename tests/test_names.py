"""A guess finds the tests of a source file.

`src/regard/a/b.py` has `tests/a/test_b.py`, and `src/regard_studies/b.py` has `tests/studies/test_b.py`.
"""

from pathlib import Path

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src"


def place(path: Path) -> Path:
    """Return the path in `tests` that corresponds to a source file."""
    top, *rest = path.relative_to(SOURCE).parts
    return Path(*([] if top == "regard" else [top.removeprefix("regard_")]), *rest)


def is_exempt(path: Path) -> bool:
    """Return whether a file is tested with another: a kernel with its host's file, a configuration with its model."""
    kernel = path.stem.endswith("_kernels") or path.parent.name.endswith("_kernels")
    beside = path.name == "config.py" and (path.parent / "model.py").exists()
    return path.stem.startswith("__") or kernel or beside


def guesses(path: Path) -> list[Path]:
    """Return likely test files: the file's own; for a part of a folder, the folder's; for a study, its claim's."""
    paths = [path.parent / f"test_{path.stem}.py", path.parent / f"test_{path.stem}_gpu.py"]
    if len(path.parts) > 1:
        folder = path.parent
        paths += [folder.parent / f"test_{folder.name}.py", folder / f"test_{folder.name}.py"]
        if folder.parent == Path("studies"):
            paths.append(folder / "test_claim.py")
    return paths


def test_every_source_file_has_a_test_where_a_guess_finds_it():
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 200
    tested = (place(path) for path in files if not is_exempt(path))
    assert [str(path) for path in tested if not any((TESTS / each).exists() for each in guesses(path))] == []
