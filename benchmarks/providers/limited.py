"""A provider with limits, and many calls through them, on a clock that costs no time."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from benchmarks.providers.virtual import Outcome, Refilled, ask, refusal, says, written
from relquery.backends.provider.client import RawReply
from relquery.backends.wires.reply import Reply


class Limited:
    """A server that takes so many requests and tokens a minute, and refuses others.

    tells: whether replies say in headers what is left. prompt: tokens of a prompt, on average.
    asked, refused: requests. used: tokens of those that were answered.
    """

    def __init__(self, rpm: float, tpm: float, prompt: int, *, tells: bool, seed: int = 3) -> None:
        self.requests, self.tokens = Refilled(rpm), Refilled(tpm)
        self.prompt, self.tells = prompt, tells
        self.chance = Random(seed)
        self.asked = self.refused = self.used = 0

    async def __call__(self, question: str) -> Reply | RawReply:
        """Answer after half a second to three."""
        del question
        await asyncio.sleep(self.chance.uniform(0.01, 0.1))  # on its way
        now = asyncio.get_running_loop().time()
        said = says(
            "yes", round(self.prompt * self.chance.uniform(0.7, 1.3)), self.chance.randint(1, 20)
        )
        tokens = said.usage.prompt + said.usage.output
        self.asked += 1
        if not (self.requests.take(1, now) and self.tokens.take(tokens, now)):
            self.refused += 1
            raise refusal(429, retry_after="1")
        self.used += tokens
        await asyncio.sleep(self.chance.uniform(0.5, 3.0))
        return written(said, **self.headers()) if self.tells else said

    def headers(self) -> dict[str, str]:
        """What a reply tells of the limits."""
        told = {"requests": self.requests, "tokens": self.tokens}
        headers = {}
        for kind, bucket in told.items():
            headers[f"x_ratelimit_limit_{kind}"] = str(bucket.limit)
            headers[f"x_ratelimit_remaining_{kind}"] = str(int(max(0, bucket.level)))
        return headers

    def use(self, seconds: float) -> float:
        """The share of the limit that was used up, of requests or tokens, whichever is more."""
        answered = self.asked - self.refused
        shares = answered / self.requests.limit, self.used / self.tokens.limit
        return max(shares) / (seconds / 60)


def storm(server: Limited, calls: int, **config: Any) -> Outcome:
    """So many calls, all of which must be answered."""
    outcome = ask(server, calls, max_concurrency=100, timeout=600, **config)
    assert outcome.error is None
    assert set(outcome.texts) == {"yes"}
    return outcome
