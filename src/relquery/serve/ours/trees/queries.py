"""Span queries as they are sent: their model, and what is asked of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relquery.backends.base import Backend
from relquery.errors import QueryError
from relquery.ir.forms.spnl.deep_json import decode
from relquery.ir.forms.spnl.read import WireQuery, read
from relquery.ir.nodes import Bag, Node, Seq
from relquery.ir.paths import children_of
from relquery.spans.ahead import prepare
from relquery.spans.corpus import passages


@dataclass(frozen=True, slots=True)
class Sent:
    """A query. completes: whether it is a map, which is answered as completions of texts."""

    query: WireQuery
    completes: bool

    @classmethod
    def of(cls, body: bytes) -> Sent:
        """Read the wire form. Raises QueryError."""
        try:
            value = decode(body.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise QueryError(f"Byte {error.start} of the query is not UTF-8.") from None
        completes = isinstance(value, dict) and list(value) == ["map"]
        return cls(read(value, None, is_tree=True), completes)

    @property
    def corpora(self) -> dict[str, list[str]]:
        """The documents that came with the query, in passages. Raises QueryError for one that is
        not text.
        """
        found = {}
        for name, content in self.query.documents.items():
            if not isinstance(content, str):
                raise QueryError(f"The document '{name}' must be text.")
            found[name] = passages(content)
        return found

    def prepare(self, backend: Backend) -> int:
        """Compute the states of what stands below plus, as far as it is known; returns of how many
        texts.
        """
        return prepare(Seq(tuple(_bags(self.query.node))), backend)


def _bags(node: Node) -> Iterator[Node]:
    """The outermost parts whose states can be used at any position."""
    todo = [node]
    while todo:
        current = todo.pop()
        if isinstance(current, Bag) and current.independent:
            yield current
        else:
            todo += reversed(children_of(current))
