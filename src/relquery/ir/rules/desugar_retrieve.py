"""Retrieval is a commutative join of prepared fragments (paper 002, section 5.1, Fig. 7b)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relquery.errors import QueryError, type_of
from relquery.ir.nodes import Bag, Chat, Fragment, Generate, Node, Prepare, Retrieve, Text
from relquery.ir.paths import children_of, distinct

# (corpus, text of the question, maximum number of texts) -> texts, best first.
Lookup = Callable[[str, str, int], Sequence[str]]


def desugar_retrieve(retrieve: Lookup) -> Callable[[Node], Node | None]:
    """The rule that looks fragments up with `retrieve`, once for each distinct question.

    A Retrieve whose query contains an answer stays: what to look for is known only in execution.
    The rule raises QueryError if `retrieve` returns something other than texts, or too many texts.
    """
    found: dict[tuple[str, str, int], Node] = {}

    def rule(node: Node) -> Node | None:
        """retrieve "corpus"(query) => plus(prepare(user "fragment"), ...)"""
        if not isinstance(node, Retrieve) or not _is_known(node.query):
            return None
        asked = (node.corpus, query_text(node.query), node.limit)
        if asked not in found:
            texts = _checked(retrieve(*asked), node)
            found[asked] = Bag(tuple(Prepare(Text(text)) for text in texts), independent=True)
        return found[asked]

    rule.__name__ = "desugar_retrieve"
    return rule


def query_text(node: Node) -> str:
    """The text to look for: messages concatenated, children of plus one per line."""
    parts: list[str] = []
    todo: list[Node | str] = [node]
    while todo:
        current = todo.pop()
        if isinstance(current, str):
            parts.append(current)
        elif isinstance(current, Text | Fragment):
            parts.append(current.content)
        else:
            separator = ""
            if isinstance(current, Bag):
                separator = "\n" if current.independent else current.separator
            for child in reversed(children_of(current)):
                todo += (child, separator)
            if current.children:
                todo.pop()  # no separator before the first
    return "".join(parts)


def _is_known(query: Node) -> bool:
    """Whether the query's text is known; a nested Retrieve must be rewritten first."""
    return not any(isinstance(below, Generate | Chat | Retrieve) for below in distinct(query))


def _checked(texts: Sequence[str], node: Retrieve) -> Sequence[str]:
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise QueryError(
            f"The retrieve function returned {type_of(texts)} for corpus {node.corpus!r}; "
            "it must return a list of texts."
        )
    for text in texts:
        if not isinstance(text, str):
            raise QueryError(
                f"The retrieve function returned {type_of(text)} among the texts for "
                f"corpus {node.corpus!r}; it must return only texts."
            )
    if len(texts) > node.limit:
        raise QueryError(
            f"The retrieve function returned {len(texts)} texts for corpus {node.corpus!r}; the "
            f"limit was {node.limit}. Cut the list to the limit."
        )
    return texts
