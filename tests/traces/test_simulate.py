"""Simulated service: exact repetition, true lengths, latencies that add up."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, pairwise
from math import inf
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from relquery.config import POLICIES, EngineConfig, PolicyName
from relquery.engine.cost import LinearCost
from relquery.engine.executor import PacedClock, SimulatedExecutor
from relquery.engine.loop import Loop
from relquery.engine.machines import SERVED, Served
from relquery.engine.requests.request import Request
from relquery.engine.scheduling.policies.catalogue import PolicySettings, make_policy
from relquery.errors import TableError
from relquery.traces.simulate import ServedTrace, approximate_tokens, requests_of, serve, simulate
from relquery.traces.trace import (
    SAMPLINGS,
    TASKS,
    QueryKind,
    TracedQuery,
    at_rate,
    load,
    save,
    workload,
)
from tests.cases import cases
from tests.engine.harness import for_each

TABLES = {"t": [{"name": f"item {i % 7}", "text": f"words {i} " * 9} for i in range(200)]}
MACHINE = Served(LinearCost(), EngineConfig(max_num_batched_tokens=256, cache_tokens=4096))
TRACE = workload(TABLES, 4.0, count=12, rows=(1, 12), seed=1)


def run(name: PolicyName, queries: list[TracedQuery] = TRACE) -> ServedTrace:
    return simulate(queries, make_policy(name, PolicySettings(MACHINE.cost)), MACHINE)


@for_each("name", POLICIES)
def test_every_relquery_is_served_once_with_its_true_lengths_and_the_run_repeats(
    name: PolicyName,
) -> None:
    first = run(name)
    assert sorted(outcome.query.arrival for outcome in first.outcomes) == [
        query.arrival for query in TRACE
    ]
    for outcome in first.outcomes:
        assert outcome.output_tokens == sum(outcome.query.outputs)
        assert outcome.latency.waiting >= 0
        assert outcome.latency.core > 0
        assert outcome.latency.tail >= 0
    ended = [outcome.query.arrival + outcome.latency.total for outcome in first.outcomes]
    assert ended == sorted(ended)
    assert first.seconds == pytest.approx(ended[-1])
    assert run(name) == first


def test_a_relquery_alone_takes_what_its_steps_cost() -> None:
    query = TracedQuery(5.0, "filter", "t", "", ("a b c d",), 4, (3,))
    (outcome,) = run("fcfs", [query]).outcomes
    tokens = len(approximate_tokens("a b c d"))
    cost = MACHINE.cost
    assert outcome.latency.waiting == pytest.approx(0)
    assert outcome.latency.core == pytest.approx(cost.seconds(tokens, 0))
    assert outcome.latency.tail == pytest.approx(2 * cost.seconds(0, 1))


def test_equal_beginnings_are_equal_tokens() -> None:
    one, other = approximate_tokens("Name: Anton\nx"), approximate_tokens("Name: Anton\ny")
    assert one[:-1].tolist() == other[:-1].tolist()
    assert one[-1] != other[-1]
    assert len(approximate_tokens("")) == 0


@for_each("name", sorted(SERVED))
def test_costs_derived_from_public_figures_are_of_their_machines_order(name: str) -> None:
    served = SERVED[name]
    assert 1e-4 < served.cost.prefill_slope < 4e-4  # 2,500 to 10,000 prompt tokens a second
    assert 0.02 < served.cost.decode_intercept < 0.06  # 17 to 50 decode steps a second
    assert 10_000 < served.limits.cache_tokens < 60_000


def test_a_request_that_cannot_be_served_ends_neither_the_run_nor_its_relquery() -> None:
    long = "word " * 5_000
    part = TracedQuery(0.0, "filter", "t", "", ("short", long), 4, (2, 2))
    none = TracedQuery(0.1, "filter", "t", "", (long,), 4, (2,))
    empty = TracedQuery(0.0, "filter", "t", "", (), 4, ())
    outcomes = run("relserve", [part, none, empty, *TRACE]).outcomes
    assert len(outcomes) == len(TRACE) + 2
    by_query = {outcome.query: outcome for outcome in outcomes}
    assert (by_query[part].failed, by_query[part].output_tokens) == (1, 2)
    assert (by_query[none].failed, by_query[none].latency.total) == (1, 0.0)
    assert all(by_query[query].failed == 0 for query in TRACE)


@pytest.mark.parametrize("bound", [inf, pytest.param(1.3, marks=pytest.mark.long)])
def test_in_real_time_relqueries_end_in_the_same_order_and_after_the_same_time(
    bound: float,
) -> None:
    limits = EngineConfig(max_num_batched_tokens=64, max_num_seqs=6, cache_tokens=1024)
    paces = Served(LinearCost(5e-5, 5e-3, 3e-4, 5e-3), limits)
    sizes = [(8, 4), (2, 1), (5, 2), (1, 6), (3, 3)]  # rows, and words of each
    queries = [
        TracedQuery(
            0.0, "filter", "t", f"{at}", ("a b c d e " * words,) * rows, 9, (at + 1,) * rows
        )
        for at, (rows, words) in enumerate(sizes)
    ]

    def engine(clock: Any) -> Loop:
        policy = make_policy("shortest", PolicySettings(paces.cost))
        return Loop(SimulatedExecutor(clock, paces.cost), paces.limits, clock, policy, paces.cost)

    expected = simulate(queries, make_policy("shortest", PolicySettings(paces.cost)), paces)
    assert [one.query for one in expected.outcomes] != queries
    for _ in range(9):  # others may keep the machine busy in some of them
        clock, numbers = PacedClock(), count()

        def requests(query: TracedQuery, group: int, ids: Iterator[int] = numbers) -> list[Request]:
            return requests_of(query, group, ids, approximate_tokens)

        begin = clock.now()
        outcomes = [*serve(queries, engine(clock), clock, time.sleep, requests)]
        taken = clock.now() - begin
        assert [one.query for one in outcomes] == [one.query for one in expected.outcomes]
        assert taken >= expected.seconds
        if taken < bound * expected.seconds:
            break
    else:
        raise AssertionError(f"it took {taken} s, not {expected.seconds} s")


# ---- workloads and files

MANY: dict[str, list[dict[str, object]]] = {
    "t": [{"a": f"value {i}", "b": None, "c": i} for i in range(300)]
}


def test_the_same_seed_gives_the_same_trace_and_another_one_another() -> None:
    assert workload(MANY, 1.0, seed=3) == workload(MANY, 1.0, seed=3)
    assert workload(MANY, 1.0, seed=3) != workload(MANY, 1.0, seed=4)


def test_arrivals_sizes_and_answers_are_those_asked_for() -> None:
    queries = workload(MANY, 2.0, count=2_000, rows=(1, 100))
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
    small = {"t": MANY["t"][:3]}
    assert max(len(query.rows) for query in workload(small, 1.0)) == 3
    queries = workload(MANY, 1.0, rows=(100, 100), count=4)
    assert all(len(set(query.rows)) == 100 for query in queries)
    assert len({frozenset(query.rows) for query in queries}) == 4
    assert queries[0].rows[0].endswith("\nAnswer:")
    assert "b:" not in queries[0].rows[0]


def test_with_a_shared_sample_the_smaller_of_two_relqueries_reads_rows_of_the_larger() -> None:
    tables: dict[str, list[dict[str, object]]] = {
        **MANY,
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
    own, shared = (workload(MANY, 1.0, seed=3, sampling=each) for each in SAMPLINGS)
    assert own == workload(MANY, 1.0, seed=3)
    assert [query.rows for query in own] != [query.rows for query in shared]
    assert [replace(query, rows=one.rows) for query, one in zip(shared, own, strict=True)] == own


def test_a_task_may_be_of_one_table_and_of_some_columns() -> None:
    task = QueryKind("rate", 5, "Rate it.", (2, 0.5), columns=("c", "a"))
    (query,) = workload(MANY, 1.0, count=1, rows=(4, 4), tasks={"t": (task,)})
    number = int(query.rows[0].split()[1])
    assert query.rows[0] == f"c: {number}\na: value {number}\nAnswer:"
    assert query.instruction == "Rate it.\n"


def test_a_trace_can_be_played_faster() -> None:
    queries = workload(MANY, 1.0, count=5)
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
    huge = [{"arrival": 10**400}, "arrival"]
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
