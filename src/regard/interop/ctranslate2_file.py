"""CTranslate2's model.bin, read: names, shapes and numbers of a model's variables. No code of it is run.

A file holds the version of the format, the name and the revision of a specification, the variables, and further names
for some of them. Numbers are little-endian. Version 4 brought types, version 3 the further names; before, the size of
an item alone says what it is. Every size is held against the rest of the file before anything of that size is read.
"""

import math
import os
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from regard.errors import DataError

BINARY = "model.bin"
NEWEST = 6  # version of the format
MOST = 1_000_000  # variables
DIMENSIONS = 4
TYPES = (np.float32, np.int8, np.int16, np.int32, np.float16, np.uint16)  # by number; the last is bfloat16
BFLOAT16 = 5
BY_SIZE = {4: np.float32, 2: np.int16, 1: np.int8}  # before version 4
GLOBAL_SCALE = np.float32(1000)  # of whole numbers of 16 bits that are stored without one


class Malformed(ValueError):
    """What is wrong with a file, to append to its name."""


@dataclass(frozen=True)
class ModelFile:
    """What a model.bin holds: variables as numpy arrays, and the further names of some."""

    version: int
    specification: str
    revision: int
    variables: Mapping[str, np.ndarray]
    aliases: Mapping[str, str]


def read_model_file(path: Path) -> ModelFile:
    """Read a model.bin whole; a DataError says in a sentence what is wrong with it."""
    try:
        facts = os.stat(path)
        if not stat.S_ISREG(facts.st_mode):
            raise Malformed("not a file")
        with open(path, "rb") as file:
            return Parser(file, facts.st_size).parse()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except Malformed as error:
        raise DataError(f"{path}: not a model of CTranslate2: {error}; copy or convert it again") from None


class Parser:
    """Reads a file from its beginning, never behind its end."""

    def __init__(self, file: BinaryIO, size: int):
        """Take an open file and its size in bytes."""
        self.file, self.left = file, size

    def parse(self) -> ModelFile:
        """Read everything."""
        version = self.number("I")
        if not 2 <= version <= NEWEST:
            raise Malformed(f"its format has version {version}, expected 2 to {NEWEST}")
        specification, revision = self.text(), self.number("I")
        variables: dict[str, np.ndarray] = {}
        for _ in range(self.count("variables")):
            name = self.text()
            if name in variables:
                raise Malformed(f"its variable {name} occurs twice")
            variables[name] = self.variable(name, version)
        aliases = {self.text(): self.text() for _ in range(self.count("names"))} if version >= 3 else {}
        if self.left:
            raise Malformed(f"{self.left:,} bytes behind its end")
        if unknown := next((name for name in aliases.values() if name not in variables), None):
            raise Malformed(f"a name stands for {unknown}, which it has not")
        return ModelFile(version, specification, revision, variables, aliases)

    def variable(self, name: str, version: int) -> np.ndarray:
        """Read a variable: its shape, its type and its numbers."""
        rank = self.number("B")
        if rank > DIMENSIONS:
            raise Malformed(f"{name} has {rank} dimensions, expected at most {DIMENSIONS}")
        shape = tuple(self.number("I") for _ in range(rank))
        kind, size = self.number("B"), self.number("I")
        if (version >= 4 and kind >= len(TYPES)) or (version < 4 and kind not in BY_SIZE):
            raise Malformed(f"{name} has numbers of type {kind}, which is not known")
        dtype = np.dtype(TYPES[kind] if version >= 4 else BY_SIZE[kind]).newbyteorder("<")
        size = size if version >= 4 else size * kind
        if math.prod(shape) * dtype.itemsize != size:
            raise Malformed(f"{name} has {size:,} bytes, which is not what its shape {list(shape)} takes")
        numbers = np.frombuffer(self.read(size), dtype).reshape(shape)
        if version >= 4 and kind == BFLOAT16:
            return (numbers.astype(np.uint32) << 16).view(np.float32)
        return numbers

    def count(self, what: str) -> int:
        """Read how many there are of something."""
        count = self.number("I")
        if count > min(MOST, self.left):
            raise Malformed(f"{count:,} {what} in it, which is more than it has room for")
        return count

    def text(self) -> str:
        """Read a name: its length, and its bytes, the last of which is 0."""
        data = self.read(self.number("H"))
        try:
            text = data[:-1].decode()
        except UnicodeDecodeError:
            raise Malformed("a name in it is not UTF-8") from None
        if data[-1:] != b"\0" or "\0" in text or not text.isprintable():
            raise Malformed("a name in it has no end")
        return text

    def number(self, form: str) -> Any:
        """Read a whole number."""
        return struct.unpack(f"<{form}", self.read(struct.calcsize(f"<{form}")))[0]

    def read(self, size: int) -> bytes:
        """Read so many bytes, which are there."""
        if size > self.left:
            raise Malformed("it is cut short")
        data = self.file.read(size)
        if len(data) < size:
            raise Malformed("it is cut short")
        self.left -= size
        return data


def dequantise(variables: Mapping[str, np.ndarray], name: str, path: Path) -> np.ndarray:
    """Return a weight in float32: whole numbers are divided by their scale, one for all or one per row."""
    weight = variables[name]
    if weight.dtype.kind == "f":
        return weight.astype(np.float32)
    if weight.dtype.itemsize > 2:
        raise DataError(f"{path}: {name} has {weight.dtype.name} numbers, expected floats, int8 or int16")
    scale = variables.get(f"{name}_scale")
    if scale is None and weight.dtype.itemsize == 1:
        raise DataError(f"{path}: {name} is int8, and {name}_scale is missing, which says what it stands for")
    scale = np.asarray(GLOBAL_SCALE if scale is None else scale, np.float32)
    if scale.shape not in ((), (1,), weight.shape[:1]) or not (np.isfinite(scale) & (scale != 0)).all():
        raise DataError(f"{path}: {name}_scale is {list(scale.shape)}, expected a number other than 0 for each row")
    return weight.astype(np.float32) / (scale.reshape(-1, *(1,) * (weight.ndim - 1)) if scale.size > 1 else scale)
