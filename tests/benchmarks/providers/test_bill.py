"""The bills of `scripts/bench providers`, and the rules that they follow."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.harness import Settings
from benchmarks.providers.calls import prompts_of
from benchmarks.providers.parts import bill as part
from benchmarks.providers.parts.bill import Bills, Row, compare
from benchmarks.providers.sending import Pace, bill
from benchmarks.providers.sizes import Sizes
from benchmarks.providers.standin.billing import Account
from benchmarks.providers.standin.prompt import Block, Counter, Sent
from benchmarks.providers.standin.rules import RULES
from benchmarks.providers.standin.tokens import pieces
from relquery.prices.table import PRICES

MODEL = "claude-sonnet-5"


def sent(*texts: str, marks: int = 0) -> Sent:
    blocks = [
        Block("user", text, begins=not at, lives=300 if at < marks else None)
        for at, text in enumerate(texts)
    ]
    return Sent(tuple(blocks))


@pytest.mark.parametrize("name", sorted(RULES))
def test_the_products_prices_are_those_of_the_rules(name: str) -> None:
    rules, price = RULES[name], PRICES[name]
    assert (price.uncached, price.read, price.output) == (rules.input, rules.cached, rules.output)
    assert price.write == (rules.write or rules.input)
    assert (price.minimum, price.breakpoints) == (rules.minimum, rules.breakpoints)
    assert (price.granularity, price.lifetime_s or float("inf")) == (rules.step, rules.lifetime)
    if rules.write_hour:
        assert price.for_an_hour.write == rules.write_hour


def films(titles: int, reviews: int) -> pa.Table:
    """A review is short, and its film's long description is the last column."""
    rows = [(title, review) for review in range(reviews) for title in range(titles)]
    return pa.table(
        {
            "review": [f"Review {review} of film {title} was short." for title, review in rows],
            "film": [f"Film {title} is about the sea and the people. " * 120 for title, _ in rows],
        }
    )


def compared(rows: pa.Table, model: str) -> Row:
    own, others = prompts_of(rows, "tree", model), prompts_of(rows, "original")
    return compare("table", model, own, others, Counter(pieces))


@pytest.mark.parametrize("model", sorted(RULES))
def test_descriptions_that_come_first_and_are_marked_cost_less(model: str) -> None:
    rows = films(6, 5)
    row = compared(rows, model)
    assert row.calls == 30
    assert row.ratio <= 1
    assert row.to_unmarked <= 1
    if RULES[model].minimum <= 1024:
        assert row.ratio < 0.75
        assert row.ours.read > 0.6 * row.ours.input


def test_short_prompts_cost_what_they_would_without_marks() -> None:
    rows = films(4, 4).select(["review"])
    row = compared(rows, MODEL)
    assert row.ratio == row.to_unmarked == 1
    assert row.ours.read == row.ours.written == 0


def test_requests_that_are_sent_together_all_write() -> None:
    requests = [sent("Rules. " * 1_000, f"row {row}", marks=1) for row in range(8)]
    in_turn = bill(Account(), MODEL, requests, Pace(in_flight=1))
    at_once = bill(Account(), MODEL, requests, Pace(per_minute=6_000))
    assert in_turn.written * 8 == at_once.written
    assert in_turn.requests == at_once.requests == 8


def test_a_slow_sender_finds_what_it_wrote_expired() -> None:
    requests = [sent("Rules. " * 1_000, f"row {row}", marks=1) for row in range(4)]
    slow = bill(Account(), MODEL, requests, Pace(1, per_minute=0.1))
    assert slow.read == 0


def test_the_part_measures_bundled_tables_where_no_other_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "choose", lambda quick: Sizes(rows=20, real=20))
    bills = Bills()
    figures = {each.name: each for each in bills.measure(Settings(True, tmp_path), lambda _: None)}
    assert figures["bill_movies"].value is None
    worst = figures["bill_worst"].value
    assert worst is not None
    assert worst <= 1 + 1e-9
    text = "\n".join(bills.render(()))
    assert text.count("demo:") == 3
