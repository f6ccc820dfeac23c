"""What a breakpoint ends outlives prompts that fill the cache."""

from __future__ import annotations

import httpx

from tests.serve.conftest import started

CACHE = 1024
RULES = "Say whether the review is good or bad, in one word. " * 10


def usage(url: str, text: str, control: dict[str, str] | None) -> dict[str, int]:
    block = {"type": "text", "text": text, "cache_control": control}
    body = {"model": "demo", "max_tokens": 2, "system": [block]}
    body["messages"] = [{"role": "user", "content": "Fine."}]
    answer = httpx.post(f"{url}/v1/messages", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    found: dict[str, int] = answer.json()["usage"]
    return found


def test_what_a_breakpoint_ends_survives_a_storm_of_other_prompts() -> None:
    control = {"type": "ephemeral"}
    options = {"cache_tokens": CACHE}
    with started("simulated:step=0.0005", names=("demo",), options=options) as server:
        created = usage(server.url, RULES, control)["cache_creation_input_tokens"]
        sent = sum(
            usage(server.url, f"{number} {RULES}", None)["input_tokens"] for number in range(16)
        )
        later = usage(server.url, RULES, control)
    assert sent > 2 * CACHE
    assert later["cache_read_input_tokens"] > created - 16
