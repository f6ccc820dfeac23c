"""Keys and values of whole texts, kept in host memory and on disk (paper 001, section 4.1).

On disk, each text has a file of its own in the safetensors format, in a folder named by what the
states depend on. A file is written under another name first, so that no reader sees half of it, and
carries a digest of its content.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import OrderedDict
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from relquery.arrays import Slots

_LOG = logging.getLogger(__name__)
Bytes = npt.NDArray[np.uint8]


class LayerStates(NamedTuple):
    """Keys and values of some tokens in a layer, each (kv_heads, tokens, bytes of a head)."""

    keys: Bytes
    values: Bytes


_ENDING, _PART = ".safetensors", ".part"
ABANDONED = 3_600.0
"""Seconds after which an unfinished file is deleted: its writer was killed."""
_SIZES = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1}


class StateCache(Protocol):
    """A cache that states are copied from and to. kind: of numbers, as safetensors names it; U8
    where bytes hold codes and factors."""

    layers: int
    kind: str

    def read(self, layer: int, slots: Slots) -> LayerStates | None:
        """The states at slots (tokens,); None if the layer has none."""

    def write(self, layer: int, slots: Slots, states: LayerStates) -> None:
        """Put states at slots (tokens,)."""


class StateStore:
    """States by key: the latest in host memory, all of them on disk as far as they may.

    memory, disk: bytes that they may take. folder: None to keep nothing on disk.
    """

    def __init__(self, cache: StateCache, memory: int, folder: Path | None, disk: int) -> None:
        self._cache = cache
        self._memory, self._most = 0, memory
        self._kept: OrderedDict[bytes, list[LayerStates]] = OrderedDict()
        self._files = None if folder is None else StateFiles(folder, disk, cache.kind)

    def where(self, key: bytes) -> str:
        """See engine.step.shelf.States: "memory" or "disk"."""
        if key in self._kept:
            return "memory"
        return "disk" if self._files is not None and key in self._files else ""

    def save(self, key: bytes, slots: Slots) -> None:
        """Copy the states at these cache slots (tokens,), and keep them under a key."""
        read = [self._cache.read(layer, slots) for layer in range(self._cache.layers)]
        layers = [each for each in read if each is not None]
        if len(layers) < self._cache.layers:
            return
        self._keep(key, layers)
        if self._files is not None:
            self._files.write(key, layers)

    def load(self, key: bytes, slots: Slots, first: int) -> bool:
        """See engine.step.shelf.States."""
        layers = self._kept.get(key)
        if layers is None and self._files is not None:
            layers = self._files.read(key, owned=self._most > 0)
            if layers is not None and len(layers) == self._cache.layers:
                self._keep(key, layers)
        if layers is None or layers[0].keys.shape[1] != first + len(slots):
            return False
        if key in self._kept:
            self._kept.move_to_end(key)
        for layer, states in enumerate(layers):
            self._cache.write(layer, slots, LayerStates(*(each[:, first:] for each in states)))
        return True

    def _keep(self, key: bytes, layers: list[LayerStates]) -> None:
        """Keep states in host memory; the least recently used make room."""
        size = _bytes(layers)
        if size > self._most or key in self._kept:
            return
        self._kept[key] = layers
        self._memory += size
        while self._memory > self._most:
            _, dropped = self._kept.popitem(last=False)
            self._memory -= _bytes(dropped)


class StateFiles:
    """States on disk. Several processes may use one folder.

    folder: of one model, in the folder of the store. most: bytes that the files of all models may
    take; the longest unused are deleted. kind: of numbers, as safetensors names it.
    """

    def __init__(self, folder: Path, most: int, kind: str) -> None:
        self._folder, self._most, self._kind = folder, most, kind
        self._buffer = bytearray()
        self._folder.mkdir(parents=True, exist_ok=True)

    def __contains__(self, key: bytes) -> bool:
        return self._path(key).is_file()

    def write(self, key: bytes, layers: list[LayerStates]) -> None:
        """Write states, unless the disk refuses: then they are computed again next time."""
        header = _header_of(layers, self._kind, self._digest(layers, key))
        part = self._folder / f"{key.hex()}.{os.getpid()}{_PART}"
        try:
            with part.open("wb") as file:
                file.write(len(header).to_bytes(8, "little") + header)
                for states in (each for pair in layers for each in pair):
                    file.write(np.ascontiguousarray(states).data)
            part.replace(self._path(key))
        except OSError:
            with suppress(OSError):
                part.unlink()
            return
        self._make_room()

    def read(self, key: bytes, *, owned: bool = True) -> list[LayerStates] | None:
        """States as they were written; None, and the file is deleted, if it is damaged.

        owned: whether the states must outlive the next call. Otherwise they are in memory that is
        used again: taking new memory costs as much as reading the file.
        """
        path = self._path(key)
        if not path.is_file():
            return None
        try:
            with path.open("rb") as file:
                layers = self._read(file, key, owned=owned)
        except OSError:
            return None
        with suppress(OSError):
            os.utime(path)  # used now
        if layers is None:
            _LOG.warning("%s is damaged; its states are computed again", path)
            with suppress(OSError):
                path.unlink()
        return layers

    def _read(self, file: BufferedReader, key: bytes, *, owned: bool) -> list[LayerStates] | None:
        """States from an open file; None if it is not what was written."""
        size = os.fstat(file.fileno()).st_size
        try:
            header, digest = _header(file, size)
            data = self._place_for(size - file.tell(), owned=owned)
            is_whole = file.readinto(data) == len(data)
            layers = _layers(data, header, self._kind) if is_whole else []
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, MemoryError):
            return None  # whatever else a damaged header says
        return layers if layers and self._digest(layers, key) == digest else None

    def _place_for(self, size: int, *, owned: bool) -> memoryview:
        if owned:
            return memoryview(bytearray(size))
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        return memoryview(self._buffer)[:size]

    def _digest(self, layers: list[LayerStates], key: bytes) -> str:
        """Of the states' name, by which those of a file with another name are known, and of all
        content and shapes. It finds damage, not forgery: who can write the file can write the
        digest, too."""
        digest = xxhash.xxh3_128(f"{self._folder.name}/{key.hex()}{self._kind}".encode())
        for states in (each for pair in layers for each in pair):
            digest.update(f"{states.shape}".encode())
            digest.update(np.ascontiguousarray(states).data)
        return digest.hexdigest()

    def _path(self, key: bytes) -> Path:
        return self._folder / f"{key.hex()}{_ENDING}"

    def _make_room(self) -> None:
        oldest = []
        for path in self._folder.parent.glob("*/*"):
            with suppress(OSError):
                stat = path.stat()
                if path.suffix == _ENDING:
                    oldest.append((stat.st_mtime, stat.st_size, path))
                elif path.suffix == _PART and time.time() - stat.st_mtime > ABANDONED:
                    path.unlink()
        over = sum(size for _, size, _ in oldest) - self._most
        for _, size, path in sorted(oldest):
            if over <= 0:
                break
            with suppress(OSError):
                path.unlink()
            over -= size


def _header(file: BufferedReader, size: int) -> tuple[dict[str, Any], str]:
    """The entries of a file of so many bytes, and its digest; what follows is the content.

    Raises ValueError, TypeError, KeyError or AttributeError if the file is damaged. The library
    would copy the content, which takes as long as reading the file.
    """
    length = int.from_bytes(file.read(8), "little")
    if length > size - 8:
        raise ValueError("the header is longer than the file")
    header = json.loads(file.read(length))
    digest = header.pop("__metadata__")["digest"]
    content = max(entry["data_offsets"][1] for entry in header.values())
    if content != size - 8 - length:  # before memory is taken for it
        raise ValueError("the content has another length")
    return header, digest


def _header_of(layers: list[LayerStates], kind: str, digest: str) -> bytes:
    """The header of a safetensors file of some states."""
    entries: dict[str, Any] = {"__metadata__": {"digest": digest}}
    offset = 0
    for number, pair in enumerate(layers):
        for name, states in zip("kv", pair, strict=True):
            heads, tokens, width = states.shape
            entries[f"{name}{number}"] = {
                "dtype": kind,
                "shape": [heads, tokens, width // _SIZES[kind]],
                "data_offsets": [offset, offset + states.nbytes],
            }
            offset += states.nbytes
    text = json.dumps(entries).encode()
    return text.ljust(-(-len(text) // 8) * 8)


def _layers(data: memoryview, header: dict[str, Any], kind: str) -> list[LayerStates]:
    """States from the content of a file, which they share."""
    named = {name: _view(data, kind, **entry) for name, entry in header.items()}
    if sum(each.nbytes for each in named.values()) != len(data):
        raise ValueError("there is content that no entry names")
    return [LayerStates(named[f"k{n}"], named[f"v{n}"]) for n in range(len(named) // 2)]


def _view(
    data: memoryview, kind: str, *, dtype: str, shape: list[int], data_offsets: list[int]
) -> Bytes:
    if dtype != kind:
        raise ValueError("the numbers are of another kind")
    heads, tokens, width = shape
    start, stop = data_offsets
    flat = np.frombuffer(data, dtype=np.uint8, count=stop - start, offset=start)
    return flat.reshape(heads, tokens, width * _SIZES[kind])


def _bytes(layers: list[LayerStates]) -> int:
    return sum(states.nbytes for pair in layers for states in pair)
