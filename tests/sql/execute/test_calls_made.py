"""Which calls a query makes: as few as its meaning allows, and the cheap ones first."""

from __future__ import annotations

import pytest

from relquery.connection import Connection
from relquery.errors import PartialResultWarning
from tests.sql.conftest import fails_for_dune
from tests.sql.fakes import FakeBackend


def test_equal_inputs_are_asked_once(con: Connection, backend: FakeBackend):
    result = con.sql("SELECT LLM('up', title, genre) FROM films")
    assert len(result) == 6
    assert len(backend.asked) == 5  # Alien, horror stands there twice
    assert (result.report.stages[0].rows, result.report.calls) == (6, 5)


@pytest.mark.parametrize(
    ("values", "asked"),
    [
        ("NULL::JSON, 'null', ' null '", 1),
        ("'[1]'::JSON, '[1]', '[2]'", 2),
        ("NULL::VARCHAR, '', 'null'", 3),
        ("NULL::VARIANT, 'null'::JSON::VARIANT, 'null'::VARIANT", 2),
        ("[NULL], NULL, ['']", 3),
        ("'nan'::DOUBLE, 'nan', NULL", 2),
    ],
)
def test_inputs_that_send_the_same_text_are_one_call(values, asked, con, backend):
    result = con.sql(f"SELECT LLM('up', v), v FROM (SELECT unnest([{values}]) AS v)")
    assert len(result) == 3
    assert len({str(request.prompt) for request in backend.asked}) == len(backend.asked) == asked
    explained = con.sql(f"EXPLAIN SELECT LLM('up', v) FROM (SELECT unnest([{values}]) AS v)")
    assert explained.fetchall()[0][explained.columns.index("calls")] == asked


def test_a_call_that_stands_in_several_clauses_is_asked_once(con, backend):
    con.sql(
        "SELECT LLM('up', title), upper(llm('up', films.TITLE)) FROM films "
        "WHERE LLM('up', title) > 'B' ORDER BY LLM('up', title)"
    )
    assert sorted(request.fields["title"] or "" for request in backend.asked) == [
        "", "Alien", "Amelie", "Brazil", "Dune",
    ]  # fmt: skip


def test_a_call_read_as_text_and_as_number_is_asked_once(con, backend):
    result = con.sql("SELECT LLM('len', id), LLM('len', id) + 1 FROM films WHERE id = 1")
    assert result.fetchall() == [("1", 2.0)]
    assert len(backend.asked) == 1


def test_predicates_without_calls_come_first(con, backend):
    con.sql("SELECT id FROM films WHERE LLM('yes', title) = 'Yes' AND genre = 'drama' AND seen")
    assert [request.fields for request in backend.asked] == [{"title": "Dune"}]


def test_a_projection_is_asked_only_for_rows_that_the_filter_left(con, backend):
    con.sql("SELECT LLM('up', id) FROM films WHERE LLM('yes', genre) = 'No'")
    assert backend.queries.count("up") == 2  # 'drama' has five letters


def test_the_filter_with_the_shorter_prompts_runs_first(con, backend):
    con.sql(
        "SELECT id FROM films WHERE LLM('up', title, genre, tags, info) != '' "
        "AND LLM('yes', genre) = 'No'"
    )
    assert backend.queries[:3] == ["yes"] * 3
    assert backend.queries.count("up") == 2


def test_limit_without_a_filter_cuts_the_calls(con, backend):
    result = con.sql(
        "SELECT LLM('up', id), upper(title) AS t FROM films ORDER BY t DESC NULLS LAST, 2 LIMIT 2"
    )
    assert result.fetchall() == [("6", "DUNE"), ("3", "BRAZIL")]
    assert len(backend.asked) == 2


def test_limit_after_an_order_by_a_call_does_not_cut_the_calls(con, backend):
    con.sql("SELECT id FROM films ORDER BY LLM('up', id) LIMIT 1")
    assert len(backend.asked) == 6


def test_a_join_asks_distinct_rows_of_one_side_once(con, backend):
    con.sql("SELECT LLM('up', f.title) FROM films f JOIN reviews r ON f.id = r.film")
    assert len(backend.asked) == 3


def test_a_call_without_fields_is_one_call_for_all_rows(con, backend):
    result = con.sql("SELECT LLM('Say hi') AS hi, id FROM films ORDER BY id")
    assert {row[0] for row in result.fetchall()} == {"Say hi"}
    assert len(result) == 6
    assert len(backend.asked) == 1


def test_a_query_without_calls_does_not_touch_the_backend(con, backend):
    assert con.sql("SELECT count(*) FROM films WHERE title = 'LLM('").fetchall() == [(0,)]
    assert backend.asked == []


def test_a_nested_call_gets_the_inner_answer_as_a_field(con, backend):
    con.sql("SELECT LLM('len', LLM('up', title), id) FROM films WHERE id = 1")
    assert [request.fields for request in backend.asked] == [
        {"title": "Alien"},
        {"llm_2": "ALIEN", "id": 1},
    ]


def test_a_nested_call_known_by_an_alias_goes_by_that_name(con, backend):
    con.sql("SELECT LLM('up', title) AS loud, LLM('len', loud) FROM films WHERE id = 1")
    assert backend.asked[-1].fields == {"loud": "ALIEN"}


def test_rows_without_an_inner_answer_are_not_asked_for_the_outer_one(con, backend):
    backend.function = fails_for_dune
    with pytest.warns(PartialResultWarning, match="1 LLM value is missing"):
        result = con.sql("SELECT LLM('len', LLM('up', title)) FROM films WHERE id >= 4")
    assert result.fetchall() == [("5",), ("4",), (None,)]
    assert len(backend.asked) == 5


def test_a_call_on_aggregates_is_asked_once_per_group(con, backend):
    con.sql("SELECT genre, LLM('up', genre, count(*), 'n ' || sum(id)) FROM films GROUP BY genre")
    assert {"genre": "comedy", "count": 2, "sum_id": "n 5"} in [
        request.fields for request in backend.asked
    ]
    assert len(backend.asked) == 3


@pytest.mark.parametrize(
    ("expression", "asked"),
    [
        ("CASE WHEN seen THEN LLM('up', id) END", [1, 3, 6]),
        ("CASE WHEN seen THEN 'x' ELSE LLM('up', id) END", [2, 4, 5]),
        ("CASE WHEN seen THEN 'x' WHEN id > 3 THEN LLM('up', id) ELSE 'y' END", [4, 5]),
        ("CASE WHEN seen THEN 'x' WHEN LLM('up', id) = '4' THEN 'y' END", [2, 4, 5]),
        ("CASE genre WHEN 'drama' THEN LLM('up', id) END", [5, 6]),
        ("if(id < 3, LLM('up', id), 'x')", [1, 2]),
        ("coalesce(title, LLM('up', id))", [5]),
        ("coalesce(LLM('up', id), title)", [1, 2, 3, 4, 5, 6]),
        ("count(*) FILTER (WHERE seen AND LLM('up', id) = '1')", [1, 3, 5, 6]),
        ("max(LLM('up', id)) FILTER (WHERE seen)", [1, 3, 6]),
        ("seen OR LLM('up', id) = '1'", [2, 4, 5]),
        ("CASE WHEN seen THEN LLM('up', id) ELSE LLM('up', id) END", [1, 2, 3, 4, 5, 6]),
        ("CASE WHEN seen THEN max(LLM('up', id)) OVER () END", [1, 2, 3, 4, 5, 6]),
        ("CASE WHEN seen THEN LLM('up', id) END || LLM('up', id)", [1, 2, 3, 4, 5, 6]),
        ("CASE WHEN LLM('yes', id) = 'Yes' THEN 'a' END", [1, 2, 3, 4, 5, 6]),
    ],
)
def test_only_rows_whose_answer_is_read_are_asked(expression, asked, con, backend, reference):
    result = con.sql(f"SELECT {expression} FROM films")
    assert sorted(request.fields["id"] for request in backend.asked) == asked
    assert result.fetchall() == reference(f"SELECT {expression} FROM films")


def test_the_rest_of_an_or_is_asked_only_where_the_first_part_does_not_decide(con, backend):
    result = con.sql("SELECT id FROM films WHERE stars > 3 OR LLM('len', id) = 1 ORDER BY id")
    assert sorted(request.fields["id"] for request in backend.asked) == [5, 6]
    assert len(result) == 6


def test_phr_counts_what_fields_begin_with_and_leaves_the_prompt_aside(con):
    films = {"id": [1, 2, 3], "tag": ["space", "paris", "space"]}
    con.register("tagged", films)
    (shared,) = con.sql("SELECT LLM('up', id, tag) FROM tagged").report.stages
    (alone,) = con.sql("SELECT LLM('up', id) FROM tagged").report.stages
    sent = 3 * len('"id": 1') + 3 * len('"tag": "space"')
    hit = len('"tag": "space"') + len('"tag": "') + len('"id": ')  # a tag, its like, an id's like
    assert shared.phr == pytest.approx(hit / sent)
    assert alone.phr == pytest.approx(2 * len('"id": ') / (3 * len('"id": 1')))
