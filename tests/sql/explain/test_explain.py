"""EXPLAIN says before a query what its report says after it, as far as that can be known."""

from __future__ import annotations

from collections.abc import Sequence
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
from tests.sql.test_queries import ORDERED

GOOD = "LLM('yes', title) = 'Yes'"

SOME_PLAIN = [query for query in ORDERED if "LLM(" in query][::14]

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
        return [sum(len(span.content) for span in prompt) for prompt in prompts]

    def predict(self, prompt_tokens: Sequence[int], sampling: Sampling, cached: int = 0) -> float:
        return sum(prompt_tokens) / 1000


@pytest.fixture
def backend() -> Seer:
    return Seer(upper_or_length)


def explained(con: Connection, query: str, **options: Any) -> list[dict[str, Any]]:
    """Its rows, by column."""
    rows: list[dict[str, Any]] = con.sql(f"EXPLAIN {query}", **options).arrow().to_pylist()
    return rows


def test_a_filter_and_a_projection_are_told_in_the_order_in_which_they_run(con: Connection):
    query = f"SELECT LLM('up', title, genre) FROM films WHERE {GOOD} AND stars > 3"
    assert explained(con, query) == [
        {
            "stage": "filter 1",
            "prompt": "yes",
            "fields": "title",
            "rows": 4,
            "calls": 3,
            "from_ledger": 0,
            "counts": "exact",
            "prompt_tokens": 698,
            "counted_by": "tokenizer",
            "hit_rate": None,
            "refused": 0,
            "order": "tree",
            "answers": "decoded until it decides, at most 256 tokens",
            "seconds": 0.698,
            "usd": None,
            "hint": "add labels := ['Yes', 'No']",
            "note": None,
        },
        {
            "stage": "projection 1",
            "prompt": "up",
            "fields": "title, genre",
            "rows": 4,
            "calls": 3,
            "from_ledger": 0,
            "counts": "at most",
            "prompt_tokens": 752,
            "counted_by": "tokenizer",
            "hit_rate": None,
            "refused": 0,
            "order": "tree",
            "answers": "decoded, at most 256 tokens",
            "seconds": 0.752,
            "usd": None,
            "hint": None,
            "note": None,
        },
    ]


@pytest.mark.parametrize("query", [*SOME_PLAIN, *AFTER_A_FILTER])
def test_what_is_told_comes_true(query: str, backend: Seer):
    with connect(backend) as con:
        con.database.execute(SETUP)
        told = explained(con, query)
        assert backend.asked == []
        stages = con.sql(query).report.stages
    assert [row["stage"] for row in told] == [stage.name for stage in stages]
    for row, stage in zip(told, stages, strict=True):
        for name in ("rows", "calls", "prompt_tokens"):
            if row[name] is not None:
                assert row["counts"] in ("exact", "at most")
                assert getattr(stage, name) <= row[name]
                assert row["counts"] == "at most" or getattr(stage, name) == row[name]


def test_more_than_one_filter_and_a_nested_call_are_told_at_most(con: Connection):
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


def test_what_cannot_be_known_before_the_run_is_null(con: Connection):
    query = f"SELECT LLM('up', id) FROM films ANTI JOIN (FROM films WHERE {GOOD}) USING (id)"
    last = explained(con, query)[-1]
    unknown = ("rows", "calls", "from_ledger", "counts", "prompt_tokens", "counted_by", "seconds")
    assert {last[name] for name in unknown} == {None}
    assert last["stage"] == "projection 1"


@pytest.mark.parametrize(
    ("options", "answers"),
    [
        ("labels := ['Yes', 'No']", "one forward pass, 2 labels"),
        ("labels := ['Yes', 'No'], temperature := 1", "decoded, one of 2 labels"),
        ("max_tokens := 1", "one forward pass, 1 token"),
        ("max_tokens := 8", "decoded, at most 8 tokens"),
    ],
)
def test_how_answers_come_about_is_for_the_backend_to_say(options, answers, con: Connection):
    (row,) = explained(con, f"SELECT LLM('up', title, {options}) FROM films")
    assert row["answers"] == answers


def test_a_backend_that_tells_nothing_is_a_provider_and_tokens_are_estimated():
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


def test_a_model_with_a_price_is_told_in_usd_without_cache_and_with_longest_answers():
    with connect(FakeBackend(upper_or_length, name="openai:gpt-4o-mini")) as con:
        con.register("t", {"a": ["x" * 100]})
        (row,) = explained(con, "SELECT LLM('up', a, max_tokens := 10) FROM t")
    assert row["usd"] == pytest.approx((row["prompt_tokens"] * 0.15 + 10 * 0.60) / 1e6)


def test_that_a_price_is_not_known_is_said_with_those_that_are():
    for name, told in (("openai:my-model", 1), ("openai:gpt-4o-mini", 0), ("demo", 0)):
        with connect(FakeBackend(upper_or_length, name=name)) as con:
            con.register("t", {"a": ["x"]})
            said = str(con.explain("SELECT LLM('up', a, max_tokens := 10) FROM t"))
        assert said.count("No price is known for 'my-model'. Known prices: gpt-6.1-sol, ") == told


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.00123, "0.0012"), (9.94, "9.9"), (290.4, "290"), (1e6, "1,000,000")]
)
def test_seconds_are_written_without_exponents(seconds, shown):
    call = ExplainedCall(
        "filter 1", "?", "a", 1, 1, 0, "exact", "tree", "decoded", None,
        Effort(10, "tokens", 0, seconds, None),
    )  # fmt: skip
    assert call.cells()["seconds at most"] == shown


def test_of_very_many_prompts_a_sample_is_counted(con: Connection, backend: Seer):
    (row,) = explained(con, "SELECT LLM('up', i + 10000) FROM range(10000) r(i)")
    (stage,) = con.sql("SELECT LLM('up', i + 10000) FROM range(10000) r(i)").report.stages
    assert (row["calls"], row["prompt_tokens"], row["counted_by"]) == (
        10_000,
        stage.prompt_tokens,  # as all are of one length
        "sample",
    )


def test_prompts_that_would_be_refused_are_told():
    texts = ["short", "long " * 20_000, "longer " * 20_000]
    with connect("random:layers=1,hidden=64,heads=1", cache_tokens=2048) as con:
        con.register("t", {"a": texts})
        (row,) = explained(con, "SELECT LLM('up', a, max_tokens := 2) FROM t")
        with pytest.warns(PartialResultWarning):
            result = con.sql("SELECT LLM('up', a, max_tokens := 2) FROM t")
    assert (row["calls"], row["refused"]) == (3, 2)
    assert sum("tokens" in error.error for error in result.errors if error.row) == 2


def test_the_ledger_is_read_and_not_written(backend: Seer):
    with connect(backend) as con:
        con.database.execute(SETUP)
        query = "SELECT LLM('up', genre) FROM films"
        (new,) = explained(con, query)
        assert con.ledger is not None
        assert not con.ledger.has_answers
        con.sql(f"{query} WHERE genre != 'drama'")
        (known,) = explained(con, query)
        (sampled,) = explained(con, query, temperature=1.0)
    assert (new["calls"], new["from_ledger"]) == (3, 0)
    assert (known["calls"], known["from_ledger"], known["rows"]) == (1, 2, 6)
    assert (sampled["calls"], sampled["from_ledger"]) == (3, 0)


def test_what_an_earlier_stage_asks_may_come_from_the_ledger(backend: Seer):
    query = "SELECT LLM('up', id) FROM films UNION ALL SELECT LLM('up', id) FROM films WHERE seen"
    with connect(backend) as con:
        con.database.execute(SETUP)
        assert [row["counts"] for row in explained(con, query)] == ["exact", "at most"]
    with connect(backend, ledger=None) as con:
        con.database.execute(SETUP)
        assert [row["counts"] for row in explained(con, query)] == ["exact", "exact"]


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("SELECT id FROM films WHERE LLM('?', id) = 'Yes'", "add labels := ['Yes', 'No']"),
        ("SELECT id FROM films WHERE 'FALSE' <> (LLM('?', id))", "add labels := ['FALSE', 'TRUE']"),
        ("SELECT id FROM films WHERE LLM('?', id) IN ('a', 'b')", "add labels := ['a', 'b']"),
        ("SELECT id FROM films WHERE LLM('?', id) = 'it''s'", "add labels := ['it''s', ...]"),
        (
            "SELECT CASE LLM('?', id) WHEN 'a' THEN 1 END FROM films WHERE LLM('?', id) != 'b'",
            None,
        ),
        (
            "SELECT count(*) FILTER (WHERE LLM('?', id) = 'a'), "
            "count(*) FILTER (WHERE LLM('?', id) = 'b') FROM films",
            "add labels := ['a', 'b']",
        ),
        ("SELECT LLM('?', id) FROM films WHERE LLM('?', id) = 'Yes'", None),
        ("SELECT LLM('!', LLM('?', id)) FROM films WHERE LLM('?', id) = 'Yes'", None),
        ("SELECT id FROM films WHERE LLM('?', id) = title", None),
        ("SELECT id FROM films WHERE LLM('?', id) IN (SELECT title FROM films)", None),
        ("SELECT id FROM films WHERE LLM('?', id) > 'a'", None),
        ("SELECT id FROM films WHERE LLM('?', id) = 3", None),
        ("SELECT id FROM films WHERE LLM('?', id, temperature := 1) = 'Yes'", None),
        ("SELECT id FROM films WHERE LLM('?', id, labels := ['Yes', 'No']) = 'Yes'", None),
    ],
)
def test_labels_are_suggested_where_answers_are_only_compared_with_texts(query, hint, con):
    assert explained(con, query)[0]["hint"] == hint


@pytest.mark.parametrize(
    "query",
    [
        "SELECT LLM('up', titel) FROM films",
        "SELECT LLM('up', id) FROM flims",
        "SELECT LLM('up', id, label := 'x') FROM films",
        "SELECT LLM('up') FROM films WHERE LLM('up', id)",
        "SELECT id FROM films LEFT JOIN reviews r ON LLM('up', r.text) = 'x'",
        "SELECT v FROM (SELECT LLM('up', title) AS u FROM films)",
        "DELETE FROM films WHERE LLM('up', title) = 'DUNE'",
        "SELECT LLM('up', CAST(title AS INTEGER)) FROM films",
        "SELECT LLM('up', nosuch) FROM (SELECT LLM('up', id) AS u FROM films) q",
    ],
)
def test_a_query_that_is_wrong_has_the_error_that_it_has_when_run(query, con, backend):
    with pytest.raises(RelqueryError) as run:
        con.sql(query)
    backend.asked.clear()
    with pytest.raises(type(run.value)) as caught:
        con.sql(f"EXPLAIN {query}")
    assert str(caught.value) == str(run.value)
    assert backend.asked == []


def test_a_caret_stands_under_the_users_text(con: Connection):
    with pytest.raises(QueryError) as caught:
        con.sql("EXPLAIN SELECT\n  LLM('up', id FROM films")
    *_, shown, caret = str(caught.value).split("\n")
    assert shown.strip() == "LLM('up', id FROM films"
    assert shown[caret.index("^") :].startswith("FROM")


def test_a_query_without_calls_is_duckdbs_to_explain(con: Connection):
    assert con.sql("EXPLAIN SELECT 'LLM(' FROM films").columns == ["explain_key", "explain_value"]
    assert con.sql("EXPLAIN ANALYZE SELECT 1 AS llm").columns == ["explain_key", "explain_value"]


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("SELECT 1", "stands among 2 statements"),
        ("SELECT LLM('up', id) FROM films", "one at a time"),
    ],
)
def test_explain_is_not_for_several_statements(con: Connection, first: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        con.sql(f"EXPLAIN {first}; DROP TABLE films")
    assert "films" in con.tables()


@pytest.mark.parametrize("begin", ["explain ", " -- why\nEXPLAIN\n", "/* why */ EXPLAIN/* */"])
def test_explain_may_stand_after_comments_and_in_any_case(begin: str, con: Connection):
    assert con.sql(f"{begin}SELECT LLM('up', id) FROM films").arrow().schema == SCHEMA


def test_nothing_stays_behind_and_nothing_is_created(con: Connection):
    tables = con.tables()
    explained(con, f"CREATE TABLE best AS SELECT id FROM films WHERE {GOOD}")
    with suppress(QueryError):
        explained(con, "SELECT LLM('up', CAST(title AS INTEGER)) FROM films")
    names = con.database.fetch("SELECT table_name FROM duckdb_tables() ORDER BY 1").column(0)
    assert con.tables() == tables
    assert names.to_pylist() == sorted(tables)


def test_a_limit_over_a_filter_is_told_at_most_and_bounds_what_follows(con: Connection):
    told = explained(con, f"SELECT LLM('up', title) FROM films WHERE {GOOD} ORDER BY id LIMIT 2")
    keys = ("stage", "rows", "calls", "counts")
    assert [tuple(row[key] for key in keys) for row in told] == [
        ("filter 1", 6, 5, "at most"),
        ("projection 1", 2, 2, "at most"),
    ]


def test_a_cut_without_calls_is_told_exactly(con: Connection):
    told = explained(
        con, "SELECT DISTINCT ON (genre) LLM('up', id) FROM films WHERE seen ORDER BY genre, id"
    )
    assert [(row["rows"], row["counts"]) for row in told] == [(3, "exact")]


def test_calls_that_decide_which_rows_are_returned_are_told_first(con: Connection):
    told = explained(con, "SELECT LLM('up', id) FROM films ORDER BY LLM('len', title) LIMIT 2")
    assert [(row["prompt"], row["rows"], row["counts"]) for row in told] == [
        ("len", 6, "exact"),
        ("up", 2, "at most"),
    ]


def test_a_call_after_an_answer_is_told_at_most(con: Connection):
    told = explained(
        con, "SELECT CASE WHEN LLM('yes', id) = 'Yes' THEN LLM('up', id) END FROM films"
    )
    assert [(row["prompt"], row["rows"], row["counts"]) for row in told] == [
        ("yes", 6, "exact"),
        ("up", 6, "at most"),
    ]


@pytest.mark.parametrize(
    "inner",
    [
        "SELECT id, title FROM films QUALIFY AI_RANK('old', title) <= 4",
        "SELECT id, title FROM films ORDER BY AI_RANK('old', title), id LIMIT 3",
    ],
)
def test_a_limit_over_rows_that_answers_choose_is_a_bound(inner: str, con: Connection) -> None:
    query = f"SELECT LLM('up', id) FROM ({inner}) ORDER BY LLM('yes', title), id LIMIT 2"
    assert [each["rows"] for each in explained(con, query)][-1] == 2


def test_a_filter_over_a_pivot_of_answers_is_told(con: Connection) -> None:
    query = (
        "SELECT id FROM (SELECT * FROM (SELECT id, genre, LLM('up', title) AS a FROM films) "
        "PIVOT (max(a) FOR genre IN ('drama', 'comedy'))) WHERE LLM('yes', drama) = 'Yes'"
    )
    assert [each["stage"] for each in explained(con, query)] == ["projection 1", "filter 1"]


def test_an_answer_that_may_be_asked_again_is_told(con: Connection) -> None:
    query = "SELECT LLM('old', title, output := 'INTEGER', retry := true) FROM films"
    assert explained(con, query)[0]["answers"].endswith(", and once more if invalid")
