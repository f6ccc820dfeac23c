"""Span queries as people write them."""

from __future__ import annotations

import doctest

import pytest

import relquery
from relquery import span
from relquery.errors import ConfigError, QueryError, RelqueryError
from relquery.ir.nodes import Bag, Chat, Fragment, Generate, Prepare, Retrieve, Seq, Text
from relquery.prompt import Role, Sampling

X, Y = Text("x"), Text("y")


def test_the_example_in_the_docstring_is_true():
    assert doctest.testmod(span) == (0, 5)


def test_span_and_optimize_are_names_of_the_package():
    assert relquery.span is span
    assert relquery.optimize(span.chat("x")) == Generate(Text("x"))


@pytest.mark.parametrize(
    ("built", "node"),
    [
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
    ],
)
def test_each_constructor_makes_its_node(built, node):
    assert built == node


def test_lists_tuples_and_generators_stand_for_their_items():
    assert span.seq(["x", ("y", [X])], (str(i) for i in range(2))) == Seq(
        (X, Y, X, Text("0"), Text("1"))
    )


def test_a_list_of_a_thousand_lists_deep_is_opened():
    nested = ["x"]
    for _ in range(10_000):
        nested = [nested]
    assert span.seq(nested) == Seq((X,))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: span.seq(3), r"span\.seq has a int as a child"),
        (lambda: span.plus("x", None), r"span\.plus has a NoneType"),
        (lambda: span.generate([b"x"]), r"span\.generate has a bytes"),
        (lambda: span.chat({"role": "user"}), r"span\.chat has a dict"),
        (lambda: span.user(3), "Text holds a int"),
        (lambda: span.retrieve("x", corpus="c", limit=0), "limit 0"),
        (lambda: span.repeat(0, "x"), "repeat has n=0; it must be at least 1"),
    ],
)
def test_what_is_no_child_is_an_error_that_names_the_constructor(build, message):
    with pytest.raises(QueryError, match=message):
        build()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_token": 3}, "no setting 'max_token'.*Did you mean 'max_tokens'"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"stop": "."}, "stop is '.'; it must be a list"),
        ({"allowed": 3}, "allowed is 3; it must be a list"),
    ],
)
def test_settings_that_do_not_exist_or_fit_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        span.generate("x", **settings)


def seeds(nodes):
    return [node.sampling.seed for node in nodes]


def test_repeated_draws_from_a_seed_take_seeds_of_their_own():
    assert seeds(span.repeat(3, span.generate("x", temperature=1.0, seed=7))) == [7, 8, 9]
    assert seeds(span.repeat(2, span.chat("x", temperature=1.0, seed=7))) == [7, 8]


def test_repeated_draws_without_chance_or_seed_stay_as_they_are():
    assert seeds(span.repeat(2, span.generate("x", seed=7))) == [7, 7]
    assert seeds(span.repeat(2, span.generate("x", temperature=1.0))) == [None, None]
    assert span.plus(span.repeat(2, "x")) == span.plus("x", "x")


def test_what_is_written_is_read_and_drawn():
    tree = span.generate("x", span.plus("y"))
    assert span.parse(str(tree)) == tree
    assert span.draw(tree).startswith("generate")
    assert span.svg(tree).startswith("<svg")
    assert span.mermaid(tree).startswith("flowchart")


def test_every_error_is_one_of_the_package():
    for build in (lambda: span.seq(object()), lambda: span.generate("x", seed="s")):
        with pytest.raises(RelqueryError):
            build()
