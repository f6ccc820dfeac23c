"""The text form of a tree says all of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import QueryError
from relquery.ir import nodes
from relquery.ir.nodes import MAX_DEPTH, Bag, Generate, Node, Seq, Text
from relquery.ir.paths import verify
from relquery.ir.text import parse_tree, print_tree
from relquery.prompt import SPEAKERS, Role, Sampling
from tests.cases import case_file
from tests.ir.strategies import queries

texts = st.builds(Text, st.text(), st.sampled_from(SPEAKERS))
samplings = st.builds(
    Sampling,
    max_tokens=st.integers(1, 1000),
    temperature=st.floats(0, 5),
    top_p=st.floats(0.1, 1),
    top_k=st.integers(0, 100),
    seed=st.none() | st.integers(),
    stop=st.lists(st.text(min_size=1)).map(tuple),
    labels=st.lists(st.text(min_size=1), unique=True).map(tuple),
)


def _with_children(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(children, max_size=4).map(tuple)
    return (
        st.builds(Seq, several)
        | st.builds(Bag, several, st.text())
        | st.builds(Generate, children, samplings)
    )


trees = st.recursive(texts, _with_children, max_leaves=12)


@given(queries)
def test_a_printed_tree_reads_as_itself(tree: Node) -> None:
    assert parse_tree(print_tree(tree)) == tree


def test_a_tree_has_so_many_levels_and_nodes_at_most() -> None:
    tree: Node = Text("x")
    for _ in range(MAX_DEPTH):
        tree = Generate(tree)
    text = print_tree(tree)
    assert print_tree(parse_tree(text)) == text
    verify(tree)
    with pytest.raises(QueryError, match=r"more than 300 levels deep\. Write flatter joins"):
        Generate(tree)
    wide: Node = Text("x")
    for _ in range(23):
        wide = Seq((wide, wide))
    with pytest.raises(QueryError, match="more than 20,000,000 nodes, counting repeats"):
        Seq((wide, wide))


def test_empty_lines_and_spaces_at_the_end_of_lines_are_nothing() -> None:
    assert parse_tree('\nseq \r\n\n  user "x"\r\n') == Seq((Text("x"),))


def test_one_node_stands_on_each_line() -> None:
    tree = Generate(
        Seq((Text("Be brief.", Role.SYSTEM), Bag((Text('"a": 1'), Text("é\n")), ",\n"))),
        Sampling(max_tokens=16, labels=("Yes", "No")),
    )
    assert print_tree(tree).split("\n") == [
        'generate max_tokens=16 labels=["Yes", "No"]',
        "  seq",
        '    system "Be brief."',
        '    bag ",\\n"',
        '      user "\\"a\\": 1"',
        '      user "é\\n"',
    ]


def test_text_that_is_no_tree_is_an_error_with_its_line() -> None:
    for text, message in case_file(__file__, "text_refused.txt"):
        with pytest.raises(QueryError, match=message):
            parse_tree(text)


def test_a_value_of_any_depth_is_an_error_with_its_line() -> None:
    with pytest.raises(QueryError, match=r"Line 1 .*a JSON value after 'stop='"):
        parse_tree("chat stop=" + "[" * 100_000)


def test_a_malformed_node_cannot_be_built() -> None:
    for built, message in case_file(__file__, "nodes_refused.txt"):
        with pytest.raises(QueryError, match=message):
            eval(built, dict(vars(nodes)))


def test_nodes_of_equal_content_are_equal_and_hash_alike() -> None:
    assert {Seq((Text("a"),)), Seq((Text("a"),))} == {Seq((Text("a"),))}


def test_a_tree_that_asks_nothing_is_an_error_at_its_spot() -> None:
    for text, message in case_file(__file__, "verify_refused.txt"):
        with pytest.raises(QueryError, match=message):
            verify(parse_tree(text))
