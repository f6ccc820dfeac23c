"""Sends requests to the stand-in's billing on a virtual clock: many under way, some that wait."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.providers.standin.billing import Account, Totals
from benchmarks.providers.standin.cache import Reading
from benchmarks.providers.standin.prompt import Block, Sent
from benchmarks.providers.standin.rules import RULES
from relquery.prompt import Prompt, messages
from relquery.table.caching.plan import CachePlan

ANSWER = "Yes"


@dataclass(frozen=True, slots=True)
class Pace:
    """in_flight: requests under way at once. begins, ends: seconds until an answer begins and ends.

    per_minute: the most requests a minute.
    """

    in_flight: int = 16
    begins: float = 0.6
    ends: float = 0.8
    per_minute: float = 500.0


def as_planned(prompts: Sequence[Prompt], plan: CachePlan) -> list[Sent]:
    """Requests with the marks and keys of a plan.

    Up to the last mark each span is a block, so that requests that share a prefix share its blocks,
    whatever else they mark. The texts after it are one block a message.
    """
    return [
        Sent(_blocks(plan.mark(at, prompt)), plan.keys[at]) for at, prompt in enumerate(prompts)
    ]


def _blocks(prompt: Prompt) -> tuple[Block, ...]:
    last = max((at for at, span in enumerate(prompt, 1) if span.keep), default=0)
    blocks, at = list[Block](), 0
    for role, spans in messages(prompt):
        before = spans[: max(0, last - at)]
        rest = "".join(str(span.content) for span in spans[len(before) :])
        for place, span in enumerate(before):
            lives = span.keep_for if span.keep else None
            blocks.append(Block(role.value, str(span.content), place == 0, lives))
        if rest:
            blocks.append(Block(role.value, rest, not before))
        at += len(spans)
    return tuple(blocks)


def by_itself(prompts: Sequence[Prompt], model: str, *, cached: bool) -> list[Sent]:
    """Requests of one text a message, with the provider's automatic caching, or without marks.

    Where a cache has marks, automatic caching sets one at the end of the last message.
    """
    rules = RULES[model]
    sent = []
    for prompt in prompts:
        blocks = _blocks(prompt)
        if cached and rules.breakpoints:
            blocks = (*blocks[:-1], replace(blocks[-1], lives=rules.lifetime))
        sent.append(Sent(blocks))
    return sent


def bill(
    account: Account, model: str, requests: Sequence[Sent], after: Sequence[int], pace: Pace
) -> Totals:
    """What is billed. after: per request the one that must be answered before, or -1.

    Requests start in order, apart from those that wait.
    """
    ready = [at for at, other in enumerate(after) if other < 0]
    followers: dict[int, list[int]] = {}
    for at, other in enumerate(after):
        if other >= 0:
            followers.setdefault(other, []).append(at)
    under_way: list[tuple[float, int, bool, Reading]] = []  # when, which, whether it ends then
    now, next_start, open_now = 0.0, 0.0, 0
    while ready or under_way:
        start = max(now, next_start)
        can_start = ready and open_now < pace.in_flight
        if can_start and (not under_way or start <= under_way[0][0]):
            now, next_start = start, start + 60 / pace.per_minute
            at = heapq.heappop(ready)
            reading = account.look_up(model, requests[at], now)
            open_now += 1
            heapq.heappush(under_way, (now + pace.begins, at, False, reading))
            continue
        now, at, ends, reading = heapq.heappop(under_way)
        if not ends:
            reading.begin(now)
            heapq.heappush(under_way, (now + pace.ends - pace.begins, at, True, reading))
            continue
        open_now -= 1
        account.bill(model, reading, ANSWER)
        for follower in followers.pop(at, ()):
            heapq.heappush(ready, follower)
    return account.totals
