"""Conditions on the columns of a derived table or WITH entry with calls go into its query.

SELECT id FROM (SELECT id, price, LLM('...', text) AS a FROM t) WHERE price < 20 AND a = 'x'
=> SELECT id FROM (SELECT id, price, LLM('...', text) AS a FROM t
                   WHERE price < 20 AND LLM('...', text) = 'x')

An entry with several readers gets what any of them needs; each reader keeps its own conditions:

WITH c AS (SELECT k, LLM(...) AS a FROM t)
SELECT a FROM c WHERE k = 1 UNION ALL SELECT a FROM c WHERE k = 2
=> WITH c AS (SELECT k, LLM(...) AS a FROM t WHERE k = 1 OR k = 2) ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relquery.sql import names as ours
from relquery.sql.binder.call import has_call
from relquery.sql.binder.functions import has_lambda, outermost_queries, own_nodes
from relquery.sql.optimizer.into_query import add_condition, reads_answers
from relquery.sql.optimizer.joins import adds_rows, is_inner, joins_around
from relquery.sql.optimizer.lookup import Lookup
from relquery.sql.optimizer.reads import Place, Read, Reader, carried, reads_in, restored
from relquery.sql.parser import build
from relquery.sql.parser.tree import Column, Expression, Join, Node, Query, Select

_DONE = "pushed"
"""Note on a condition that is in the query too, or cannot be, and on a query with those of several
readers."""


@dataclass(frozen=True, slots=True)
class _Movable:
    """A condition of a SELECT over the columns of one of its tables.

    holder: the SELECT or the join with it. node: itself. over: it over the table's query, see
    into_query.
    """

    holder: Select | Join
    node: Expression
    over: Expression

    def remove(self) -> None:
        """Take it out of its holder."""
        kept = [part for part in build.conjuncts(_held(self.holder)) if part is not self.node]
        if isinstance(self.holder, Select):
            self.holder.where = build.all_of(kept) if kept else None
        else:
            self.holder.condition = build.all_of(kept)


def push_conditions(tree: Query, lookup: Lookup) -> Query | None:
    """The rule of this module; see `rules`."""
    for read in reads_in(tree):
        if len(read.readers) == 1:
            if (found := next(_movable(read, read.readers[0], lookup), None)) is not None:
                if add_condition(read.query, found.over, lookup):
                    found.remove()
                else:
                    found.node.meta[_DONE] = True
                return tree
        elif read.readers and _DONE not in read.query.meta:
            read.query.meta[_DONE] = True
            per_reader = [_plain(read, reader, lookup) for reader in read.readers]
            if all(per_reader):
                needed = build.any_of(build.all_of(found) for found in per_reader)
                add_condition(read.query, needed, lookup)
                return tree
    return None


def _plain(read: Read, reader: Reader, lookup: Lookup) -> list[Expression]:
    """The conditions of one of several readers, without those that read answers."""
    found = (one.over for one in _movable(read, reader, lookup))
    return [over for over in found if not reads_answers(read.query, over)]


def _movable(read: Read, reader: Reader, lookup: Lookup) -> Iterator[_Movable]:
    """The conditions that may go into a query."""
    held = [
        (holder, node)
        for holder in _holders(reader)
        for node in build.conjuncts(_held(holder))
        if _DONE not in node.meta
    ]
    sources = lookup.sources(reader.select) if held and reader.select.sample is None else None
    place = None if sources is None else read.places(reader, lookup)
    if sources is None or place is None:
        return
    for holder, node in held:
        over = _over(restored(node, sources), place, lookup)
        queries = [] if over is None else outermost_queries(over)
        is_same = all(carried(one, reader.select, read.query, lookup) is one for one in queries)
        if over is not None and is_same:
            yield _Movable(holder, node, over)


def _held(holder: Select | Join) -> Expression | None:
    return holder.where if isinstance(holder, Select) else holder.condition


def _holders(reader: Reader) -> Iterator[Select | Join]:
    """Where conditions on a table drop rows of the table alone."""
    for inner, join in joins_around(reader.item):
        if adds_rows(join, inner):
            if join.method == "REGULAR" and join.kind != "FULL":
                yield join  # rows of this side that do not meet it have no match
            return
        if is_inner(join):
            yield join
    yield reader.select


def _over(node: Expression, place: Place, lookup: Lookup) -> Expression | None:
    """A condition over the columns of a query; None if it reads anything else."""
    functions = lookup.functions
    if has_call(node) or functions.is_volatile(node):
        return None
    queries = outermost_queries(node)
    if functions.has_query(node) and not (queries and all(map(lookup.stands_alone, queries))):
        return None
    places = [place(one) for one in own_nodes(node) if isinstance(one, Column)]
    if not places or None in places or has_lambda(node):
        return None

    def over(part: Node) -> Node | None:
        if not isinstance(part, Column) or (at := place(part)) is None:
            return part.copy() if isinstance(part, Query) else None
        return build.column(ours.column(at)).named(part.alias)

    found = node.rebuilt(over)
    assert isinstance(found, Expression)
    return found
