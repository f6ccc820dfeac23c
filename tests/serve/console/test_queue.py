"""The Queue and Try views, over the real engine; and the route that they read."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from urllib.request import urlopen

import pytest

from tests.serve.console.page import Page


def ask(url: str, number: int) -> HTTPConnection:
    """A request with a long prompt of its own; it is cancelled when the connection is closed."""
    connection = HTTPConnection(url.removeprefix("http://"))
    words = " ".join(f"castle {number * 1000 + at}" for at in range(250))
    message = {"role": "user", "content": f"Tell me about {words}."}
    body = {"model": "demo", "n": 8, "temperature": 1, "max_tokens": 200, "messages": [message]}
    connection.request(
        "POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
    )
    return connection


def state(url: str) -> dict[str, object]:
    with urlopen(f"{url}/console/state") as response:
        found: dict[str, object] = json.load(response)
    return found


def test_the_state_says_what_the_cache_holds_and_which_model_is_served(console_url: str) -> None:
    found = state(console_url)
    cache = found["cache"]
    assert isinstance(cache, dict)
    assert cache["tokens"] == cache["held"] + cache["cached"] + cache["free"]
    assert found["models"] == ["demo"]


@pytest.mark.long
def test_the_queue_shows_what_is_open_as_it_comes_and_goes(page: Page) -> None:
    page.click("tab-queue")
    page.wait(lambda: "Nothing is open" in page.text("queue"))
    connections = [ask(page.url, number) for number in range(16)]
    page.wait(lambda: "running" in page.read("#queue .open tbody tr"))
    for connection in connections:
        connection.close()
    page.wait(lambda: "Nothing is open" in page.text("queue"))
    assert "free" in page.text("queue")


def test_an_answer_is_written_as_it_comes(page: Page) -> None:
    page.click("tab-try")
    page.write("try-message", "Is this review positive? I loved it.")
    page.click("send")
    page.wait(lambda: " in " in page.text("try-status"))
    assert page.text("answer")


@pytest.mark.long
def test_an_answer_that_is_refused_says_why(page: Page) -> None:
    page.click("tab-try")
    page.write("try-message", "Hello")
    page.script("document.getElementById('try-warmth').value = 99")
    page.script("document.querySelector('#try form').noValidate = true")
    page.click("send")
    page.wait(lambda: "temperature" in page.text("answer"))
    page.expect("status of 400")
