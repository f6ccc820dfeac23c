"""A budget is never exceeded, and what was set aside but not used is there again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from benchmarks.providers.virtual import Outcome, ask, refusal, says
from relquery.backends.provider.budget import (
    Budget,
    CallCounter,
    CallPrice,
    usd_of,
    warn_if_unpriced,
)
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.limiter import RequestSize
from relquery.backends.provider.spending import Amount
from relquery.backends.wires.errors import ProviderError
from relquery.backends.wires.reply import Reply, Usage
from relquery.backends.wires.wire import encoded
from relquery.errors import BudgetError, ConfigError
from relquery.prompt import Sampling
from tests.cases import cases

SHORT = Sampling(max_tokens=50)


def usd(usage: Usage) -> float:
    """A dollar for a thousand tokens of prompts, three for those of answers."""
    return usage.prompt / 1_000 + usage.output * 3 / 1_000


class Billing:
    """A server that bills as `usd` does, within what a prompt and an answer can be.

    failing: how often it fails instead, in ways that may be billed and in ways that are not.
    thinks: tokens of reasoning, at least and at most, that its limit does not hold for.
    """

    def __init__(self, failing: float = 0.0, thinks: tuple[int, int] = (0, 0)) -> None:
        self.chance, self.failing, self.thinks = Random(5), failing, thinks
        self.billed, self.tokens, self.calls = 0.0, 0, 0

    async def __call__(self, question: str) -> Reply:
        chance = self.chance
        await asyncio.sleep(chance.uniform(0.01, 1.0))
        self.calls += 1
        fails = chance.random() < self.failing
        if fails and chance.random() < 0.5:
            raise refusal(500)
        drawn = chance.randint(1, 50) + chance.randint(*self.thinks)
        said = says("yes", chance.randint(5, 30), drawn)
        self.billed += usd(said.usage)
        self.tokens += said.usage.prompt + said.usage.output
        if fails:  # the answer is lost on its way
            raise ProviderError("lost", "The connection failed: reset.")
        return said


def spend(server: Billing, budget: str, **config: Any) -> Outcome:
    return ask(server, 3_000, SHORT, usd, budget=budget, **config)


@pytest.mark.parametrize("failing", [0.0, 0.3])
@pytest.mark.parametrize(
    ("budget", "most"), [("20USD", 20), ("9000 tokens", 9_000), ("90 calls", 90)]
)
def test_never_more_is_spent_than_the_budget(budget: str, most: float, failing: float) -> None:
    server = Billing(failing)
    outcome = spend(server, budget)
    assert isinstance(outcome.error, BudgetError)
    spent = {"USD": server.billed, "tokens": server.tokens, "calls": server.calls}
    used = spent[Amount.of(budget).unit]
    assert used <= most
    assert used <= outcome.shared.budget.spent <= most
    if not failing:
        assert used > 0.9 * most, "what calls did not use is spent on others"
        assert used == pytest.approx(outcome.shared.budget.spent)


@pytest.mark.parametrize(("budget", "most"), [("20USD", 20), ("9000 tokens", 9_000)])
def test_reasoning_beyond_the_limit_of_answers_is_set_aside_too(budget: str, most: float) -> None:
    server = Billing(thinks=(100, 180))
    outcome = spend(server, budget)
    assert isinstance(outcome.error, BudgetError)
    used = {"USD": server.billed, "tokens": server.tokens}[Amount.of(budget).unit]
    assert 0.8 * most < used <= most
    assert used == pytest.approx(outcome.shared.budget.spent)


def test_each_stage_learns_anew_what_its_calls_take() -> None:
    """Also beyond the bytes of a prompt, where a server adds its own."""
    for thinks, more in ((3_000, 0), (0, 5_000)):
        billed = 0

        async def answer(question: str, thinks: int = thinks, more: int = more) -> Reply:
            nonlocal billed
            await asyncio.sleep(0.1)
            said = says("yes", 20 + more, 5 + thinks)
            billed += said.usage.prompt + said.usage.output
            return said

        first = ask(Billing(), 20, SHORT, budget="40000 tokens", max_concurrency=64)
        spent = first.shared.budget.spent
        second = ask(
            answer, 99, SHORT, shared=first.shared, budget="40000 tokens", max_concurrency=64
        )
        assert isinstance(second.error, BudgetError)
        assert 20_000 < spent + billed <= 40_000


def test_what_contradicts_itself_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    counting = CallCounter(None)
    for _ in range(3):
        counting.used(Usage.of({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 5}))
        counting.used(Usage.of({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 99}))
    assert caplog.messages == [
        "The server's count of tokens does not add up: a prompt of 9 and an answer of 2 tokens are "
        "5. The dearest reading counts."
    ]


def test_answers_that_came_before_the_end_are_delivered() -> None:
    outcome = spend(Billing(), "90 calls")
    assert len(outcome.answers) == 90
    assert str(outcome.error) == (
        "The budget of 90 calls has no room for another call: 90 calls are spent. Raise the budget."
    )
    assert ask(Billing(), 50, SHORT, usd, budget="50 calls").error is None


def test_a_call_that_never_fits_is_not_sent() -> None:
    server = Billing()
    outcome = spend(server, "0.1USD")
    assert isinstance(outcome.error, BudgetError)
    assert "0.00 USD are spent, and one may take" in str(outcome.error)
    assert server.calls == 0


def test_dollars_need_a_price() -> None:
    said = r"price of 'm' is not known\. Give the budget in tokens"
    with pytest.raises(ConfigError, match=said) as error:
        Budget(Amount(5, "USD"), usd_of("m"), "m")
    assert "relquery prices --update FILE" in str(error.value)


def test_a_model_without_a_price_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    warn_if_unpriced.cache_clear()
    for model in ("openai:new-model", "openai:new-model", "openai:gpt-5-mini", "openai:m@host"):
        warn_if_unpriced(model)
    (said,) = caplog.messages
    assert said.startswith("No price is known for 'new-model'. `relquery prices` lists those ")
    assert said.endswith("What is spent is not shown in USD.")


def test_a_model_s_version_costs_what_the_model_does() -> None:
    for model in ("claude-haiku-4-5-20251001", "claude-haiku-4-5", "claude-haiku-4.5"):
        price = usd_of(model)
        assert price is not None
        # USD 1 a million, 0.10 from the cache and 1.25 into it, and 5 for answers
        assert price(Usage(1_000_000)) == pytest.approx(1.0)
        usage = Usage(1_000_000, 500_000, 100_000, 500_000)
        assert price(usage) == pytest.approx(0.05 + 0.625 + 0.5)
        hour = Usage(1_000_000, 500_000, 100_000, 500_000, written_1h=500_000)
        assert price(hour) == pytest.approx(0.05 + 1.0 + 0.5)


def test_what_is_set_aside_covers_the_dearest_call_that_a_request_can_become() -> None:
    """Entries of an hour at twice the price, and the peak's hours at DeepSeek."""
    purse = Budget(Amount(1, "USD"), usd_of("claude-haiku-4-5"), "m")
    assert purse.hold(RequestSize(100_000, 1_000)) == pytest.approx(0.125 + 0.005)
    assert purse.hold(RequestSize(100_000, 1_000, keeps_hour=True)) == pytest.approx(0.2 + 0.005)
    long = Budget(Amount(1, "USD"), usd_of("claude-haiku-5-5"), "m")
    assert long.hold(RequestSize(100_001, 1_000)) == pytest.approx(100_001 * 0.625e-6 + 0.0025)
    deepseek = Budget(Amount(1, "USD"), usd_of("deepseek-flash"), "m")
    assert deepseek.hold(RequestSize(100_000, 1_000)) == pytest.approx(0.03 + 0.0012)  # at any hour
    body = {"messages": [{"cache_control": {"type": "ephemeral", "ttl": "1h"}}]}
    assert [RequestSize.of(one, encoded(one)).keeps_hour for one in ({}, body)] == [False, True]


def test_a_call_costs_what_the_hour_says_in_which_it_ends() -> None:
    now = [datetime(2026, 10, 20, 5, 59, tzinfo=UTC).timestamp()]
    price, seen = CallPrice("deepseek-flash", clock=lambda: now[0]), []
    for _ in range(3):
        seen.append(price(Usage(1_000_000)))
        now[0] += 3_600 * 2
    assert seen == pytest.approx([0.15, 0.30, 0.30])  # at 5:59, 7:59 and 9:59
    assert price(Usage(1_000_000)) == pytest.approx(0.15)  # at 11:59


def test_what_a_server_says_that_a_call_cost_is_its_price() -> None:
    price = usd_of("openrouter:openai/gpt-5-mini")
    assert price is not None
    said = {"prompt_tokens": 1_000, "completion_tokens": 10, "cost": 0.0042}
    assert price(Usage.of(said)) == 0.0042
    for cost in (None, True, "0.1", -1, float("nan"), float("inf")):
        assert price(Usage.of({**said, "cost": cost})) == pytest.approx(0.00025 + 0.00002)


def test_calls_are_billed_one_by_one() -> None:
    """Two prompts of 60,000 tokens do not cost what one of 120,000 does."""
    counting = CallCounter(usd_of("claude-haiku-5-5"))
    for _ in range(2):
        counting.used(Usage(60_000, 0, 0))
    assert counting.tally(0.0).usd == pytest.approx(0.012)


def test_an_amount_is_read_as_a_person_writes_it() -> None:
    for text, number, unit in cases(__file__, "amounts"):
        assert Amount.of(text) == Amount(number, unit)


def test_another_text_is_refused_with_what_to_write() -> None:
    for (text,) in cases(__file__, "no amounts"):
        with pytest.raises(ConfigError, match=r"budget is .*(write a number|must be above 0)"):
            Amount.of(text)
    remedy = r"; write a number and what it counts: '5USD', '2000000 tokens' or '500 calls'\."
    for budget, said in (
        ("0.5 calls", "'0.5 calls'; it must be at least 1 call"),
        (".9tokens", "'.9tokens'; it must be at least 1 token"),
        ("5", f"budget is '5'{remedy}"),
        (5, f"budget is 5{remedy}"),  # in the same words as its text
    ):
        with pytest.raises(ConfigError, match=said):
            ProviderConfig(budget=budget)  # type: ignore[arg-type]
