"""Health, metrics, logs and headers of a server process."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.programs import needed
from tests.serve.conftest import Running

ASKED: dict[str, Any] = {
    "model": "demo",
    "max_tokens": 6,
    "temperature": 0,
    "messages": [{"role": "user", "content": "What is a relQuery, in a word?"}],
}


def figures(server: Running) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    page = httpx.get(f"{server.url}/metrics", timeout=30).text
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def ask(server: Running, **more: Any) -> httpx.Response:
    headers = more.pop("headers", {})
    url = f"{server.url}/v1/chat/completions"
    return httpx.post(url, json=ASKED | more, headers=headers, timeout=60)


def logged(server: Running, request: str) -> dict[str, Any]:
    """The line of a request, which is written after its answer was sent."""
    for _ in range(200):
        for line in server.log():
            if line["request"] == request:
                return line
        time.sleep(0.01)
    raise AssertionError(f"no line for {request}")


def test_a_server_that_takes_requests_is_healthy(server: Running) -> None:
    for path in ("/health", "/health/live", "/health/ready"):
        found = httpx.get(server.url + path)
        assert (found.status_code, found.json()) == (200, {"status": "ok", "model": "demo"})


def test_metrics_count_what_an_answer_took(server: Running) -> None:
    before = figures(server)
    usage = ask(server).json()["usage"]
    after = figures(server)

    def grown(name: str, **labels: str) -> float:
        key = name, tuple(sorted(labels.items()))
        return after[key] - before.get(key, 0.0)

    assert grown("relquery_prompt_tokens_total", tenant="") == usage["prompt_tokens"]
    assert grown("relquery_output_tokens_total", tenant="") == usage["completion_tokens"]
    path = {"path": "/v1/chat/completions", "status": "200", "tenant": ""}
    assert grown("relquery_http_requests_total", **path) == 1
    for part in ("waiting", "core", "tail"):
        labels = {"part": part, "policy": "sarathi", "tenant": ""}
        assert grown("relquery_query_seconds_count", **labels) == 1
    for name in ("first_token", "answer"):
        assert grown(f"relquery_{name}_seconds_count", tenant="") == 1
    assert after["relquery_requests_open", ()] == 0
    assert after["relquery_cache_capacity_tokens", ()] > 0
    assert after["relquery_engine_up", ()] == 1


def test_paths_that_do_not_exist_have_one_figure(server: Running) -> None:
    for at in range(3):
        assert httpx.get(f"{server.url}/nothing/{at}").status_code == 404
    paths = {dict(labels).get("path") for _, labels in figures(server)}
    assert "other" in paths
    assert not any("nothing" in str(path) for path in paths)


def test_prometheus_finds_nothing_to_complain_about(server: Running) -> None:
    needed("promtool")
    ask(server)
    page = httpx.get(f"{server.url}/metrics").content
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=page, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_a_request_has_one_line_in_the_log_without_its_prompt(server: Running) -> None:
    answer = ask(server, headers={"x-request-id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    line = logged(server, "mine-1")
    usage = answer.json()["usage"]
    told = {"status": 200, "prompt_tokens": usage["prompt_tokens"], "model": "demo"}
    assert line == line | told | {"output_tokens": usage["completion_tokens"]}
    assert 0 < line["first_token"] <= line["seconds"]
    assert "relQuery" not in json.dumps(line)
    timing = answer.headers["server-timing"]
    assert [part.partition(";")[0] for part in timing.split(", ")] == ["waiting", "core", "tail"]
