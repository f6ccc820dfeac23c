"""EXPLAIN foretells which share of the prompt tokens the cache serves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from relquery.connection import Connection, connect
from relquery.prompt import Prompt, Sampling
from relquery.sql.explain import estimate
from tests.sql.conftest import upper_or_length
from tests.sql.explain.readers import Reader
from tests.sql.fakes import FakeBackend, text_of

TABLE = {
    "title": [f"a film of {at % 12:02} hours" for at in range(60)],
    "review": [f"review {at:02} of the film" for at in range(60)],
}
QUERY = "SELECT LLM('up', title, review) FROM t"


@pytest.fixture
def con() -> Iterator[Connection]:
    with connect(Reader(upper_or_length)) as con:
        con.register("t", TABLE)
        yield con


def both(con: Connection, query: str, **options: Any) -> list[tuple[Any, float]]:
    """What is told and what is measured, stage by stage."""
    told = con.explain(query, **options).calls
    order = {"order": options["order"]} if "order" in options else {}
    stages = con.sql(query, **order).report.stages
    return [(one.hit_rate, stage.hit_rate) for one, stage in zip(told, stages, strict=True)]


def test_the_hit_rate_is_that_of_the_order_that_will_be_used() -> None:
    rates = []
    for order in ("original", "ggr"):
        with connect(Reader(upper_or_length)) as con:
            con.register("t", TABLE)
            ((told, measured),) = both(con, "SELECT LLM('up', review, title) FROM t", order=order)
        assert told == pytest.approx(measured)
        rates.append(told)
    assert rates[1] > max(rates[0], 0.3)


def test_a_cache_that_is_too_small_forgets() -> None:
    backend = Reader(upper_or_length, blocks=40)
    with connect(backend) as con:
        con.register("t", TABLE)
        ((told, measured),) = both(con, QUERY, order="original")
    with connect(Reader(upper_or_length)) as con:
        con.register("t", TABLE)
        (large,) = con.explain(QUERY, order="original").calls
    assert told == pytest.approx(measured)
    assert measured < (large.hit_rate or 0)


def test_later_stages_find_what_earlier_ones_have_left(con: Connection) -> None:
    query = "SELECT LLM('up', title) FROM t UNION ALL SELECT LLM('upper', title, title) FROM t"
    first, second = both(con, query, order="original")
    assert first[0] == pytest.approx(first[1])
    assert second[0] == pytest.approx(second[1])


def test_without_a_cache_or_a_tokenizer_nothing_is_known() -> None:
    with connect(FakeBackend(upper_or_length)) as con:
        con.register("t", TABLE)
        assert con.sql(f"EXPLAIN {QUERY}").arrow().column("hit_rate").to_pylist() == [None]


def test_of_very_many_prompts_runs_of_neighbours_are_counted(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "SELECT LLM('up', format('{:05}', i)) FROM range(600) r(i)"
    (exact,) = con.explain(query).calls
    monkeypatch.setattr(estimate, "_COUNTED", 100)
    (sampled,) = con.explain(query).calls
    assert "about" not in exact.cells()["hit rate"]
    assert "about" in sampled.cells()["hit rate"]
    assert sampled.hit_rate == pytest.approx(exact.hit_rate, abs=0.02)


def test_a_provider_serves_only_long_prefixes() -> None:
    with connect(FakeBackend(upper_or_length, name="openai:gpt-4o-mini"), ledger=None) as con:
        for words, is_shared in ((2000, True), (100, False)):
            con.register("t", {"a": ["word " * words] * 4, "b": ["one", "two", "three", "four"]})
            (call,) = con.explain("SELECT LLM('up', a, b) FROM t").calls
            assert call.hit_rate is not None
            assert (call.hit_rate > 0.5) is is_shared
            assert call.cells()["hit rate"].startswith("about ")


def test_notes_are_a_column(con: Connection) -> None:
    told = con.sql("EXPLAIN SELECT LLM(PROMPT('{0}?', title)), LLM('Is {year} it?', title) FROM t")
    first, second = told.arrow().column("note").to_pylist()
    assert "PROMPT pins the order" in first
    assert "{year}" in first  # what is not about one call stands at the first
    assert second is None


class Narrow(Reader):
    """Refuses prompts about review 07."""

    def prompt_tokens(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[int]:
        counts = Reader.prompt_tokens(self, prompts, sampling)
        refused = ["review 07" in "".join(map(text_of, prompt)) for prompt in prompts]
        return [0 if out else count for out, count in zip(refused, counts, strict=True)]


def test_a_refused_prompt_is_no_tokens() -> None:
    with connect(Narrow(upper_or_length), ledger=None) as con:
        con.register("t", TABLE)
        (all_rows,) = con.explain(QUERY).calls
        (others,) = con.explain(f"{QUERY} WHERE review <> 'review 07 of the film'").calls
    assert (all_rows.refused, all_rows.prompt_tokens) == (1, others.prompt_tokens)
    assert all_rows.hit_rate == pytest.approx(others.hit_rate, abs=0.01)


@pytest.mark.parametrize("ledger", [None, ":memory:"])
def test_equal_stages_are_told_what_the_run_does(ledger: Any) -> None:
    query = f"{QUERY} UNION ALL {QUERY} UNION ALL SELECT LLM('up', review) FROM t"
    view = "WITH v AS (SELECT LLM('up', review) AS u FROM t) SELECT a.u FROM v a, v b"
    for text in (query, view):
        with connect(Reader(upper_or_length), ledger=ledger) as con:
            con.register("t", TABLE)
            told, costs = con.explain(text).calls, con.explain(text, cost=True).costs
            stages = con.sql(text).report.stages
        for call, stage in zip(told, stages, strict=True):
            assert (call.calls, call.from_ledger) == (stage.calls, stage.ledger_hits)
            assert call.prompt_tokens == stage.prompt_tokens
            assert call.hit_rate == (pytest.approx(stage.hit_rate) if stage.calls else None)
            cost = costs[stage.name]
            assert cost is None or cost.input.expected == stage.prompt_tokens


def test_a_bound_counts_no_prompt_of_an_earlier_stage_as_cached() -> None:
    branch = f"{QUERY} WHERE LLM('yes', review) = 'Yes'"
    with connect(Reader(upper_or_length), ledger=":memory:") as con:
        con.register("t", TABLE)
        first, one, again, other = con.explain(f"{branch} UNION ALL {branch}").calls
    assert (first.calls, again.calls, again.counts) == (60, 0, "exact")
    assert (one.counts, other.counts, other.calls) == ("at most", "at most", one.calls)
    assert one.hit_rate == pytest.approx(other.hit_rate)


SHARED = """SELECT LLM('up', review) FROM t WHERE LLM('yes', title) <> 'No'
UNION ALL SELECT LLM('len', review) FROM t WHERE length(LLM('yes', title)) > 2

SELECT LLM('up', review) FROM t WHERE LLM('yes', title, review) = 'Yes' OR title > 'a film of 08'
EXCEPT SELECT LLM('up', review) FROM t WHERE LLM('yes', title, review) = 'Yes' OR title > 'a'

SELECT LLM('len', LLM('up', title)) FROM t
WHERE title IN (SELECT title FROM t WHERE LLM('up', title) > 'B')"""


@pytest.mark.parametrize("options", [{}, {"ledger": ":memory:"}, {"guard": 0.9, "guard_rows": 9}])
def test_what_is_called_exact_is_and_a_bound_is_not_exceeded(options: dict[str, Any]) -> None:
    for query in SHARED.split("\n\n"):
        with connect(Reader(upper_or_length), **{"ledger": None} | options) as con:
            con.register("t", TABLE)
            told, stages = con.explain(query).calls, con.sql(query).report.stages
        for call, stage in zip(told, stages, strict=True):
            pairs = [(call.rows, stage.rows), (call.calls, stage.calls)]
            for said, found in pairs:
                assert said == found if call.counts == "exact" else (said or 999) >= found, query
