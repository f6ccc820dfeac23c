"""A provider with limits, and many calls through them, on a clock that costs no time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table as markdown
from benchmarks.parts import Part
from benchmarks.providers.sizes import choose
from benchmarks.providers.virtual import Outcome, Refilled, ask, refusal, says, written
from benchmarks.templates import template
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


WORDS = template("providers")
RPM, TPM = 500, 200_000
CASES = (
    ("both", 380, False, 1),
    ("both", 380, True, 1),
    ("requests", 100, True, 1),
    ("tokens", 1_000, False, 8),
    ("tokens", 1_000, True, 8),
)
"""(which limit is short, tokens of a prompt, whether the provider tells of its limits, and by what
the number of calls is divided: storms short of tokens take long to simulate)."""


@dataclass(frozen=True, slots=True)
class Use:
    """A storm of calls. given: whether relquery was told the limits, too. minutes: of the clock.

    refused: requests that were answered 429.
    """

    short: str
    prompt: int
    tells: bool
    given: bool
    calls: int
    used: float
    requests: int
    refused: int
    minutes: float

    @property
    def share_refused(self) -> float:
        """Of all requests."""
        return self.refused / self.requests


@dataclass(slots=True)
class Limits(Part):
    """The part."""

    name = "limits"
    title = "Limits"
    found: list[Use] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        calls = choose(settings.quick).limited
        for short, prompt, tells, part in CASES:
            # What is not told has to be given.
            for is_given in (True, False) if tells else (True,):
                self.found.append(
                    use(short, prompt, calls // part, settings.seed, tells=tells, given=is_given)
                )
                say(" ".join(_cells(self.found[-1])))
        given = [each for each in self.found if each.given]
        least = min(given, key=lambda each: each.used)
        note = f"the least of {len(given)} runs of up to {calls:,} calls, {_which(least)}"
        yield Figure("limit_used", least.used, 0.95, True, note)
        most = max(given, key=lambda each: each.share_refused)
        note = f"the most, {_which(most)}: {most.refused:,} of {most.requests:,}"
        yield Figure("answered_429", most.share_refused, 0.005, False, note)
        learnt = [each for each in self.found if not each.given]
        least = min(learnt, key=lambda each: each.used)
        yield Figure("limit_used_learnt", least.used, 0.95, True, f"from headers, {_which(least)}")
        most = max(learnt, key=lambda each: each.share_refused)
        note = f"those sent before the first reply: {most.refused:,} of {most.requests:,}"
        yield Figure("answered_429_learnt", most.share_refused, 0.005, False, note)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("limits", rpm=RPM, tpm=f"{TPM:,}")
        names = (
            "short of", "tokens a prompt", "limits in headers", "limits given", "calls", "used",
            "requests", "answered 429", "minutes",
        )  # fmt: skip
        yield from markdown(names, map(_cells, self.found))


def _which(one: Use) -> str:
    return f"short of {one.short} with prompts of {one.prompt:,} tokens"


def _cells(one: Use) -> tuple[str, ...]:
    return (
        one.short,
        f"{one.prompt:,}",
        "yes" if one.tells else "no",
        "yes" if one.given else "no",
        f"{one.calls:,}",
        f"{one.used:.1%}",
        f"{one.requests:,}",
        f"{one.refused:,}",
        f"{one.minutes:.1f}",
    )


def use(short: str, prompt: int, calls: int, seed: int, *, tells: bool, given: bool) -> Use:
    """Send calls through the limits. given: whether relquery is told the limits."""
    server = Limited(RPM, TPM, prompt, tells=tells, seed=seed)
    limits = {"rpm": RPM, "tpm": TPM} if given else {}
    seconds = storm(server, calls, **limits).seconds
    return Use(
        short,
        prompt,
        tells,
        given,
        calls,
        server.use(seconds),
        server.asked,
        server.refused,
        seconds / 60,
    )
