"""A plan's marks in the form of Anthropic's API are billed as the plan expects."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.providers.sending import Pace, as_planned, bill
from benchmarks.providers.standin.billing import Account
from benchmarks.providers.standin.prompt import Sent
from benchmarks.providers.standin.rules import HOUR
from benchmarks.providers.standin.server import Standin
from relquery.prompt import Prompt, Role, Span
from relquery.table.caching.plan import plan_caching
from relquery.table.cost.pieces import EstimatedTokens
from relquery.table.cost.price import find_price
from tests.benchmarks.providers.standin.conftest import Connect

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


def request(sent: Sent) -> dict[str, Any]:
    """The fields of a request of Anthropic's."""
    of_role: dict[str, list[dict[str, Any]]] = {"system": [], "user": []}
    for block in sent.blocks:
        part: dict[str, Any] = {"type": "text", "text": block.text}
        if block.lives is not None:
            ttl = "1h" if block.lives == HOUR else "5m"
            part["cache_control"] = {"type": "ephemeral", "ttl": ttl}
        of_role[block.role].append(part)
    messages = [{"role": "user", "content": of_role["user"]}]
    return {"system": of_role["system"], "messages": messages}


@pytest.mark.parametrize("per_minute", [500.0, 0.1])
def test_marks_sent_over_http_cost_what_the_rules_say(connect: Connect, per_minute: float) -> None:
    asked = prompts()
    plan = plan_caching(asked, find_price(MODEL), EstimatedTokens(), requests_per_minute=per_minute)
    assert plan.seconds == (300 if per_minute > 1 else HOUR)
    requests = as_planned(asked, plan)
    now = [1_000_000.0]
    standin = Standin(clock=lambda: now[0], answer=lambda sent: "Yes")
    client = connect(standin).anthropic
    for each in requests:
        client.messages.create(model=MODEL, max_tokens=5, **request(each))
        now[0] += 60 / per_minute
    pace = Pace(1, 0.0, 0.0, per_minute)
    expected = bill(Account(), MODEL, requests, [-1] * len(requests), pace)
    totals = standin.account.totals
    assert totals.usd == pytest.approx(expected.usd)
    assert (totals.read, totals.written) == (expected.read, expected.written)
    assert totals.read > totals.written > 0
