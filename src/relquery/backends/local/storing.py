"""Where states of prompt modules are kept beside the cache: the options, and the store itself."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relquery.backends.local.sizing import read_memory
from relquery.engine.step.shelf import States
from relquery.errors import ConfigError

if TYPE_CHECKING:
    from relquery.model.served import ServedExecutor

SIZES = {"store_memory": "1GiB", "store_disk": "10GiB"}
"""Options of a store beside its folder, with their defaults."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Where states of modules are kept beside the cache.

    folder: on disk; None for not there. memory, disk: bytes that they may take.
    """

    folder: Path | None
    memory: int
    disk: int


def read_store(options: Mapping[str, Any]) -> StoreOptions | None:
    """The store that options ask for, whose folder is made; None if they ask for none.

    Raises ConfigError.
    """
    if not any(name in options for name in ("store", *SIZES)):
        return None
    folder = options.get("store")
    if folder is not None and (not isinstance(folder, (str, Path)) or not str(folder).strip()):
        raise ConfigError(f"store is {folder!r}; it must be the path of a folder.")
    if folder is None and "store_disk" in options:
        raise ConfigError("store_disk is given without store. Give the folder, too: store='PATH'.")
    memory, disk = (read_memory(options.get(name, usual), name) for name, usual in SIZES.items())
    return StoreOptions(None if folder is None else _made(folder), memory, disk)


def open_store(executor: ServedExecutor, store: StoreOptions, kept_as: object) -> States:
    """The store of an executor's states.

    kept_as: what tells them from those of other models, dtypes and sizes of block, which are in
    other folders. Raises ConfigError.
    """
    folder = None
    if store.folder is not None:
        named = hashlib.blake2b(repr(kept_as).encode(), digest_size=16)
        folder = store.folder / named.hexdigest()
    try:
        return executor.store(store.memory, folder, store.disk)
    except OSError as error:
        raise ConfigError(
            f"store is {store.folder}, which cannot be written to: {error.strerror}."
        ) from error


def _made(folder: str | Path) -> Path:
    """A store's folder, which is made if there is none."""
    try:
        path = Path(folder).expanduser()
        is_file = path.exists() and not path.is_dir()
        if not is_file:
            path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError, RuntimeError) as error:  # also names that no folder can have
        given, why = str(folder)[:80], getattr(error, "strerror", None) or error
        raise ConfigError(f"store is {given!r}, which cannot be made: {why}.") from error
    if is_file:
        raise ConfigError(f"store is {folder}, which is a file; it must be a folder.")
    return path
