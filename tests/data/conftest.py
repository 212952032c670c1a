"""Fixtures of the tests of data."""

import pytest

from regard.data.settings import DataSettings


@pytest.fixture
def files(tmp_path):
    """Return a function that writes pairs to two files and returns settings for them."""

    def files(rows, name="train", **more):
        paths = [str(tmp_path / f"{name}.{side}") for side in ("source", "target")]
        for side, path in enumerate(paths):
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(f"{row[side]}\n" for row in rows)
        return DataSettings(**{"source": paths[0], "target": paths[1], "cache": str(tmp_path / "cache"), **more})

    return files
