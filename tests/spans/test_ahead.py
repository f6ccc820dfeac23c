"""What a query prepares is computed before anyone asks for it, and found when someone does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relquery import span
from relquery.connection import Connection, connect
from relquery.ir.nodes import Node

LONG = "A text that has several blocks of tokens."
OTHER = "Another one, which has several of them, too."
MODEL = "random:layers=1,hidden=32,heads=2,ffn=32"


@pytest.fixture
def con() -> Iterator[Connection]:
    with connect(MODEL) as opened:
        yield opened


def cached(con: Connection, *texts: str) -> list[int]:
    """Tokens that the cache would serve of each text, as a child of plus."""
    query = span.generate(span.plus(*texts, "never"), "Which?", max_tokens=2)
    (asked,) = con.explain(query).asks
    return [piece.cached or 0 for piece in asked.pieces if piece.independent][:-1]


@pytest.mark.parametrize(
    "query",
    [
        span.prepare(LONG),
        span.plus(span.fragment(LONG), OTHER),
        span.seq(span.prepare(LONG), "by the way", span.plus(OTHER)),
        span.plus(span.prepare(LONG)),
    ],
)
def test_a_prepared_text_is_found_in_the_cache(con: Connection, query: Node) -> None:
    assert cached(con, LONG) == [0]
    con.run(query)
    assert cached(con, LONG)[0] >= len(LONG) - 3


def test_a_text_that_a_generation_reads_is_computed_with_it_and_not_before(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(con.backend), "prepare", None)
    con.run(span.generate(span.plus(span.prepare(LONG), OTHER), "Which?", max_tokens=2))


def test_prepared_states_outlive_those_of_other_text() -> None:
    with connect(MODEL, cache_tokens=512) as con:
        con.run(span.prepare(LONG))
        for number in range(20):
            con.run(span.generate(f"{number} " * 40, max_tokens=2))
        assert cached(con, LONG)[0] >= len(LONG) - 3
