"""Keys of those who may ask a server, in a file that holds only their hashes."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any

from relquery.errors import ConfigError, unknown

VERSION = 1
PREFIX = "rq-"


@dataclass(frozen=True, slots=True)
class Key:
    """What a server knows of one key.

    name: different for all keys. tenant: whose states, files and shares its requests use; several
    keys may have one. hash: SHA-256 of the key, in hex. hint: how the key begins. weight: the
    tenant's share, see EngineConfig. requests_per_minute, tokens_per_minute: None for no limit.
    expires: ISO time from which on it is refused. operator: may read /metrics, which shows all
    tenants.
    """

    name: str
    tenant: str
    hash: str
    hint: str
    weight: float | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    expires: str | None = None
    operator: bool = False

    def __post_init__(self) -> None:
        for name in ("name", "tenant", "hash", "hint"):
            value = getattr(self, name)
            if not (isinstance(value, str) and value and value.isprintable()):
                raise ConfigError(f"{name} is {value!r}; it must be a printable text.")
        for name in ("requests_per_minute", "tokens_per_minute"):
            value = getattr(self, name)
            is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
            if value is not None and not is_count:
                raise ConfigError(f"{name} is {value!r}; it must be a positive number, or omitted.")
        weight = self.weight
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if weight is not None and not (is_number and 0 < weight < inf):
            raise ConfigError(f"weight is {weight!r}; it must be a finite number above 0.")
        if self.expires is not None:
            instant(self.expires)

    def is_valid(self, now: datetime) -> bool:
        """Whether it has not expired."""
        return self.expires is None or now < instant(self.expires)


def instant(text: str) -> datetime:
    """The time that a date (its first moment, UTC) or an ISO time says. Raises ConfigError."""
    try:
        is_date = len(text) == 10
        found = (
            datetime.combine(date.fromisoformat(text), datetime.min.time())
            if is_date
            else datetime.fromisoformat(text)
        )
    except (TypeError, ValueError):
        raise ConfigError(
            f"expires is {text!r}; it must be a date such as 2031-12-31, or an ISO time."
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def hash_of(key: str) -> str:
    """What is stored of a key.

    A key has 256 random bits. No dictionary has it and nobody can try them all, so that neither a
    salt nor a slow hash, which passwords need, would make it harder to find; a fast one keeps
    requests cheap.
    """
    return sha256(key.encode(errors="surrogateescape")).hexdigest()


def new_key() -> str:
    """A key that nobody can guess."""
    return PREFIX + secrets.token_urlsafe(32)


def read_keys(path: Path) -> tuple[Key, ...]:
    """The keys of a file. Raises ConfigError for what is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"The keys' file {path} does not exist. Make it: relquery keys add NAME --file {path}"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"The keys' file {path} cannot be read: {error}.") from error
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise ConfigError(f"{path} is no keys' file of version {VERSION}.")
    keys = tuple(_key_of(each, path) for each in found.get("keys", ()))
    names = [key.name for key in keys]
    if len(set(names)) < len(names):
        raise ConfigError(f"{path} has two keys of one name.")
    return keys


def write_keys(path: Path, keys: Iterable[Key]) -> None:
    """Replace a file at once, so that a server never reads half of it; only its owner reads it."""
    content = json.dumps({"version": VERSION, "keys": [asdict(key) for key in keys]}, indent=2)
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(content + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """A block that no other process is in for this file of keys; waits for those that are.

    The lock is a file of its own beside it, as the keys' file is replaced by each change.
    """
    import fcntl  # which Windows lacks; all other commands run there

    target = Path(os.path.realpath(path))
    lock = target.with_name(f".{target.name}.lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def weights_of(keys: Iterable[Key]) -> dict[str, float]:
    """Shares of tenants. Raises ConfigError if two keys of a tenant differ."""
    found: dict[str, float] = {}
    for key in keys:
        if key.weight is None:
            continue
        if found.setdefault(key.tenant, key.weight) != key.weight:
            raise ConfigError(
                f"Two keys of the tenant '{key.tenant}' have the weights {found[key.tenant]:g} and "
                f"{key.weight:g}; give them the same one."
            )
    return found


def _key_of(found: Any, path: Path) -> Key:
    if not isinstance(found, Mapping):
        raise ConfigError(f"{path}: a key is {found!r}; it must be an object.")
    known = [each.name for each in fields(Key)]
    for name in found:
        if name not in known:
            raise ConfigError(f"{path}: {unknown('field', name, known)}")
    try:
        return Key(**found)
    except TypeError as error:
        raise ConfigError(f"{path}: a key lacks a field: {error}.") from error
