"""Which calls a query makes: as few as its meaning allows, and the cheap ones first."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from relquery.connection import Connection
from relquery.errors import PartialResultWarning
from tests.sql.conftest import fails_for_dune
from tests.sql.fakes import FakeBackend

Reference = Callable[[str], list[tuple[Any, ...]]]


def fields_of(backend: FakeBackend) -> list[dict[str, Any]]:
    return [request.fields for request in backend.asked]


def test_equal_inputs_are_asked_once(con: Connection, backend: FakeBackend) -> None:
    result = con.sql("SELECT LLM('up', title, genre) FROM films")
    assert len(result) == 6
    assert len(backend.asked) == 5  # Alien, horror stands there twice
    assert (result.report.stages[0].rows, result.report.calls) == (6, 5)


def test_inputs_that_send_the_same_text_are_one_call(con: Connection, backend: FakeBackend) -> None:
    for values, asked in [
        ("NULL::JSON, 'null', ' null '", 1),
        ("'[1]'::JSON, '[1]', '[2]'", 2),
        ("NULL::VARCHAR, '', 'null'", 3),
        ("NULL::VARIANT, 'null'::JSON::VARIANT, 'null'::VARIANT", 2),
        ("[NULL], NULL, ['']", 3),
        ("'nan'::DOUBLE, 'nan', NULL", 2),
    ]:
        backend.asked.clear()
        result = con.sql(f"SELECT LLM('up', v), v FROM (SELECT unnest([{values}]) AS v)")
        assert len(result) == 3
        prompts = {str(request.prompt) for request in backend.asked}
        assert len(prompts) == len(backend.asked) == asked, values
        explained = con.explain(f"SELECT LLM('up', v) FROM (SELECT unnest([{values}]) AS v)")
        assert explained.calls[0].calls == asked, values


def test_a_call_in_several_clauses_is_asked_once(con: Connection, backend: FakeBackend) -> None:
    con.sql(
        "SELECT LLM('up', title), upper(llm('up', films.TITLE)) FROM films "
        "WHERE LLM('up', title) > 'B' AND id > 2 ORDER BY LLM('up', title)"
    )
    titles = [fields["title"] or "" for fields in fields_of(backend)]
    assert sorted(titles) == ["", "Alien", "Brazil", "Dune"]
    backend.asked.clear()
    said = "LLM('Say hi')"  # without fields, it is one call for all rows
    result = con.sql(f"SELECT {said}, LLM('len', id), LLM('len', id) + 1 FROM films WHERE id < 3")
    assert result.fetchall() == [("Say hi", "1", 2.0)] * 2
    assert backend.queries == ["Say hi", "len", "len"]


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        # Predicates without calls come first.
        ("SELECT id FROM films WHERE LLM('yes', title) = 'Yes' AND genre = 'drama' AND seen",
         ["yes"]),
        # A projection is asked only for rows that the filter left, and the filter with the shorter
        # prompts runs first.
        ("SELECT LLM('len', id) FROM films WHERE LLM('up', title, genre) != '' "
         "AND LLM('yes', genre) = 'No'", ["yes"] * 3 + ["up"] * 2 + ["len"] * 2),
        # A limit without a filter cuts the calls; after an order by a call it does not.
        ("SELECT LLM('up', id), upper(title) AS t FROM films ORDER BY t DESC NULLS LAST, 2 LIMIT 2",
         ["up"] * 2),
        ("SELECT id FROM films ORDER BY LLM('up', id) LIMIT 1", ["up"] * 6),
        # A join asks about distinct rows of one side once.
        ("SELECT LLM('up', f.title) FROM films f JOIN reviews r ON f.id = r.film", ["up"] * 3),
        # The rest of an OR is asked only where the first part does not decide.
        ("SELECT id FROM films WHERE stars > 3 OR LLM('len', id) = 1", ["len"] * 2),
        ("SELECT count(*) FROM films WHERE title = 'LLM('", []),
    ],
)  # fmt: skip
def test_as_few_calls_as_possible_go_in_the_cheapest_order(
    query: str, asked: list[str], con: Connection, backend: FakeBackend, reference: Reference
) -> None:
    rows = con.sql(query.replace("SELECT LLM('len', id)", "SELECT LLM('len', id) + 0")).fetchall()
    assert sorted(rows) == sorted(reference(query))
    assert backend.queries == asked


def test_a_nested_call_gets_the_inner_answer_by_name(con: Connection, backend: FakeBackend) -> None:
    con.sql(
        "SELECT LLM('len', LLM('up', title), id), LLM('up', title) AS loud, LLM('len', loud) "
        "FROM films WHERE id = 1"
    )
    assert fields_of(backend)[0] == {"title": "Alien"}
    assert len(backend.asked) == 3
    assert {"llm_2": "ALIEN", "id": 1} in fields_of(backend)
    assert {"loud": "ALIEN"} in fields_of(backend)


def test_rows_without_an_inner_answer_are_not_asked(con: Connection, backend: FakeBackend) -> None:
    backend.function = fails_for_dune
    with pytest.warns(PartialResultWarning, match="1 LLM value is missing"):
        result = con.sql("SELECT LLM('len', LLM('up', title)) FROM films WHERE id >= 4")
    assert result.fetchall() == [("5",), ("4",), (None,)]
    assert len(backend.asked) == 5


def test_a_call_on_aggregates_is_one_per_group(con: Connection, backend: FakeBackend) -> None:
    con.sql("SELECT genre, LLM('up', genre, count(*), 'n ' || sum(id)) FROM films GROUP BY genre")
    assert {"genre": "comedy", "count": 2, "sum_id": "n 5"} in fields_of(backend)
    assert len(backend.asked) == 3


ALL = [1, 2, 3, 4, 5, 6]
OF_ROWS = [
    ("CASE WHEN seen THEN LLM('up', id) END", [1, 3, 6]),
    ("CASE WHEN seen THEN 'x' ELSE LLM('up', id) END", [2, 4, 5]),
    ("CASE WHEN seen THEN 'x' WHEN id > 3 THEN LLM('up', id) ELSE 'y' END", [4, 5]),
    ("CASE WHEN seen THEN 'x' WHEN LLM('up', id) = '4' THEN 'y' END", [2, 4, 5]),
    ("CASE genre WHEN 'drama' THEN LLM('up', id) END", [5, 6]),
    ("if(id < 3, LLM('up', id), 'x')", [1, 2]),
    ("coalesce(title, LLM('up', id))", [5]),
    ("coalesce(LLM('up', id), title)", ALL),
    ("seen OR LLM('up', id) = '1'", [2, 4, 5]),
    ("CASE WHEN seen THEN LLM('up', id) ELSE LLM('up', id) END", ALL),
    ("CASE WHEN seen THEN max(LLM('up', id)) OVER () END", ALL),
    ("CASE WHEN seen THEN LLM('up', id) END || LLM('up', id)", ALL),
    ("CASE WHEN LLM('up', id) > '3' THEN 'a' END", ALL),
]
OF_ALL_ROWS = [
    ("count(*) FILTER (WHERE seen AND LLM('up', id) = '1')", [1, 3, 6]),
    ("max(LLM('up', id)) FILTER (WHERE seen)", [1, 3, 6]),
    ("max(LLM('up', id))", ALL),
]


@pytest.mark.parametrize("expressions", [OF_ROWS, OF_ALL_ROWS])
def test_only_rows_whose_answer_is_read_are_asked(
    expressions: list[tuple[str, list[int]]],
    con: Connection,
    backend: FakeBackend,
    reference: Reference,
) -> None:
    """Each expression has calls of its own, which a setting tells apart."""
    items = [
        expression.replace("id)", f"id, max_tokens := {10 + at})", expression.count("('up', id)"))
        for at, (expression, _) in enumerate(expressions)
    ]
    query = f"SELECT {', '.join(items)} FROM films"
    assert con.sql(query).fetchall() == reference(re.sub(r", max_tokens := \d+", "", query))
    for at, (expression, asked) in enumerate(expressions):
        own = [one.fields["id"] for one in backend.asked if one.sampling.max_tokens == 10 + at]
        assert sorted(own) == asked, expression


def test_phr_counts_what_fields_begin_with_and_leaves_the_prompt_aside(con: Connection) -> None:
    films = {"id": [1, 2, 3], "tag": ["space", "paris", "space"]}
    con.register("tagged", films)
    shared, alone = con.sql("SELECT LLM('up', id, tag), LLM('up', id) FROM tagged").report.stages
    sent = 3 * len('"id": 1') + 3 * len('"tag": "space"')
    hit = len('"tag": "space"') + len('"tag": "') + len('"id": ')  # a tag, its like, an id's like
    assert shared.phr == pytest.approx(hit / sent)
    assert alone.phr == pytest.approx(2 * len('"id": ') / (3 * len('"id": 1')))
