"""CTranslate2's model.bin: cut, flipped and made up."""

import contextlib
import random
import struct
from pathlib import Path

import pytest
from interop.test_ctranslate2_import import write_folder

from regard.errors import DataError
from regard.interop.ctranslate2_import import read_model_file

pytest.importorskip("ctranslate2")


@pytest.fixture
def theirs(tmp_path) -> Path:
    write_folder(tmp_path / "folder", tied="none")
    return tmp_path / "folder"


def test_a_file_that_is_cut_or_flipped_is_one_sentence(theirs, tmp_path):
    """Any cut, any byte: one sentence or a whole run; sizes that a file only claims take no memory."""
    content = (theirs / "model.bin").read_bytes()
    draw = random.Random(0)
    cuts = [content[:size] for size in (0, 3, 4, 20, 27, 60, len(content) // 2, len(content) - 1)]
    flips = []
    for _ in range(60):
        changed = bytearray(content)
        changed[draw.randrange(400) if draw.random() < 0.7 else draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        flips.append(bytes(changed))
    claims = [
        content[:26] + struct.pack("<I", 2**32 - 1) + content[30:],
        content + b"more",
        bytes(5000),
        b"\xff" * 5000,
    ]
    for number, data in enumerate([*cuts, *flips, *claims]):
        path = tmp_path / "model.bin"
        path.write_bytes(data)
        if len(cuts) <= number < len(cuts) + len(flips):
            with contextlib.suppress(DataError):  # a number of a weight may be another
                read_model_file(path)
            continue
        with pytest.raises(DataError, match="not a model of CTranslate2") as caught:
            read_model_file(path)
        assert str(caught.value).count("\n") == 0
