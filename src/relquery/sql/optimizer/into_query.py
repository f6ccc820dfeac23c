"""Adds a condition over the columns of a query to the query itself, where this keeps its rows.

A condition reads column number i of the query as `ours.column(i)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relquery.sql.binder.call import OF_BRANCH, calls_in, has_call, is_star
from relquery.sql.binder.functions import FunctionCatalog, has_window, makes_rows, own_nodes
from relquery.sql.binder.normalize import has_grouping_sets, keys_of, unnamed
from relquery.sql.binder.numbers import needs_number
from relquery.sql.binder.sources import Sources, canonical
from relquery.sql.optimizer.lookup import Lookup
from relquery.sql.optimizer.safe import never_fails
from relquery.sql.parser import build
from relquery.sql.parser.tree import (
    Column,
    Expression,
    Node,
    Query,
    Select,
    SetOperation,
    Window,
)

_MOVED = "moved"
"""Note on a condition that was moved into a query: its calls were in the select list before."""


def add_condition(query: Query, condition: Expression, lookup: Lookup) -> bool:
    """Add it in place. Returns whether all rows of the query now meet the condition.

    If not, some of the rows that do not meet it may be gone, but no others.
    """
    if query.limit is not None:
        return False
    if isinstance(query, SetOperation):
        return _add_to_branches(query, condition, lookup)
    return isinstance(query, Select) and _add_to_select(query, condition, lookup)


def reads_answers(query: Query, condition: Expression) -> bool:
    """Whether a condition reads a column that a SELECT of the query computes with a call."""
    if isinstance(query, SetOperation):
        return any(reads_answers(branch, condition) for branch in query.branches)
    items = query.items if isinstance(query, Select) else []
    return any(map(is_star, items)) or any(has_call(items[at]) for at in _read_by(condition))


def _read_by(condition: Expression) -> list[int]:
    """The numbers of the columns that a condition reads."""
    names = (one.name for one in own_nodes(condition) if isinstance(one, Column))
    return [int(name.rpartition("_")[2]) for name in names]


def _add_to_branches(query: SetOperation, condition: Expression, lookup: Lookup) -> bool:
    """`(a UNION b) WHERE c` => `a WHERE c UNION b WHERE c`, with columns by position."""
    whole = lookup.columns(query)
    branches = [lookup.columns(branch) for branch in query.branches]
    if query.kind == "UNION_BY_NAME" or whole is None:
        return False
    read = _read_by(condition)
    if any(of is None or any(of[at][1] != whole[at][1] for at in read) for of in branches):
        return False  # the branch's values are cast before they can be compared
    for part in condition.walk():
        part.meta[OF_BRANCH] = True
    meets = [add_condition(branch, condition, lookup) for branch in query.branches]
    if query.kind == "EXCEPT":
        return meets[0]
    return any(meets) if query.kind == "INTERSECT" else all(meets)


def _add_to_select(select: Select, condition: Expression, lookup: Lookup) -> bool:
    if select.sample is not None or lookup.functions.is_volatile(select):
        return False
    sources, normal = lookup.sources(select), lookup.normal(select)
    if sources is None or normal is None:
        return False
    items = [unnamed(item) for item in normal.items]
    used = [items[at] for at in dict.fromkeys(_read_by(condition))]
    is_where = _Clause(normal, sources, lookup.functions).is_where(used)
    put = _put(condition, items)
    if is_where is None or not _keeps_calls(put, used, select):
        return False
    before = [select.where, select.having] if is_where else [select.having]
    if not any(map(has_call, before)) or never_fails(put, lookup.kinds(select)):
        for part in build.conjuncts(put):
            part.meta[_MOVED] = True
        _add(select, put, is_where=is_where)
        return True
    if is_where and not has_call(put) and put.find(Query) is None:
        safe = build.operation(build.TRY, put)
        _add(select, build.operation(build.COALESCE, safe, build.boolean(True)), is_where=True)
    return False


def _add(select: Select, condition: Expression, *, is_where: bool) -> None:
    """Add a condition to WHERE or HAVING, without what the clause already has."""
    own = build.conjuncts(select.where if is_where else select.having)
    known = {part.key for part in own}
    both = [*own, *(part for part in build.conjuncts(condition) if part.key not in known)]
    if is_where:
        select.where = build.all_of(both)
    else:
        select.having = build.all_of(both)


def _put(condition: Expression, items: list[Expression]) -> Expression:
    def put(node: Node) -> Node | None:
        if not isinstance(node, Column):
            return node.copy() if isinstance(node, Query) else None
        return items[_read_by(node)[0]].copy().named(node.alias)

    found = condition.rebuilt(put)
    assert isinstance(found, Expression)
    return found


@dataclass(frozen=True, slots=True)
class _Clause:
    """Finds the clause of a normalized SELECT for a condition over some of its expressions."""

    normal: Select
    sources: Sources
    functions: FunctionCatalog

    def is_where(self, used: list[Expression]) -> bool | None:
        """Whether it is WHERE, and not HAVING; None if the condition must stay outside."""
        read = self._texts(used)
        if not self._are_values(used) or not all(read <= each for each in self._partitions()):
            return None
        if not self.functions.in_select(self.normal):
            return True
        keys = self._texts(keys_of(self.normal, self.functions))
        if not keys or has_grouping_sets(self.normal):
            return None
        if read <= keys:
            return True
        return False if all(self._is_of_group(part, keys) for part in used) else None

    def _texts(self, nodes: list[Expression]) -> set[str]:
        return {canonical(node, self.sources) for node in nodes}

    def _are_values(self, used: list[Expression]) -> bool:
        """Whether the expressions depend on one row or group, and the list makes no rows."""
        if any(has_window(part) or self.functions.has_query(part) for part in used):
            return False
        return not any(map(makes_rows, self.normal.items))

    def _partitions(self) -> Iterator[set[str]]:
        """What divides the rows wherever the SELECT looks at several of them."""
        if self.normal.distinct is not None and self.normal.distinct.on:
            yield self._texts(self.normal.distinct.on)
        for window in self.normal.find_all(Window):
            if window.ancestor(Select) is self.normal:
                yield self._texts(window.partitions)

    def _is_of_group(self, part: Expression, keys: set[str]) -> bool:
        """Whether HAVING reads an expression without calls as the select list does.

        In HAVING, a name outside of aggregates may mean an item of the select list.
        """
        if has_call(part):
            return False
        if isinstance(part, Column):
            return canonical(part, self.sources) in keys
        return self.functions.has_aggregate(part) and all(
            self.functions.around(column, self.normal) for column in part.find_all(Column)
        )


def _keeps_calls(put: Expression, used: list[Expression], select: Select) -> bool:
    """Whether the calls of a condition are read as in the select list, and cost nothing more.

    They could cost more next to another filter with calls, which may leave fewer rows.
    """
    calls = list(calls_in(put))
    if not calls:
        return True
    as_item = {call.number: needs_number(call) for part in used for call in calls_in(part)}
    if any(needs_number(call) != as_item[call.number] for call in calls):
        return False
    filters = [*build.conjuncts(select.where), *build.conjuncts(select.having)]
    return all(_MOVED in part.meta for part in filters if has_call(part))
