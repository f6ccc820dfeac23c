"""A tree in which each generation is one execution."""

from __future__ import annotations

import pytest

from relquery import span
from relquery.errors import QueryError
from relquery.ir.nodes import Generate, Node
from relquery.spans import work as module
from relquery.spans.work import unshare


def generations(node: Node) -> list[Generate]:
    """The distinct generations of a tree by identity, in document order."""
    return list({id(n): n for n in node.walk() if isinstance(n, Generate)}.values())


def seeds(node: Node) -> list[int | None]:
    return [generation.sampling.seed for generation in generations(node)]


def test_the_tree_says_what_it_said() -> None:
    query = span.generate("q", span.plus(span.repeat(3, span.generate("a", temperature=0.5)), "b"))
    assert unshare(query) == query


def test_equal_greedy_generations_are_one() -> None:
    query = span.seq(span.generate("a"), span.generate("a"), span.generate("b"))
    assert len(generations(unshare(query))) == 2


def test_a_generation_at_random_is_drawn_anew_wherever_it_stands() -> None:
    one = span.generate("a", temperature=0.5)
    tree = unshare(span.plus(one, one, span.generate("a", temperature=0.5)))
    assert len(generations(tree)) == 3


def test_equal_draws_with_a_seed_take_the_next_ones_and_keep_those_they_have() -> None:
    one = span.generate("a", temperature=0.5, seed=7)
    for copies in ((one, one, one), span.repeat(3, one)):
        assert seeds(unshare(span.plus(copies))) == [7, 8, 9]
    different = span.seq(*(span.generate(text, temperature=0.5, seed=1) for text in "abc"))
    assert seeds(unshare(different)) == [1, 1, 1]


def test_repeats_in_repeats_share_no_seed() -> None:
    drafts = span.plus(span.repeat(2, span.generate("a", temperature=0.5, seed=1)))
    tree = unshare(span.seq(span.repeat(3, span.generate("judge", drafts))))
    judges = [g for g in generations(tree) if g.sampling.seed is None]
    assert len(judges) == 3
    assert sorted(s for s in seeds(tree) if s is not None) == [1, 2, 3, 4, 5, 6]


def test_many_equal_draws_are_told_apart_soon() -> None:
    one = span.generate("a", temperature=0.5, seed=0)
    tree = unshare(span.plus((one,) * 2_000))
    assert seeds(tree) == list(range(2_000))


def test_repeats_without_end_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DRAWS", 50)
    node: Node = span.generate("a", temperature=0.5)
    for _ in range(10):
        node = span.plus(node, node)
    with pytest.raises(QueryError, match="Repeat less"):
        unshare(node)
