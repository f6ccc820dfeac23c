"""Keys in a file, the gate that reads it, and the limits of a key."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers

from relquery.errors import ConfigError
from relquery.serve.auth import (
    Key,
    KeyAuthenticator,
    KeyLimits,
    hash_of,
    instant,
    new_key,
    read_keys,
    weights_of,
    write_keys,
)
from relquery.serve.errors import HttpError
from tests.cases import cases

SECRET = "rq-alice"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def made(name: str = "alice", secret: str = SECRET, **more: object) -> Key:
    return Key(name, str(more.pop("tenant", name)), hash_of(secret), secret[:7], **more)  # type: ignore[arg-type]


def bearer(secret: str) -> Headers:
    return Headers({"Authorization": f"Bearer {secret}"})


def test_a_file_of_keys_is_its_owners_alone_and_has_no_key(tmp_path: Path, path: Path) -> None:
    secret = new_key()
    assert len(secret) == 3 + 43  # 256 bits
    assert len({new_key() for _ in range(100)}) == 100
    write_keys(path, [made(secret=secret, weight=2.0)])
    assert path.stat().st_mode & 0o777 == 0o600
    assert secret not in path.read_text()
    assert read_keys(path) == (made(secret=secret, weight=2.0),)
    assert os.listdir(tmp_path) == ["keys.json"]


@pytest.mark.parametrize(("content", "said"), cases(__file__))
def test_a_wrong_file_is_told(path: Path, content: str, said: str) -> None:
    with pytest.raises(ConfigError, match="relquery keys add"):
        read_keys(path)
    path.write_text(content)
    with pytest.raises(ConfigError, match=said):
        read_keys(path)


def test_two_keys_of_a_tenant_have_one_weight() -> None:
    both = [made("a", tenant="t", weight=2.0), made("b", tenant="t")]
    assert weights_of(both) == {"t": 2.0}
    with pytest.raises(ConfigError, match="weights 2 and 3"):
        weights_of([*both, made("c", tenant="t", weight=3.0)])


def test_only_a_known_key_opens_the_gate_by_either_header(path: Path) -> None:
    write_keys(path, [made(tenant="t", operator=True), made("b", "rq-b")])
    gate = KeyAuthenticator(path)
    for headers in (bearer(SECRET), Headers({"x-api-key": SECRET})):
        asker = gate.identify(headers)
        assert (asker.tenant, asker.name, asker.operator) == ("t", "alice", True)
    assert not gate.identify(bearer("rq-b")).operator
    for headers in (Headers(), bearer("rq-mallory"), Headers({"Authorization": "Basic x"})):
        with pytest.raises(HttpError) as caught:
            gate.identify(headers)
        assert caught.value.status == 401
        assert caught.value.headers["WWW-Authenticate"] == "Bearer"


def test_a_key_expires(path: Path) -> None:
    write_keys(path, [made(expires="2031-05-01")])
    moment = instant("2031-04-30T23:59:59")
    gate = KeyAuthenticator(path, lambda: moment)
    assert gate.identify(bearer(SECRET)).name == "alice"
    moment = datetime(2031, 5, 1, tzinfo=UTC)
    with pytest.raises(HttpError, match="has expired"):
        gate.identify(bearer(SECRET))


def test_a_changed_file_is_read_and_a_broken_one_changes_nothing(path: Path) -> None:
    write_keys(path, [made()])
    gate = KeyAuthenticator(path)
    write_keys(path, [made("b", "rq-b")])
    gate.refresh()
    assert gate.identify(bearer("rq-b")).name == "b"
    with pytest.raises(HttpError):
        gate.identify(bearer(SECRET))
    path.write_text("{")
    gate.refresh()
    assert gate.identify(bearer("rq-b")).name == "b"


def test_requests_beyond_the_limit_wait_until_the_bucket_has_filled() -> None:
    now = 0.0
    rates = KeyLimits(2, None, lambda: now)
    rates.admit()
    rates.admit()
    with pytest.raises(HttpError) as caught:
        rates.admit()
    told = caught.value.headers
    assert (caught.value.status, told["Retry-After"]) == (429, "30")
    assert told["x-ratelimit-remaining-requests"] == "0"
    now = 30.0
    rates.admit()
    now = 3_600.0
    assert rates.headers()["x-ratelimit-remaining-requests"] == "2", "no more than a minute's"


def test_tokens_are_charged_afterwards_and_a_debt_delays_the_next_request() -> None:
    now = 0.0
    rates = KeyLimits(None, 60, lambda: now)
    rates.admit()
    rates.charge(90)
    assert rates.headers()["x-ratelimit-remaining-tokens"] == "0"
    with pytest.raises(HttpError) as caught:
        rates.admit()
    assert caught.value.headers["Retry-After"] == "31"
    now = 31.0
    rates.admit()


def test_a_key_keeps_its_debt_when_the_file_is_read_again(path: Path) -> None:
    """What was begun with it goes on with its limits, while it is valid."""
    now = datetime(2030, 1, 1, tzinfo=UTC)
    ours = made(tokens_per_minute=5)
    write_keys(path, [ours])
    gate = KeyAuthenticator(path, lambda: now)
    rates: Any = gate.identify(bearer(SECRET)).limits
    assert rates.wait() == 0
    rates.charge(6)
    assert rates.wait() > 0
    write_keys(path, [ours, made("old", "rq-old", expires="2029-01-01")])
    gate.refresh()
    again: Any = gate.of_key("alice", "alice")
    assert again.limits is gate.identify(bearer(SECRET)).limits is rates
    assert gate.of_key("alice", "another") is None
    assert gate.of_key("old", "old") is None
    unnamed: Any = gate.of_key("", "alice")
    assert (unnamed.tenant, unnamed.operator, unnamed.limits) == ("alice", False, None)
