"""Given which share of the rows passes, EXPLAIN says what later stages are expected to ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from relquery.connection import Connection, connect
from relquery.errors import ConfigError
from relquery.sql.explain.rows import Count, Selectivities
from tests.sql.explain.readers import Reader

TWO = "SELECT LLM('c', b) FROM t WHERE LLM('a', a) = 'Yes'"


def of_fives(query: str, fields: Any) -> str:
    return "Yes" if int(fields["a"][-3:]) % 5 == 0 else "No"


@pytest.fixture(scope="module")
def con() -> Iterator[Connection]:
    """A table in which a has 200 values, b has 50 and c has 4."""
    with connect(Reader(of_fives)) as con:
        con.sql(
            "CREATE TABLE t AS SELECT format('text {:03}', i) AS a, "
            "format('word {:03}', i % 50) AS b, 'kind ' || i % 4 AS c FROM range(200) r(i)"
        )
        yield con


def told(con: Connection, query: str, selectivity: Any = 0.3) -> list[tuple[Any, ...]]:
    calls = con.explain(query, selectivity=selectivity).calls
    assert isinstance(con.backend, Reader)
    assert con.backend.asked == []
    return [(one.stage, one.rows, one.calls, one.counts) for one in calls]


def test_a_share_of_the_rows_passes_a_filter(con: Connection) -> None:
    first, second = told(con, TWO)
    assert first == ("filter 1", 200, 200, "exact")
    assert second[:2] == ("projection 1", 60)
    assert 30 <= second[2] <= 45  # of 50 inputs, 60 random rows of 200 have about 36
    assert second[3] == "expected"
    assert told(con, TWO, None)[1] == ("projection 1", 200, 50, "at most")
    few, everything = (
        con.explain(TWO, selectivity=one).calls[1].prompt_tokens for one in (0.3, None)
    )
    assert few is not None
    assert everything is not None
    assert few * 50 == everything * second[2]


def test_equal_inputs_have_equal_answers(con: Connection) -> None:
    query = "SELECT LLM('d', b) FROM t WHERE LLM('a', c) = 'Yes'"
    first, (_, rows, calls, _) = told(con, query, 0.5)
    assert first == ("filter 1", 200, 4, "exact")
    assert rows == 100
    assert calls in (25, 50)  # two of four values of c pass, with half of b's values or all


def test_a_share_may_be_given_by_stage(con: Connection) -> None:
    query = f"{TWO} AND LLM('b', b) = 'Yes'"
    inputs = 4  # rows that have the same input of filter 1, and so the same answer
    first, second, last = told(con, query, {"filter 1": 0.5, "filter 2": 0.1})
    assert (first[:2], second[0], last[0]) == (("filter 1", 200), "filter 2", "projection 1")
    assert second[1] == pytest.approx(100, abs=inputs)
    assert last[1] == round(0.1 * second[1])
    # A stage that is not named keeps its rows, and what follows is a bound.
    first, second, last = told(con, query, {"filter 1": 0.5})
    assert (first[1::2], second[3], last[3]) == ((200, "expected"), "expected", "at most")
    assert second[1] == last[1] == pytest.approx(100, abs=inputs)
    with pytest.raises(ConfigError, match=r"(?s)'filter 2'.*filter 1.*projection 1"):
        con.explain(TWO, selectivity={"filter 2": 0.5})


def test_each_filter_has_the_share_whatever_is_in_it(con: Connection) -> None:
    for condition, share, stages in [
        ("NOT LLM('a', a) = 'Yes'", 0.1, [(200, "exact"), (20, "expected")]),
        ("LLM('a', a) = 'Yes' OR a = 'text 007'", 0.3, [(199, "exact"), (60, "expected")]),
        # Which rows another answer decides about is not known.
        ("CASE WHEN LLM('a', a) = 'Yes' THEN LLM('b', a) = 'Yes' ELSE false END", 0.3,
         [(200, "exact"), (200, "at most"), (60, "expected")]),
    ]:  # fmt: skip
        found = told(con, f"SELECT LLM('c', a) FROM t WHERE {condition}", share)
        assert [one[1::2] for one in found] == stages


def test_a_limit_stops_the_filter_as_early_as_the_run_does(con: Connection) -> None:
    query = "SELECT LLM('c', a) FROM t WHERE LLM('a', a) = 'Yes' LIMIT 8"
    first, second = con.explain(query, selectivity=0.2).calls
    with connect(Reader(of_fives)) as other:
        other.register("t", con.sql("FROM t").arrow())
        stages = other.sql(query).report.stages
    assert first.counts == "expected"
    assert first.rows == pytest.approx(stages[0].rows, rel=0.25)
    assert (second.rows, stages[1].rows) == (8, 8)


def test_calls_after_answers_are_expected(con: Connection) -> None:
    query = "SELECT CASE WHEN LLM('a', a) = 'Yes' THEN LLM('c', a) END FROM t"
    assert [one[1::2] for one in told(con, query)] == [(200, "exact"), (200, "at most")]
    stages = told(con, "SELECT LLM('c', b) FROM t ORDER BY LLM('a', a) LIMIT 20 OFFSET 5")
    assert [one[1::2] for one in stages] == [(200, "exact"), (20, "expected")]
    stages = told(con, "SELECT LLM('c', LLM('b', b)) FROM t WHERE LLM('a', a) = 'Yes'")
    assert [one[3] for one in stages] == ["exact", "expected", "at most"]
    # What an earlier stage is expected to ask is not asked again.
    query = "SELECT LLM('a', a) FROM t UNION ALL SELECT LLM('a', a) FROM t WHERE LLM('b', a) = 'Y'"
    assert [one[2] for one in told(con, query)] == [200, 200, 0]


def test_rows_that_are_expected_pass_through_subqueries(con: Connection) -> None:
    query = (
        "SELECT LLM('c', b) FROM (SELECT DISTINCT b FROM t WHERE LLM('a', a) = 'Yes') WHERE b > 'a'"
    )
    _, second = told(con, query)
    assert second[1] == second[2]
    assert 30 <= second[1] <= 45
    assert second[3] == "expected"


def test_a_share_is_a_number_from_0_to_1(con: Connection) -> None:
    for selectivity in (-0.1, 1.5, "much", True, {"filter 1": 2}):
        with pytest.raises(ConfigError, match="selectivity"):
            con.explain(TWO, selectivity=selectivity)  # type: ignore[arg-type]


def test_a_measured_share_goes_before_a_given_one() -> None:
    place, count = (0, 0), Count(30, 12)
    shares = Selectivities(every=0.9, measured={place: count})
    assert shares.passing(place, "filter 1", [], 100) == 40
    assert shares.passing(place, "filter 1", [Count(10, 2)], 40) == 18  # 20 of 50 in all
    assert shares.passing((1, 0), "filter 2", [], 10) == 9
    assert Selectivities().passing(place, "filter 1", [], 7) == 7
