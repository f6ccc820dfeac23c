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
from typing import Any

import numpy as np
import torch
import xxhash
from safetensors.torch import save
from torch import Tensor

from relquery.arrays import Slots
from relquery.model.cache.device import KVCache
from relquery.model.cache.host import runs

_LOG = logging.getLogger(__name__)
Layers = list[tuple[Tensor, Tensor]]
"""Keys and values of some tokens by layer, each (kv_heads, tokens, width)."""
_ENDING, _PART = ".safetensors", ".part"
ABANDONED = 3_600.0
"""Seconds after which an unfinished file is deleted: its writer was killed."""
_KINDS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class StateStore:
    """States by key: the latest in host memory, all of them on disk as far as they may.

    memory, disk: bytes that they may take. folder: None to keep nothing on disk.
    """

    def __init__(
        self, cache: KVCache, layers: int, memory: int, folder: Path | None, disk: int
    ) -> None:
        self._cache, self._count = cache, layers
        self._memory, self._most = 0, memory
        self._kept: OrderedDict[bytes, Layers] = OrderedDict()
        self._files = None if folder is None else StateFiles(folder, disk)

    def where(self, key: bytes) -> str:
        """See States: "memory" or "disk"."""
        if key in self._kept:
            return "memory"
        return "disk" if self._files is not None and key in self._files else ""

    @torch.inference_mode()
    def save(self, key: bytes, slots: Slots) -> None:
        """See States."""
        rows = torch.from_numpy(slots)
        stored = [self._cache.stored(layer) for layer in range(self._count)]
        layers: Layers = [
            (each[0].index_select(1, rows).cpu(), each[1].index_select(1, rows).cpu())
            for each in stored
            if each is not None
        ]
        if len(layers) < self._count:
            return
        self._keep(key, layers)
        if self._files is not None:
            self._files.write(key, layers)

    @torch.inference_mode()
    def load(self, key: bytes, slots: Slots, first: int) -> bool:
        """See States."""
        layers = self._kept.get(key)
        if layers is None and self._files is not None:
            layers = self._files.read(key, owned=self._most > 0)
            if layers is not None and len(layers) == self._count:
                self._keep(key, layers)
        if layers is None or layers[0][0].shape[1] != first + len(slots):
            return False
        if key in self._kept:
            self._kept.move_to_end(key)
        parts = list(runs(np.arange(first, first + len(slots)), slots))
        for layer, states in enumerate(layers):
            keys, values = (each.transpose(0, 1) for each in states)
            for target, each in zip(self._cache.prepare(layer, keys, values), states, strict=True):
                for run in parts:
                    target[:, run.here : run.here + run.tokens].copy_(
                        each[:, run.host : run.host + run.tokens]
                    )
        return True

    def _keep(self, key: bytes, layers: Layers) -> None:
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
    take; the longest unused are deleted.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._folder, self._most = folder, most
        self._buffer = bytearray()
        self._folder.mkdir(parents=True, exist_ok=True)

    def __contains__(self, key: bytes) -> bool:
        return self._path(key).is_file()

    def write(self, key: bytes, layers: Layers) -> None:
        """Write states, unless the disk refuses: then they are computed again next time."""
        named = {
            f"{kind}{number}": states.contiguous()
            for number, pair in enumerate(layers)
            for kind, states in zip("kv", pair, strict=True)
        }
        data = save(named, {"digest": _digest(layers, self._name(key))})
        part = self._folder / f"{key.hex()}.{os.getpid()}{_PART}"
        try:
            part.write_bytes(data)
            part.replace(self._path(key))
        except OSError:
            with suppress(OSError):
                part.unlink()
            return
        self._make_room()

    def read(self, key: bytes, *, owned: bool = True) -> Layers | None:
        """States as they were written; None, and the file is deleted, if it is damaged.

        owned: whether the states must outlive the next call. Otherwise they are in memory that is
        used again: taking new memory costs as much as reading the file.
        """
        path = self._path(key)
        if not path.is_file():
            return None
        try:
            with path.open("rb") as file:
                layers = self._read(file, self._name(key), owned=owned)
        except OSError:
            return None
        with suppress(OSError):
            os.utime(path)  # used now
        if layers is None:
            _LOG.warning("%s is damaged; its states are computed again", path)
            with suppress(OSError):
                path.unlink()
        return layers

    def _read(self, file: BufferedReader, name: str, *, owned: bool) -> Layers | None:
        """States from an open file; None if it is not what was written. name: of the states."""
        size = os.fstat(file.fileno()).st_size
        try:
            header, digest = _header(file, size)
            data = self._place_for(size - file.tell(), owned=owned)
            layers = _layers(data, header) if file.readinto(data) == len(data) else []
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, MemoryError):
            return None  # whatever else a damaged header says
        return layers if layers and _digest(layers, name) == digest else None

    def _place_for(self, size: int, *, owned: bool) -> memoryview:
        if owned:
            return memoryview(bytearray(size))
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        return memoryview(self._buffer)[:size]

    def _name(self, key: bytes) -> str:
        """Of the states, by which those of a file with another name are known."""
        return f"{self._folder.name}/{key.hex()}"

    def _path(self, key: bytes) -> Path:
        return self._folder / f"{key.hex()}{_ENDING}"

    def _make_room(self) -> None:
        found = []
        for path in self._folder.parent.glob("*/*"):
            with suppress(OSError):
                stat = path.stat()
                if path.suffix == _ENDING:
                    found.append((stat.st_mtime, stat.st_size, path))
                elif path.suffix == _PART and time.time() - stat.st_mtime > ABANDONED:
                    path.unlink()
        over = sum(size for _, size, _ in found) - self._most
        for _, size, path in sorted(found):
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


def _layers(data: memoryview, header: dict[str, Any]) -> Layers:
    """States from the content of a file, which they share."""
    named = {name: _view(data, **entry) for name, entry in header.items()}
    if sum(each.nbytes for each in named.values()) != len(data):
        raise ValueError("there is content that no entry names")
    return [(named[f"k{n}"], named[f"v{n}"]) for n in range(len(named) // 2)]


def _view(data: memoryview, *, dtype: str, shape: list[int], data_offsets: list[int]) -> Tensor:
    start, stop = data_offsets
    flat = torch.frombuffer(data, dtype=torch.uint8, count=stop - start, offset=start)
    return flat.view(_KINDS[dtype]).view(shape)


def _digest(layers: Layers, name: str) -> str:
    """Of their name, and all content and shapes. It finds damage, not forgery: who can write the
    file can write the digest, too."""
    digest = xxhash.xxh3_128(name.encode())
    for states in (each for pair in layers for each in pair):
        digest.update(f"{states.dtype}{tuple(states.shape)}".encode())
        digest.update(np.asarray(states.contiguous().view(torch.uint8).numpy()).data)
    return digest.hexdigest()


def _bytes(layers: Layers) -> int:
    return sum(states.nbytes for pair in layers for states in pair)
