"""GGUF files, version 2 and 3: what they say of a model, and its weights, which are mapped.

The library `gguf` takes 4 to 19 seconds for the vocabulary of a small model; a model opens in one.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from relquery._native import formats
from relquery.errors import ModelError, UnsupportedNetworkError
from relquery.model.formats.safetensors import MappedFile, Weight

FORMATS = formats()
"""(name, numbers of a block, its bytes) by the number that kernels know a format by."""
_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    6: "Q5_0",
    7: "Q5_1",
    8: "Q8_0",
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    30: "BF16",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
}
"""Names of formats by their numbers in files (ggml.h)."""
_NUMBERS = {name: number for number, (name, _, _) in enumerate(FORMATS) if name in _TYPES.values()}
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
"""Kinds of values, as struct names them."""
_STRING, _ARRAY = 8, 9
_MOST_DIMENSIONS = 4
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


@dataclass(frozen=True, slots=True)
class GgufFile:
    """The content of a file. weights: by the names that it has for them."""

    path: Path
    metadata: dict[str, Any]
    weights: dict[str, Weight]
    mapped: list[MappedFile]


def is_gguf(path: Path) -> bool:
    """Whether a path is a file that begins as one does."""
    try:
        with path.open("rb") as opened:
            return opened.read(4) == b"GGUF"
    except OSError:
        return False


def parts_of(name: str) -> list[str]:
    """The names of all files that a model is split into, by that of one; else this alone."""
    match = _SPLIT.search(name)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        return [name]
    stem, count = name[: match.start()], int(match[2])
    return [f"{stem}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]


def read_gguf(path: Path) -> GgufFile:
    """A file, with those that it is split into. Raises ModelError."""
    metadata: dict[str, Any] = {}
    weights: dict[str, Weight] = {}
    mapped: list[MappedFile] = []
    parts = parts_of(path.name)
    for number, name in enumerate(parts):
        file = path.with_name(name)
        try:
            mapped.append(MappedFile(file))
            said, tensors = _Reader(mapped[-1].map).read()
            if len(parts) > 1 and (said.get("split.no"), said.get("split.count")) != (
                number,
                len(parts),
            ):
                raise ValueError(f"it is not part {number + 1} of {len(parts)} by what it says")
            if twice := weights.keys() & tensors.keys():
                raise ValueError(f"{min(twice)} is in an earlier part, too")
        except FileNotFoundError:
            raise ModelError(
                f"{path.name} is a part of a model, and {name} is not beside it. Download all "
                "parts."
            ) from None
        except (OSError, ValueError, OverflowError, MemoryError, struct.error) as error:
            raise ModelError(
                f"{file} cannot be read as GGUF: {error}. A file may be cut short; download it "
                "again."
            ) from error
        metadata = said | metadata
        weights |= tensors
    if metadata.get("split.tensors.count", len(weights)) != len(weights):
        raise ModelError(f"The parts of {path.name} lack weights. Download all parts again.")
    return GgufFile(path, metadata, weights, mapped)


class _Reader:
    """Reader of a mapped file, from its beginning on."""

    def __init__(self, mapped: mmap.mmap) -> None:
        self._mapped, self._at = mapped, 0

    def read(self) -> tuple[dict[str, Any], dict[str, Weight]]:
        """Metadata and weights. Raises ValueError or struct.error if the file is damaged or is not
        GGUF, and UnsupportedNetworkError for a format that is not read."""
        if self._take(4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        (version,) = self._unpack("I")
        if version not in (2, 3):
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            what = (
                "its numbers are big-endian" if swapped in (2, 3) else f"its version is {version}"
            )
            raise ValueError(f"{what}, and 2 and 3, little-endian, are read")
        tensors, entries = self._unpack("QQ")
        metadata = {}
        for _ in range(entries):
            key = self._text()
            metadata[key] = self._value(*self._unpack("I"))
        told = [self._tensor() for _ in range(tensors)]
        aligned = metadata.get("general.alignment", 32)
        if type(aligned) is not int or aligned < 1:
            raise ValueError(f"general.alignment is {aligned!r}")
        if len({name for name, *_ in told}) < len(told):
            raise ValueError("it has two weights of one name")
        begin = -(-self._at // aligned) * aligned
        whole = np.frombuffer(self._mapped, dtype=np.uint8)
        return metadata, {each[0]: _weight(whole, begin, *each) for each in told}

    def _take(self, count: int) -> bytes:
        taken = self._mapped[self._at : self._at + count]
        if len(taken) < count:
            raise ValueError("it ends within what it says of itself")
        self._at += count
        return taken

    def _unpack(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{form}", self._take(struct.calcsize(f"<{form}")))

    def _text(self) -> str:
        (length,) = self._unpack("Q")
        return self._take(length).decode("utf-8", "surrogateescape")

    def _value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self._unpack(_SCALARS[kind])[0]
        if kind == _STRING:
            return self._text()
        if kind != _ARRAY:
            raise ValueError(f"it has a value of the unknown kind {kind}")
        inner, count = self._unpack("IQ")
        if inner in _SCALARS:
            form = np.dtype(_SCALARS[inner]).newbyteorder("<")
            return np.frombuffer(self._take(count * form.itemsize), dtype=form).tolist()
        if inner != _STRING:
            raise ValueError(f"it has a list of the unknown kind {inner}")
        return [self._text() for _ in range(count)]

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape, format and place of a weight."""
        name = self._text()
        (dimensions,) = self._unpack("I")
        if dimensions > _MOST_DIMENSIONS:
            raise ValueError(f"{name} has {dimensions} dimensions")
        shape = self._unpack(f"{dimensions}Q")[::-1]
        kind, offset = self._unpack("IQ")
        return name, shape, kind, offset


def _weight(
    whole: npt.NDArray[np.uint8], begin: int, name: str, shape: tuple[int, ...], kind: int, at: int
) -> Weight:
    said = _TYPES.get(kind, f"the unknown format {kind}")
    if said not in _NUMBERS:
        raise UnsupportedNetworkError(
            f"{name} is in {said}, and the engine reads {', '.join(_NUMBERS)}. Download the model "
            "in one of these."
        )
    if min(shape, default=1) < 1:
        raise ValueError(f"{name} has no numbers")
    number = _NUMBERS[said]
    _, block, size = FORMATS[number]
    width = shape[-1] if shape else 1
    if width % block:
        raise ValueError(f"{name} has rows of {width} numbers, and {said} has blocks of {block}")
    length = math.prod(shape) // block * size
    if begin + at + length > len(whole):
        raise ValueError(f"{name} lies beyond its end")
    return Weight(number, shape, whole[begin + at : begin + at + length])
