"""Bags are asked in the order that shares most, and nothing else of a query changes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery import connect, optimize, span
from relquery.connection import Connection
from relquery.ir.nodes import Bag, Generate, Node
from relquery.span import Child
from relquery.spans.bags import order_bags
from relquery.spans.explain import explain
from relquery.spans.orders import Orders
from relquery.spans.run import run, run_bulk
from relquery.spans.work import SpanResult
from tests.ir.meaning import meaning
from tests.ir.strategies import local_queries
from tests.spans.fakes import Fake

A, B, C, D = (f"{letter} has {'a long story ' * 8}\n" for letter in "ABCD")


def ask(
    *items: Child, before: str = "Read.\n", after: str = "Why?", separator: str = ""
) -> Generate:
    """A question about a bag of texts."""
    return span.generate(before, span.bag(*items, separator=separator), after, max_tokens=2)


def items_of(query: Node) -> list[tuple[str, ...]]:
    """The items of each bag, from the first."""
    return [
        tuple(child.head for child in node.children)
        for node in query.walk()
        if isinstance(node, Bag) and not node.independent
    ]


def orders_of(queries: Sequence[Node], orders: Orders | None = None) -> list[tuple[str, ...]]:
    return [items_of(query)[0] for query in order_bags(queries, orders or Orders())]


def test_prompts_that_share_items_of_a_bag_begin_with_them() -> None:
    first, second = orders_of([ask(A, B, C), ask(D, C, B)])
    assert set(first[:2]) == {f'user "{text[:-1]}\\n"' for text in (B, C)}
    assert first[:2] == second[:2]


def test_generations_of_one_tree_share_with_one_another() -> None:
    tree = span.generate(span.plus(ask(A, B, C), ask(C, D, A)), "Which?")
    (found,) = order_bags([optimize(tree)], Orders())
    first, second = items_of(found)
    assert first[:2] == second[:2]


def test_the_order_given_is_kept_where_none_shares_more() -> None:
    for queries in ([ask(B, A)], [ask(B, A), ask(D, C)], [ask(B, A), ask(B, A, C)]):
        assert order_bags(queries, Orders()) == queries


def test_bags_behind_other_texts_or_with_other_separators_share_nothing() -> None:
    queries = [ask(A, B), ask(B, A, before="Look.\n"), ask(B, A, separator="; ")]
    assert order_bags(queries, Orders()) == queries


def test_a_bag_behind_a_bag_is_ordered_once_that_is() -> None:
    def twice(first: Child, second: Child) -> Generate:
        return span.generate(span.bag(first), "And:\n", span.bag(second), "Why?")

    queries = [twice((A, B), (C, D)), twice((B, A), (D, C))]
    first, second = order_bags(queries, Orders())
    assert first == second == queries[0]


def test_bags_in_bags_are_ordered_from_the_inside_out() -> None:
    def nested(inner: Child, *others: Child) -> Generate:
        return span.generate(span.bag(span.bag(inner, separator=", "), *others, separator="; "))

    first, second = order_bags([nested((A, B), C, D), nested((B, A), D, C)], Orders())
    assert first == second == nested((A, B), C, D)


def test_a_bag_in_a_child_of_plus_is_ordered_like_one_in_another() -> None:
    def passage(*items: Child) -> Node:
        return span.seq("About:\n", span.bag(*items))

    query = span.generate("q1", span.plus(passage(A, B), "x"))
    other = span.generate("another", span.plus("y", passage(B, A)))
    first, second = map(items_of, order_bags([query, other], Orders()))
    assert first == second


def test_a_bag_that_holds_an_answer_and_what_stands_behind_one_stays_as_given() -> None:
    answers = span.bag(span.generate("x"), span.generate("y"), separator="\n")
    behind = span.generate(span.generate("x"), span.bag(A, B))
    other = span.generate(span.generate("x"), span.bag(B, A))
    found = span.generate(span.bag(span.retrieve(span.generate("x"), corpus="c"), A))
    for queries in ([span.generate(answers)], [behind, other], [found]):
        assert order_bags(queries, Orders()) == queries


def test_texts_of_a_tree_that_are_no_prompt_stay_in_order() -> None:
    tree = span.seq(span.bag(B, A), ask(A, B), ask(B, A))
    (found,) = order_bags([tree], Orders())
    assert found.children[0] == tree.children[0]


def test_a_query_begins_like_one_asked_earlier() -> None:
    orders = Orders()
    order_bags([ask(A, B, C)], orders)
    assert orders_of([ask(C, D, B, A)], orders) == orders_of([ask(A, B, C, D)])
    assert orders_of([ask(D, C, B)], orders) == orders_of([ask(D, C, B)])


def test_what_is_only_looked_at_is_not_noted() -> None:
    orders = Orders()
    order_bags([ask(A, B)], orders, keep=False)
    assert orders_of([ask(B, A)], orders) == orders_of([ask(B, A)])


def test_equal_items_stay_as_many() -> None:
    first, second, single = orders_of([ask(A, B, A), ask(B, A, A), ask(B, A)])
    assert first == second
    assert sorted(first) == sorted(orders_of([ask(A, A, B)])[0])
    assert sorted(single) == sorted(set(first))


def test_orders_asked_earlier_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relquery.spans.orders._MOST_KEPT", 6)
    orders = Orders()
    for number in range(50):
        order_bags([ask(f"{number}", A, B)], orders)
    assert sum(_size(trie) for trie in orders._kept.values()) <= 6


def _size(trie: Any) -> int:
    return sum(1 + _size(below) for below in trie.values())


@given(st.lists(local_queries, min_size=1, max_size=3))
def test_only_the_order_in_bags_changes(trees: list[Node]) -> None:
    roots = [optimize(tree) for tree in trees]
    orders = Orders()
    found = order_bags(roots, orders)
    assert [meaning(tree) for tree in found] == [meaning(tree) for tree in roots]
    assert order_bags(found, orders) == found


def test_run_and_explain_ask_in_that_order() -> None:
    backend, orders = Fake(), Orders()
    run(ask(A, B), backend, orders=orders)
    explanation = explain(ask(B, A), orders=orders)
    run(ask(B, A), backend, orders=orders)
    assert backend.asked == [f"Read.\n{A}{B}Why?"] * 2
    assert [step.rule for step in explanation.steps][-1] == "order_bags"
    assert explanation.after == optimize(ask(A, B))


def test_a_bulk_is_asked_in_runs_that_begin_alike() -> None:
    rng = random.Random(1)
    groups = [(A, B), (C, D)]
    rows = [rng.sample(groups[n % 2], 2) for n in range(12)]
    backend = Fake()
    results = run_bulk([ask(*row, after=f"{n}?") for n, row in enumerate(rows)], backend)
    begins = [prompt[: len("Read.\n") + len(A)] for prompt in backend.asked]
    assert len(set(begins)) == 2
    assert sum(a != b for a, b in pairwise(begins)) == 1
    assert [result.text[-2] for result in results] == [f"{n}"[-1] for n in range(12)]


@pytest.fixture(scope="module")
def con() -> Iterator[Connection]:
    with connect("random:layers=1,hidden=32,heads=1", cache_tokens=4096) as con:
        yield con


def prompted(result: SpanResult) -> int:
    assert result.answer is not None
    return result.answer.prompt_tokens


def cached(result: SpanResult) -> int:
    assert result.answer is not None
    return result.answer.cached_tokens


def test_a_bag_in_another_order_is_found_in_the_cache(con: Connection) -> None:
    first = con.run(ask(A, B, C))
    again = con.run(ask(C, A, B))
    assert again.text == first.text
    assert cached(again) >= prompted(first) - 16
    more = con.run(ask(D, B, A, C, after="And why?"))
    assert cached(more) > 0.6 * prompted(more)
