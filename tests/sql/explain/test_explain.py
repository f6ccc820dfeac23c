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
from relquery.sql.explain.effort import Effort
from relquery.sql.explain.explanation import SCHEMA, ExplainedCall
from tests.sql.conftest import SETUP, upper_or_length
from tests.sql.fakes import FakeBackend

GOOD = "LLM('yes', title) = 'Yes'"

# What comes after a filter, read through subqueries: rows that a filter drops may matter there.
AFTER_A_FILTER = [
    f"WITH g AS (SELECT * FROM films WHERE {GOOD}) SELECT LLM('up', genre) FROM g",
    f"WITH g AS (SELECT * FROM films WHERE {GOOD}) SELECT LLM('up', genre) FROM g WHERE seen",
    f"WITH g AS (SELECT * FROM films WHERE {GOOD}) SELECT LLM('up', genre) FROM g LIMIT 1",
    f"WITH g AS (SELECT * FROM films WHERE {GOOD}), h AS (SELECT DISTINCT genre FROM g)"
    " SELECT LLM('up', genre) FROM h",
    f"SELECT LLM('up', genre) FROM (SELECT * FROM films WHERE {GOOD} ORDER BY id LIMIT 2)",
    f"SELECT LLM('up', id) FROM (SELECT * FROM films WHERE {GOOD}) WHERE id % 2 = 1",
    f"SELECT LLM('up', n) FROM (SELECT count(*) AS n, genre FROM films WHERE {GOOD} GROUP BY ALL)",
    f"SELECT LLM('up', n) FROM (SELECT count(*) AS n FROM films WHERE {GOOD})",
    f"SELECT LLM('up', g) FROM (SELECT genre AS g FROM films WHERE {GOOD} GROUP BY g"
    " HAVING count(*) < 2)",
    f"SELECT LLM('up', g) FROM (SELECT DISTINCT genre AS g FROM films WHERE {GOOD})",
    f"SELECT LLM('up', r) FROM (SELECT rank() OVER (ORDER BY id) AS r FROM films WHERE {GOOD})",
    f"SELECT LLM('up', g.id) FROM films JOIN (SELECT * FROM films WHERE {GOOD}) g USING (id)",
    f"SELECT LLM('up', id) FROM films ANTI JOIN (SELECT id FROM films WHERE {GOOD}) USING (id)",
    f"SELECT LLM('up', id) FROM films WHERE id NOT IN (SELECT id FROM films WHERE {GOOD})",
    f"SELECT LLM('up', id) FROM films WHERE id > (SELECT max(id) FROM films WHERE {GOOD}) - 3",
    "SELECT LLM('up', (SELECT id FROM films WHERE LLM('up', title) = 'DUNE')), id FROM films",
    "SELECT LLM('up', n) FROM (SELECT CAST(title[2:] AS INTEGER) AS n FROM (SELECT chr(107) || 1"
    " AS title UNION SELECT genre FROM films) WHERE LLM('up', title) = 'K1')",
    f"SELECT LLM('up', id) FROM (SELECT id FROM films WHERE {GOOD} UNION SELECT 9)",
    f"SELECT LLM('Say hello') FROM films WHERE {GOOD}",
    f"SELECT LLM('Say hello') FROM films f JOIN (SELECT id FROM films WHERE {GOOD}) USING (id)",
    f"SELECT LLM('yes', title) FROM (SELECT title FROM films WHERE {GOOD})",
    f"SELECT LLM('up', x) FROM (SELECT id FROM films WHERE {GOOD}) AS g(x)",
    f"SELECT LLM('up', g) FROM (SELECT id, genre FROM films WHERE {GOOD}) AS g",
    f"SELECT g.*, LLM('up', g.*) FROM (SELECT id, genre FROM films WHERE {GOOD}) AS g",
    "SELECT LLM('up', t), CASE WHEN t > 'B' THEN LLM('len', id) END FROM"
    " (SELECT id, LLM('up', title) AS t FROM films)",
    "SELECT LLM('up', length(LLM('up', title))), LLM('len', LLM('up', title) || id) FROM films",
    "SELECT LLM('up', LLM('len', id) + 1) FROM films WHERE LLM('len', LLM('up', genre)) > 5",
    "SELECT LLM('up', n) FROM (SELECT LLM('up', genre) AS g, count(*) AS n FROM films GROUP BY g)",
    "SELECT LLM('up', n) FROM (SELECT genre, max(LLM('up', id)) AS n FROM films GROUP BY genre)",
    "SELECT LLM('up', n) FROM (SELECT genre, count(*) AS n FROM films GROUP BY genre"
    " HAVING max(LLM('up', id)) > '3')",
    "SELECT LLM('up', n) FROM (SELECT unnest(tags) AS n, LLM('up', id) FROM films)",
    "SELECT LLM('up', title) FROM films UNION ALL SELECT LLM('up', title) FROM films WHERE seen",
    f"CREATE TABLE best AS SELECT LLM('up', title) AS t FROM films WHERE {GOOD}",
    f"INSERT INTO reviews SELECT id, id, LLM('up', title) FROM films WHERE {GOOD}",
]  # fmt: skip


class Seer(FakeBackend):
    """Tells all that a backend may tell before it is asked; a character is a token."""

    def one_pass(self, sampling: Sampling) -> bool:
        return sampling.max_tokens == 1 or (bool(sampling.labels) and not sampling.temperature)

    def prompt_tokens(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[int]:
        return [sum(len(str(span.content)) for span in prompt) for prompt in prompts]

    def predict(self, prompt_tokens: Sequence[int], sampling: Sampling, cached: int = 0) -> float:
        return sum(prompt_tokens) / 1000


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Connection, Seer]]:
    backend = Seer(upper_or_length)
    with connect(backend, ledger=None) as con:
        con.database.execute(SETUP)
        yield con, backend


@pytest.fixture
def backend(shared: tuple[Connection, Seer]) -> Seer:
    shared[1].asked.clear()
    return shared[1]


@pytest.fixture
def con(shared: tuple[Connection, Seer], backend: Seer) -> Connection:
    return shared[0]


def explained(con: Connection, query: str, **options: Any) -> list[dict[str, Any]]:
    """Its rows, by column."""
    rows: list[dict[str, Any]] = con.sql(f"EXPLAIN {query}", **options).arrow().to_pylist()
    return rows


def test_a_filter_and_a_projection_are_told_in_the_order_in_which_they_run(con: Connection) -> None:
    query = f"SELECT LLM('up', title, genre) FROM films WHERE {GOOD} AND stars > 3"
    same = {
        "rows": 4, "calls": 3, "from_ledger": 0, "counted_by": "tokenizer", "hit_rate": None,
        "refused": 0, "order": "tree", "usd": None, "note": None,
    }  # fmt: skip
    first = {
        "stage": "filter 1", "prompt": "yes", "fields": "title", "counts": "exact",
        "prompt_tokens": 698, "answers": "decoded until it decides, at most 256 tokens",
        "seconds": 0.698, "hint": "add labels := ['Yes', 'No']",
    }  # fmt: skip
    second = {
        "stage": "projection 1", "prompt": "up", "fields": "title, genre", "counts": "at most",
        "prompt_tokens": 752, "answers": "decoded, at most 256 tokens", "seconds": 0.752,
        "hint": None,
    }  # fmt: skip
    assert explained(con, query) == [same | first, same | second]


@pytest.mark.parametrize(
    "query",
    [*AFTER_A_FILTER[::3], *(pytest.param(query, marks=pytest.mark.long)
                             for at, query in enumerate(AFTER_A_FILTER) if at % 3)],
)  # fmt: skip
def test_what_is_told_comes_true(query: str, con: Connection, backend: Seer) -> None:
    told = explained(con, query)
    assert backend.asked == []
    stages = con.sql(query).report.stages
    con.database.execute("DROP TABLE IF EXISTS best; DELETE FROM reviews WHERE id < 10")
    assert [row["stage"] for row in told] == [stage.name for stage in stages]
    for row, stage in zip(told, stages, strict=True):
        for name in ("rows", "calls", "prompt_tokens"):
            if row[name] is not None:
                assert row["counts"] in ("exact", "at most")
                assert getattr(stage, name) <= row[name]
                assert row["counts"] == "at most" or getattr(stage, name) == row[name]


def test_more_than_one_filter_and_a_nested_call_are_told_at_most(con: Connection) -> None:
    query = f"SELECT LLM('len', LLM('up', title)) FROM films WHERE {GOOD} AND LLM('up', id) > '2'"
    told = explained(con, query)
    keys = ("stage", "rows", "calls", "counts", "prompt_tokens")
    assert [tuple(row[key] for key in keys) for row in told] == [
        ("filter 1", 6, 5, "exact", 1158),
        ("filter 2", 6, 6, "at most", 1332),
        ("projection 1", 6, 5, "at most", 1153),
        ("projection 2", 6, 5, "at most", None),  # as many as the inner call has inputs
    ]
    assert [row["fields"] for row in told] == ["title", "id", "title", "llm_2"]


def test_what_cannot_be_known_before_the_run_is_null(con: Connection) -> None:
    query = f"SELECT LLM('up', id) FROM films ANTI JOIN (FROM films WHERE {GOOD}) USING (id)"
    last = explained(con, query)[-1]
    unknown = ("rows", "calls", "from_ledger", "counts", "prompt_tokens", "counted_by", "seconds")
    assert {last[name] for name in unknown} == {None}
    assert last["stage"] == "projection 1"


def test_how_answers_come_about_is_for_the_backend_to_say(con: Connection) -> None:
    options = {
        "labels := ['Yes', 'No']": "one forward pass, 2 labels",
        "labels := ['Yes', 'No'], temperature := 1": "decoded, one of 2 labels",
        "max_tokens := 1": "one forward pass, 1 token",
        "max_tokens := 8": "decoded, at most 8 tokens",
        "output := 'INTEGER', max_tokens := 8, retry := true": "decoded, at most 8 tokens, "
        "and once more if invalid",
    }
    calls = ", ".join(f"LLM('up', title, {one})" for one in options)
    told = explained(con, f"SELECT {calls} FROM films")
    assert [row["answers"] for row in told] == list(options.values())


def test_a_backend_that_tells_nothing_is_a_provider_and_tokens_are_estimated() -> None:
    with connect(FakeBackend(upper_or_length)) as con:
        con.register("t", {"a": ["x" * 100, "x" * 100, None]})
        told = explained(con, "SELECT LLM('up', a), LLM('up', labels := ['a']) FROM t")
    assert [row["answers"] for row in told] == [
        "by the provider, at most 256 tokens",
        "by the provider, one of 1 label",
    ]
    assert [(row["prompt_tokens"], row["counted_by"]) for row in told] == [
        (136, "characters"),
        (45, "characters"),
    ]
    assert {(row["seconds"], row["usd"], row["hint"]) for row in told} == {(None, None, None)}


def test_a_known_price_is_told_without_cache_and_with_longest_answers() -> None:
    for name, told in (("openai:my-model", 1), ("openai:gpt-4o-mini", 0), ("demo", 0)):
        with connect(FakeBackend(upper_or_length, name=name), ledger=None) as con:
            explanation = con.explain("SELECT LLM('up', repeat('x', 99), max_tokens := 10)")
        said = str(explanation)
        assert said.count("No price is known for 'my-model'. Known prices: gpt-6.1-sol, ") == told
        effort = explanation.calls[0].effort
        assert effort is not None
        usd = (effort.prompt_tokens * 0.15 + 10 * 0.60) / 1e6
        assert effort.usd == (pytest.approx(usd) if "4o" in name else None)


def test_seconds_are_written_without_exponents() -> None:
    for seconds, shown in [(0.00123, "0.0012"), (9.94, "9.9"), (290.4, "290"), (1e6, "1,000,000")]:
        effort = Effort(10, "tokenizer", 0, seconds, None)
        call = ExplainedCall(
            "filter 1", "?", "a", 1, 1, 0, "exact", "tree", "decoded", None, effort
        )  # fmt: skip
        assert call.cells()["seconds at most"] == shown


def test_of_very_many_prompts_a_sample_is_counted(con: Connection, backend: Seer) -> None:
    (row,) = explained(con, "SELECT LLM('up', i + 10000) FROM range(10000) r(i)")
    (stage,) = con.sql("SELECT LLM('up', i + 10000) FROM range(10000) r(i)").report.stages
    assert (row["calls"], row["prompt_tokens"], row["counted_by"]) == (
        10_000,
        stage.prompt_tokens,  # as all are of one length
        "sample",
    )


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
    with connect(backend) as own:
        own.database.execute(SETUP)
        (new,) = explained(own, query)
        assert own.ledger is not None
        assert not own.ledger.has_answers
        own.sql(f"{query} WHERE genre != 'drama'")
        (known,) = explained(own, query)
        (sampled,) = explained(own, query, temperature=1.0)
        twice = explained(own, both)
    assert (new["calls"], new["from_ledger"]) == (3, 0)
    assert (known["calls"], known["from_ledger"], known["rows"]) == (1, 2, 6)
    assert (sampled["calls"], sampled["from_ledger"]) == (3, 0)
    assert [row["counts"] for row in twice] == ["exact", "at most"]  # what an earlier stage asks
    assert [row["counts"] for row in explained(con, both)] == ["exact", "exact"]


def test_labels_are_suggested_where_answers_are_only_compared_with_texts(con: Connection) -> None:
    for condition, hint in [
        ("LLM('?', id) = 'Yes'", "add labels := ['Yes', 'No']"),
        ("'FALSE' <> (LLM('?', id))", "add labels := ['FALSE', 'TRUE']"),
        ("LLM('?', id) IN ('a', 'b')", "add labels := ['a', 'b']"),
        ("LLM('?', id) = 'it''s'", "add labels := ['it''s', ...]"),
        ("LLM('?', id) = title", None),
        ("LLM('?', id) IN (SELECT title FROM films)", None),
        ("LLM('?', id) > 'a'", None),
        ("LLM('?', id) = 3", None),
        ("LLM('?', id, temperature := 1) = 'Yes'", None),
        ("LLM('?', id, labels := ['Yes', 'No']) = 'Yes'", None),
    ]:
        told = explained(con, f"SELECT id FROM films WHERE {condition}")
        assert told[0]["hint"] == hint, condition
    counted = "count(*) FILTER (WHERE LLM('?', id) = '{}')"
    for items, where, hint in [
        ("CASE LLM('?', id) WHEN 'a' THEN 1 END", "LLM('?', id) != 'b'", None),
        ("LLM('?', id)", "LLM('?', id) = 'Yes'", None),
        ("LLM('!', LLM('?', id))", "LLM('?', id) = 'Yes'", None),
        (f"{counted.format('a')}, {counted.format('b')}", "true", "add labels := ['a', 'b']"),
    ]:
        told = explained(con, f"SELECT {items} FROM films WHERE {where}")
        assert told[0]["hint"] == hint, items


def test_a_wrong_query_has_the_error_that_it_has_when_run(con: Connection, backend: Seer) -> None:
    for query in (
        "SELECT LLM('up', titel) FROM films",
        "SELECT LLM('up', id) FROM flims",
        "SELECT LLM('up', id, label := 'x') FROM films",
        "SELECT LLM('up') FROM films WHERE LLM('up', id)",
        "SELECT id FROM films LEFT JOIN reviews r ON LLM('up', r.text) = 'x'",
        "SELECT v FROM (SELECT LLM('up', title) AS u FROM films)",
        "DELETE FROM films WHERE LLM('up', title) = 'DUNE'",
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


def test_explain_is_for_one_statement_with_calls(con: Connection) -> None:
    for begin in ("explain ", " -- why\nEXPLAIN\n", "/* why */ EXPLAIN/* */"):
        assert con.sql(f"{begin}SELECT LLM('up', id) FROM films").arrow().schema == SCHEMA
    for query in ("EXPLAIN SELECT 'LLM(' FROM films", "EXPLAIN ANALYZE SELECT 1 AS llm"):
        assert con.sql(query).columns == ["explain_key", "explain_value"]  # DuckDB's
    for first, message in [
        ("SELECT 1", "stands among 2 statements"),
        ("SELECT LLM('up', id) FROM films", "one at a time"),
    ]:
        with pytest.raises(QueryError, match=message):
            con.sql(f"EXPLAIN {first}; DROP TABLE films")
    assert "films" in con.tables()


def test_nothing_stays_behind_and_nothing_is_created(con: Connection) -> None:
    tables = con.tables()
    explained(con, f"CREATE TABLE best AS SELECT id FROM films WHERE {GOOD}")
    with suppress(QueryError):
        explained(con, "SELECT LLM('up', CAST(title AS INTEGER)) FROM films")
    names = con.database.fetch("SELECT table_name FROM duckdb_tables() ORDER BY 1").column(0)
    assert con.tables() == tables
    assert names.to_pylist() == sorted(tables)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        # A limit over a filter bounds what follows; a cut without calls is exact.
        (f"SELECT LLM('up', title) FROM films WHERE {GOOD} ORDER BY id LIMIT 2",
         [("yes", 6, 5, "at most"), ("up", 2, 2, "at most")]),
        ("SELECT DISTINCT ON (genre) LLM('up', id) FROM films WHERE seen ORDER BY genre, id",
         [("up", 3, 3, "exact")]),
        # Calls that decide which rows are returned come first, and are bounds for the others.
        ("SELECT LLM('up', id) FROM films ORDER BY LLM('len', title) LIMIT 2",
         [("len", 6, 5, "exact"), ("up", 2, 2, "at most")]),
        ("SELECT CASE WHEN LLM('yes', id) = 'Yes' THEN LLM('up', id) END FROM films",
         [("yes", 6, 6, "exact"), ("up", 6, 6, "at most")]),
    ],
)  # fmt: skip
def test_what_depends_on_answers_is_told_at_most(
    query: str, told: list[tuple[Any, ...]], con: Connection
) -> None:
    keys = ("prompt", "rows", "calls", "counts")
    assert [tuple(row[key] for key in keys) for row in explained(con, query)] == told


def test_a_limit_over_rows_that_answers_choose_is_a_bound(con: Connection) -> None:
    for inner in (
        "SELECT id, title FROM films QUALIFY AI_RANK('old', title) <= 4",
        "SELECT id, title FROM films ORDER BY AI_RANK('old', title), id LIMIT 3",
    ):
        query = f"SELECT LLM('up', id) FROM ({inner}) ORDER BY LLM('yes', title), id LIMIT 2"
        assert [each["rows"] for each in explained(con, query)][-1] == 2


def test_a_filter_over_a_pivot_of_answers_is_told(con: Connection) -> None:
    query = (
        "SELECT id FROM (SELECT * FROM (SELECT id, genre, LLM('up', title) AS a FROM films) "
        "PIVOT (max(a) FOR genre IN ('drama', 'comedy'))) WHERE LLM('yes', drama) = 'Yes'"
    )
    assert [each["stage"] for each in explained(con, query)] == ["projection 1", "filter 1"]
