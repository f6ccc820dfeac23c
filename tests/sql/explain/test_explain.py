"""EXPLAIN says before a query what its report says after it, as far as that can be known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from relquery.connection import Connection, connect
from relquery.errors import (
    PartialResultWarning,
    QueryError,
    RelqueryError,
)
from relquery.prompt import Prompt, Sampling
from relquery.sql.explain.explanation import SCHEMA, ExplainedCall
from tests.sql.conftest import opened, upper_or_length
from tests.sql.fakes import FakeBackend
from tests.sql.same import queries
from tests.sql.scripts import Script, scripts

GOOD = "LLM('yes', title) = 'Yes'"


class Seer(FakeBackend):
    """Tells all that a backend may tell before it is asked; a character is a token."""

    def one_pass(self, sampling: Sampling) -> bool:
        return sampling.max_tokens == 1 or (bool(sampling.labels) and not sampling.temperature)

    def prompt_tokens(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[int]:
        return [sum(len(str(span.content)) for span in prompt) for prompt in prompts]

    def predict(self, prompt_tokens: Sequence[int], sampling: Sampling, cached: int = 0) -> float:
        return sum(prompt_tokens) / 1000


@pytest.fixture(scope="module")
def con() -> Iterator[Connection]:
    with opened(Seer(upper_or_length)) as connection:
        yield connection


@pytest.fixture
def backend(con: Connection) -> Seer:
    assert isinstance(con.backend, Seer)
    con.backend.asked.clear()
    return con.backend


@scripts(__file__)
def test_statements(script: Script, con: Connection, backend: Seer) -> None:
    script.run(con, backend, SCHEMA=SCHEMA)


@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.long)])
def test_what_is_told_comes_true(is_long: bool, con: Connection, backend: Seer) -> None:
    for query in queries("explain/after_a_filter.sql", is_long=is_long, under="what comes"):
        told = explained(con, query.replace("{good}", GOOD))
        assert backend.asked == []
        stages = con.sql(query.replace("{good}", GOOD)).report.stages
        backend.asked.clear()
        con.database.execute("DROP TABLE IF EXISTS best; DELETE FROM reviews WHERE id < 10")
        assert [row["stage"] for row in told] == [stage.name for stage in stages]
        for row, stage in zip(told, stages, strict=True):
            for name in ("rows", "calls", "prompt_tokens"):
                if row[name] is not None:
                    assert row["counts"] in ("exact", "at most")
                    assert getattr(stage, name) <= row[name], query
                    assert row["counts"] == "at most" or getattr(stage, name) == row[name], query


def explained(con: Connection, query: str, **options: Any) -> list[dict[str, Any]]:
    """Its rows, by column."""
    rows: list[dict[str, Any]] = con.sql(f"EXPLAIN {query}", **options).arrow().to_pylist()
    return rows


def test_a_backend_that_tells_nothing_is_a_provider_and_tokens_are_estimated() -> None:
    with connect(FakeBackend(upper_or_length)) as con:
        con.register("t", {"a": ["x" * 100, "x" * 100, None]})
        told = explained(con, "SELECT LLM('up', a), LLM('up', labels := ['a']) FROM t")
    assert [row["answers"] for row in told] == [
        "by the provider, at most 256 tokens",
        "by the provider, one of 1 label",
    ]
    assert [(row["prompt_tokens"], row["counted_by"]) for row in told] == [
        (80, "characters"),
        (45, "characters"),
    ]
    assert {(row["seconds"], row["usd"], row["hint"]) for row in told} == {(None, None, None)}


def test_a_known_price_is_told_without_cache_and_with_longest_answers() -> None:
    for name, told in (("openai:my-model", 1), ("openai:gpt-4o-mini", 0), ("demo", 0)):
        with connect(FakeBackend(upper_or_length, name=name), ledger=None) as con:
            explanation = con.explain("SELECT LLM('up', repeat('x', 99), max_tokens := 10)")
        said = str(explanation)
        assert said.count("No price is known for 'my-model'. `relquery prices` lists ") == told
        (call,) = explanation.calls
        assert call.prompt_tokens is not None
        usd = (call.prompt_tokens * 0.15 + 10 * 0.60) / 1e6
        assert call.usd == (pytest.approx(usd) if "4o" in name else None)


def test_seconds_are_written_without_exponents() -> None:
    for seconds, shown in [(0.00123, "0.0012"), (9.94, "9.9"), (290.4, "290"), (1e6, "1,000,000")]:
        call = ExplainedCall("filter 1", "?", "a", 1, "tree", "decoded", None, seconds=seconds)
        assert call.cells()["seconds at most"] == shown


@pytest.mark.long
def test_prompts_that_would_be_refused_are_told() -> None:
    texts = ["short", "long " * 20_000, "longer " * 20_000]
    with connect("random:layers=1,hidden=64,heads=1", cache_tokens=2048) as con:
        con.register("t", {"a": texts})
        (row,) = explained(con, "SELECT LLM('up', a, max_tokens := 2) FROM t")
        with pytest.warns(PartialResultWarning):
            result = con.sql("SELECT LLM('up', a, max_tokens := 2) FROM t")
    assert (row["calls"], row["refused"]) == (3, 2)
    assert sum("tokens" in str(error.error) for error in result.errors if error.row) == 2


def test_the_ledger_is_read_and_not_written(con: Connection, backend: Seer) -> None:
    query = "SELECT LLM('up', genre) FROM films"
    both = "SELECT LLM('up', id) FROM films UNION ALL SELECT LLM('up', id) FROM films WHERE seen"
    with opened(backend, ledger=":memory:") as own:
        (new,) = explained(own, query)
        assert own.ledger is not None
        assert not own.ledger.has_answers
        own.sql(f"{query} WHERE genre != 'drama'")
        (known,) = explained(own, query)
        (sampled,) = explained(own, query, temperature=1.0)
        twice = explained(own, both)
        filtered = "SELECT LLM('len', genre) FROM films WHERE LLM('up', genre) > 'D'"
        partly = [(row["calls"], row["counts"]) for row in explained(own, filtered)]
        own.sql(query)
        wholly = [(row["rows"], row["calls"], row["counts"]) for row in explained(own, filtered)]
        asked = len(backend.asked)
        own.sql(filtered)
        asked = len(backend.asked) - asked
    assert partly == [(1, "exact"), (3, "at most")]
    assert wholly == [(6, 0, "exact"), (6, 3, "at most")]
    assert asked == 2
    assert (new["calls"], new["from_ledger"]) == (3, 0)
    assert (known["calls"], known["from_ledger"], known["rows"]) == (1, 2, 6)
    assert (sampled["calls"], sampled["from_ledger"]) == (3, 0)
    assert [(row["calls"], row["from_ledger"]) for row in twice] == [(6, 0), (0, 3)]
    assert {row["counts"] for row in twice} == {"exact"}
    assert [row["counts"] for row in explained(con, both)] == ["exact", "exact"]


def test_a_wrong_query_has_the_error_that_it_has_when_run(con: Connection, backend: Seer) -> None:
    for query in (
        "SELECT LLM('up', titel) FROM films",
        "SELECT LLM('up', id) FROM flims",
        "SELECT LLM('up', id, label := 'x') FROM films",
        "SELECT LLM('up') FROM films WHERE LLM('up', id)",
        "SELECT id FROM films LEFT JOIN reviews r ON LLM('up', r.text) = 'x'",
        "SELECT v FROM (SELECT LLM('up', title) AS u FROM films)",
        "DELETE FROM films WHERE LLM('up', titel) = 'DUNE'",
        "SELECT LLM('up', CAST(title AS INTEGER)) FROM films",
        "SELECT LLM('up', nosuch) FROM (SELECT LLM('up', id) AS u FROM films) q",
    ):
        with pytest.raises(RelqueryError) as run:
            con.sql(query)
        backend.asked.clear()
        with pytest.raises(type(run.value)) as caught:
            con.sql(f"EXPLAIN {query}")
        assert str(caught.value) == str(run.value)
        assert backend.asked == [], query


def test_a_caret_stands_under_the_users_text(con: Connection) -> None:
    with pytest.raises(QueryError) as caught:
        con.sql("EXPLAIN SELECT\n  LLM('up', id FROM films")
    *_, shown, caret = str(caught.value).split("\n")
    assert shown.strip() == "LLM('up', id FROM films"
    assert shown[caret.index("^") :].startswith("FROM")


def test_nothing_stays_behind_and_nothing_is_created(con: Connection) -> None:
    tables = con.tables()
    explained(con, f"CREATE TABLE best AS SELECT id FROM films WHERE {GOOD}")
    with suppress(QueryError):
        explained(con, "SELECT LLM('up', CAST(title AS INTEGER)) FROM films")
    names = con.database.fetch("SELECT table_name FROM duckdb_tables() ORDER BY 1").column(0)
    assert con.tables() == tables
    assert names.to_pylist() == sorted(tables)


def test_a_result_prints_as_the_explanation_does_with_all_headings(con: Connection) -> None:
    query = f"SELECT LLM('up', id) FROM films WHERE {GOOD}"
    for option, cost in (("", False), ("(COST) ", True)):
        result, explanation = con.sql(f"EXPLAIN {option}{query}"), con.explain(query, cost=cost)
        assert repr(result) == str(explanation)
        assert result._repr_html_() == explanation._repr_html_()


def test_of_many_fields_the_first_are_named(con: Connection) -> None:
    wide = ", ".join(f"1 AS c{at}" for at in range(1, 201))
    query = f"SELECT LLM('up', *) FROM (SELECT {wide})"
    assert explained(con, query)[0]["fields"] == "c1, c2, c3 and 197 more"
