"""Which prefixes prompts mark, and in which order they are sent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relquery.backends.base import Limits
from relquery.prices.table import PRICES
from relquery.prompt import Prompt, Role, Span
from relquery.sql.caching import cache_plan, planned
from tests.sql.fakes import FakeBackend

MARKED, AUTOMATIC = PRICES["claude-sonnet-5"], PRICES["gpt-4o-mini"]
LONG = "a few words that many rows share and that go on. " * 150


def prompts_of(groups: int, rows: int, text: str = LONG) -> list[Prompt]:
    system = Span("You answer.", Role.SYSTEM)
    return [
        (system, Span(f"group {group}: {text}"), Span(f"row {group}/{row}"))
        for group in range(groups)
        for row in range(rows)
    ]


def marks_in(prompt: Prompt) -> list[tuple[int, float]]:
    return [(at, span.keep_for) for at, span in enumerate(prompt) if span.keep]


def test_prefixes_that_pay_are_marked_where_their_span_ends() -> None:
    prompts = prompts_of(3, 4)
    plan = cache_plan(prompts, MARKED, 1)
    sent = plan.prompts(prompts)
    assert [marks_in(prompt) for prompt in sent] == [[(1, 300.0)]] * 12
    assert sorted(str(prompt[-1].content) for prompt in sent) == sorted(
        str(prompt[-1].content) for prompt in prompts
    )


def test_rows_that_share_too_little_are_sent_as_they_are() -> None:
    prompts = prompts_of(3, 4, "short")
    for price in (MARKED, AUTOMATIC):
        plan = cache_plan(prompts, price, 8)
        assert not plan.changes
        assert list(plan.prompts(prompts)) == prompts


def test_automatic_caches_need_no_marks_but_an_order() -> None:
    prompts = prompts_of(20, 3)
    plan = cache_plan(prompts, AUTOMATIC, 4)
    sent = plan.prompts(prompts)
    assert not any(map(marks_in, sent))
    groups = [str(prompt[1].content) for prompt in sent]
    first = {group: groups.index(group) for group in groups}
    gaps = [at - first[group] for at, group in enumerate(groups) if at > first[group]]
    assert min(gaps) >= 8


def test_slow_requests_mark_for_an_hour_where_that_is_cheaper() -> None:
    prompts = prompts_of(2, 6)
    slow = cache_plan(prompts, MARKED, 1, requests_per_minute=0.1)
    fast = cache_plan(prompts, MARKED, 1, requests_per_minute=100)
    assert marks_in(slow.prompts(prompts)[0]) == [(1, 3600.0)]
    assert marks_in(fast.prompts(prompts)[0]) == [(1, 300.0)]


def test_rows_that_are_sent_slowly_come_soon_after_what_they_read() -> None:
    """Written in another order: each group's rows stand ten minutes apart in the table. Every
    second group has a span more, so that its marks are others."""
    given = prompts_of(10, 4)
    for at, (system, *others) in enumerate(given):
        if at // 4 % 2:
            given[at] = (system, Span("Be brief."), *others)
    prompts = [given[group * 4 + row] for row in range(4) for group in range(10)]
    plan = cache_plan(prompts, MARKED, 16, requests_per_minute=1)
    sent = list(plan.prompts(prompts))
    groups = [str(prompt[-2].content) for prompt in sent]
    assert plan.keep_for == 300, "entries of an hour are written at a higher price"
    for group in set(groups):
        places = [at for at, one in enumerate(groups) if one == group]
        assert max(np.diff(places)) < 5
    assert [marks_in(prompt) for prompt in sent] == [[(len(p) - 2, 300.0)] for p in sent]


class Slow(FakeBackend):
    """Asked over a network, with a limit."""

    rate = 0.1

    @property
    def limits(self) -> Limits:
        return Limits(concurrency=4, requests_per_minute=self.rate)


def test_the_limit_of_a_backend_decides_how_long_prefixes_are_kept() -> None:
    prompts = prompts_of(2, 6)
    backend = Slow(lambda query, fields: "yes", name="anthropic:claude-sonnet-5")
    plan = planned(prompts, backend)
    assert plan is not None
    assert plan.keep_for == 3600.0
    backend.rate = 100.0
    faster = planned(prompts, backend)
    assert faster is not None
    assert faster.keep_for == 300.0


def test_more_tokens_at_the_provider_reach_its_minimum_sooner() -> None:
    prompts = prompts_of(2, 4, LONG[: len(LONG) // 3])
    assert not cache_plan(prompts, MARKED, 1).changes
    assert any(cache_plan(prompts, MARKED, 1, factor=4.0).marks)


def test_only_providers_with_a_price_get_a_plan() -> None:
    prompts = prompts_of(2, 4)
    backend = FakeBackend(lambda query, fields: "yes", name="openai:gpt-4o-mini")
    assert planned(prompts, backend) is None  # it is not asked over a network


def test_slices_of_a_plan_are_its_parts() -> None:
    prompts = prompts_of(3, 4)
    sent = cache_plan(prompts, replace(MARKED, minimum=1), 2).prompts(prompts)
    assert list(sent[2:5]) == list(sent)[2:5]
    assert len(sent) == 12
