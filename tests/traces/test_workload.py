"""Workloads follow paper 003: sizes, limits, Poisson arrivals, rows drawn for each relQuery."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import mean

import pytest

from relquery.errors import TableError
from relquery.traces.trace import TracedQuery, load, save
from relquery.traces.workload import SAMPLINGS, TASKS, Task, at_rate, workload
from tests.serve.cases import cases

TABLES: dict[str, list[dict[str, object]]] = {
    "t": [{"a": f"value {i}", "b": None, "c": i} for i in range(300)]
}


def test_the_same_seed_gives_the_same_trace_and_another_one_another() -> None:
    assert workload(TABLES, 1.0, seed=3) == workload(TABLES, 1.0, seed=3)
    assert workload(TABLES, 1.0, seed=3) != workload(TABLES, 1.0, seed=4)


def test_arrivals_sizes_and_answers_are_those_asked_for() -> None:
    queries = workload(TABLES, 2.0, count=2_000, rows=(1, 100))
    arrivals = [query.arrival for query in queries]
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] == pytest.approx(1_000, rel=0.1)
    assert mean(len(query.rows) for query in queries) == pytest.approx(50.5, rel=0.05)
    outputs = [output for query in queries for output in query.outputs]
    assert mean(outputs) == pytest.approx(22, rel=0.1)
    for task in TASKS:
        lengths = [n for q in queries if q.kind == task.kind for n in q.outputs]
        assert mean(lengths) == pytest.approx(task.length[0], rel=0.05)
    assert {(q.kind, q.output_limit) for q in queries} == {(t.kind, t.output_limit) for t in TASKS}


def test_rows_are_drawn_anew_without_repetition_and_nulls_are_left_out() -> None:
    small = {"t": TABLES["t"][:3]}
    assert max(len(query.rows) for query in workload(small, 1.0)) == 3
    queries = workload(TABLES, 1.0, rows=(100, 100), count=4)
    assert all(len(set(query.rows)) == 100 for query in queries)
    assert len({frozenset(query.rows) for query in queries}) == 4
    assert queries[0].rows[0].endswith("\nAnswer:")
    assert "b:" not in queries[0].rows[0]


def test_with_a_shared_sample_the_smaller_of_two_relqueries_reads_rows_of_the_larger() -> None:
    tables: dict[str, list[dict[str, object]]] = {
        **TABLES,
        "u": [{"d": f"other {i}"} for i in range(200)],
    }
    queries = workload(tables, 1.0, count=40, seed=3, sampling="shared")
    for table in tables:
        asked = sorted(
            ([row.splitlines()[:-1] for row in q.rows] for q in queries if q.table == table),
            key=len,
        )
        assert all(small == large[: len(small)] for small, large in pairwise(asked))
        numbers = [int(row[0].split()[-1]) for row in asked[-1]]
        assert numbers != sorted(numbers), "in random order"
    other = workload(tables, 1.0, count=40, seed=4, sampling="shared")
    assert {row for q in queries for row in q.rows} != {row for q in other for row in q.rows}


def test_nothing_but_the_rows_depends_on_how_they_are_sampled() -> None:
    own, shared = (workload(TABLES, 1.0, seed=3, sampling=each) for each in SAMPLINGS)
    assert own == workload(TABLES, 1.0, seed=3)
    assert [query.rows for query in own] != [query.rows for query in shared]
    assert [replace(query, rows=one.rows) for query, one in zip(shared, own, strict=True)] == own


def test_a_task_may_be_of_one_table_and_of_some_columns() -> None:
    task = Task("rate", 5, "Rate it.", (2, 0.5), columns=("c", "a"))
    (query,) = workload(TABLES, 1.0, count=1, rows=(4, 4), tasks={"t": (task,)})
    number = int(query.rows[0].split()[1])
    assert query.rows[0] == f"c: {number}\na: value {number}\nAnswer:"
    assert query.instruction == "Rate it.\n"


def test_a_trace_can_be_played_faster() -> None:
    queries = workload(TABLES, 1.0, count=5)
    faster = list(at_rate(queries, 2.0))
    assert [query.arrival for query in faster] == [query.arrival / 2 for query in queries]
    assert [query.rows for query in faster] == [query.rows for query in queries]


# ---- files

QUERY = TracedQuery(
    1.5, "filter", "beer", "Good?\n", ("é\nAnswer:", "b\nAnswer:"), 5, (2, 3), "ann"
)


def test_a_trace_comes_back_in_order_of_arrival(tmp_path: Path) -> None:
    early = TracedQuery(0.5, "open", "movies", "Why?\n", ("x",), 100, (70,))
    save([QUERY, early], tmp_path / "trace.jsonl")
    assert load(tmp_path / "trace.jsonl") == [early, QUERY]
    assert list(QUERY.prompts) == ["Good?\né\nAnswer:", "Good?\nb\nAnswer:"]


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    huge = [{"arrival": 10**400}, "must be a number of seconds"]
    for change, message in [*cases(__file__, "wrong"), huge]:
        save([QUERY], path)
        wrong = {**json.loads(path.read_text()), **change}
        path.write_text(f"{path.read_text()}\n{json.dumps(wrong)}\n")
        with pytest.raises(TableError, match=f"(?s)line 3.*{re.escape(message)}"):
            load(path)


def test_what_is_no_relquery_and_a_file_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with pytest.raises(TableError, match=r"trace\.jsonl"):
        load(path)
    for text in ("{", "[1]", "7", "null", "[" * 100_000, "{}"):
        path.write_text(text)
        with pytest.raises(TableError, match="line 1"):
            load(path)


def test_a_tenant_may_be_left_out_and_a_mark_of_utf8_may_stand_in_front(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    save([QUERY], path)
    fields = json.loads(path.read_text())
    del fields["tenant"]
    path.write_text(json.dumps(fields), encoding="utf-8-sig")
    assert load(path) == [replace(QUERY, tenant="")]
