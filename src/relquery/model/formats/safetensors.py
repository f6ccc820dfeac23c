"""Weights in safetensors files, which are mapped and read where they are needed."""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import operator
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from relquery._native import Rows
from relquery.errors import ModelError

KINDS = {"F32": 0, "BF16": 1, "F16": 2}
"""Kinds of numbers, as kernels know them."""
NAMES = tuple(KINDS)
SIZES = (4, 2, 2)
"""Bytes of a number of each kind."""
CODES = KINDS | {"I8": -1, "I32": -4}
"""With whole numbers, which hold others in few bits and which no kernel computes: their bytes, less
than 0."""
_PIECE_BYTES = 16 * 2**20  # of a weight that one thread hashes at a time
_FIRST_BYTES = 256  # of each weight, by which versions are told apart
_FEW = 32  # weights whose beginnings are read before memory is let go: more is mapped around each
_LENGTH = 8  # bytes that say how long the header is


@dataclass(frozen=True, slots=True)
class Weight:
    """Numbers of a kind in some shape, as they are in a file."""

    kind: int
    shape: tuple[int, ...]
    bytes: npt.NDArray[np.uint8]
    turned: int = 0
    """Heads in each of which the file has row 0, then the first of its second half, row 1, and so
    on; 0 where rows are in order."""

    @property
    def is_quantised(self) -> bool:
        """Whether its numbers are in blocks of few bits."""
        return self.kind not in KINDS.values()

    @property
    def rows(self) -> Rows:
        """Its rows, for a matrix or several."""
        *counts, width = self.shape
        return Rows(self._ordered(), self.kind, math.prod(counts), width)

    def floats(self) -> npt.NDArray[np.float32]:
        """Its numbers as float32."""
        numbers = Rows(self._ordered(), self.kind, 1, math.prod(self.shape)).floats()
        return numbers.reshape(self.shape)

    def _ordered(self) -> npt.NDArray[np.uint8]:
        if not self.turned:
            return self.bytes
        row = len(self.bytes) // self.shape[0]
        return self.bytes.reshape(self.turned, -1, 2, row).swapaxes(1, 2).reshape(-1)


def widen(numbers: npt.NDArray[np.uint8], kind: int) -> npt.NDArray[np.float32]:
    """Bytes of numbers of a kind as float32."""
    if kind == 1:
        return (numbers.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    floats = numbers.view(np.float32 if kind == 0 else np.float16)
    return floats.astype(np.float32, copy=False)


def narrow(numbers: npt.NDArray[np.float32], kind: int) -> npt.NDArray[np.uint8]:
    """The bytes of float32 numbers that are rounded to a kind, halves to even."""
    numbers = np.ascontiguousarray(numbers, dtype=np.float32)
    if kind == 0:
        return numbers.view(np.uint8).reshape(-1)
    if kind == 2:
        return numbers.astype(np.float16).view(np.uint8).reshape(-1)
    bits = numbers.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    quiet = np.where(np.isnan(numbers), 0x7FC0, rounded)
    return quiet.astype(np.uint16).view(np.uint8).reshape(-1)


class MappedFile:
    """A file that is read where it is needed. Another file may take its name; nobody may write into
    it. Raises OSError, and ValueError for an empty one."""

    def __init__(self, path: Path) -> None:
        self.path, self._number = path, os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        weakref.finalize(self, os.close, self._number)
        self._was = self._state()
        self.map = mmap.mmap(self._number, 0, access=mmap.ACCESS_READ)

    def check(self) -> None:
        """Raise ModelError if it was written into since it was opened."""
        if self._state() != self._was:
            raise ModelError(
                f"The weights in {self.path} have changed on disk since they were opened. Open the "
                "model again."
            )

    def _state(self) -> tuple[int, int]:
        told = os.fstat(self._number)
        return told.st_size, told.st_mtime_ns


class Weights(Mapping[str, Weight]):
    """The weights of a network by name.

    mapped: the files that they are in, whose pages need not stay in memory.
    """

    def __init__(self, weights: Mapping[str, Weight], mapped: Sequence[MappedFile] = ()) -> None:
        self._weights, self._mapped = weights, mapped
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> Weight:
        weight = self.take(name)
        if weight is None:
            has = next((each for each in self._weights if name.endswith(f".{each}")), "")
            remedy = "Download it again."
            if has:
                remedy = f"It has {has}, so it is a part of a model; save all of it."
            raise ModelError(f"The model lacks {name}, which its network has. {remedy}")
        return weight

    def take(self, name: str) -> Weight | None:
        """A weight that need not be there."""
        self._read.add(name)
        return self._weights.get(name)

    def release(self) -> None:
        """Let the system take back the memory of what was read. It is read again where needed."""
        for each in self._mapped:
            if hasattr(mmap, "MADV_DONTNEED"):
                each.map.madvise(mmap.MADV_DONTNEED)

    def check(self) -> None:
        """Raise ModelError if a file was written into since it was opened."""
        for each in self._mapped:
            each.check()

    def digest(self) -> bytes:
        """Of all weights, by all of their bytes. Raises ModelError as `check` does."""
        self.check()
        whole = hashlib.sha256()
        with ThreadPoolExecutor() as pool:  # hashing large pieces lets other threads run
            for name in sorted(self._weights):
                for hashed in pool.map(_hash, _pieces(name, self._weights[name])):
                    whole.update(hashed)
                self.release()
        self.check()
        return whole.digest()

    def beginnings(self) -> bytes:
        """A digest by the first bytes of each weight, which is quick."""
        whole = hashlib.sha256()
        for number, name in enumerate(sorted(self._weights)):
            whole.update(name.encode() + self._weights[name].bytes[:_FIRST_BYTES].tobytes())
            if number % _FEW == 0:
                self.release()
        return whole.digest()

    @property
    def unread(self) -> list[str]:
        """Weights that nobody has asked for."""
        return sorted(set(self._weights) - self._read)

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)


def weight_files(folder: Path) -> list[str]:
    """Names of the files that hold a folder's weights: one, or else several that an index names."""
    index, single = folder / "model.safetensors.index.json", "model.safetensors"
    if (folder / single).is_file() or not index.is_file():
        return [single]
    try:
        listed = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    except _DAMAGE as error:
        raise _unreadable(index, error) from error
    return sorted(set(map(str, listed)))


def read_weights(folder: Path, names: Sequence[str] | None = None) -> Weights:
    """The weights of a folder. names: of the files that hold them; by default those of a model.
    Raises ModelError."""
    return Weights(*read_files(folder, names=names))


def read_files(
    folder: Path, kinds: Mapping[str, int] = KINDS, names: Sequence[str] | None = None
) -> tuple[dict[str, Weight], list[MappedFile]]:
    """The weights of a folder, of these kinds alone, and its mapped files. Raises ModelError."""
    weights: dict[str, Weight] = {}
    mapped = []
    for name in weight_files(folder) if names is None else names:
        file = folder / name
        try:
            mapped.append(MappedFile(file))
            weights |= _read(mapped[-1], kinds)
        except FileNotFoundError:
            raise ModelError(
                f"The folder {folder} has no {name}, which holds the weights. Download it again, "
                "or write it with save_pretrained."
            ) from None
        except _DAMAGE as error:
            raise _unreadable(file, error) from error
    return weights, mapped


class _OtherNumbersError(ModelError):
    """A file is whole, and has numbers that are not computed."""


_DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)
"""What a file that is cut short, or holds something else, raises when it is read."""


def _unreadable(file: Path, error: Exception) -> ModelError:
    return ModelError(
        f"The weights in {file} cannot be read: {error}. A file may be cut short; download it "
        "again."
    )


def is_whole(folder: Path, names: Sequence[str]) -> bool:
    """Whether files of weights are in a folder, as long as they say."""
    try:
        read_files(folder, names=names)
    except _OtherNumbersError:
        return True
    except ModelError:
        return False
    return True


def _read(mapped: MappedFile, kinds: Mapping[str, int]) -> dict[str, Weight]:
    """The weights of one file."""
    whole = np.frombuffer(mapped.map, dtype=np.uint8)
    begin = _LENGTH + int.from_bytes(whole[:_LENGTH].tobytes(), "little")
    header = json.loads(whole[_LENGTH:begin].tobytes())
    header.pop("__metadata__", None)
    end = 0
    for first, last in sorted(tuple(told["data_offsets"]) for told in header.values()):
        if first != end or last < first:
            raise ValueError("its weights do not follow one another")
        end = last
    if begin + end != len(whole):
        raise ValueError(f"it has {len(whole):,} bytes, and says that it has {begin + end:,}")
    for name, told in header.items():
        if told["dtype"] not in (*kinds, "I64"):
            raise _OtherNumbersError(
                f"{name} in {mapped.path} has numbers of the kind {told['dtype']!r:.60}, which "
                f"are not computed. Save them as one of {', '.join(KINDS)}."
            )
    return {
        name: _weight(whole, begin, told, kinds)
        for name, told in header.items()
        if told["dtype"] != "I64"  # which numbers positions in files of older encoders
    }


def _pieces(name: str, weight: Weight) -> Iterator[tuple[str, npt.NDArray[np.uint8]]]:
    """(description, bytes), of a large weight in pieces."""
    for index in range(0, len(weight.bytes), _PIECE_BYTES):
        what = f"{name} {weight.kind} {weight.shape} {index}"
        yield what, weight.bytes[index : index + _PIECE_BYTES]


def _hash(piece: tuple[str, npt.NDArray[np.uint8]]) -> bytes:
    what, data = piece
    hashed = hashlib.sha256(what.encode() + b"\0")
    hashed.update(data.data)
    return hashed.digest()


def _weight(
    whole: npt.NDArray[np.uint8], begin: int, told: dict[str, Any], kinds: Mapping[str, int]
) -> Weight:
    kind, (first, last) = kinds[told["dtype"]], told["data_offsets"]
    size = SIZES[kind] if kind >= 0 else -kind
    shape: tuple[int, ...] = tuple(map(operator.index, told["shape"]))
    part = whole[begin + first : begin + last]
    if min(shape, default=1) < 0 or len(part) != size * math.prod(shape):
        raise ValueError("a weight is not whole")
    return Weight(kind, shape, part)
