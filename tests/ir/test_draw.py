"""Pictures say which operators there are, and stay small and well formed for any tree."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.ir.draw import draw, mermaid, symbol
from relquery.ir.nodes import Bag, Fragment, Generate, Node, Seq, Text
from relquery.ir.text import parse_tree
from relquery.prompt import Role, Sampling
from tests.ir.strategies import queries

RAG = parse_tree(
    'chat max_tokens=9\n  system "S"\n  plus\n    fragment "A"\n    prepare\n      user "B"\n'
    '  retrieve "c" limit=2\n    user "Q"\n  bag ","\n    assistant "<&>"'
)


def test_lines_join_each_node_to_its_parent() -> None:
    assert draw(RAG).split("\n") == [
        "chat max_tokens=9",
        '├── system "S"',
        "├── plus",
        '│   ├── fragment "A"',
        "│   └── prepare",
        '│       └── user "B"',
        '├── retrieve "c" limit=2',
        '│   └── user "Q"',
        '└── bag ","',
        '    └── assistant "<&>"',
    ]


def test_long_text_is_cut_to_the_width_and_says_its_size() -> None:
    (line,) = draw(Text("word " * 1000), width=60).split("\n")
    assert line.startswith('user "word word ')
    assert line.endswith('…" (5,000 characters)')
    assert len(line) <= 60


def test_no_escape_is_cut_in_half() -> None:
    for width in range(40, 50):
        assert "\\…" not in draw(Text('"\\\n' * 100), width=width)


def test_many_children_are_counted_and_not_drawn() -> None:
    tree = Seq(tuple(Text(str(i)) for i in range(1_500)))
    lines = draw(tree, siblings=4).split("\n")
    assert lines[0] == "seq (1,500 children)"
    assert lines[1:] == ['├── user "0"', '├── user "1"', '├── user "2"', "└── … 1,497 more"]


def deep() -> Node:
    tree: Node = Text("x")
    for _ in range(5_000):
        tree = Generate(tree)
    return tree


def shared() -> Node:
    tree: Node = Text("x")
    for _ in range(1000):
        tree = Bag((tree, tree), ",")
    return tree


@pytest.mark.parametrize("picture", [draw, mermaid])
def test_pictures_of_large_trees_stay_small(picture: Callable[[Node], str]) -> None:
    for tree in (deep(), shared()):
        drawn = picture(tree)
        assert "… " in drawn
        assert len(drawn) < 200_000


def test_the_operators_are_those_of_the_paper() -> None:
    symbols = re.findall(r'\["(\S+)', mermaid(RAG).replace('"]', ' "]'))
    assert sorted(symbols) == sorted(["C", "S", "+", "F", "G¹", "U", "R", "U", "⊎", "A"])
    assert symbol(Generate(RAG)) == "G"
    assert symbol(Seq(())) == "⋈"


any_text = st.text(st.characters(), max_size=20)
any_tree = st.builds(
    lambda texts, stop: Generate(
        Seq((*(Text(text, Role.SYSTEM) for text in texts), *map(Fragment, texts))),
        Sampling(stop=tuple(stop)),
    ),
    st.lists(any_text, max_size=3),
    st.lists(any_text.filter(bool), max_size=2),
)


@given(any_tree | queries)
def test_a_mermaid_label_ends_where_it_should(tree: Node) -> None:
    head, *lines = mermaid(tree).split("\n")
    assert head == "flowchart TD"
    for line in lines:
        assert re.fullmatch(r'  n\d+(\["[^"<>`\\]*"\]| --> n\d+)', line)


@given(any_tree | queries)
def test_a_drawing_holds_nothing_that_a_terminal_obeys(tree: Node) -> None:
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]", draw(tree))
