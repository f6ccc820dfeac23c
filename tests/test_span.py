"""Span queries as people write them."""

from __future__ import annotations

import copy
import doctest
import itertools
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import relquery
from relquery import optimize, span
from relquery.errors import ConfigError, QueryError, RelqueryError, type_of
from relquery.ir.nodes import Bag, Chat, Fragment, Generate, Node, Prepare, Retrieve, Seq, Text
from relquery.prompt import Role, Sampling

X, Y = Text("x"), Text("y")


def test_the_example_in_the_docstring_is_true() -> None:
    assert doctest.testmod(span) == (0, 5)


def test_span_and_optimize_are_names_of_the_package() -> None:
    assert relquery.span is span
    assert relquery.optimize(span.chat("x")) == Generate(Text("x"))


def test_each_constructor_makes_its_node() -> None:
    for built, node in [
        (span.system("x"), Text("x", Role.SYSTEM)),
        (span.user("x"), X),
        (span.assistant("x"), Text("x", Role.ASSISTANT)),
        (span.fragment("x"), Fragment("x")),
        (span.seq("x", Y), Seq((X, Y))),
        (span.cross(), Seq(())),
        (span.plus("x", "y"), Bag((X, Y), independent=True)),
        (span.bag("x", "y", separator=", "), Bag((X, Y), ", ")),
        (span.generate("x", max_tokens=3), Generate(X, Sampling(max_tokens=3))),
        (span.generate("x", "y"), Generate(Seq((X, Y)))),
        (span.chat("x", "y", stop=["."]), Chat((X, Y), Sampling(stop=(".",)))),
        (span.prepare("x"), Prepare(X)),
        (span.retrieve("x", corpus="c", limit=2), Retrieve(X, "c", 2)),
    ]:
        assert built == node


def test_lists_tuples_and_generators_stand_for_their_items() -> None:
    assert span.seq(["x", ("y", [X])], (str(i) for i in range(2))) == Seq(
        (X, Y, X, Text("0"), Text("1"))
    )


def test_lists_in_lists_are_opened() -> None:
    nested: list[Any] = ["x"]
    for _ in range(100):
        nested = [nested]
    assert span.seq(nested) == Seq((X,))


def test_what_is_no_child_or_setting_is_an_error_that_names_the_constructor() -> None:
    cases: list[tuple[Callable[[Any], object], type[RelqueryError], str]] = [
        (lambda of: of.seq(3), QueryError, r"span\.seq has an int as a child"),
        (lambda of: of.plus("x", None), QueryError, r"span\.plus has a NoneType"),
        (lambda of: of.generate([b"x"]), QueryError, r"span\.generate has a bytes"),
        (lambda of: of.chat({"role": "user"}), QueryError, r"span\.chat has a dict"),
        (lambda of: of.user(3), QueryError, "Text contains an int"),
        (lambda of: of.fragment("a\ud800"), QueryError, "character 1 is half of a surrogate pair"),
        (lambda of: of.retrieve("x", corpus="c", limit=0), QueryError, "limit 0"),
        (lambda of: of.repeat(0, "x"), QueryError, "repeat has n=0; it must be a whole number"),
        (lambda of: of.repeat(True, "x"), QueryError, "whole number"),
        (lambda of: of.repeat("4", "x"), QueryError, "whole number"),
        (lambda of: of.repeat(1.0, "x"), QueryError, "whole number"),
        (lambda of: of.repeat(10**12, "x"), QueryError, "whole number"),
        (lambda of: of.from_wire('{"user": "a"}', "x"), QueryError, "'x'; it must be a dict"),
        (lambda of: of.parse(None), QueryError, "is a NoneType"),
        (lambda of: of.generate("x", max_token=3), ConfigError, "Did you mean 'max_tokens'"),
        (lambda of: of.generate("x", max_tokens=0), ConfigError, "max_tokens is 0"),
        (lambda of: of.generate("x", stop="."), ConfigError, "stop is '.'; it must be a list"),
        (lambda of: of.generate("x", labels=3), ConfigError, "labels is 3; it must be a list"),
        (lambda of: of.generate("x", seed="s"), ConfigError, "seed"),
    ]
    for build, error, message in cases:
        with pytest.raises(error, match=message):
            build(span)


def seeds(nodes: Sequence[Any]) -> list[int | None]:
    return [node.sampling.seed for node in nodes]


def test_repeated_draws_from_a_seed_take_seeds_of_their_own() -> None:
    assert seeds(span.repeat(3, span.generate("x", temperature=1.0, seed=7))) == [7, 8, 9]
    assert seeds(span.repeat(2, span.chat("x", temperature=1.0, seed=7))) == [7, 8]


def test_repeated_draws_without_chance_or_seed_stay_as_they_are() -> None:
    assert seeds(span.repeat(2, span.generate("x", seed=7))) == [7, 7]
    assert seeds(span.repeat(2, span.generate("x", temperature=1.0))) == [None, None]
    assert span.plus(span.repeat(2, "x")) == span.plus("x", "x")


def test_what_is_written_is_read() -> None:
    tree = span.generate("x", span.plus("y"))
    assert span.parse(str(tree)) == tree


def test_a_list_that_contains_itself_is_an_error() -> None:
    endless: Any = ["a"]
    endless.append([endless])
    with pytest.raises(QueryError, match="Does one contain itself"):
        span.generate(endless)
    twice = ["a"]
    assert len(span.seq(twice, [twice, twice]).children) == 3


def endless() -> Iterator[Any]:
    while True:
        yield endless()


def doubled(levels: int) -> list[object]:
    part: list[object] = []
    for _ in range(levels):
        part = [part, part]
    return part


@pytest.mark.parametrize("child", [itertools.repeat("a"), endless(), doubled(60)])
def test_children_without_an_end_are_refused(monkeypatch: pytest.MonkeyPatch, child: Any) -> None:
    monkeypatch.setattr(span, "_MOST_CHILDREN", 10_000)
    with pytest.raises(QueryError, match=r"span\.plus has (more than 10,000 children|lists in)"):
        span.plus(child)


def test_what_is_no_query_is_refused_with_how_to_make_one() -> None:
    uses: list[Callable[[Any], object]] = [
        span.to_wire,
        optimize,
    ]
    for use, given in itertools.product(uses, [None, "abc", 3, ("a",)]):
        with pytest.raises(QueryError, match=f"is {type_of(given)}; expected a tree"):
            use(given)


def test_a_byte_order_mark_is_not_part_of_a_query() -> None:
    assert span.parse('\ufeffuser "a"') == span.user("a")


def test_trees_are_copied_and_pickled() -> None:
    node: Node = span.generate("a", max_tokens=3)
    for _ in range(200):
        node = span.seq(node)
    assert copy.deepcopy(node) == copy.copy(node) == pickle.loads(pickle.dumps(node)) == node


def test_the_wire_form_is_read_and_written() -> None:
    query = span.from_wire('{"g": {"model": "m", "input": {"user": "{n}"}}}', {"n": "hi"})
    assert isinstance(query.node, Generate)
    assert query.node.input == span.user("hi")
    assert span.from_wire(span.to_wire(query.node)).node == query.node
