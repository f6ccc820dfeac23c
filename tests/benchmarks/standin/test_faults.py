"""Limits and faults, as the providers' own clients see them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import openai
import pytest

from benchmarks.standin.errors import Faults, Kind
from benchmarks.standin.limits import Limits
from benchmarks.standin.prompt import Block, Sent
from benchmarks.standin.provider import Provider
from tests.benchmarks.standin.conftest import ASK, Clock, Connect, kept


def test_a_request_over_the_limit_is_told_when_to_come_again(connect: Connect) -> None:
    clock = Clock()
    standin = Provider(limits=Limits(2, 100_000), clock=clock)
    client = connect(standin).openai

    def ask() -> Any:
        raw = client.chat.completions.with_raw_response
        return raw.create(model="gpt-4o-mini", messages=ASK, max_tokens=100).headers

    assert ask()["x-ratelimit-remaining-requests"] == "1"
    assert ask()["x-ratelimit-remaining-requests"] == "0"
    with pytest.raises(openai.RateLimitError) as caught:
        ask()
    assert caught.value.response.headers["retry-after"] == "30"
    assert caught.value.code == "rate_limit_exceeded"
    clock.now += 29
    with pytest.raises(openai.RateLimitError):
        ask()
    clock.now += 1
    left = ask()["x-ratelimit-remaining-tokens"]
    assert int(left) < 100_000
    assert standin.limits.refused == 2


def test_openai_counts_what_may_be_answered(connect: Connect) -> None:
    clients = connect(Provider(limits=Limits(tokens_per_minute=1_000), clock=Clock()))
    clients.chat(max_tokens=900)
    with pytest.raises(openai.RateLimitError, match="tokens per min"):
        clients.chat(max_tokens=900)


def test_anthropic_does_not_count_what_is_read_from_the_cache(connect: Connect) -> None:
    clients = connect(Provider(limits=Limits(tokens_per_minute=3_000), clock=Clock()))
    raw = clients.anthropic.messages.with_raw_response

    def ask(content: str, system: Any) -> int:
        asked: Any = [{"role": "user", "content": content}]
        made = raw.create(model="claude-sonnet-5", max_tokens=900, system=system, messages=asked)
        return int(made.headers["anthropic-ratelimit-input-tokens-remaining"])

    left = [ask(f"row {row}", kept()) for row in range(5)]
    assert left[0] < 2_000
    assert left[0] - left[-1] < 100
    with pytest.raises(anthropic.RateLimitError):
        ask("row 6", "Other rules. " * 800)


def test_buckets_fill_up_again() -> None:
    limits = Limits(60, burst=10)
    bucket = limits.buckets[0]
    for _ in range(10):
        assert bucket.wait(1, 0) == 0
        bucket.left -= 1
    assert bucket.wait(1, 0) == 1
    assert bucket.wait(1, 1) == 0
    assert bucket.wait(10, 100) == 0


SEEN: dict[Kind, tuple[str, str]] = {
    "429": ("RateLimitError", "RateLimitError"),
    "500": ("InternalServerError", "InternalServerError"),
    "503": ("InternalServerError", "APIStatusError"),
    "hang": ("APITimeoutError", "APITimeoutError"),
    "reset": ("APIConnectionError", "APIConnectionError"),
    "cut": ("APIConnectionError", "APIConnectionError"),
}
"""By OpenAI's and by Anthropic's client."""


@pytest.mark.parametrize("kind", list(SEEN))
def test_a_fault_is_what_the_clients_take_it_for(connect: Connect, kind: Kind) -> None:
    clients = connect(Provider(faults=Faults(kind)))
    first, second = SEEN[kind]
    with pytest.raises(getattr(openai, first)):
        clients.chat(timeout=0.3)
    with pytest.raises(getattr(anthropic, second)):
        clients.message(timeout=0.3)


def test_garbage_is_a_reply_that_is_no_json(connect: Connect) -> None:
    clients = connect(Provider(faults=Faults("garbage")))
    raw = clients.openai.chat.completions.with_raw_response
    text = raw.create(model="gpt-4o-mini", messages=ASK).text
    assert text.startswith("<html>")


def test_a_refusal_is_told_apart_from_an_answer(connect: Connect) -> None:
    clients = connect(Provider(faults=Faults("refusal")))
    said = clients.chat().choices[0].message
    assert said.refusal
    assert said.content is None
    assert clients.message().stop_reason == "refusal"


def test_wrong_types_are_json_that_no_client_expects(connect: Connect) -> None:
    clients = connect(Provider(faults=Faults("wrong types")))
    assert not isinstance(clients.chat().choices, list)


def test_a_stream_ends_in_the_middle(connect: Connect) -> None:
    clients = connect(Provider(faults=Faults("cut"), answer=lambda sent: "one two three"))
    seen: list[str | None] = []
    with pytest.raises(openai.APIConnectionError):
        seen.extend(part.choices[0].delta.content for part in clients.chat(stream=True))
    assert "one two".startswith("".join(each or "" for each in seen))
    assert len(seen) >= 2


def test_a_fifth_of_the_prompts_fails_and_always_the_same_ones() -> None:
    prompts = [Sent((Block("user", f"row {row}"),)) for row in range(1_000)]
    faults = Faults("500", share=0.2)
    failed = [at for at, sent in enumerate(prompts) if faults.of(sent)]
    assert 150 < len(failed) < 250
    assert failed == [at for at, sent in enumerate(prompts) if faults.of(sent)]


def test_a_fault_may_pass() -> None:
    sent, faults = Sent((Block("user", "row"),)), Faults("500", times=2)
    assert [faults.of(sent) for _ in range(4)] == ["500", "500", None, None]


def test_of_requests_that_come_together_each_pays_for_the_prefix(connect: Connect) -> None:
    standin = Provider(begins=0.2, ends=0.2)
    clients = connect(standin)

    def read(row: int) -> int:
        return clients.message(f"row {row}", system=kept()).usage.cache_read_input_tokens or 0

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(read, range(4)))
    assert standin.peak > 1
    assert together.count(0) >= standin.peak
    assert read(9) > 1024
