"""What the console's state tells a tenant is about that tenant alone."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from relquery.serve.auth import Key, hash_of, write_keys
from tests.serve.conftest import Running, inside

ANN, BOB, OPS = ({"x-api-key": f"rq-{name}"} for name in ("ann", "bob", "ops"))
BODY = {"model": "m", "messages": [{"role": "user", "content": "Is tea good? " * 20}]}
LONG = BODY | {"stream": True, "n": 3, "max_tokens": 400}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    names = ("ann", "bob", "ops")
    keys = (Key(each, each, hash_of(f"rq-{each}"), "rq-", operator=each == "ops") for each in names)
    write_keys(path, list(keys))
    with inside("simulated:step=0.02,length=400", names=("m",), keys=path) as server:
        yield server


def state(server: Running, headers: dict[str, str]) -> dict[str, Any]:
    found = httpx.get(f"{server.url}/console/state", headers=headers).json()
    found.pop("now")
    return dict(found)


def test_nothing_that_another_tenant_does_changes_what_a_tenant_sees(shared: Running) -> None:
    assert httpx.get(f"{shared.url}/console/state").status_code == 401
    before = state(shared, BOB)
    url = f"{shared.url}/v1/chat/completions"
    short = BODY | {"max_tokens": 2}
    assert httpx.post(url, json=short, headers=ANN, timeout=60).status_code == 200
    with httpx.stream("POST", url, json=LONG, headers=ANN, timeout=60) as answer:
        lines = answer.iter_lines()  # kept: without it the stream is closed
        assert next(lines).startswith("data:")
        assert state(shared, BOB) == before
        own, all_ = state(shared, ANN), state(shared, OPS)
    assert own["requests"]["open"] == sum(each["requests"] for each in own["queries"]) == 3
    assert own["tokens"]["answers"] == 1
    assert {each["tenant"] for each in own["queries"]} == {"ann"}
    assert [each["tenant"] for each in all_["queries"]] == ["ann"]
    assert all_["cache"]["held"] > 0
    assert own["cache"] == before["cache"]
    assert own["cache"]["held"] is None
    assert own["cache"]["tokens"] > 0


def test_a_server_without_keys_shows_all() -> None:
    with inside("simulated:step=0.02,length=400", names=("m",)) as server:
        url = f"{server.url}/v1/chat/completions"
        assert httpx.post(url, json=BODY | {"max_tokens": 2}, timeout=60).status_code == 200
        until, found = time.monotonic() + 10, state(server, {})
        while found["requests"]["open"] and time.monotonic() < until:
            found = state(server, {})
        assert found["tokens"]["answers"] == 1, json.dumps(found)
        assert found["cache"]["cached"] > 0
