"""Adds a condition over the columns of a query to the query itself, where this keeps its rows.

A condition reads column number i of the query as `ours.column(i)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from relquery.sql.form.groups import Texts, keys_of
from relquery.sql.form.normalize import conjuncts, has_grouping_sets, without_alias
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.from_clause import is_star
from relquery.sql.read.numbers import needs_number
from relquery.sql.read.scopes import calls_in, has_call
from relquery.sql.read.source import OF_BRANCH, call_number, to_sql
from relquery.sql.rewrite.lookup import Lookup
from relquery.sql.rewrite.safe import never_fails

# Metadata of a condition that was moved into a query: its calls were in the select list before.
_MOVED = "moved"
_ROWS_BY_NUMBER = ("limit", "offset", "sample")
_AFTER_ROWS = ("pivots", "sample", "with_", "limit", "offset", "order", "joins", "laterals")


def add_condition(query: exp.Expr, condition: exp.Expr, lookup: Lookup) -> bool:
    """Add it in place. Returns whether all rows of the query now meet the condition.

    If not, some of the rows that do not meet it may be gone, but no others.
    """
    if isinstance(query, exp.Subquery):
        is_plain = not any(query.args.get(key) for key in _AFTER_ROWS)
        return is_plain and add_condition(query.this, condition, lookup)
    if isinstance(query, exp.SetOperation):
        return _add_to_branches(query, condition, lookup)
    return isinstance(query, exp.Select) and _add_to_select(query, condition, lookup)


def reads_answers(query: exp.Expr, condition: exp.Expr) -> bool:
    """Whether a condition reads a column that a SELECT of the query computes with a call."""
    if isinstance(query, exp.Subquery):
        return reads_answers(query.this, condition)
    if isinstance(query, exp.SetOperation):
        branches = (query.this, query.expression)
        return any(reads_answers(branch, condition) for branch in branches)
    items = query.expressions
    read = positions_in(condition)
    return any(map(is_star, items)) or any(has_call(items[at]) for at in read)


def positions_in(condition: exp.Expr) -> list[int]:
    """The numbers of the columns that a condition reads."""
    names = (column.name for column in condition.find_all(exp.Column))
    return [int(name.rpartition("_")[2]) for name in names]


def _add_to_branches(query: exp.SetOperation, condition: exp.Expr, lookup: Lookup) -> bool:
    """`(a UNION b) WHERE c` => `a WHERE c UNION b WHERE c`, with columns by position."""
    by_place = not any(query.args.get(key) for key in ("by_name", "limit", "offset"))
    whole = lookup.columns(query)
    branches = [lookup.columns(branch) for branch in (query.this, query.expression)]
    if not by_place or whole is None or None in branches:
        return False
    read = positions_in(condition)
    if any(columns[at][1] != whole[at][1] for columns in branches if columns for at in read):
        return False  # the branch's values are cast before they can be compared
    for part in condition.walk():
        part.meta[OF_BRANCH] = True
    left, right = (
        add_condition(branch, condition, lookup) for branch in (query.this, query.expression)
    )
    if isinstance(query, exp.Except):
        return left
    return (left or right) if isinstance(query, exp.Intersect) else (left and right)


def _add_to_select(select: exp.Select, condition: exp.Expr, lookup: Lookup) -> bool:
    sources, normal = lookup.sources(select), lookup.normal(select)
    if any(select.args.get(key) for key in _ROWS_BY_NUMBER) or lookup.aggregates.is_volatile(
        select
    ):
        return False
    if sources is None or normal is None:
        return False
    items = [without_alias(item) for item in normal.expressions]
    used = [items[at] for at in dict.fromkeys(positions_in(condition))]
    place = _Place(normal, Texts(sources), lookup.aggregates).of(used)
    put = _put(condition, items)
    if place is None or not _keeps_calls(put, used, select):
        return False
    before = [part for part in _conditions(select, place) if has_call(part)]
    if not before or never_fails(put, lookup.kinds(select)):
        put.meta[_MOVED] = True
        _add(select, place, put)
        return True
    if place == "where" and not has_call(put):
        _add(select, place, exp.Coalesce(this=exp.Try(this=put), expressions=[exp.true()]))
    return False


def _add(select: exp.Select, place: str, condition: exp.Expr) -> None:
    """Add a condition to WHERE or HAVING. Does nothing if the clause already has it."""
    clause = select.args.get(place)
    known = {to_sql(part) for part in conjuncts(clause.this if clause else None)}
    if to_sql(condition) not in known:
        (select.where if place == "where" else select.having)(condition, copy=False)


def _conditions(select: exp.Select, place: str) -> list[exp.Expr]:
    """The conditions that drop rows or groups before a new one at this place would stand last."""
    keys = ("where", "having") if place == "where" else ("having",)
    clauses = map(select.args.get, keys)
    return [part for clause in clauses if clause for part in conjuncts(clause.this)]


def _put(condition: exp.Expr, items: list[exp.Expr]) -> exp.Expr:
    def put(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        item = items[positions_in(node)[0]].copy()
        is_one = isinstance(item, exp.Column | exp.Func) and not isinstance(item, exp.Binary)
        return item if is_one else exp.paren(item.unnest(), copy=False)

    return condition.transform(put)


@dataclass(frozen=True, slots=True)
class _Place:
    """Finds the clause of a normalized SELECT for a condition over some of its expressions."""

    normal: exp.Select
    texts: Texts
    aggregates: Aggregates

    def of(self, used: list[exp.Expr]) -> str | None:
        """`where`, `having`, or None if the condition must stay outside."""
        read = set(map(self.texts.text, used))
        if not self._are_values(used) or not all(read <= each for each in self._partitions()):
            return None
        if not self.aggregates.in_select(self.normal):
            return "where"
        if self.normal.args.get("group") is None or has_grouping_sets(self.normal):
            return None
        keys = set(map(self.texts.text, keys_of(self.normal, self.aggregates)))
        if read <= keys:
            return "where"
        return "having" if all(self._is_of_group(part, keys) for part in used) else None

    def _are_values(self, used: list[exp.Expr]) -> bool:
        """Whether the expressions depend on one row or group, and the list makes no rows."""
        if any(part.find(exp.Window) or self.aggregates.has_query(part) for part in used):
            return False
        return not any(item.find(exp.Explode, exp.UDTF) for item in self.normal.expressions)

    def _partitions(self) -> Iterator[set[str]]:
        """What divides the rows wherever the SELECT looks at several of them."""
        distinct = self.normal.args.get("distinct")
        if distinct is not None and distinct.args.get("on") is not None:
            yield set(map(self.texts.text, distinct.args["on"].expressions))
        if self.normal.args.get("windows"):
            yield set()  # a window may name one of these
        for window in self.normal.find_all(exp.Window):
            if window.find_ancestor(exp.Select) is self.normal:
                yield set(map(self.texts.text, window.args.get("partition_by") or ()))

    def _is_of_group(self, part: exp.Expr, keys: set[str]) -> bool:
        """Whether HAVING reads an expression without calls as the select list does.

        In HAVING, a name outside of aggregates may mean an item of the select list.
        """
        if has_call(part):
            return False
        if isinstance(part, exp.Column):
            return self.texts.text(part) in keys
        top = part.parent or part
        return next(self.aggregates.inside(part), None) is not None and all(
            self.aggregates.around(column, top) for column in part.find_all(exp.Column)
        )


def _keeps_calls(put: exp.Expr, used: list[exp.Expr], select: exp.Select) -> bool:
    """Whether the calls of a condition are read as in the select list, and cost nothing more.

    They could cost more next to another filter with calls, which may leave fewer rows.
    """
    calls = list(calls_in(put))
    if not calls:
        return True
    as_item = {call_number(call): needs_number(call) for part in used for call in calls_in(part)}
    if any(needs_number(call) != as_item[call_number(call)] for call in calls):
        return False
    filters = [part for part in _conditions(select, "where") if has_call(part)]
    return all(part.meta_get(_MOVED) for part in filters)
