"""EXPLAIN (COST): what it foretells beside what a stand-in for a provider bills."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from relquery.cli.sql.output import explanation_view
from relquery.connection import Connection, connect
from relquery.errors import QueryError
from relquery.prices.table import PRICES
from relquery.sql.explain.cost import COST_SCHEMA, StageCost
from tests.sql.explain.billed import Provider

GROUPS, ROWS = 12, 5
QUERY = "SELECT LLM('What is it?', note, plot) FROM films"


def said(query: str, fields: Any) -> str:
    return "It is a film about " + "love and war, " * (1 + sum(map(ord, fields["note"])) % 5)


def films(words: int) -> dict[str, list[str]]:
    """Each plot ROWS times, far apart, with a note of its own."""
    plots = [
        f"film {at} " + f"a long story, part {at}, of many words. " * words for at in range(GROUPS)
    ]
    rows = [
        (f"seen by critic {row} of {group}", plots[group])
        for row in range(ROWS)
        for group in range(GROUPS)
    ]
    return {"note": [note for note, _ in rows], "plot": [plot for _, plot in rows]}


def connected(model: str, words: int = 150, **options: Any) -> tuple[Connection, Provider]:
    backend = Provider(said, name=model, **options)
    con = connect(backend)
    con.register("films", films(words))
    return con, backend


def cost_of(con: Connection, query: str = QUERY, **options: Any) -> StageCost:
    (call,) = con.explain(query, cost=True, **options).calls
    assert call.cost is not None
    return call.cost


ANTHROPIC, OPENAI = "anthropic:claude-sonnet-5", "openai:gpt-5.4-mini-2026-03-17"


@pytest.fixture(scope="module")
def mini() -> Iterator[Connection]:
    """A connection of which nothing is asked."""
    con, backend = connected("openai:gpt-4o-mini")
    with con:
        yield con
    assert backend.asked == []


@pytest.mark.parametrize("model", [ANTHROPIC, pytest.param(OPENAI, marks=pytest.mark.long)])
def test_after_a_preview_the_bill_is_foretold_within_a_tenth(model: str) -> None:
    con, backend = connected(model)
    with con:
        con.preview(QUERY)
        cost = cost_of(con)
        backend.usd = backend.plain = 0.0
        con.sql(QUERY)
    assert cost.live is not None
    assert cost.live.expected == pytest.approx(backend.usd, rel=0.1)
    assert cost.live.low <= backend.usd <= cost.live.high
    assert cost.calibration is not None
    assert cost.calibration.answers == 10
    assert backend.usd < 0.75 * backend.plain
    for name in ("calls", "input", "cached", "output", "seconds", "live", "table", "batch"):
        figure = getattr(cost, name)
        assert figure.low <= figure.expected <= figure.high, name


@pytest.mark.long
@pytest.mark.parametrize("model", [OPENAI, ANTHROPIC])
def test_our_order_costs_less_than_the_tables(model: str) -> None:
    con, ours = connected(model, under_way=12)
    with con:
        con.preview(QUERY)
        cost, ours.usd = cost_of(con), 0.0
        con.sql(QUERY)
    con, table = connected(model, under_way=12)
    with con:
        con.preview(QUERY)
        table.usd = 0.0
        con.sql(QUERY, order="original")
    assert cost.live is not None
    assert cost.table is not None
    assert ours.usd < table.usd
    assert cost.live.expected < cost.table.expected
    assert cost.table.expected == pytest.approx(table.usd, rel=0.1)


def test_short_prompts_cost_the_same_in_any_order_and_explain_says_why(mini: Connection) -> None:
    con, backend = connected("openai:gpt-4o-mini", words=2)
    with con:
        cost = cost_of(con)
        (call,) = con.explain(QUERY).calls
        con.preview(QUERY)
        batch = cost_of(con).batch
        backend.usd = backend.plain = 0.0
        con.sql(QUERY)
    assert cost.live == cost.table
    assert backend.usd == backend.plain
    (note,) = [one for one in call.notes if "sharing saves nothing" in one]
    assert note == cost.unshared
    longest = int(re.findall(r"at most (\d+) shared tokens", note)[0])
    assert 50 < longest < 150
    assert "gpt-4o-mini caches prefixes of 1,024 or more" in note
    assert f"{1024 - longest:,} more would change that" in note
    assert batch is not None  # half of what is sent without a cache
    assert batch.expected == pytest.approx(backend.plain / 2, rel=0.1)
    assert cost_of(mini).unshared is None  # long prompts have no such note


def test_a_model_that_caches_shorter_prefixes_is_named(mini: Connection) -> None:
    mini.register("shorter", films(60))
    cost = cost_of(mini, QUERY.replace("films", "shorter"))
    assert cost.unshared is not None
    assert "or another model: " in cost.unshared
    assert "claude-haiku-5-5 (from 512 on)" in cost.unshared


@pytest.mark.parametrize(
    ("rpm", "tpm"),
    [(None, 600), pytest.param(6, None), pytest.param(6_000, 10**7, marks=pytest.mark.long)],
)
def test_it_takes_as_long_as_the_limits_let_it(rpm: int | None, tpm: int | None) -> None:
    options = {"base_url": "http://127.0.0.1:9/v1", "api_key": "k"}
    costs = []
    for limits in ({}, {"rpm": rpm, "tpm": tpm}):
        with connect("openai:gpt-4o-mini", **limits, **options) as con:  # type: ignore[arg-type]
            con.register("films", films(2))
            costs.append(cost_of(con))
    free, found = (cost.seconds for cost in costs)
    assert found is not None
    assert free is not None
    tokens = costs[1].input.expected + costs[1].output.expected
    seconds = max(60 / rpm * 60 if rpm else 0, tokens / tpm * 60 if tpm else 0)
    assert (found.low, found.expected, found.high) == pytest.approx(
        [max(one, seconds) for one in (free.low, free.expected, free.high)]
    )


FILTERED = f"{QUERY} WHERE AI_FILTER('Is it good?', note)"


def test_what_follows_a_filter_has_bounds_until_its_share_is_given(mini: Connection) -> None:
    first, second = mini.explain(FILTERED, cost=True).calls
    given = mini.explain(FILTERED, cost=True, selectivity=0.25).calls[1]
    assert first.cost is not None
    assert second.cost is not None
    assert given.cost is not None
    assert (first.cost.calls.low, first.cost.calls.high) == (60, 60)
    calls = second.cost.calls
    assert (calls.low, calls.expected, calls.high) == (0, 30, 60)
    assert (given.cost.calls.low, given.cost.calls.high) == (15, 15)
    assert first.cost.length.source == "type"
    assert second.cost.length.source == "assumed"


def test_the_statement_returns_a_row_per_stage_and_one_for_all(mini: Connection) -> None:
    table = mini.sql(f"EXPLAIN (COST) {FILTERED}").arrow()
    assert mini.sql(f"EXPLAIN COST {FILTERED}").arrow().schema == table.schema
    again = mini.explain(f"explain ( cost ) {FILTERED}").arrow()
    assert table.schema == COST_SCHEMA
    assert table.column("stage").to_pylist() == ["filter 1", "projection 1", "total"]
    assert table.column("usd").to_pylist()[2] == pytest.approx(
        sum(table.column("usd").to_pylist()[:2])
    )
    assert again == table


def test_a_terminal_of_80_columns_shows_every_figure_whole(mini: Connection) -> None:
    told = mini.explain(QUERY, cost=True)
    console = Console(width=80, record=True, file=StringIO())
    console.print(explanation_view(told, console.width))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    for title, cells in told.columns().items():
        assert title in text
        assert all(cell in text for cell in cells)


def test_a_model_without_a_price_says_so_before_a_call() -> None:
    backend = Provider(said, name="openai:unheard-of-model")
    with connect(backend) as con:
        con.register("films", films(2))
        told = con.explain(QUERY, cost=True)
    assert backend.asked == []
    assert told.calls[0].cost is not None
    assert told.calls[0].cost.live is None
    assert "USD" not in told.columns()
    assert any("No price is known for 'unheard-of-model'" in note for note in told.notes)


def test_a_model_that_reasons_is_told_to_bill_it() -> None:
    assert PRICES["gpt-5-mini"].reasoning
    con, _ = connected("openai:gpt-5-mini")
    with con:
        plain, told = (con.explain(FILTERED, cost=cost) for cost in (False, True))
    for explained in (plain, told):
        assert sum("reasons before it answers" in note for note in explained.notes) == 1
    cost = told.calls[0].cost
    assert cost is not None
    assert cost.length.tokens.high == 256


def test_only_statements_with_calls_are_told_costs(mini: Connection) -> None:
    assert "physical_plan" in str(mini.sql("EXPLAIN (COST) SELECT 1").arrow().column(0)[0])
    values = mini.sql("SELECT 'EXPLAIN (COST) x' AS text, 5 AS cost").fetchall()
    assert values == [("EXPLAIN (COST) x", 5)]
    with pytest.raises(QueryError, match="explain type: cost"):
        mini.sql(f"EXPLAIN (COST, ANALYZE) {QUERY}")
