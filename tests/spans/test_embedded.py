"""Span queries on the embedded engine: what was generated inside is found in the cache outside."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from relquery import connect, span
from relquery.connection import Connection
from relquery.errors import QueryError
from relquery.ir.nodes import Node
from relquery.spans.execute import execute
from relquery.spans.work import QueryWork

LONG = "Apply for a job as a cook in a kitchen by the sea, with ten years behind the stove."
CORPUS = [f"Fact {n}: {'word ' * 20}{n}" for n in range(8)]


@pytest.fixture(scope="module")
def con() -> Iterator[Connection]:
    with connect("random:layers=2,hidden=64,heads=2,seed=3", cache_tokens=8192) as con:
        yield con


def email(**settings: Any) -> Node:
    return span.generate(span.system("Write emails."), LONG, max_tokens=24, **settings)


def test_exchanges_of_inner_generations_come_from_the_cache(con: Connection) -> None:
    drafts = span.plus(span.repeat(4, email(temperature=0.9, seed=1)))
    result = con.run(span.generate("Which is best?", drafts, max_tokens=4))
    assert result.answer is not None
    inner = [g.answer for g in result.report.generations[:-1]]
    exchanged = sum(answer.prompt_tokens + answer.output_tokens for answer in inner)
    whole_blocks = sum((a.prompt_tokens + a.output_tokens - 1) // 16 * 16 for a in inner)
    assert result.answer.cached_tokens >= whole_blocks
    assert whole_blocks > 0.8 * exchanged


def test_repeats_without_a_seed_are_drawn_anew_and_with_one_they_repeat(con: Connection) -> None:
    drawn = con.run(span.seq(span.repeat(3, email(temperature=1.0)))).texts
    assert len(set(drawn)) == 3
    seeded = span.seq(span.repeat(3, email(temperature=1.0, seed=5)))
    assert con.run(seeded).texts == con.run(seeded).texts
    assert len(set(con.run(seeded).texts)) == 3


def test_a_passage_is_found_in_the_cache_at_any_position(con: Connection) -> None:
    def ask(question: str, order: list[int]) -> int:
        query = span.generate(question, span.plus(CORPUS[n] for n in order), max_tokens=2)
        result = con.run(query)
        assert result.answer is not None
        return result.answer.cached_tokens

    ask("First?", [0, 1, 2])
    assert ask("And a second, longer question?", [2, 0, 1]) >= 3 * 96


def test_optimisation_for_the_cache_changes_no_answer(con: Connection) -> None:
    judge = span.generate("Best?", span.plus(email(), span.plus("Another."), "x"), max_tokens=8)
    as_written = QueryWork(judge)
    for _ in execute([as_written], con.backend):
        pass
    assert con.run(judge).texts == as_written.outcome()[0]


def test_bulk_gives_the_answers_of_single_runs(con: Connection) -> None:
    queries = [
        span.generate(f"{n}?", span.plus(CORPUS[n % 4], CORPUS[n % 3 + 4]), max_tokens=4)
        for n in range(8)
    ]
    bulk = con.run_bulk(queries, cache_tokens=512)
    assert [result.text for result in bulk] == [con.run(query).text for query in queries]


def test_explain_counts_tokens_and_what_the_cache_holds(con: Connection) -> None:
    judge = span.generate("Which one?", span.plus(email(), "Another."), max_tokens=4)
    explanation = con.explain(judge, warm=True)
    outer = explanation.asks[-1]
    first, exchange, *_ = outer.pieces
    assert (first.independent, exchange.independent) == (False, True)
    assert exchange.tokens is not None
    assert exchange.cached is not None
    assert exchange.cached >= exchange.tokens - 16


def test_random_draws_of_equal_queries_in_a_bulk_are_their_own(con: Connection) -> None:
    draw = span.generate("Say a number.", max_tokens=12, temperature=3.0)
    assert len({result.text for result in con.run_bulk([draw] * 4)}) == 4
    judges = [span.generate(f"best {i}?", span.plus(draw), max_tokens=1) for i in range(2)]
    drafts = [result.report.generations[0].answer.text for result in con.run_bulk(judges)]
    assert drafts[0] != drafts[1]
    seeded = span.generate("Say a number.", max_tokens=12, temperature=3.0, seed=5)
    assert len({result.text for result in con.run_bulk([seeded] * 4)}) == 1


def test_a_second_thread_is_turned_away_and_the_first_goes_on(con: Connection) -> None:
    errors: list[BaseException] = []

    def other() -> None:
        try:
            con.run(span.generate("b", max_tokens=1))
        except QueryError as error:
            errors.append(error)

    def progress(*step: object) -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    assert con.run(span.generate("a", max_tokens=1), progress=progress).answer is not None
    assert "running another query" in str(errors[0])


def test_a_closed_connection_says_so() -> None:
    closed = connect("random:layers=1,hidden=32")
    closed.close()
    for use in (closed.run, closed.explain, lambda query: closed.run_bulk([query])):
        with pytest.raises(QueryError, match="closed"):
            use(span.generate("a"))
