"""The rows that read an expression at all: CASE, OR and similar operators may skip it.

CASE WHEN a THEN LLM(...) WHEN b THEN x ELSE LLM(...) END
=> the first call where a is true, the second where neither a nor b is
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from relquery.sql.binder.call import has_call
from relquery.sql.binder.functions import FunctionCatalog, has_window, own_nodes
from relquery.sql.binder.normalize import has_grouping_sets
from relquery.sql.parser import build, tree
from relquery.sql.parser.tree import (
    Conjunction,
    Expression,
    FunctionCall,
    Node,
    Operator,
    Select,
    When,
)

_ONLY_TRUE = ("where_clause", "having", "qualify")


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that holds where a node is read.

    is_side: whether it is another side of an AND or OR. Then either side may be computed first;
    any other condition is computed before the node.
    """

    holds: Expression
    is_side: bool = False


def guard_of(node: Node, top: Node, functions: FunctionCatalog) -> Expression | None:
    """The condition, without calls, under which a node is read in `top`: a SELECT or an expression.

    None if it is read in every row, as far as conditions without calls can tell.
    """
    conditions = Conditions(top, functions, where_it_counts=False).of(node)
    return guard([condition.holds for condition in conditions if not has_call(condition.holds)])


def guard(conditions: Sequence[Expression]) -> Expression | None:
    """One condition for several that must all hold, outer ones first; None if there are none.

    They are nested as in the query: an inner condition is computed only where the outer one holds.
    If computing it fails, the node counts as read.
    """
    if not conditions:
        return None
    nested = conditions[-1].copy()
    for outer in reversed(conditions[:-1]):
        nested = build.when(outer.copy(), nested)
    safe = build.operation(build.COALESCE, nested, build.boolean(False))
    return build.operation(build.COALESCE, build.operation(build.TRY, safe), build.boolean(True))


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions under which the nodes of `top` are read. They may contain calls. Nodes beside
    each other in an AND or OR share theirs, so that many of them take no longer than few.

    where_it_counts: where a node's value counts. Then, where NULL does the same as false, as in
    WHERE, a side of an AND counts only if the other sides are true, not if one is NULL.
    """

    top: Node
    functions: FunctionCatalog
    where_it_counts: bool
    _sides: dict[Conjunction, list[Condition | None]] = field(default_factory=dict)

    def of(self, node: Node) -> list[Condition]:
        """Conditions that all hold where a node is read, outer ones first.

        Conditions around a window function don't count: it reads rows other than its own. Neither
        do conditions around an aggregate with ROLLUP, CUBE or GROUPING SETS, where a key in the
        result may be NULL, nor those that depend on more than their row. Ignoring a condition only
        means that more rows are asked.
        """
        conditions: list[Condition] = []
        has_sets = isinstance(self.top, Select) and has_grouping_sets(self.top)
        while node.parent is not None and node is not self.top:
            parent = node.parent
            if isinstance(parent, tree.Window) or (has_sets and self.functions.is_aggregate(node)):
                break
            if isinstance(parent, Conjunction):
                sides = self._of_sides(parent)
                level = [side for index, side in enumerate(sides) if index != node.index and side]
            else:
                level = list(filter(self._is_of_a_row, _conditions_of(node, parent)))
            conditions = [*level, *conditions]
            node = parent
        return conditions

    def _of_sides(self, parent: Conjunction) -> list[Condition | None]:
        """What each side of an AND or OR says where others are read; None for what is ignored."""
        if parent not in self._sides:
            sides = (
                Condition(self._side(operand, parent), is_side=True) for operand in parent.operands
            )
            self._sides[parent] = [side if self._is_of_a_row(side) else None for side in sides]
        return self._sides[parent]

    def _side(self, one: Expression, parent: Conjunction) -> Expression:
        if not parent.is_and:
            return _not_true(one)
        if self.where_it_counts and _counts_only_as_true(parent):
            return one.copy()
        return build.compared(build.DISTINCT, one.copy(), build.boolean(False))

    def _is_of_a_row(self, condition: Condition) -> bool:
        """Whether a condition depends neither on other rows nor on random values."""
        holds, functions = condition.holds, self.functions
        operators = (operator for operator in own_nodes(holds) if isinstance(operator, Operator))
        is_of_keys = any(operator.kind == "GROUPING_FUNCTION" for operator in operators)
        is_of_rows = has_window(holds) or functions.has_aggregate(holds) or is_of_keys
        return not (is_of_rows or functions.has_query(holds) or functions.is_volatile(holds))


def _conditions_of(node: Node, parent: Node) -> Iterator[Condition]:
    """What holds where `parent`, no AND or OR, reads `node`. Of a WHEN, its CASE says so."""
    if isinstance(parent, When):
        if node.place == "then_expr":
            yield Condition(parent.condition.copy())
    elif isinstance(parent, tree.Case):
        earlier = parent.branches[: node.index] if isinstance(node, When) else parent.branches
        yield from (Condition(_not_true(branch.condition)) for branch in earlier)
    elif isinstance(parent, Operator) and parent.kind == build.COALESCE:
        for operand in parent.operands[: node.index]:
            yield Condition(build.operation(build.IS_NULL, operand.copy()))
    elif isinstance(parent, tree.Argument):
        function = parent.parent
        if isinstance(function, FunctionCall) and function.name.lower() == "if" and parent.index:
            condition = function.values[0]
            is_first = parent.index == 1
            yield Condition(condition.copy() if is_first else _not_true(condition))
        elif isinstance(function, FunctionCall) and function.filter is not None:
            yield Condition(function.filter.copy())


def _counts_only_as_true(node: Node) -> bool:
    """Whether a condition is used where NULL does the same as false, as in WHERE."""
    parent = node.parent
    while isinstance(parent, Conjunction):
        node, parent = parent, parent.parent
    if isinstance(parent, When):
        return node.place == "when_expr"
    if isinstance(parent, FunctionCall):
        return node.place == "filter"
    return isinstance(parent, Select) and node.place in _ONLY_TRUE


def _not_true(condition: Expression) -> Expression:
    return build.compared(build.DISTINCT, condition.copy(), build.boolean(True))
