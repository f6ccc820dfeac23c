"""LIMIT goes into the query whose rows it counts.

SELECT a FROM (SELECT id, LLM('...', text) AS a FROM t) ORDER BY id LIMIT 3 OFFSET 2
=> SELECT a FROM (SELECT id, LLM('...', text) AS a FROM t ORDER BY 1 LIMIT 5)
   ORDER BY id LIMIT 3 OFFSET 2

SELECT LLM(...) FROM t UNION ALL SELECT LLM(...) FROM u LIMIT 3
=> (SELECT LLM(...) FROM t LIMIT 3) UNION ALL (SELECT LLM(...) FROM u LIMIT 3) LIMIT 3

EXISTS (SELECT 1 FROM t WHERE LLM(...) = 'Yes')
=> EXISTS (SELECT 1 FROM t WHERE LLM(...) = 'Yes' LIMIT 1)
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from relquery.sql.rewrite.lookup import Lookup
from relquery.sql.rewrite.sources import Read, Reader, asks, owns, reads_in

_CHANGES_ROWS = ("where", "distinct", "group", "having", "qualify", "sample", "joins", "laterals")


@dataclass(frozen=True, slots=True)
class _Limit:
    """most: rows that are read. order: keys of ORDER BY, with the numbers of columns; or none."""

    most: int
    order: tuple[exp.Ordered, ...] = ()


def push_limits(tree: exp.Expr, lookup: Lookup) -> exp.Expr | None:
    """The rule of this module; see `rules`."""
    for read in reads_in(tree):
        limit = _of_reader(read, lookup)
        if limit is not None and _limit(read.query, limit):
            return tree
    for union in list(tree.find_all(exp.Union)):
        limit = None if union.args.get("distinct") else _of_union(union, lookup)
        if limit is not None and any(_limit_branch(union, key, limit) for key in _SIDES):
            return tree
    for exists in tree.find_all(exp.Exists):
        query = exists.this
        is_open = isinstance(query, exp.Query) and not query.args.get("limit") and asks(query)
        if is_open and lookup.stands_alone(query) and _limit(query, _Limit(1)):
            return tree
    return None


_SIDES = ("this", "expression")


def _of_reader(read: Read, lookup: Lookup) -> _Limit | None:
    """How many rows of a query are read by a SELECT that gives each of them as one row."""
    if len(read.readers) != 1:
        return None
    reader = read.readers[0]
    select, most = reader.select, _most(reader.select)
    if most is None or any(select.args.get(key) for key in _CHANGES_ROWS):
        return None
    makes_rows = (exp.Window, exp.Explode, exp.UDTF)
    if lookup.aggregates.in_select(select) or any(
        item.find(*makes_rows) for item in select.expressions
    ):
        return None
    order = select.args.get("order")
    keys = [] if order is None else [_key(key, read, reader, lookup) for key in order.expressions]
    known = tuple(key for key in keys if key is not None)
    return _Limit(most, known) if len(known) == len(keys) else None


def _key(key: exp.Ordered, read: Read, reader: Reader, lookup: Lookup) -> exp.Ordered | None:
    """A key of ORDER BY over the columns of a query; None if it is more than one of them."""
    column = key.this
    if isinstance(column, exp.Column) and not column.table:
        given = [item.this for item in reader.select.expressions
                 if item.alias.lower() == column.name.lower()]  # fmt: skip
        column = given[-1] if given else column
    names, sources = read.names(reader, lookup), lookup.sources(reader.select)
    if not isinstance(column, exp.Column) or names is None or sources is None:
        return None
    if not owns(reader, column, names, sources):
        return None
    return _numbered(key, names.index(column.name.lower()))


def _of_union(union: exp.Union, lookup: Lookup) -> _Limit | None:
    most, order = _most(union), union.args.get("order")
    if most is None or union.args.get("by_name"):
        return None
    if order is None:
        return _Limit(most)
    names = [name.lower() for name, _ in lookup.columns(union) or ()]
    keys = [key for key in order.expressions if isinstance(key.this, exp.Column)]
    places = [key.this.name.lower() for key in keys]
    if len(keys) < len(order.expressions) or any(names.count(place) != 1 for place in places):
        return None
    numbered = zip(keys, places, strict=True)
    return _Limit(most, tuple(_numbered(key, names.index(place)) for key, place in numbered))


def _numbered(key: exp.Ordered, at: int) -> exp.Ordered:
    copy = key.copy()
    copy.set("this", exp.Literal.number(at + 1))
    return copy


def _limit_branch(union: exp.Union, side: str, limit: _Limit) -> bool:
    branch = union.args[side]
    if not asks(branch):
        return False
    if isinstance(branch, exp.Subquery):
        return _limit(branch, limit)
    if _limit(branch, limit):
        union.set(side, exp.Subquery(this=branch.copy()))
        return True
    return False


def _limit(query: exp.Expr, limit: _Limit) -> bool:
    """Limit the rows of a query in place, unless it has no more. Returns whether it changed."""
    if isinstance(query, exp.Subquery):
        own = any(query.args.get(key) for key in ("limit", "offset", "order", "sample", "pivots"))
        return not own and _limit(query.this, limit)
    if query.args.get("limit") or query.args.get("offset"):
        own_limit = query.args.get("limit")
        given = _number(own_limit)
        if limit.order or given is None or given <= limit.most:
            return False
    distinct = query.args.get("distinct")
    if limit.order and isinstance(distinct, exp.Distinct) and distinct.args.get("on"):
        return False  # its ORDER BY chooses the rows
    query.set("limit", exp.Limit(expression=exp.Literal.number(limit.most)))
    if limit.order:
        query.set("order", exp.Order(expressions=[key.copy() for key in limit.order]))
    return True


def _most(query: exp.Expr) -> int | None:
    """How many rows a query reads at most, with those that OFFSET skips; None if unknown."""
    limit, offset = query.args.get("limit"), query.args.get("offset")
    rows, skipped = _number(limit), 0 if offset is None else _number(offset)
    return None if rows is None or skipped is None else rows + skipped


def _number(clause: exp.Expr | None) -> int | None:
    if not isinstance(clause, exp.Limit | exp.Offset) or clause.args.get("limit_options"):
        return None
    value = clause.expression
    is_number = isinstance(value, exp.Literal) and not value.is_string and value.this.isdigit()
    return int(value.this) if is_number else None
