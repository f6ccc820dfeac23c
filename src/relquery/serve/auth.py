"""Identities of clients: API keys, in a file that holds only their hashes. What they may ask in a
minute, and whether there is room for it."""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest
from math import ceil, inf
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers

from relquery.errors import ConfigError, unknown
from relquery.serve.errors import HttpError, bad_request, stopping
from relquery.serve.settings import ServeConfig

_LOG = logging.getLogger("relquery.serve.access")
VERSION = 1
PREFIX = "rq-"


@dataclass(frozen=True, slots=True)
class Key:
    """A key as a server knows it."""

    name: str
    """Different for all keys."""
    tenant: str
    """Whose states, files and shares its requests use; several keys may have one."""
    hash: str
    """SHA-256 of the key, in hex."""
    hint: str
    """How the key begins."""
    weight: float | None = None
    """The tenant's share, see EngineConfig."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    expires: str | None = None
    """ISO time from which on it is refused."""
    operator: bool = False
    """Whether it may read /metrics, which shows all tenants."""

    def __post_init__(self) -> None:
        for name in ("name", "tenant", "hash", "hint"):
            value = getattr(self, name)
            if not (isinstance(value, str) and value and value.isprintable()):
                raise ConfigError(f"{name} is {value!r}; it must be a printable text.")
        for name in ("requests_per_minute", "tokens_per_minute"):
            value = getattr(self, name)
            if value is not None and not (type(value) is int and value > 0):
                raise ConfigError(f"{name} is {value!r}; it must be a positive number, or omitted.")
        weight = self.weight
        if weight is not None and not (type(weight) in (int, float) and 0 < weight < inf):
            raise ConfigError(f"weight is {weight!r}; it must be a finite number above 0.")
        if self.expires is not None:
            instant(self.expires)

    def is_valid(self, now: datetime) -> bool:
        """Whether it has not expired."""
        return self.expires is None or now < instant(self.expires)


def instant(text: str) -> datetime:
    """The time that a date (its first moment, UTC) or an ISO time says. Raises ConfigError."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ConfigError(
            f"expires is {text!r}; it must be a date such as 2031-12-31, or an ISO time."
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


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
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"The keys' file {path} does not exist. Make it: relquery keys add NAME --file {path}"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"The keys' file {path} cannot be read: {error}.") from error
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise ConfigError(f"{path} is no keys' file of version {VERSION}.")
    keys = tuple(_key_of(each, path) for each in content.get("keys", ()))
    if len({key.name for key in keys}) < len(keys):
        raise ConfigError(f"{path} has two keys of one name.")
    return keys


def write_keys(path: Path, keys: Iterable[Key]) -> None:
    """Replace a file at once, so that a server never reads half of it; only its owner reads it."""
    content = json.dumps({"version": VERSION, "keys": [asdict(key) for key in keys]}, indent=2)
    write_whole(Path(os.path.realpath(path)), content + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a file that only its owner reads, whole or not at all. Waits for the disk."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        with open(beside, "x", encoding="utf-8", opener=private) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def private(path: str, flags: int) -> int:
    """Opens a file for `open`, which only its owner may read if it is made."""
    return os.open(path, flags, 0o600)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """A block that no other process is in for this file of keys; waits for those that are.

    The lock is a file of its own beside it, as the keys' file is replaced by each change.
    """
    import fcntl  # which Windows lacks; all other commands run there

    target = Path(os.path.realpath(path))
    descriptor = os.open(target.with_name(f".{target.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def weights_of(keys: Iterable[Key]) -> dict[str, float]:
    """Shares of tenants. Raises ConfigError if two keys of a tenant differ."""
    shares: dict[str, float] = {}
    for key in keys:
        if key.weight is not None and shares.setdefault(key.tenant, key.weight) != key.weight:
            raise ConfigError(
                f"Two keys of the tenant '{key.tenant}' have the weights "
                f"{shares[key.tenant]:g} and {key.weight:g}; give them the same one."
            )
    return shares


def _key_of(found: Any, path: Path) -> Key:
    if not isinstance(found, Mapping):
        raise ConfigError(f"{path}: a key is {found!r}; it must be an object.")
    known = [each.name for each in fields(Key)]
    if strange := [name for name in found if name not in known]:
        raise ConfigError(f"{path}: {unknown('field', strange[0], known)}")
    try:
        return Key(**found)
    except TypeError as error:
        raise ConfigError(f"{path}: a key lacks a field: {error}.") from error


@dataclass(frozen=True, slots=True)
class Identity:
    """The sender of a request."""

    tenant: str = ""
    """Whose states, tables and shares are used; "" where all are one."""
    name: str = ""
    """Of the key."""
    operator: bool = True
    """Whether it may see what concerns all tenants."""
    limits: KeyLimits | None = None


class Authenticator:
    """An authenticator that lets everybody in, as one tenant."""

    def identify(self, headers: Headers) -> Identity:
        """Who sends a request with these headers. Raises HttpError for who may not."""
        del headers
        return Identity()

    def of_key(self, name: str, tenant: str) -> Identity | None:
        """Who goes on with what was begun with a key; None if the key is not valid any more."""
        return Identity(tenant, name)

    def share(self, whole: int, tenant: str) -> int:
        """A tenant's share of some places, by its weight among all tenants; at least one."""
        del tenant
        return whole


class KeyAuthenticator(Authenticator):
    """An authenticator by the keys of a file, which is read again when it changes.

    Raises ConfigError for a file that cannot be read.
    """

    def __init__(self, path: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path, self._now = path, now
        self._limits: dict[str, KeyLimits] = {}
        self._seen = _version_of(path)
        self._known = {key.hash: key for key in read_keys(path)}

    def identify(self, headers: Headers) -> Identity:
        given = _key_in(headers)
        if given is None:
            raise _no_entry("No key. Send one as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.")
        self.refresh()
        digest = hash_of(given)
        key = self._known.get(digest)
        # How long the lookup takes tells of hashes, from which no key can be computed.
        if key is None or not compare_digest(key.hash, digest):
            raise _no_entry("The key is not known to this server.")
        if not key.is_valid(self._now()):
            raise _no_entry(f"The key '{key.name}' has expired.")
        return self._identity(key)

    def of_key(self, name: str, tenant: str) -> Identity | None:
        if not name:  # what was begun before there were keys goes on without limits
            return Identity(tenant, operator=False)
        self.refresh()
        for key in self._known.values():
            if (key.name, key.tenant) == (name, tenant) and key.is_valid(self._now()):
                return self._identity(key)
        return None

    def share(self, whole: int, tenant: str) -> int:
        weights = {key.tenant: key.weight or 1.0 for key in self._known.values()}
        mine = weights.setdefault(tenant, 1.0)
        return max(1, int(whole * mine / sum(weights.values())))

    def refresh(self) -> None:
        """Read the file if it has changed. One that cannot be read leaves the keys as they were."""
        version = _version_of(self._path)
        if version == self._seen:
            return
        self._seen = version
        try:
            keys = read_keys(self._path)
        except ConfigError as error:
            _LOG.error("%s The keys stay as they were.", error)
            return
        self._known = {key.hash: key for key in keys}
        _LOG.info("read %d keys from %s", len(keys), self._path)

    def _identity(self, key: Key) -> Identity:
        """Who has a key, with what it has used of its limits already."""
        most = key.requests_per_minute, key.tokens_per_minute
        if most == (None, None):
            return Identity(key.tenant, key.name, key.operator)
        limits = self._limits.get(key.hash)
        if limits is None or limits.most != most:
            limits = self._limits[key.hash] = KeyLimits(*most)
        return Identity(key.tenant, key.name, key.operator, limits)


def _key_in(headers: Headers) -> str | None:
    kind, _, key = headers.get("authorization", "").partition(" ")
    bearer = key.strip() if kind.lower() == "bearer" else ""
    return bearer or headers.get("x-api-key", "").strip() or None


def _no_entry(message: str) -> HttpError:
    return HttpError(401, message, "invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def _version_of(path: Path) -> tuple[int, int, int] | None:
    """Changes when the file does; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


MINUTE = 60.0


class _Bucket:
    """A token bucket: it fills evenly, up to a minute's worth, and may be overdrawn."""

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self.limit = limit
        self._level, self._clock, self._at = float(limit), clock, clock()

    def take(self, amount: float) -> float:
        """Take some out, even if it is not there; what is left."""
        now = self._clock()
        gained = (now - self._at) * self.limit / MINUTE
        self._level, self._at = min(float(self.limit), self._level + gained) - amount, now
        return self._level

    def wait(self, amount: float = 1.0) -> float:
        """Seconds until it has this much."""
        return max(0.0, (amount - self.take(0)) * MINUTE / self.limit)


class KeyLimits:
    """The limits of one key. What its requests cost is known afterwards, and delays the next.

    most: requests and tokens a minute; None for no limit. Tokens are those of prompts, from the
    cache or not, and of answers.
    """

    def __init__(
        self,
        requests: int | None,
        tokens: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.most = requests, tokens
        named = (("requests", requests), ("tokens", tokens))
        self._buckets = {name: _Bucket(most, clock) for name, most in named if most is not None}

    def wait(self) -> float:
        """Seconds until its tokens are not used up."""
        return self._buckets["tokens"].wait() if "tokens" in self._buckets else 0.0

    def admit(self) -> None:
        """Count a request. Raises HttpError if it comes too early."""
        for name, bucket in self._buckets.items():
            if (wait := bucket.wait()) > 0:
                seconds = ceil(wait)
                raise HttpError(
                    429,
                    f"This key may use {bucket.limit:,} {name} a minute. Ask again in {seconds} s.",
                    "rate_limit_exceeded",
                    headers={"Retry-After": str(seconds), **self.headers()},
                )
        if "requests" in self._buckets:
            self._buckets["requests"].take(1)

    def charge(self, tokens: int) -> None:
        """Note what a request has used."""
        if "tokens" in self._buckets:
            self._buckets["tokens"].take(tokens)

    def headers(self) -> dict[str, str]:
        """What is left, in the headers that clients of OpenAI's API read."""
        values: dict[str, str] = {}
        for name, bucket in self._buckets.items():
            values[f"x-ratelimit-limit-{name}"] = str(bucket.limit)
            values[f"x-ratelimit-remaining-{name}"] = str(max(0, int(bucket.take(0))))
            values[f"x-ratelimit-reset-{name}"] = f"{bucket.wait(bucket.limit):.3f}s"
        return values


class AdmissionController:
    """A controller that admits prompts while there is room in the queue. Used in the event loop
    alone."""

    def __init__(self, config: ServeConfig) -> None:
        self.open = 0
        """Prompts that have no answer yet."""
        self.stopping = False
        """Whether the server was told to stop."""
        self._config = config

    def check_open(self) -> None:
        """Raises HttpError if the server takes no more requests."""
        if self.stopping:
            raise stopping()

    def check_room(self, size: int = 1) -> None:
        """Raises HttpError if so many more prompts may not be open."""
        if self.open + size > self._config.max_waiting:
            raise queue_full(
                f"{self.open:,} requests are open, and at most {self._config.max_waiting:,} may be."
            )

    def admit(self, size: int) -> None:
        """Count prompts as open. Raises HttpError if they may not be."""
        self.check_open()
        most = min(self._config.max_rows, self._config.max_waiting)
        if size > most:
            raise bad_request(
                f"{size:,} prompts are more than the {most:,} that one request "
                "may have. Send fewer at once.",
                code="too_many_rows",
            )
        self.check_room(size)
        self.open += size


def queue_full(why: str) -> HttpError:
    """Too much is open."""
    headers = {"Retry-After": "1"}
    return HttpError(429, f"{why} Ask again later.", "queue_full", headers=headers)
