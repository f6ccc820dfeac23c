"""Limits of a provider are used up and hardly ever hit, whether given or learnt."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from benchmarks.providers.limits import Limited, storm
from benchmarks.providers.virtual import ask, refusal, says
from relquery.backends.provider.limiter import Limiter, RequestSize
from relquery.backends.wires.reply import Reply, Usage

CALLS = 20_000
RPM, TPM = 500, 200_000


# Requests are short, tokens, or both.
@pytest.mark.parametrize(
    ("calls", "prompt", "tells"),
    [
        pytest.param(CALLS, 380, False, marks=pytest.mark.long),
        (1_500, 380, False),
        pytest.param(1_500, 100, True, marks=pytest.mark.long),
        (1_500, 1_000, True),
    ],
)
def test_calls_use_up_a_limit_and_are_hardly_refused(calls: int, prompt: int, tells: bool) -> None:
    server = Limited(RPM, TPM, prompt, tells=tells)
    minutes = storm(server, calls, rpm=RPM, tpm=TPM).seconds / 60
    assert max(calls / RPM, server.used / TPM) / minutes >= 0.95
    assert server.refused < 0.005 * server.asked


def test_limits_that_replies_tell_are_kept_to_as_if_they_were_given() -> None:
    server = Limited(RPM, TPM, 100, tells=True)
    minutes = storm(server, 2_000).seconds / 60
    assert 2_000 / RPM / minutes >= 0.95
    assert server.refused < 20, "only of those that were sent before the first reply"


def test_without_any_limit_told_the_pace_adapts_to_what_is_not_refused() -> None:
    server = Limited(RPM, 10**9, 100, tells=False)
    minutes = storm(server, 3_000).seconds / 60
    assert 3_000 / RPM / minutes >= 0.75
    assert server.refused < 0.05 * server.asked


def test_a_refusal_lets_nobody_through_until_the_moment_that_the_server_names() -> None:
    times: list[float] = []

    async def busy_once(question: str) -> Reply:
        now = asyncio.get_running_loop().time()
        times.append(now)
        await asyncio.sleep(0.01)
        if now < 20:
            raise refusal(429, retry_after="20")
        return says("yes")

    assert set(ask(busy_once, 50, max_concurrency=8).texts) == {"yes"}
    early = [time for time in times if time < 20]
    assert len(early) <= 8, "those that were under way"
    assert len(times) == len(early) + 50


@pytest.mark.parametrize(("share", "times"), [(0.1, 1.3), (0.2, 6)])
def test_a_few_refusals_hold_up_their_own_rows_alone(share: float, times: float) -> None:
    chance, refused = Random(5), set[str]()

    async def moody(question: str) -> Reply:
        await asyncio.sleep(0.05)
        if question not in refused and chance.random() < share:
            refused.add(question)
            raise refusal(429, retry_after="1")
        return says("yes")

    async def calm(question: str) -> Reply:
        await asyncio.sleep(0.05)
        return says("yes")

    outcome = ask(moody, 2_000, max_concurrency=16)
    assert set(outcome.texts) == {"yes"}
    assert len(refused) > 0.8 * share * 2_000
    assert outcome.seconds < times * ask(calm, 2_000, max_concurrency=16).seconds


def test_what_is_waited_for_can_be_seen_and_all_stages_share_one_limit() -> None:
    limiter, need = Limiter(rpm=60), RequestSize(10, 1)
    assert limiter.reserve(need, 10.0)[0] == 0
    assert limiter.until <= 10.0
    assert limiter.reserve(need, 10.0)[0] == pytest.approx(1)
    assert limiter.until == pytest.approx(11)
    limiter, need = Limiter(rpm=60), RequestSize(100, 10)
    assert sum(limiter.reserve(need, second / 10)[0] == 0 for second in range(600)) == 60


def test_what_calls_took_corrects_what_was_set_aside_for_them() -> None:
    limiter, need = Limiter(tpm=60_000), RequestSize(1_000, 10_000)
    wait, reserved = limiter.reserve(need, 0.0)
    assert (wait, reserved) == (0.0, 10_300.0)
    assert limiter.reserve(need, 0.0)[0] > 5, "the bucket is empty for long"
    limiter.settle(need, reserved, Usage(250, 0, 50), {}, 0.0)
    assert limiter.reserve(need, 0.0)[0] == 0.0
    assert limiter.reserve(need, 0.0)[1] == 300.0


@pytest.mark.parametrize("what", ["requests", "tokens"])
def test_no_more_is_sent_than_a_reply_says_is_left(what: str) -> None:
    """And no more than a second's share of the limit, however much is left."""

    def waits(left: int, before: int) -> float:
        limiter, need = (
            Limiter(rpm=6_000, tpm=60_000),
            RequestSize(10, 7),
        )  # 100 requests or 1,000 tokens
        for _ in range(before):
            wait, reserved = limiter.reserve(need, 0.0)
            assert wait == 0
            limiter.settle(need, reserved, None, {}, 0.0)
        assert limiter.reserve(need, 0.0)[0] == 0
        headers = {f"x-ratelimit-remaining-{what}": str(left)}
        limiter.settle(need, 10.0, None, headers, 0.0)
        return limiter.reserve(need, 0.0)[0]

    assert waits(left=1_000_000, before=0) == 0
    assert waits(left=0, before=0) > 0
    assert waits(left=1_000_000, before=99) > 0


def test_a_day_s_limit_is_not_waited_for() -> None:
    async def used_up(question: str) -> Reply:
        raise refusal(429, retry_after="86400")

    outcome = ask(used_up, 3)
    assert outcome.seconds < 3_600
    assert outcome.answers == {} or all(each.error for each in outcome.answers.values())
