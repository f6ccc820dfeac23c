"""A server with keys: who gets in, and what tenants see of one another."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from relquery.serve.auth import Key, hash_of, write_keys
from tests.serve.conftest import Running, inside

MODEL = "simulated:step=0.0005"
TEXT = "The quick brown fox jumps over the lazy dog. " * 8
KEYS = [
    Key("ann", "ann", hash_of("rq-ann"), "rq-ann", operator=True, weight=2.0),
    Key("bob", "bob", hash_of("rq-bob"), "rq-bob"),
    Key("rare", "rare", hash_of("rq-rare"), "rq-rare", requests_per_minute=1),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("keys") / "keys.json"
    write_keys(found, KEYS)
    return found


@pytest.fixture(scope="module")
def guarded(path: Path) -> Iterator[Running]:
    options = {"policy": "shortest"}  # which predicts how long answers take
    settings = {"keys": path, "options": options, "max_waiting": 4, "max_body": 100_000}
    with inside(MODEL, names=("demo",), **settings) as found:
        yield found


def ask(server: Running, key: str | None, **more: Any) -> httpx.Response:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    body = {
        "model": "demo",
        "max_tokens": 2,
        "messages": [{"role": "user", "content": more.pop("text", TEXT)}],
    }
    url = f"{server.url}/v1/chat/completions"
    return httpx.post(url, json=body | more, headers=headers, timeout=60)


def cached(answer: httpx.Response) -> int:
    found: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return found


def test_tenants_do_not_see_what_others_have_sent(guarded: Running) -> None:
    assert cached(ask(guarded, "rq-ann")) == 0
    assert cached(ask(guarded, "rq-ann")) > 0
    assert cached(ask(guarded, "rq-bob")) == 0


def test_tenants_share_the_cache_where_the_server_says_so(path: Path) -> None:
    with inside(MODEL, names=("demo",), keys=path, share_cache=True) as found:
        ask(found, "rq-ann")
        assert cached(ask(found, "rq-bob")) > 0


@pytest.mark.parametrize("key", [None, "rq-mallory"])
def test_without_a_key_there_is_no_answer(guarded: Running, key: str | None) -> None:
    refused = ask(guarded, key)
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    theirs = httpx.post(f"{guarded.url}/v1/messages", json={})
    assert (theirs.status_code, theirs.json()["type"]) == (401, "error")
    for answer in (refused, theirs):
        assert answer.json()["error"]["type"] == "authentication_error"


def test_health_needs_no_key_and_metrics_need_an_operators(guarded: Running) -> None:
    for path, key, status in (
        ("health", "", 200),
        ("metrics", "", 401),
        ("metrics", "rq-bob", 403),
        ("metrics", "rq-ann", 200),
    ):
        headers = {"x-api-key": key} if key else {}
        assert httpx.get(f"{guarded.url}/{path}", headers=headers).status_code == status


def test_a_key_has_its_limit_and_says_what_is_left(guarded: Running) -> None:
    first = ask(guarded, "rq-rare", text="Hi")
    assert first.status_code == 200
    assert first.headers["x-ratelimit-remaining-requests"] == "0"
    second = ask(guarded, "rq-rare", text="Hi")
    assert second.status_code == 429
    assert 50 <= int(second.headers["retry-after"]) <= 60
    assert second.json()["error"]["code"] == "rate_limit_exceeded"
    assert _refused(guarded)['reason="rate_limit",tenant="rare"'] == 1


def test_a_full_queue_is_said_to_be_full_until_it_is_not() -> None:
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    settings = {"names": ("m",), "max_waiting": 4}
    with inside("simulated:step=0.05", **settings) as server, httpx.Client() as client:
        url = f"{server.url}/v1/chat/completions"
        long = body | {"n": 4, "max_tokens": 400, "stream": True}
        with client.stream("POST", url, json=long, timeout=60) as running:
            lines = running.iter_lines()  # kept: without it the stream is closed
            assert next(lines).startswith("data:")
            sql = {"query": "SELECT LLM('Good?', 'Tea')"}
            prompt = {"markup": "<schema name='s'/>", "prompt": "<prompt schema='s'/>"}
            asked = {"chat/completions": body, "sql": sql, "sql/explain": sql, "prompts": prompt}
            for path, each in asked.items():
                full = client.post(f"{server.url}/v1/{path}", json=each)
                assert (full.status_code, full.json()["error"]["code"]) == (429, "queue_full")
                assert int(full.headers["retry-after"]) >= 1
            assert _refused(server) == {'reason="queue_full",tenant=""': len(asked)}
        left = client.post(url, json=body | {"max_tokens": 2}, timeout=60)
        assert left.status_code in (200, 429)  # the one that was left is ended between two steps


def test_too_many_prompts_and_too_large_bodies_are_refused(guarded: Running) -> None:
    for more, status, code in (
        ({"n": 5}, 400, "too_many_rows"),  # they would never fit
        ({"text": "x" * 200_000}, 413, "too_large"),
        ({"model": "gpt-9"}, 404, "model_not_found"),
    ):
        refused = ask(guarded, "rq-bob", **more)
        assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)


def test_a_deadline_that_cannot_be_met_is_refused_with_the_time_it_takes(guarded: Running) -> None:
    late = ask(guarded, "rq-bob", relquery={"deadline": 1e-6})
    assert (late.status_code, late.json()["error"]["code"]) == (422, "deadline_cannot_be_met")
    assert float(late.headers["x-relquery-estimate"]) > 1e-6
    assert ask(guarded, "rq-bob", relquery={"deadline": 600}).status_code == 200


def test_a_key_that_is_added_or_removed_counts_within_seconds(guarded: Running, path: Path) -> None:
    eve = Key("eve", "eve", hash_of("rq-eve"), "rq-eve")
    assert ask(guarded, "rq-eve", text="Hi").status_code == 401
    write_keys(path, [*KEYS, eve])
    assert _within_seconds(guarded, "rq-eve", 200)
    write_keys(path, KEYS)
    assert _within_seconds(guarded, "rq-eve", 401)


def _refused(server: Running) -> dict[str, float]:
    """By labels, what the metrics say of answers with status 429."""
    page = httpx.get(f"{server.url}/metrics", headers={"x-api-key": "rq-ann"}).text
    found = re.findall(r"^relquery_refused_total{(.*)} (.*)$", page, re.MULTILINE)
    return {labels: float(count) for labels, count in found}


def _within_seconds(server: Running, key: str, status: int) -> bool:
    until = time.monotonic() + 10
    while (found := ask(server, key, text="Hi").status_code) != status:
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return found == status
