"""Queries in the JSON wire form of the spnl package are read as trees, and written again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import QueryError
from relquery.ir import nodes
from relquery.ir.nodes import Bag, Generate, Node, Retrieve, Seq, Text
from relquery.ir.text import parse_tree
from relquery.ir.wire import from_wire, to_wire
from relquery.ir.wire_fields import decode
from relquery.prompt import SPEAKERS, Role, Sampling
from tests.cases import case_file
from tests.data import data_path

# The queries published with the package, cut to their structure; texts shortened.
EMAIL = """
{"g": {"model": "{model}", "input": {"seq": [
  {"system": "You rank emails."},
  {"print": "Generate {n} candidate emails in parallel"},
  {"plus": [{"repeat": {"n": "{n}", "query": {"g": {
    "model": "{model}",
    "input": {"user": "write an email of at most {max_tokens} characters."},
    "max_tokens": "{max_tokens}", "temperature": "{temperature}"}}}}]},
  {"print": "Ask the model to select the best"},
  {"user": "My name is Shiloh."}]}}}
"""
VARIABLES = {
    "n": "3", "model": "m", "max_tokens": 100, "temperature": "0.25", "guidelines": "Be brief.",
}  # fmt: skip


def generated(input: Node, max_tokens: int = 256, temperature: float = 0.6) -> Generate:
    return Generate(input, Sampling(max_tokens=max_tokens, temperature=temperature))


def test_a_template_is_filled_and_a_repeat_becomes_copies_of_one_node() -> None:
    query = from_wire(EMAIL, VARIABLES)
    inner = generated(Text("write an email of at most 100 characters."), 100, 0.25)
    assert query.node == generated(
        Seq(
            (
                Text("You rank emails.", Role.SYSTEM),
                Bag((inner, inner, inner), independent=True),
                Text("My name is Shiloh."),
            )
        )
    )
    copies = query.node.children[0].children[1].children
    assert copies[0] is copies[1] is copies[2]
    assert query.model == "m"
    assert query.messages[0] == "Generate 3 candidate emails in parallel"


@pytest.mark.data
def test_the_published_queries_are_read() -> None:
    for name, expected in {
        "email": "generate seq system plus generate user generate user user",
        "email2": "generate seq system plus generate seq system user user "
        "generate seq system user user",
        "email3": "generate seq system plus generate seq system user generate seq system user",
    }.items():
        query = from_wire(data_path(f"spnl/{name}.json").read_bytes(), VARIABLES | {"n": 2})
        assert " ".join(node.head.split()[0] for node in query.node.walk()) == expected
        inner = [node for node in query.node.walk() if isinstance(node, Generate)][1:]
        assert {node.sampling for node in inner} == {Sampling(max_tokens=100, temperature=0.25)}
        assert query.messages
        texts = [node.content for node in query.node.walk() if isinstance(node, Text)]
        assert not any("{" in text for text in texts)
        assert from_wire(to_wire(query.node)).node == query.node


A, B, C, X = Text("a"), Text("b", Role.SYSTEM), Text("c", Role.ASSISTANT), Text("x")
M = {"model": "m"}
G = {**M, "input": {"user": "a"}}
ABC: list[Any] = [{"user": "a"}, {"system": "b"}, {"assistant": "c"}]
AB = [{"user": "a"}, {"user": "b"}]
TWICE = {"repeat": {"n": 2, "query": {"user": "a"}}}


def test_an_operator_is_read_as_the_package_means_it() -> None:
    for data, tree in case_file(__file__, "wire_read.txt"):
        assert from_wire(json.loads(data)).node == parse_tree(tree)


def test_values_of_variables_are_not_filled_again() -> None:
    assert from_wire({"user": "{n} {}"}, {"n": "{m}"}).node == Text("{m} {}")


def test_a_monad_is_kept_for_its_effect_alone() -> None:
    query = from_wire({"seq": [{"monad": ABC[1]}, ABC[0], {"monad": ABC[2]}]})
    assert (query.node, query.effects) == (Seq((A,)), (B, C))


def test_an_augment_is_a_retrieval_and_its_document_is_kept() -> None:
    body, model = {"user": "Who?"}, "embedder"
    for content, kept in [({"Text": "Long ago"}, "Long ago"), ({"Binary": [1, 2]}, b"\1\2")]:
        doc = ["tales.txt", content]
        query = from_wire({"augment": {"embedding_model": model, "body": body, "doc": doc}})
        assert query.node == Retrieve(Text("Who?"), "tales.txt")
        assert query.documents == {"tales.txt": kept}
    assert from_wire({"augment": {"body": body, "doc": "tales"}}).documents == {}


def nodes_of(operator: Callable[[object], object], levels: int) -> object:
    data: object = {"user": "a"}
    for _ in range(levels):
        data = operator(data)
    return data


MAP = {"map": {"metadata": M, "inputs": ["a"] * 1000}}
ENDLESS: dict[str, list[object]] = {"seq": []}
ENDLESS["seq"].append(ENDLESS)
GROWS: list[tuple[Any, str]] = [
    ({"repeat": {"n": 2001, "query": MAP}}, "At repeat: the query has more than {most:,} nodes"),
    (
        {"repeat": {"n": 60, "query": {"repeat": {"n": 40, "query": MAP}}}},
        "At repeat: the query has more than {most:,} nodes",
    ),
    (
        nodes_of(lambda x: {"zip": {"first": x, "second": {"seq": AB * 2}}}, 12),
        "The query has more than",
    ),
    (nodes_of(lambda x: {"seq": [x, x]}, 60), "At seq.*: the query has more than {most:,} nodes"),
    (ENDLESS, "At seq.*: The query is nested more than"),
]


@contextmanager
def limited(most: int) -> Iterator[None]:
    """Another limit for the size of queries, while a block runs."""
    with mock.patch("relquery.ir.wire.MAX_NODES", most):
        yield


@pytest.mark.parametrize(("data", "message"), GROWS)
def test_what_grows_without_bound_is_refused(data: Any, message: str) -> None:
    with limited(100_000), pytest.raises(QueryError, match=message.format(most=100_000)):
        from_wire(data)


def test_what_is_wrong_is_named_with_its_spot() -> None:
    for data, variables, message in case_file(__file__, "wire_refused.txt"):
        with pytest.raises(QueryError, match=message):
            from_wire(eval(data), eval(variables))


def test_what_the_format_cannot_say_is_an_error() -> None:
    for node, message in case_file(__file__, "wire_unsaid.txt"):
        with pytest.raises(QueryError, match=message):
            to_wire(eval(node, {**vars(nodes), "Sampling": Sampling}))


def test_what_follows_spans_is_written_as_a_cross_so_that_it_sees_them_all() -> None:
    plus = Bag((Text("a"),), independent=True)
    assert list(to_wire(Seq((plus, Text("b"))))) == ["cross"]
    assert list(to_wire(Seq((Text("b"), plus)))) == ["seq"]
    assert to_wire(Seq(())) == {"seq": []}


def test_a_generation_is_written_with_its_model_and_settings() -> None:
    assert to_wire(Generate(Text("a"), Sampling(max_tokens=4)), "m") == {
        "g": {"model": "m", "input": {"user": "a"}, "max_tokens": 4, "temperature": 0.0}
    }


TEXTS = st.builds(Text, st.text(max_size=8) | st.just("{n} {model}"), st.sampled_from(SPEAKERS))
SETTINGS = st.builds(
    Sampling,
    max_tokens=st.integers(1, 10**6),
    temperature=st.floats(0, 4, allow_subnormal=False),
)
NODES = st.recursive(
    TEXTS,
    lambda below: st.one_of(
        st.builds(Seq, st.lists(below, max_size=4).map(tuple)),
        st.builds(lambda nodes: Bag(tuple(nodes), independent=True), st.lists(below, max_size=4)),
        st.builds(Generate, below, SETTINGS),
    ),
    max_leaves=12,
)


@given(NODES)
def test_what_is_written_is_read_as_the_same_tree(node: Node) -> None:
    assert from_wire(to_wire(node)).node == node
    assert from_wire(json.dumps(to_wire(node))).node == node


def test_a_query_of_as_many_nodes_as_the_limit_is_read_and_of_one_more_refused() -> None:
    cases: list[Any] = [{"seq": AB}, TWICE]
    for data in cases:
        with limited(3):
            assert len(from_wire(data).node.children) == 2
        with limited(1), pytest.raises(QueryError, match="more than 1 nodes"):
            from_wire(data)
    with limited(2), pytest.raises(QueryError, match="more than 2 nodes"):
        from_wire({"seq": AB})
    shared = Seq((Seq((Text("a"),) * 2),) * 2)
    with limited(7):
        assert from_wire(to_wire(shared)).node == shared
    with limited(6), pytest.raises(QueryError, match="more than 6 nodes"):
        to_wire(shared)  # a node that stands in two places is written in both


def test_wide_trees_are_written_and_read_and_deep_ones_refused() -> None:
    wide = Seq((Text("a"),) * 2_000)
    assert from_wire(json.dumps(to_wire(wide))).node == wide
    deep: Node = Text("a")
    for _ in range(nodes.MAX_DEPTH):
        deep = Seq((deep,))
    assert from_wire(to_wire(deep)).node == deep
    data: dict[str, object] = {"seq": [to_wire(deep)]}
    with pytest.raises(QueryError, match="nested more than 300 levels"):
        from_wire(data)
    for _ in range(5_000):
        data = {"seq": [data]}
    with pytest.raises(QueryError, match="nested more than 300 levels"):
        from_wire(data)


@given(st.text(alphabet='[]{}:,"1ae \n\\.-', max_size=12))
def test_what_json_refuses_is_refused_and_all_else_is_read(text: str) -> None:
    try:
        expected = json.loads(text, object_pairs_hook=_no_duplicates)
    except ValueError:
        with pytest.raises(QueryError):
            decode(text)
    else:
        assert decode(text) == expected


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("twice")
    return dict(pairs)


def test_an_error_says_what_is_wrong_and_where() -> None:
    for text, message in case_file(__file__, "json_refused.txt"):
        with pytest.raises(QueryError, match=message):
            decode(eval(text.replace("\n", "\\n")))
