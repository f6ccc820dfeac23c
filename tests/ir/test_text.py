"""The text form of a tree says all of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import QueryError
from relquery.ir.nodes import Bag, Generate, Node, Seq, Text
from relquery.ir.text import parse_tree, print_tree
from relquery.prompt import Role, Sampling

texts = st.builds(Text, st.text(), st.sampled_from(Role))
samplings = st.builds(
    Sampling,
    max_tokens=st.integers(1, 1000),
    temperature=st.floats(0, 5),
    top_p=st.floats(0.1, 1),
    top_k=st.integers(0, 100),
    seed=st.none() | st.integers(),
    stop=st.lists(st.text(min_size=1)).map(tuple),
    allowed=st.lists(st.text(min_size=1)).map(tuple),
)


def _with_children(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(children, max_size=4).map(tuple)
    return (
        st.builds(Seq, several)
        | st.builds(Bag, several, st.text())
        | st.builds(Generate, children, samplings)
    )


trees = st.recursive(texts, _with_children, max_leaves=12)


@given(trees)
def test_a_printed_tree_reads_as_itself(tree):
    assert parse_tree(print_tree(tree)) == tree


def test_one_node_stands_on_each_line():
    tree = Generate(
        Seq((Text("Be brief.", Role.SYSTEM), Bag((Text('"a": 1'), Text("é\n")), ",\n"))),
        Sampling(max_tokens=16, allowed=("Yes", "No")),
    )
    assert print_tree(tree).split("\n") == [
        'generate max_tokens=16 allowed=["Yes", "No"]',
        "  seq",
        '    system "Be brief."',
        '    bag ",\\n"',
        '      user "\\"a\\": 1"',
        '      user "é\\n"',
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ('seq\n   user "x"', "Line 2 .*two spaces per level"),
        ('seq\n    user "x"', "Line 2 .*an indent of 2 spaces"),
        ('user "x"\nuser "y"', "Line 2 .*one root"),
        ("user x", "a JSON string after 'user'"),
        ('nobody "x"', "one of system, user, assistant"),
        ("generate", "generate with one child"),
        ('generate max_tokens=x\n  user "x"', "a JSON value after 'max_tokens='"),
        ('generate tokens=3\n  user "x"', "settings like max_tokens=16"),
    ],
)
def test_text_that_is_no_tree_is_an_error_with_its_line(text, message):
    with pytest.raises(QueryError, match=message):
        parse_tree(text)
