"""The text form of a tree says all of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import QueryError
from relquery.ir.forms.text import parse_tree, print_tree
from relquery.ir.nodes import Bag, Generate, Node, Seq, Text
from relquery.prompt import SPEAKERS, Role, Sampling
from tests.ir.strategies import queries
from tests.pace import within

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
def test_a_printed_tree_reads_as_itself(tree):
    assert parse_tree(print_tree(tree)) == tree


def test_half_a_million_lines_are_read_in_seconds():
    with within(15):
        tree = parse_tree("plus\n" + '  user "x"\n' * 500_000)
    assert len(tree.children) == 500_000


def test_depth_is_bounded_by_the_length_of_the_text_alone():
    depth = 4000
    text = "".join(f"{'  ' * i}generate\n" for i in range(depth)) + "  " * depth + 'user "x"'
    assert print_tree(parse_tree(text)) == text


def test_empty_lines_and_spaces_at_the_end_of_lines_are_nothing():
    assert parse_tree('\nseq \r\n\n  user "x"\r\n') == Seq((Text("x"),))


def test_one_node_stands_on_each_line():
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ('seq\n   user "x"', "Line 2 .*two spaces per level"),
        ('seq\n    user "x"', "Line 2 .*an indent of 2 spaces"),
        ('user "x"\nuser "y"', "Line 2 .*one root"),
        ("user x", "a JSON string after 'user'"),
        ('nobody "x"', "one of system, user, assistant"),
        ('seq\n  plu\n    user "x"', "Line 2 .*Did you mean 'plus'"),
        ('user "x"\n  user "y"', "Line 1 .*'user' has no children"),
        ("plus 3", "Line 1 .*'plus' alone"),
        ("bag", "a JSON string after 'bag'"),
        ("generate", "generate with one child"),
        ("seq\n  prepare", "Line 2 .*prepare with one child, .* it has 0"),
        ('retrieve\n  user "x"', "a corpus as a JSON string"),
        ('retrieve "c" limit=0\n  user "x"', "Line 1 .*the limit 0; it must be at least 1"),
        ('retrieve "c" top=3\n  user "x"', "settings like limit=5"),
        ('retrieve 5\n  user "x"', "Line 1 .*corpus contains an int"),
        ("chat max_tokens=0", "Line 1 .*max_tokens is 0; it must be at least 1"),
        ("chat stop=3", "Line 1 .*a list of strings after 'stop='"),
        ("chat seed=1 seed=2", "Line 1 .*'seed=' only once"),
        ("chat seed=1,top_k=2", "Line 1 .*one space after the value of 'seed='"),
        ("chat stop=" + "[" * 100_000, "Line 1 .*a JSON value after 'stop='"),
        ('generate max_tokens=x\n  user "x"', "a JSON value after 'max_tokens='"),
        ('generate tokens=3\n  user "x"', "settings like max_tokens=16"),
    ],
)
def test_text_that_is_no_tree_is_an_error_with_its_line(text, message):
    with pytest.raises(QueryError, match=message):
        parse_tree(text)
