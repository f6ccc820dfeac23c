"""A plan's marks in the form of Anthropic's API are billed as the plan expects."""

from __future__ import annotations

import pytest

from benchmarks.providers.sending import Pace, bill, body_of, requests_of
from benchmarks.standin.billing import Account
from benchmarks.standin.provider import Provider
from benchmarks.standin.rules import HOUR
from relquery.prices.table import find_price
from relquery.prompt import Prompt, Role, Span
from relquery.sql.caching import cache_plan
from tests.benchmarks.standin.conftest import Connect

MODEL = "claude-sonnet-5"


def prompts() -> list[Prompt]:
    """Two halves of three groups of four rows, below a short instruction."""
    return [
        (
            Span("Answer the question.", Role.SYSTEM),
            Span(f"The half {half} has these rules. " * 200),
            Span(f"The group {half} {group} has more. " * 60),
            Span(f"Row {half} {group} {row}?"),
        )
        for half in range(2)
        for group in range(3)
        for row in range(4)
    ]


@pytest.mark.parametrize("per_minute", [500.0, 0.1])
def test_marks_sent_over_http_cost_what_the_rules_say(connect: Connect, per_minute: float) -> None:
    asked = prompts()
    plan = cache_plan(asked, find_price(MODEL), 1, requests_per_minute=per_minute)
    assert plan.keep_for == (300 if per_minute > 1 else HOUR)
    sent = plan.prompts(asked)
    now = [1_000_000.0]
    standin = Provider(clock=lambda: now[0], answer=lambda sent: "Yes")
    client = connect(standin).anthropic
    for each in sent:
        client.messages.create(**body_of(each, MODEL))
        now[0] += 60 / per_minute
    requests = requests_of(sent, MODEL)
    pace = Pace(1, 0.0, 0.0, per_minute)
    expected = bill(Account(), MODEL, requests, pace)
    totals = standin.account.totals
    assert totals.usd == pytest.approx(expected.usd)
    assert (totals.read, totals.written) == (expected.read, expected.written)
    assert totals.read > totals.written > 0
