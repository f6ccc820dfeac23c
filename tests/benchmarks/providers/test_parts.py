"""The parts of `scripts/bench providers`, and the rules that its bills follow."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from benchmarks.harness import Figure, Settings
from benchmarks.parts import Part
from benchmarks.providers import bill as bill_part
from benchmarks.providers import kills, limits
from benchmarks.providers.bill import Bills, Row, compare
from benchmarks.providers.calls import prompts_of
from benchmarks.providers.faults import MODELS, run
from benchmarks.providers.limits import Limits
from benchmarks.providers.predicted import WIRES, predict
from benchmarks.providers.sending import Pace, bill
from benchmarks.providers.sizes import Sizes
from benchmarks.standin.billing import Account
from benchmarks.standin.errors import Kind
from benchmarks.standin.prompt import Block, Counter, Sent, pieces
from benchmarks.standin.rules import RULES
from relquery.demo.files import TABLES
from relquery.prices.table import PRICES

MODEL = "claude-sonnet-5"


def measured(part: Part) -> dict[str, Figure]:
    """Its figures by name, of a quick run without the real tables."""
    found = part.measure(Settings(True, Path("nowhere")), lambda _: None)
    return {each.name: each for each in found}


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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bill_part, "choose", lambda quick: Sizes(rows=20, real=20))
    bills = Bills()
    figures = measured(bills)
    assert figures["bill_movies"].value is None
    worst = figures["bill_worst"].value
    assert worst is not None
    assert worst <= 1 + 1e-9
    assert "\n".join(bills.render(())).count("demo:") == len(TABLES)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["500", "garbage", "refusal", "wrong types"])
def test_rows_of_a_provider_that_fails_now_and_then_are_values_or_errors(
    kind: Kind, model: str
) -> None:
    found = run(model, kind, 0.3, 20)
    assert found.stopped == ""
    assert found.lost == found.wrong == 0
    assert 0 < found.errors < 20
    assert found.requests >= 20


@pytest.mark.parametrize("model", MODELS)
def test_a_provider_that_always_fails_stops_the_query(model: str) -> None:
    found = run(model, "garbage", 1.0, 60)
    assert re.search(r"requests to \S+ (all )?failed", found.stopped), "by the first or by probes"
    assert found.requests < 40
    assert found.lost == 0


def test_a_killed_query_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "ROWS", 90)
    found = kills.live_kills(1, Random(0))
    assert (found.kills, found.rows, found.wrong) == (1, 90, 0)
    assert (found.lost, found.paid) == (0, 0)
    assert 90 <= found.requests <= 90 + found.in_flight


def test_a_limit_is_used_up_and_not_hit() -> None:
    found = limits.use("tokens", 1_000, 400, 0, tells=False, given=True)
    assert found.used > 0.95
    assert (found.refused, found.requests) == (0, 400)


def test_the_part_has_a_line_for_each_storm_and_says_the_worst(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "choose", lambda quick: Sizes(limited=300))
    part = Limits()
    worst = measured(part)["limit_used"].value
    assert len(part.found) == 8
    assert worst == min(each.used for each in part.found if each.given)
    lines = list(part.render(()))
    assert sum("| 300 |" in line for line in lines) == 5
    assert sum("| 37 |" in line for line in lines) == 3  # short of tokens


@pytest.mark.parametrize(("model", "options"), WIRES, ids=[model for model, _ in WIRES])
def test_what_is_foretold_after_a_preview_is_billed(model: str, options: dict[str, str]) -> None:
    texts = [f"Row {row}: " + "extraordinarily long-winded words of it. " * 5 for row in range(60)]
    found = predict("t", pa.table({"text": texts}), model, pieces, **options)
    assert found.calls >= 60
    assert found.error < 0.1
    assert found.billed < found.all
