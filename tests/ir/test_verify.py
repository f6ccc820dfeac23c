"""What must hold across a tree, and the spot where it does not."""

from __future__ import annotations

import pytest

from relquery.errors import QueryError
from relquery.ir.forms.text import parse_tree
from relquery.ir.nodes import Bag, Generate, Seq, Text
from relquery.ir.verify import verify


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('generate\n  user ""', "At generate: the model has nothing to read"),
        ("chat", "At chat: the model has nothing to read. Give the chat a message"),
        (
            'seq\n  user "x"\n  plus\n    generate\n      seq',
            r"At seq\[1\]/plus/generate: the model",
        ),
        (
            'chat\n  retrieve "c" limit=1\n    fragment ""',
            "At chat/retrieve: .*nothing to look for",
        ),
    ],
)
def test_a_tree_that_asks_nothing_is_an_error_at_its_spot(text, message):
    with pytest.raises(QueryError, match=message):
        verify(parse_tree(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('plus\n  chat\n    user "x"', "At plus/chat: a chat, .* is still here"),
        ('seq\n  user "x"\n  fragment "x"', r"At seq\[1\]/fragment: a fragment, .* is still here"),
        ('retrieve "c" limit=1\n  user "x"', "At retrieve: .*its query is known"),
        ('generate\n  prepare\n    user "x"', "At generate/prepare: a prepare is outside plus"),
    ],
)
def test_what_a_desugared_tree_may_not_hold(text, message):
    verify(parse_tree(text))
    with pytest.raises(QueryError, match=message):
        verify(parse_tree(text), desugared=True)


@pytest.mark.parametrize(
    "text",
    [
        'prepare\n  user "x"',
        'plus\n  prepare\n    user "x"',
        'retrieve "c" limit=1\n  generate\n    user "x"',
        'generate\n  generate\n    user "x"',
        'generate\n  bag ","\n    user ""\n    user ""',
    ],
)
def test_what_a_desugared_tree_may_hold(text):
    verify(parse_tree(text), desugared=True)


def test_a_tree_of_two_to_the_thousand_nodes_that_share_is_verified():
    tree = Generate(Text("x"))
    for _ in range(1000):
        tree = Bag((tree, tree), independent=True)
    verify(tree, desugared=True)


def test_a_deep_tree_is_verified_and_its_spot_is_short():
    tree = Generate(Seq(()))
    for _ in range(100_000):
        tree = Generate(tree)
    with pytest.raises(QueryError, match=r"generate/… 99,?988 more …/generate") as raised:
        verify(tree)
    assert len(str(raised.value)) < 400
