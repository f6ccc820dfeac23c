"""Replaces a judge over many candidates by a tree of judges over a few (paper 002, section 6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relquery.errors import QueryError
from relquery.ir.nodes import Bag, Generate, Node, Seq
from relquery.ir.paths import awaits_answer

_SEPARATOR = "\n"  # between the answers that a judge higher up reads


def reduce_tree(arity: int) -> Callable[[Node], Node | None]:
    """The rule for generations that read more than `arity` (at least 2) children of one join.

    Raises QueryError for a smaller arity.
    """
    if isinstance(arity, bool) or not isinstance(arity, int) or arity < 2:
        raise QueryError(f"arity is {arity!r}; it must be an integer of at least 2.")

    def rule(node: Node) -> Node | None:
        """generate(plus(a, b, c, d)) => generate(bag(generate(plus(a, b)), generate(plus(c, d))))

        Texts before and after the join are repeated around each part, and the settings are kept.
        A generation is unchanged if it reads several such joins, since each part of one would have
        to be judged with each part of the other. It is also unchanged if the texts around the join
        contain answers, since these would be generated again for each part.
        """
        if not isinstance(node, Generate):
            return None
        parts = node.input.children if isinstance(node.input, Seq) else (node.input,)
        wide = [index for index, part in enumerate(parts) if _is_wide(part, arity)]
        if len(wide) != 1:
            return None
        before, join, after = parts[: wide[0]], parts[wide[0]], parts[wide[0] + 1 :]
        if any(map(awaits_answer, (*before, *after))):
            return None
        assert isinstance(join, Bag)

        def judge(join: Bag) -> Generate:
            input = Seq((*before, join, *after)) if len(parts) > 1 else join
            return Generate(input, node.sampling)

        answers = [
            judge(Bag(part, join.separator, join.independent)) if len(part) > 1 else part[0]
            for part in _split(join.children, arity)
        ]
        while len(answers) > arity:
            answers = [
                judge(Bag(part, _SEPARATOR)) if len(part) > 1 else part[0]
                for part in _split(answers, arity)
            ]
        return judge(Bag(tuple(answers), _SEPARATOR))

    rule.__name__ = "reduce_tree"
    return rule


def _is_wide(node: object, arity: int) -> bool:
    return isinstance(node, Bag) and len(node.children) > arity


def _split(nodes: Sequence[Node], arity: int) -> list[tuple[Node, ...]]:
    """The fewest parts of at most `arity` nodes, in order; sizes differ by at most 1."""
    count = -(-len(nodes) // arity)
    bounds = [-(-index * len(nodes) // count) for index in range(count + 1)]
    return [tuple(nodes[bounds[i] : bounds[i + 1]]) for i in range(count)]
