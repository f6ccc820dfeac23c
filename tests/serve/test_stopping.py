"""Servers that are stopped, and engines that are killed, while they serve."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import psutil
import pytest

from tests.serve.conftest import Process, Running, inside, started

MODEL = "simulated:step=0.005"
ORIGINS = ["https://good.example"]
LONG: dict[str, Any] = {
    "model": "demo",
    "stream": True,
    "temperature": 0,
    "max_tokens": 10_000,
    "messages": [{"role": "user", "content": "Count."}],
}
SHORT = {"model": "demo", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}


@contextmanager
def streamed(server: Running, body: dict[str, Any]) -> Iterator[Iterator[str]]:
    """The further events of an answer whose first ones have come."""
    url = f"{server.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, timeout=60) as found:
        events = (line.removeprefix("data: ") for line in found.iter_lines() if line)
        assert all(next(events) for _ in range(3))
        yield events


def post(server: Running, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)


@pytest.fixture
def slow() -> Iterator[Process]:
    """A server that gives running requests two seconds when it is stopped."""
    with started(MODEL, names=("demo",), grace=2) as found:
        yield found


def test_a_killed_engine_breaks_what_runs_and_serves_what_comes_later(slow: Process) -> None:
    with streamed(slow, LONG) as events:
        _engine(psutil.Process(slow.process.pid)).send_signal(signal.SIGKILL)
        assert json.loads([*events][-1])["error"]["code"] == "engine_ended"
    assert httpx.get(f"{slow.url}/health/live").status_code == 200
    assert post(slow, SHORT).status_code == 200
    page = httpx.get(f"{slow.url}/metrics").text
    assert "relquery_engine_restarts_total 1.0" in page
    assert 'relquery_errors_total{kind="engine_ended",tenant=""} 1.0' in page

    # The same server: what still runs when it is stopped ends with an error, too.
    with streamed(slow, LONG) as events:
        slow.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert httpx.get(f"{slow.url}/health").status_code == 503
        refused = post(slow, SHORT)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "stopping")
        assert json.loads([*events][-1])["error"]["code"] == "stopping"
    assert slow.process.wait(30) == 0


def test_running_requests_end_before_a_stopped_server_does() -> None:
    with ExitStack() as afterwards:
        with inside(MODEL, names=("demo",), grace=30, origins=ORIGINS) as found:
            asked = {"Origin": ORIGINS[0], "Access-Control-Request-Method": "POST"}
            asked |= {"Access-Control-Request-Headers": "authorization"}
            allowed = httpx.options(f"{found.url}/v1/chat/completions", headers=asked)
            assert allowed.status_code == 200
            assert allowed.headers["access-control-allow-origin"] == ORIGINS[0]
            body = SHORT | {"stream": True, "max_tokens": 64}
            events = afterwards.enter_context(streamed(found, body))
        assert [*events][-1] == "[DONE]"


def _engine(server: psutil.Process) -> psutil.Process:
    """The first process that a server has started; the last is that of the tables."""
    spawned = [each for each in server.children() if "spawn_main" in " ".join(each.cmdline())]
    assert len(spawned) == 2
    return min(spawned, key=lambda each: (each.create_time(), each.pid))
