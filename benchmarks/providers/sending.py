"""Sends requests to the stand-in's billing on a virtual clock, many under way."""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.providers.calls import IN_FLIGHT
from benchmarks.standin.billing import Account, Totals
from benchmarks.standin.cache import Reading
from benchmarks.standin.prompt import Sent
from benchmarks.standin.rules import RULES
from benchmarks.standin.wires import anthropic, openai_chat
from relquery.backends.wires.anthropic import AnthropicMessages
from relquery.backends.wires.messages import to_messages
from relquery.backends.wires.openai import OpenAIChat
from relquery.backends.wires.wire import CacheSettings, Wire
from relquery.prompt import Prompt, Sampling

ANSWER = "Yes"
Caching = Literal["ours", "automatic", "none"]
REFUSED = frozenset({"temperature", "top_p", "max_tokens"})
"""What reasoning models refuse; see standin/models.toml."""


@dataclass(frozen=True, slots=True)
class Pace:
    """in_flight: requests under way at once. begins, ends: seconds until an answer begins and ends.

    per_minute: the most requests a minute.
    """

    in_flight: int = IN_FLIGHT
    begins: float = 0.6
    ends: float = 0.8
    per_minute: float = 500.0


def requests_of(prompts: Sequence[Prompt], model: str, caching: Caching = "ours") -> list[Sent]:
    """Requests of prompts as the stand-in reads them. caching: see `body_of`."""
    read = anthropic.read if RULES[model].provider == "anthropic" else openai_chat.read
    return [read(json.dumps(body_of(each, model, caching)).encode()).sent for each in prompts]


def body_of(prompt: Prompt, model: str, caching: Caching = "ours") -> dict[str, Any]:
    """A request as relquery writes it for the model's provider.

    caching: what it says of it: the marks of the prompt, nothing but that the provider is to cache
    as it does by itself, or that nothing is to be kept (where a provider can be told).
    """
    is_anthropic = RULES[model].provider == "anthropic"
    told = CacheSettings()
    if RULES[model].provider == "openai" and caching != "automatic":
        told = CacheSettings.of(model)
    wire: Wire = AnthropicMessages(model) if is_anthropic else OpenAIChat(model, told)
    body = wire.body(to_messages(prompt), Sampling(), REFUSED)
    if is_anthropic and caching == "automatic":
        body["cache_control"] = {"type": "ephemeral"}
    return body


def bill(account: Account, model: str, requests: Sequence[Sent], pace: Pace) -> Totals:
    """What is billed if requests start in this order."""
    under_way: list[tuple[float, int, bool, Reading]] = []  # when, which, whether it ends then
    now, next_start, open_now, begun = 0.0, 0.0, 0, 0
    while begun < len(requests) or under_way:
        start = max(now, next_start)
        can_start = begun < len(requests) and open_now < pace.in_flight
        if can_start and (not under_way or start <= under_way[0][0]):
            now, next_start = start, start + 60 / pace.per_minute
            reading = account.look_up(model, requests[begun], now)
            heapq.heappush(under_way, (now + pace.begins, begun, False, reading))
            open_now, begun = open_now + 1, begun + 1
            continue
        now, at, ends, reading = heapq.heappop(under_way)
        if not ends:
            reading.begin(now)
            heapq.heappush(under_way, (now + pace.ends - pace.begins, at, True, reading))
            continue
        open_now -= 1
        account.bill(model, reading, ANSWER)
    return account.totals
