"""How much of a provider's limits is used, and how often they are hit."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table as markdown
from benchmarks.parts import Part
from benchmarks.providers.limited import Limited, storm
from benchmarks.providers.sizes import choose
from benchmarks.templates import template

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
