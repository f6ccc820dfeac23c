"""A preview runs a query on a few rows, at a bounded number of calls, and foretells its cost."""

from __future__ import annotations

import pytest

from relquery.connection import Connection, connect
from relquery.errors import ConfigError, QueryError
from relquery.prices.table import PRICES
from relquery.prompt import Answer, Finish
from relquery.sql.preview import drawn
from tests.sql.conftest import upper_or_length
from tests.sql.fakes import FakeBackend, Fields

FILTER = "SELECT n FROM t WHERE LLM('yes', text, id) = 'Yes'"


def answers(query: str, fields: Fields) -> str | Answer:
    if query.startswith("list"):
        return str(len(fields))
    if query == "long":
        return Answer("x", Finish.STOP, prompt_tokens=10, output_tokens=7)
    return upper_or_length(query, fields)


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend(answers)


@pytest.fixture
def con(backend: FakeBackend) -> Connection:
    con = connect(backend)
    con.sql(
        "CREATE TABLE t AS SELECT n, n % 7 AS k, 'x' || n AS text, n AS id FROM range(200) AS r(n)"
    )
    return con


def test_it_runs_on_some_rows_and_always_the_same(con: Connection, backend: FakeBackend) -> None:
    query = "SELECT n, LLM('up', text) AS u FROM t WHERE n < 150"
    first = con.preview(query)
    assert len(backend.asked) == 10
    assert [u for _, u in first.result] == [f"X{n}" for n, _ in first.result]
    assert [n for n, _ in first.result] == drawn(150, 10).tolist()
    assert con.preview(query).result.fetchall() == first.result.fetchall()
    assert len(backend.asked) == 10, "the ledger has the answers"
    assert "Ran on 10 of 150 rows." in repr(first)


def test_its_answers_are_not_paid_for_again(con: Connection, backend: FakeBackend) -> None:
    html = con.preview(FILTER)._repr_html_()
    assert html.count("<table>") == 2
    assert "For all rows:" in html
    assert con.sql(FILTER).report.ledger_hits == 10
    assert len(backend.asked) == 200


def test_a_table_with_fewer_rows_is_run_whole(con: Connection) -> None:
    found = con.preview("SELECT LLM('up', text) FROM t WHERE n < 3", rows=5)
    assert len(found.result) == 3
    assert "Ran on all 3 rows." in repr(found)


def test_later_stages_are_expected_by_the_share_that_passed(con: Connection) -> None:
    found = con.preview("SELECT LLM('long', n) FROM t WHERE LLM('yes', text) = 'Yes'", rows=20)
    passed = len(found.result)
    assert 0 < passed < 20
    filtered, projected = found.cost.calls
    assert (filtered.rows, filtered.counts) == (200, "exact")
    assert (projected.rows, projected.counts) == (passed * 10, "expected")
    assert any(f"filter 1: {passed} of 20 rows passed" in note for note in found.notes)


@pytest.mark.parametrize("pairs", [0, pytest.param(5, marks=pytest.mark.long)])
def test_a_filter_over_rows_that_an_outer_join_decides_is_told(
    con: Connection, backend: FakeBackend, pairs: int
) -> None:
    con.sql(f"CREATE TABLE u AS FROM t LIMIT {pairs}")
    query = (
        "SELECT t.n FROM t LEFT JOIN u ON t.id = u.id AND LLM('yes', t.text, u.text) = 'Yes' "
        "WHERE LLM('fine', t.text) = 'FINE'"
    )
    costs = [
        con.explain(query),
        con.explain(query, selectivity={"filter 2": 0.5}),
        con.preview(query).cost,
    ]
    stages = [stage.name for stage in con.sql(query).report.stages]
    for cost in costs:
        assert [call.stage for call in cost.calls] == stages == ["filter 1", "filter 2"]
        assert cost.calls[1].rows is None, "the join decides how many rows it has"


def test_if_no_row_passes_half_a_row_counts(con: Connection) -> None:
    found = con.preview("SELECT LLM('long', n) FROM t WHERE LLM('yes', text) = 'never'")
    assert found.cost.calls[1].rows == 10
    assert any("0 of 10 rows passed, counted as half a row" in note for note in found.notes)
    assert any("No answer of projection 1 was seen" in note for note in found.notes)


def test_a_group_is_asked_about_a_few_rows(con: Connection, backend: FakeBackend) -> None:
    found = con.preview("SELECT k, AI_AGG('list', text) FROM t GROUP BY k", rows=4)
    assert [int(count) for _, count in found.result] == [4] * 4
    assert len(backend.asked) == 4
    assert "Ran on 4 of 7 groups." in repr(found)
    assert "A group's answer is over at most 4 of its rows; the largest has 29." in repr(found)
    assert found.cost.calls[0].calls == 7
    of_answers = con.preview("SELECT count(LLM('up', text)) FROM t")
    assert of_answers.result.fetchall() == [(10,)]
    assert len(backend.asked) == 4 + 10


def test_of_a_join_a_few_pairs_are_asked(con: Connection, backend: FakeBackend) -> None:
    found = con.preview(
        "SELECT a.n FROM t a JOIN t b ON a.k = b.k AND LLM('yes', a.n, b.n) = 'Yes'"
    )
    assert 0 < len(backend.asked) <= 10
    assert "10 of 5,716 rows" in repr(found)


def test_calls_are_at_most_the_rows_for_each_call(con: Connection, backend: FakeBackend) -> None:
    for query in (
        "SELECT n FROM t WHERE LLM('yes', text) = 'Yes' AND LLM('len', text) = 3 LIMIT 5",
        "WITH c AS (SELECT LLM('low', text) AS u FROM t) SELECT LLM('len', u) FROM c",
    ):
        backend.asked.clear()
        con.preview(query, rows=6)
        assert 0 < len(backend.asked) <= 6 * query.count("LLM"), query


def test_costs_are_for_answers_as_long_as_those_of_the_preview(backend: FakeBackend) -> None:
    backend.name = next(iter(PRICES))
    price = PRICES[backend.name].output / 1e6
    with connect(backend, ledger=None) as con:
        con.sql("CREATE TABLE t AS SELECT n FROM range(200) AS r(n)")
        query = "SELECT LLM('long', n) FROM t"
        most, about = con.explain(query), con.preview(query).cost
    assert "USD at most" in most.columns()
    assert "USD about" in about.columns()
    most_usd, about_usd = (one.calls[0].usd or 0.0 for one in (most, about))
    assert most_usd - about_usd == pytest.approx(200 * (256 - 7) * price)


def test_only_a_query_with_calls_has_a_preview(con: Connection, backend: FakeBackend) -> None:
    for query, message in [
        ("SELECT 1", "makes no LLM calls"),
        ("CREATE TABLE u AS SELECT LLM('up', text) FROM t", "Give the SELECT inside"),
        ("INSERT INTO t(text) SELECT LLM('up', text) FROM t", "Give the SELECT inside"),
        ("EXPLAIN SELECT LLM('up', text) FROM t", "Give the SELECT inside"),
        ("SELECT 1; SELECT LLM('up', text) FROM t", "2 statements"),
    ]:
        with pytest.raises(QueryError, match=message):
            con.preview(query)
    for rows in (0, -1, 2.5, True, "10"):
        with pytest.raises(ConfigError, match="whole number, 1 or more"):
            con.preview(FILTER, rows=rows)  # type: ignore[arg-type]
    assert not backend.asked


def test_a_guard_does_not_double_its_calls(backend: FakeBackend) -> None:
    with connect(backend, guard=0.9) as con:
        con.sql("CREATE TABLE t AS SELECT n, 'x' || n % 3 AS text, n AS id FROM range(50) AS r(n)")
        con.preview("SELECT LLM('up', id, text) FROM t")
        assert len(backend.asked) == 10


def test_a_preview_retrieves_passages(con: Connection) -> None:
    con.sql("CREATE TABLE docs AS SELECT unnest(['red fish', 'blue fish']) AS t")
    preview = con.preview("SELECT LLM('up', passages('docs', 'red', 1)) FROM t", rows=2)
    assert [answer for (answer,) in preview.result.fetchall()] == ["RED FISH"] * 2
