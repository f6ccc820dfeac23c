"""What a tree asks for, as a reference for rewrites, and the rules that golden files are about."""

from __future__ import annotations

from collections import Counter
from typing import Any

from relquery.ir.nodes import Bag, Chat, Fragment, Generate, Node, Prepare, Retrieve, Seq, Text
from relquery.ir.optimize import Rule
from relquery.ir.paths import awaits_answer, children_of, distinct, verify
from relquery.ir.rules import (
    desugar_chat,
    desugar_fragment,
    desugar_retrieve,
    distribute_plus,
    drop_empty,
    drop_prepare,
    flatten_bag,
    flatten_plus,
    flatten_seq,
    reduce_tree,
    unwrap_single,
)
from relquery.prompt import Role

Pieces = tuple[Any, ...]


def meaning(node: Node, *, candidate: bool = False) -> Pieces:
    """What the node puts into a prompt, piece by piece. candidate: it is a child of plus."""
    match node:
        case Text() | Fragment():
            role = node.role if isinstance(node, Text) else Role.USER
            return (("text", role, node.content),) if node.content else ()
        case Prepare(input):
            return meaning(input)
        case Seq(children):
            return tuple(piece for child in children for piece in meaning(child))
        case Bag(children, separator, independent):
            return _bag(children, separator, independent)
        case Generate() | Chat():
            input = node.input if isinstance(node, Generate) else Seq(node.children)
            return (("exchange" if candidate else "answer", _read(input), node.sampling),)
    raise AssertionError(f"a {type(node).__name__} has a meaning only once it is looked up")


def _read(input: Node) -> Pieces:
    """The prompt of a generation: where nothing stands before, a plus of one is its child."""
    pieces = meaning(input)
    while len(pieces) == 1 and pieces[0][0] == "plus" and sum(n for _, n in pieces[0][2]) == 1:
        ((pieces, _),) = pieces[0][2]
        if len(pieces) == 1 and pieces[0][0] == "exchange":
            pieces = (("answer", *pieces[0][1:]),)
    return pieces


def _bag(children: tuple[Node, ...], separator: str, independent: bool) -> Pieces:
    kind = "plus" if independent else "bag"
    items: Counter[Pieces] = Counter()
    for child in children:
        pieces = meaning(child, candidate=independent)
        if len(pieces) == 1 and pieces[0][:2] == (kind, separator):
            items.update(dict(pieces[0][2]))
        elif pieces or separator:
            items[pieces] += 1
    if not independent and not separator and items.total() == 1:
        return next(iter(items))
    return ((kind, separator, frozenset(items.items())),) if items else ()


def assert_desugared(tree: Node) -> None:
    """Only what `optimize` leaves: the core operators of paper 002, Table 1."""
    verify(tree)
    for node in distinct(tree):
        assert not isinstance(node, Chat | Fragment)
        assert not isinstance(node, Retrieve) or awaits_answer(node.query)
        if not (isinstance(node, Bag) and node.independent):  # elsewhere it has no effect
            assert not any(isinstance(child, Prepare) for child in children_of(node))


def look_up(corpus: str, text: str, limit: int) -> list[str]:
    """As many fragments as asked for, which say what was asked; corpus `empty` has none."""
    return [] if corpus == "empty" else [f"{corpus} {i}: {text}" for i in range(1, limit + 1)]


RULES: dict[str, tuple[Rule, ...]] = {
    "desugar_chat": (desugar_chat,),
    "desugar_fragment": (desugar_fragment, drop_prepare),
    "desugar_retrieve": (desugar_retrieve(look_up),),
    "drop_prepare": (drop_prepare,),
    "flatten_plus": (flatten_plus,),
    "flatten_seq": (flatten_seq,),
    "flatten_bag": (flatten_bag,),
    "drop_empty": (drop_empty,),
    "unwrap_single": (unwrap_single,),
    "distribute_plus": (distribute_plus,),
    "reduce_tree": (reduce_tree(2),),
}
