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

from sqlglot import exp

from relquery.sql import names as ours
from relquery.sql.form.normalize import conjuncts
from relquery.sql.read.from_clause import Sources
from relquery.sql.read.scopes import has_call
from relquery.sql.rewrite.into_query import add_condition, reads_answers
from relquery.sql.rewrite.lookup import Lookup
from relquery.sql.rewrite.sources import Read, Reader, owns, reads_in

# Metadata of a condition that is in the query too, or cannot be, and of a query with those of
# several readers.
_DONE = "pushed"


@dataclass(frozen=True, slots=True)
class _Movable:
    """A condition of a SELECT over the columns of one of its tables.

    holder: the WHERE or the join with it. node: itself. over: it over the table's query, see
    into_query.
    """

    holder: exp.Expr
    node: exp.Expr
    over: exp.Expr


def push_conditions(tree: exp.Expr, lookup: Lookup) -> exp.Expr | None:
    """The rule of this module; see `rules`."""
    for read in reads_in(tree):
        if len(read.readers) == 1:
            if (found := next(_movable(read, read.readers[0], lookup), None)) is not None:
                if add_condition(read.query, found.over, lookup):
                    _remove(found)
                else:
                    found.node.meta[_DONE] = True
                return tree
        elif read.readers and not read.query.meta_get(_DONE):
            read.query.meta[_DONE] = True
            per_reader = [_plain(read, reader, lookup) for reader in read.readers]
            if all(per_reader):
                needed = [exp.and_(*found) for found in per_reader]
                add_condition(read.query, exp.or_(*needed), lookup)
                return tree
    return None


def _plain(read: Read, reader: Reader, lookup: Lookup) -> list[exp.Expr]:
    """The conditions of one of several readers, without those that read answers."""
    found = (one.over for one in _movable(read, reader, lookup))
    return [over for over in found if not reads_answers(read.query, over)]


def _movable(read: Read, reader: Reader, lookup: Lookup) -> Iterator[_Movable]:
    """The conditions that may go into a query."""
    holders = list(_holders(reader))
    if not holders or reader.select.args.get("sample"):
        return
    sources, names = lookup.sources(reader.select), read.names(reader, lookup)
    if sources is None or names is None:
        return
    for holder in holders:
        written = holder.this if isinstance(holder, exp.Where) else holder.args["on"]
        for node in conjuncts(written):
            over = None if node.meta_get(_DONE) else _over(node, reader, names, sources, lookup)
            if over is not None:
                yield _Movable(holder, node, over)


def _holders(reader: Reader) -> Iterator[exp.Expr]:
    """Where conditions on a table drop rows of the table alone."""
    joins: list[exp.Join] = reader.select.args.get("joins") or []
    own = joins[reader.at - 1] if reader.at else None
    later = joins[reader.at :]
    if own is not None and own.args.get("on") and _is_left(own):
        yield own
    if own is not None and not _is_inner(own):
        return
    if any(join.side in ("RIGHT", "FULL") or join.method == "POSITIONAL" for join in later):
        return
    for join in [own, *later] if own is not None else later:
        if join.args.get("on") and _is_inner(join):
            yield join
    if (where := reader.select.args.get("where")) is not None:
        yield where


def _is_inner(join: exp.Join) -> bool:
    return not join.side and join.kind in ("", "INNER", "CROSS") and join.method in ("", "NATURAL")


def _is_left(join: exp.Join) -> bool:
    return join.side == "LEFT" and join.kind in ("", "OUTER") and not join.method


def _over(
    node: exp.Expr, reader: Reader, names: list[str], sources: Sources, lookup: Lookup
) -> exp.Expr | None:
    """A condition over the columns of a reader's query; None if it reads anything else."""
    columns = list(node.find_all(exp.Column))
    if not columns or has_call(node) or lookup.aggregates.has_query(node):
        return None
    if lookup.aggregates.is_volatile(node) or node.find(exp.Lambda, exp.Comprehension):
        return None
    if not all(owns(reader, column, names, sources) for column in columns):
        return None
    return node.transform(
        lambda part: (
            exp.column(ours.column(names.index(part.name.lower())))
            if isinstance(part, exp.Column)
            else part
        )
    )


def _remove(found: _Movable) -> None:
    is_where = isinstance(found.holder, exp.Where)
    written = found.holder.this if is_where else found.holder.args["on"]
    kept = [part for part in conjuncts(written) if part is not found.node]
    if is_where and not kept:
        found.holder.pop()
    else:
        key = "this" if is_where else "on"
        found.holder.set(key, exp.and_(*kept, copy=False) if kept else exp.true())
