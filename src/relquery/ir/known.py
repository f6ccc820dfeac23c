"""Resolves the generations, retrievals and sugar in a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relquery.errors import UnsupportedQueryError
from relquery.ir.nodes import Bag, Fragment, Generate, Node, Prepare, Retrieve, Seq, Text
from relquery.ir.paths import children_of, word
from relquery.prompt import Answer, Exchange, Prompt, Reuse, Span


@dataclass(frozen=True, slots=True)
class Answered:
    """A generation that has been run. prompt: its lowered prompt."""

    prompt: Prompt
    answer: Answer


# By node id: the result of a generation, or the node that replaces a Retrieve.
Known = Mapping[int, Answered | Node]


def exchange_of(node: Generate, known: Known) -> Span | None:
    """A generation with its input, as it is in the cache; its text if the tokens are unknown."""
    answered = found(node, known)
    answer = answered.answer
    if answer.tokens is not None:
        return Span(Exchange(answered.prompt, answer.tokens), reuse=Reuse.INDEPENDENT)
    return Span(answer.text, reuse=Reuse.INDEPENDENT) if answer.text else None


def found(node: Generate, known: Known) -> Answered:
    """The result of a generation. Raises UnsupportedQueryError if it is not known."""
    answered = known.get(id(node))
    if not isinstance(answered, Answered):
        raise UnsupportedQueryError(
            "A prompt contains the answer of another generation, which is not known yet. "
            "Run the inner one first and pass its answer as Text, or run the whole query with "
            "Connection.run."
        )
    return answered


def meant(node: Node, known: Known) -> Node:
    """The node that replaces a preparation, a fragment or a retrieval."""
    if isinstance(node, Prepare):
        return node.input
    if isinstance(node, Fragment):
        return Text(node.content)
    stands_for = known.get(id(node))
    if stands_for is None or isinstance(stands_for, Answered):
        raise UnsupportedQueryError(
            f"A prompt contains a {word(node)}, which has not been resolved yet. "
            "Rewrite the tree with relquery.optimize first."
        )
    return stands_for


def sole(node: Node, known: Known) -> Node:
    """The node without its outer joins of one child, including plus."""
    while True:
        if isinstance(node, Prepare | Retrieve):
            below = meant(node, known)
        elif isinstance(node, Seq | Bag):
            kept = [child for child in children_of(node) if not _is_empty(child)]
            if len(kept) != 1 or (isinstance(node, Bag) and node.separator):
                return node
            (below,) = kept
        else:
            return node
        node = below


def _is_empty(node: Node) -> bool:
    return isinstance(node, Text) and not node.content
