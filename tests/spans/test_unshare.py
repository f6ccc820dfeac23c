"""A tree in which each generation is one execution."""

from __future__ import annotations

import pytest

from relquery import span
from relquery.errors import QueryError
from relquery.ir.nodes import Generate
from relquery.spans import unshare as module
from relquery.spans.unshare import unshare


def generations(node):
    """The distinct generations of a tree by identity, in document order."""
    return list({id(n): n for n in node.walk() if isinstance(n, Generate)}.values())


def seeds(node):
    return [generation.sampling.seed for generation in generations(node)]


def test_the_tree_says_what_it_said():
    query = span.generate("q", span.plus(span.repeat(3, span.generate("a", temperature=0.5)), "b"))
    assert unshare(query) == query


def test_equal_greedy_generations_are_one():
    query = span.seq(span.generate("a"), span.generate("a"), span.generate("b"))
    assert len(generations(unshare(query))) == 2


def test_a_generation_at_random_is_drawn_anew_wherever_it_stands():
    one = span.generate("a", temperature=0.5)
    tree = unshare(span.plus(one, one, span.generate("a", temperature=0.5)))
    assert len(generations(tree)) == 3


def test_equal_draws_with_a_seed_take_the_next_ones():
    one = span.generate("a", temperature=0.5, seed=7)
    assert seeds(unshare(span.plus(one, one, one))) == [7, 8, 9]


def test_draws_that_have_their_seeds_keep_them():
    copies = span.repeat(3, span.generate("a", temperature=0.5, seed=7))
    assert seeds(unshare(span.plus(copies))) == [7, 8, 9]


def test_repeats_in_repeats_share_no_seed():
    drafts = span.plus(span.repeat(2, span.generate("a", temperature=0.5, seed=1)))
    tree = unshare(span.seq(span.repeat(3, span.generate("judge", drafts))))
    judges = [g for g in generations(tree) if g.sampling.seed is None]
    assert len(judges) == 3
    assert sorted(s for s in seeds(tree) if s is not None) == [1, 2, 3, 4, 5, 6]


def test_seeds_of_different_questions_are_their_own():
    query = span.seq(*(span.generate(text, temperature=0.5, seed=1) for text in "abc"))
    assert seeds(unshare(query)) == [1, 1, 1]


def test_many_equal_draws_are_told_apart_soon():
    one = span.generate("a", temperature=0.5, seed=0)
    tree = unshare(span.plus((one,) * 20_000))
    assert seeds(tree) == list(range(20_000))


def test_repeats_without_end_are_an_error(monkeypatch):
    monkeypatch.setattr(module, "MAX_DRAWS", 50)
    node = span.generate("a", temperature=0.5)
    for _ in range(10):
        node = span.plus(node, node)
    with pytest.raises(QueryError, match="Repeat less"):
        unshare(node)
