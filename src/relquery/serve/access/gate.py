"""Who a request comes from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hmac import compare_digest
from pathlib import Path

from relquery.errors import ConfigError
from relquery.serve.access.account import Account
from relquery.serve.access.keys import Key, hash_of, read_keys
from relquery.serve.access.rates import Rates
from relquery.serve.errors import HttpError

_LOG = logging.getLogger("relquery.serve.access")
Headers = Iterable[tuple[bytes, bytes]]
WATCHED_EVERY = 0.5
"""Seconds between two looks at the keys' file."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who sends one request.

    tenant: whose states, tables and shares are used; "" where all are one. name: of the key.
    operator: whether it may see what concerns all tenants. account: what the request uses.
    """

    tenant: str = ""
    name: str = ""
    operator: bool = True
    account: Account = field(default_factory=Account, compare=False)


class Gate:
    """Lets everybody in, as one tenant."""

    def asker(self, headers: Headers) -> Asker:
        """Who sends a request with these headers. Raises HttpError for who may not."""
        del headers
        return Asker()

    def of_key(self, name: str, tenant: str) -> Asker | None:
        """Who goes on with what was begun with a key; None if the key is not valid any more."""
        return Asker(tenant, name)

    async def watch(self) -> None:
        """Keep what it knows up to date, until it is cancelled."""


class KeyGate(Gate):
    """Lets in who has a key of a file, which is read again when it changes.

    Raises ConfigError for a file that cannot be read.
    """

    def __init__(self, path: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path, self._now = path, now
        self._rates: dict[str, Rates] = {}
        self._seen = _state_of(path)
        self._known = {key.hash: key for key in read_keys(path)}

    def asker(self, headers: Headers) -> Asker:
        """See Gate: `Authorization: Bearer KEY` or `x-api-key: KEY`."""
        given = _key_in(headers)
        if given is None:
            raise _no_entry("No key. Send one as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.")
        found = hash_of(given)
        key = self._known.get(found)
        # How long the lookup takes tells of hashes, from which no key can be computed.
        if key is None or not compare_digest(key.hash, found):
            raise _no_entry("The key is not known to this server.")
        if not key.is_valid(self._now()):
            raise _no_entry(f"The key '{key.name}' has expired.")
        return self._asker_of(key)

    def of_key(self, name: str, tenant: str) -> Asker | None:
        """See Gate. What was begun before there were keys has none, and goes on without limits."""
        if not name:
            return Asker(tenant, operator=False)
        named = (key for key in self._known.values() if (key.name, key.tenant) == (name, tenant))
        found = next(named, None)
        is_valid = found is not None and found.is_valid(self._now())
        return self._asker_of(found) if found is not None and is_valid else None

    async def watch(self) -> None:
        """See Gate. A file that cannot be read leaves the keys as they were."""
        while True:
            await asyncio.sleep(WATCHED_EVERY)
            await asyncio.to_thread(self.refresh)

    def refresh(self) -> None:
        """Read the file if it has changed."""
        state = _state_of(self._path)
        if state == self._seen:
            return
        self._seen = state
        try:
            keys = read_keys(self._path)
        except ConfigError as error:
            _LOG.error("%s The keys stay as they were.", error)
            return
        self._known = {key.hash: key for key in keys}
        _LOG.info("read %d keys from %s", len(keys), self._path)

    def _asker_of(self, key: Key) -> Asker:
        return Asker(key.tenant, key.name, key.operator, Account(self._rates_of(key)))

    def _rates_of(self, key: Key) -> Rates | None:
        """The limits of a key, with what it has used of them already."""
        limits = key.requests_per_minute, key.tokens_per_minute
        if limits == (None, None):
            return None
        rates = self._rates.get(key.hash)
        if rates is None or rates.limits != limits:
            rates = self._rates[key.hash] = Rates(*limits)
        return rates


def _key_in(headers: Headers) -> str | None:
    for name, value in headers:
        if name == b"x-api-key":
            return value.decode("latin-1").strip()
        if name == b"authorization":
            kind, _, key = value.decode("latin-1").partition(" ")
            if kind.lower() == "bearer" and key.strip():
                return key.strip()
    return None


def _no_entry(message: str) -> HttpError:
    return HttpError(401, message, "invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def _state_of(path: Path) -> tuple[int, int, int] | None:
    """Changes when the file does; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
