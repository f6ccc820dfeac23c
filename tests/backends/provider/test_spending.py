"""A budget of a month is one for all processes that share a ledger, whatever becomes of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

import relquery as rq
from benchmarks.standin.http import Json
from benchmarks.standin.server import Reply, until
from benchmarks.standin.wires.openai_chat import completion
from relquery.backends.provider.budget import Budget
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.limiter import RequestSize
from relquery.backends.provider.spending import Amount, Spending
from relquery.backends.wires.reply import Usage
from relquery.errors import BudgetError, ConfigError
from tests.backends.conftest import Serve
from tests.cases import cases


def moment(text: str) -> Callable[[], float]:
    return lambda: datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_an_amount_may_be_one_of_a_day_a_month_or_a_ledger() -> None:
    for text, number, unit, per in cases(str(Path(__file__).with_name("test_budget.py")), "per"):
        assert Amount.of(text) == Amount(number, unit, per)
    assert str(Amount.of("500USD/month")) == "500.00 USD a month"
    for text in ("5USD/year", "5USD/", "5USD/month/day", "/month"):
        with pytest.raises(ConfigError, match="budget is"):
            Amount.of(text)


def test_what_was_spent_counts_in_the_period_in_which_it_was_taken(tmp_path: Path) -> None:
    for per, last, next_one in (
        ("month", "2026-11-30T23:59:59", "2026-12-01T00:00:00"),
        ("day", "2026-11-29T23:59:59", "2026-11-30T00:00:00"),
    ):
        budget, path = Amount.of(f"10USD/{per}"), tmp_path / f"{per}.db"
        before = Spending(path, budget, moment(last))
        after = Spending(path, budget, moment(next_one))
        held = before.take(9.0)
        assert held is not None
        assert before.take(2.0) is None
        assert after.take(8.0) == 8.0
        after.correct(held, 4.0)  # it ends in the next period, and counts in its own
        assert (before.spent, after.spent) == (4.0, 8.0)
        assert Spending(path, Amount.of(f"5 calls/{per}"), moment(last)).spent == 0.0
    forever = Spending(tmp_path / "month.db", Amount.of("10USD/ledger"), moment("2026-11-30"))
    assert forever.take(10.0) == 10.0
    assert Spending(forever.path, forever.budget, moment("2031-01-01")).take(0.1) is None


def test_a_purse_goes_on_where_another_has_stopped(tmp_path: Path) -> None:
    def purse() -> Budget:
        return Budget(Amount.of("100 tokens/month"), None, "m", file=tmp_path / "run.db")

    first, need = purse(), RequestSize(20, 10)
    for tokens in (15, 25, None):  # the last one's answer was lost
        held = first.hold(need)
        assert held is not None
        first.settle(held, None if tokens is None else Usage(tokens, 0, 0))
    first.give_back(first.hold(need) or 0.0)
    with pytest.raises(BudgetError, match=r"budget of 100 tokens a month has no room.*70 tokens"):
        purse().hold(RequestSize(25, 10))
    assert purse().hold(need) == 30


TAKER = """
import sys
from random import Random
from pathlib import Path
from relquery.backends.provider.spending import Amount
from relquery.backends.provider.spending import Spending
spending = Spending(Path(sys.argv[1]), Amount.of("600 tokens/ledger"))
chance = Random(int(sys.argv[2]))
print("ready", flush=True)
while (held := spending.take(5.0)) is not None:
    print(cost := chance.randint(1, 5), flush=True)
    spending.correct(held, cost)
"""


def test_processes_that_are_killed_never_spend_more_together(tmp_path: Path) -> None:
    path, chance = tmp_path / "run.db", Random(4)

    def start(number: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", TAKER, str(path), str(number)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    running, said = [start(number) for number in range(4)], []
    for one in running[:2]:
        assert one.stdout is not None
        said += [one.stdout.readline() for _ in range(chance.randint(5, 20))]
        one.kill()
    running.append(start(9))
    said += [one.communicate()[0] for one in running]
    assert [one.returncode for one in running[2:]] == [0, 0, 0]
    paid = sum(int(word) for word in "\n".join(said).split() if word != "ready")
    left = Spending(path, Amount.of("600 tokens/ledger")).spent
    assert paid <= left <= 600
    assert paid >= 600 - 5 * len(running)


def test_without_a_ledger_it_is_refused_with_what_to_give() -> None:
    remedy = r"counted in a ledger, and there is none\. Give one: ledger='run\.db'"
    with pytest.raises(ConfigError, match=remedy):
        ProviderConfig(budget="5USD/month")
    with pytest.raises(ConfigError, match=remedy):
        rq.connect("openai:gpt-5-mini", api_key="k", budget="5USD/month")
    with pytest.raises(ConfigError, match=r"cannot be counted in .*no/run\.db"):
        Budget(Amount.of("5 calls/day"), None, "m", file="no/run.db")


QUERY = "SELECT LLM('up', id + {first}) AS n FROM range(40) t(id)"


@pytest.mark.long
def test_commands_that_are_killed_never_pay_more_than_the_month_allows(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at once, one of them killed, each with rows of its own; the server keeps the bill."""
    billed, path = 0, tmp_path / "run.db"

    def reply(body: Json) -> Reply:
        nonlocal billed
        billed += 1
        return completion("yes")

    server = serve(reply)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    options = ["--ledger", str(path), "--budget", "60 calls/month"]

    def start(number: int) -> subprocess.Popen[Any]:
        query = QUERY.format(first=1_000 * number)
        command = [sys.executable, "-m", "relquery", "sql", query, "-m", "openai:m", *options]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    running = [start(number) for number in range(2)]
    until(lambda: billed > 10)
    running[0].kill()
    for one in running:
        one.wait(timeout=120)
    for number in range(2, 6):  # until the budget is spent
        if start(number).wait(timeout=120) != 0:
            break
    else:
        raise AssertionError("the budget was not spent")
    counted = Spending(path, Amount.of("60 calls/month")).spent
    assert 40 <= billed <= counted <= 60
