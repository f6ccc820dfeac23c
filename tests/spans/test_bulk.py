"""Many queries at once: the order of asking is ours, the order of results the caller's."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from relquery import span
from relquery.errors import ConfigError, QueryError
from relquery.ir.nodes import Generate, Node
from relquery.prompt import Answer, Finish
from relquery.spans.execute import WINDOW
from relquery.spans.run import order_of, passages, run_bulk
from tests.spans.fakes import Fake

PASSAGES = [f"passage {i} " + "of some length " * 8 for i in range(12)]


def question(number: int, *texts: str) -> Generate:
    return span.generate(f"q{number}\n", span.plus(texts))


def switches(rows: Sequence[Sequence[str]]) -> int:
    """How often neighbours share no passage."""
    return sum(not set(a) & set(b) for a, b in pairwise(rows))


def test_queries_that_share_passages_are_asked_one_after_another() -> None:
    backend = Fake()
    rng = random.Random(3)
    rows = [(PASSAGES[n % 4], PASSAGES[n % 4 + 4], PASSAGES[8 + n % 3]) for n in range(24)]
    rng.shuffle(rows)
    run_bulk([question(n, *row) for n, row in enumerate(rows)], backend)
    ((prompts, _),) = backend.calls
    asked = [[p for p in PASSAGES[:8] if p in prompt] for prompt in prompts]
    assert switches(asked) == 3
    assert switches([row[:2] for row in rows]) > 10


def test_rows_of_different_lengths_share_no_missing_passage() -> None:
    rows = [("a " * 40, "b " * 40, "c " * 40), ("x " * 40,), ("a " * 40,), ("x " * 40, "y")]
    order = order_of(rows)
    assert sorted(order) == [0, 1, 2, 3]
    assert abs(order.index(0) - order.index(2)) == 1


def test_the_order_given_is_kept_where_all_fits_the_cache_or_nothing_is_shared() -> None:
    rows = [(p,) for p in PASSAGES[:3]] * 2
    assert order_of(rows, cache_tokens=100_000) == list(range(6))
    assert order_of([("a",), ("b",)]) == [0, 1]
    assert order_of([]) == []


def test_a_cache_of_one_passage_is_served_by_runs_of_equal_ones() -> None:
    rows = [(p,) for p in PASSAGES[:3]] * 4
    order = order_of(rows, cache_tokens=64)
    assert switches([rows[i] for i in order]) == 2


def test_passages_are_the_known_texts_below_plus() -> None:
    tree = span.generate(
        "q", span.plus("a", span.prepare("b"), span.generate("c"), span.fragment("d"), "a")
    )
    assert passages(tree) == ["a", "b", "d"]


def test_a_passage_of_several_texts_is_one_and_what_is_nested_in_it_is_another() -> None:
    def nested(inner: str) -> Node:
        return span.seq("title\n", span.plus(inner), "body")

    tree = span.generate("q", span.plus(nested("a"), span.plus("b"), span.seq(span.generate("c"))))
    whole, a, b = passages(tree)
    assert (a, b) == ("a", "b")
    assert whole.endswith(" title\nbody")
    assert passages(span.generate(span.plus(nested("a"), "x")))[0] == whole
    assert passages(span.generate(span.plus(nested("other"), "x")))[0] != whole


def test_a_query_that_fails_does_not_stop_the_others() -> None:
    def reply(text: str) -> Answer | str:
        return Answer(None, Finish.ERROR, "no luck") if "bad" in text else text

    queries = [span.generate("a"), span.generate("bad"), span.generate(""), span.generate("b")]
    a, bad, empty, b = run_bulk(queries, Fake(reply))
    assert (a.text, b.text) == ("a", "b")
    assert bad.error == "At generate: no luck"
    assert bad.texts == ()
    assert "nothing to read" in str(empty.error)


@pytest.mark.parametrize("count", [1, WINDOW, 3 * WINDOW])
def test_nested_queries_run_in_a_window_so_that_what_is_inside_stays_in_the_cache(
    count: int,
) -> None:
    backend = Fake()
    inner = [span.generate(f"inner {n}") for n in range(count)]
    queries = [span.generate("judge ", span.plus(node, "x")) for node in inner]
    results = run_bulk(queries, backend)
    assert len(backend.calls[0][0]) == min(count, WINDOW)
    assert [result.text for result in results] == [
        f"JUDGE [INNER {n}>{len(f'inner {n}')}]X" for n in range(count)
    ]


def test_a_bulk_is_a_list_and_a_cache_has_a_size() -> None:
    no_lists: tuple[Any, ...] = (span.generate("a"), "abc", None)
    for queries in no_lists:
        with pytest.raises(QueryError, match="takes a list"):
            run_bulk(queries, Fake())
    no_sizes: tuple[Any, ...] = (0, -5, "x", True)
    for tokens in no_sizes:
        with pytest.raises(ConfigError, match="cache_tokens"):
            run_bulk([span.generate("a")], Fake(), cache_tokens=tokens)


def test_what_is_no_query_is_the_error_of_its_own_place() -> None:
    queries: list[Any] = [span.generate("a"), None, "text"]
    results = run_bulk(queries, Fake())
    assert results[0].text == "A"
    assert "is a NoneType; expected a tree from relquery.span" in str(results[1].error)
    assert "is a str" in str(results[2].error)


def test_a_search_that_breaks_is_the_error_of_its_query() -> None:
    def broken(query: str, limit: int) -> list[str]:
        raise OSError("no index")

    query = span.generate("q", span.retrieve("x", corpus="n"))
    results = run_bulk([span.generate("a"), query], Fake(), corpora={"n": broken})
    assert results[0].text == "A"
    assert results[1].error == "The search of corpus 'n' failed: OSError: no index"
