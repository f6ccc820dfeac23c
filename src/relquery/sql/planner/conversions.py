"""Rewrites a SELECT so that each answer is read as the type the query needs there.

    LLM('...', x)::DATE          =>  what DuckDB's TRY_CAST gives; see planner.checks
    LLM('...', x) = d            =>  the same, as the type of d
    LLM('...', x) * 2            =>  the same, as DOUBLE
    LLM('...', x) ->> 'title'    =>  TRY(LLM('...', x) ->> 'title')

So an answer never aborts a query. If it is not a valid value of the type, or if an expression over
it fails, the result is NULL. planner.checks reports each such value, row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relquery.errors import QueryError
from relquery.sql.binder.call import FIELD_NAME, Call, has_call, readable
from relquery.sql.binder.functions import (
    FunctionCatalog,
    clauses_of,
    has_window,
    is_lambda,
    makes_rows,
    own_nodes,
)
from relquery.sql.binder.sources import Kinds
from relquery.sql.binder.stand_ins import ARITHMETIC, beyond_double, compared_in, needs_number
from relquery.sql.optimizer.never_fails import is_open_literal
from relquery.sql.optimizer.reads import note_field_names
from relquery.sql.parser import build, tree
from relquery.sql.parser.tree import Case, Cast, Expression, Function, Node, Query, Select, Subquery
from relquery.sql.planner.checks import (
    AS_WRITTEN,
    has_answer,
    is_answer,
    is_macro,
    noted,
    reading,
)

# Types that DuckDB compares with text as text.
_COMPARED_AS_TEXT = ("VARCHAR", "BLOB", "VARIANT", "TIME_NS", "ENUM(", "UNION(", '"NULL"')
# Functions that never fail for a text, and those that only choose among values.
_NEVER_FAIL = frozenset(
    (
        *("concat", "||", "lower", "lcase", "upper", "ucase", "trim", "length", "len", "substring"),
        *("struct_pack", "row", "list_value", "if", "nullif", "~~", "~~*", "!~~", "!~~*"),
    )
)
_NULL = build.null().key
_MAY_FAIL_OPERATORS = ("ARRAY_EXTRACT", "ARRAY_SLICE", "STRUCT_EXTRACT")


def convert(
    select: Select, kinds: Kinds, functions: FunctionCatalog, wanted: Sequence[str] = ()
) -> Select:
    """A SELECT that gives the same rows if all answers are valid values of the types needed.

    select: normalized. wanted: types of the columns that its columns are written to, if any.
    """
    if not any(map(has_answer, clauses_of(select))):
        return select
    whole = _Conversion(kinds, functions, tries=True).of(select, wanted)
    if whole.key == select.key or kinds.binds(whole):
        return whole
    # TRY accepts neither volatile functions nor subqueries.
    return _Conversion(kinds, functions, tries=False).of(select, wanted)


@dataclass(frozen=True, slots=True)
class _Conversion:
    kinds: Kinds
    functions: FunctionCatalog
    tries: bool

    def of(self, select: Select, wanted: Sequence[str]) -> Select:
        select = select.copy()
        nodes = [node for clause in clauses_of(select) for node in own_nodes(clause)]
        answering = [node for node in nodes if has_answer(node)]
        for node in answering:
            if isinstance(node, Expression):
                node.meta[AS_WRITTEN] = node.copy()
        for clause in clauses_of(select):
            note_field_names(clause)
        for item, kind in zip(list(select.items), wanted, strict=False):
            if has_call(item) and self._is_row_level(item):
                given = self.kinds.of(item)
                if given not in (None, kind):
                    noted(item, item, kind, later=True, is_text=given == "VARCHAR")
        for node in reversed(answering):  # inner ones first
            self._convert(node)
        return select

    def _convert(self, node: Node) -> None:
        if isinstance(node, Call):
            if needs_number(node):
                others = beyond_double(node)
                kind = self._common_kind(others) if others else None
                _replace(node, self._read(node, kind or "DOUBLE"))
        elif isinstance(node, Cast):
            if not node.is_try:
                self._convert_cast(node)
        elif (sides := compared_in(node)) is not None:
            self._convert_compared(sides)
        elif isinstance(node, Subquery) and node.compared is not None:
            self._convert_compared([node.compared], self._kind_of_query(node.query))
        elif isinstance(node, Function) and node.name.lower() == "nullif":
            self._convert_null_if(node)
        elif isinstance(node, Expression) and self.tries and self._may_fail(node):
            _replace(node, noted(build.operation(build.TRY, node.copy().named("")), node, None))

    def _read(self, text: Expression, kind: str, to: Node | None = None) -> Expression:
        """Text read as a type. Raises QueryError if none of its labels is a value of it."""
        labels = text.task.sampling.labels if isinstance(text, Call) else ()
        if labels and not any(
            self.kinds.is_value(reading(build.text(label), kind)) for label in labels
        ):
            raise QueryError(
                f"{readable(text)} is read as {kind}, but none of its labels is a valid {kind}: "
                f"{', '.join(map(repr, labels))}."
            )
        return noted(reading(text.copy().named(""), kind, to), text, kind)

    def _convert_cast(self, node: Cast) -> None:
        if any(call.task.output is not None for call in _calls_read(node.value)):
            return  # the answers are values already
        kind = self.kinds.named(node.to)
        if kind in (None, "VARCHAR") or not self._is_row_level(node.value):
            return
        assert kind is not None
        text = node.value
        if self._is_text(text):
            _replace(node, self._read(text, kind, node.to.copy()))
        else:
            value = build.cast(text.copy(), node.to.copy(), is_try=True)
            _replace(node, noted(value, text, kind))

    def _convert_compared(self, sides: Sequence[Expression], kind: str | None = None) -> None:
        """If answer text is compared with another type, read it as that type."""
        texts = [side for side in sides if self._is_answer_text(side)]
        others = [side for side in sides if not any(side is text for text in texts)]
        kind = kind or self._common_kind(others)
        if kind is None or kind.startswith(_COMPARED_AS_TEXT):
            return
        for side in texts:
            _replace(side, self._read(side, kind))

    def _convert_null_if(self, node: Function) -> None:
        text, other = node.values[:2]
        if not self._is_answer_text(text):
            self._convert_compared(node.values[:2])
            return
        kind = self._common_kind([other])
        if kind is not None and not kind.startswith(_COMPARED_AS_TEXT):
            equal = build.compared(build.EQUAL, self._read(text, kind), other.copy())
            _replace(node, build.when(equal, build.null(), text.copy()))

    def _kind_of_query(self, query: Query) -> str | None:
        """The type of the only column of a query; VARCHAR if DuckDB does not say."""
        one = Subquery(
            subquery_type="SCALAR", subquery=Node(node=query.copy()), comparison_type="INVALID"
        )
        return self.kinds.of(one) or "VARCHAR"

    def _common_kind(self, others: list[Expression]) -> str | None:
        """The type that text is cast to when compared with `others`; None if it stays text."""
        typed = [other for other in others if not is_open_literal(other)]
        if len(typed) > 1:
            typed = [build.operation(build.COALESCE, *(one.copy() for one in typed))]
        return self.kinds.of(typed[0]) if typed else None

    def _is_answer_text(self, node: Expression) -> bool:
        return has_answer(node) and self._is_row_level(node) and self._is_text(node)

    def _is_text(self, node: Expression) -> bool:
        return is_answer(node) or self.kinds.of(node) == "VARCHAR"

    def _is_row_level(self, node: Node) -> bool:
        """Whether an expression depends only on its row."""
        return not (
            self.functions.has_aggregate(node)
            or has_window(node)
            or makes_rows(node)
            or any(isinstance(part, Query) for part in node.walk())
        )

    def _may_fail(self, node: Expression) -> bool:
        if isinstance(node, tree.Window) or not self._is_row_level(node) or _is_double(node):
            return False
        if isinstance(node, tree.Operator):
            return node.kind in _MAY_FAIL_OPERATORS
        if isinstance(node, tree.Lambda):
            return not is_lambda(node)
        return isinstance(node, Function) and node.name.lower() not in _NEVER_FAIL


def _calls_read(node: Node) -> Iterator[Call]:
    """The call whose value is the value of a node: the node itself, or what its CASE gives."""
    if isinstance(node, Call):
        yield node
    elif isinstance(node, Case) and (node.default is None or node.default.key == _NULL):
        for branch in node.branches:
            yield from _calls_read(branch.value)


def _is_double(node: Node) -> bool:
    """Whether a node reads an answer as DOUBLE, or computes with an answer read as DOUBLE."""
    if isinstance(node, Function) and node.name in ARITHMETIC:
        return any(map(_is_double, node.values))
    return is_macro(node)


def _replace(node: Node, by: Expression) -> None:
    """Replace an expression with another form of it, keeping its names."""
    by.meta.update({key: node.meta[key] for key in (FIELD_NAME, AS_WRITTEN) if key in node.meta})
    if isinstance(node, Expression):
        by.alias = node.alias
    node.replace(by)
