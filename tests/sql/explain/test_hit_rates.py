"""EXPLAIN foretells which share of the prompt tokens the cache serves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from relquery.connection import Connection, connect
from relquery.sql.explain import prefixes
from relquery.sql.explain.prefixes import Prefixes
from relquery.sql.inputs.prompt import Template
from tests.sql.conftest import upper_or_length
from tests.sql.explain.readers import Reader
from tests.sql.fakes import FakeBackend

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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    template = Template(("up",), [[f'"a": {at:05}' for at in range(600)]])
    prompts = [template.prompt([at], [0]) for at in range(600)]
    exact = Prefixes(Reader(upper_or_length)).send(prompts)
    monkeypatch.setattr(prefixes, "_COUNTED", 100)
    sampled = Prefixes(Reader(upper_or_length)).send(prompts)
    assert exact is not None
    assert sampled is not None
    assert (exact.is_sample, sampled.is_sample) == (False, True)
    assert sampled.rate == pytest.approx(exact.rate, abs=0.02)


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
