"""Rewrites a SELECT so that each answer is read as the type the query needs there.

    LLM('...', x)::DATE          =>  what DuckDB's TRY_CAST gives; see sql.answers.readings
    LLM('...', x) = d            =>  the same, as the type of d
    LLM('...', x) * 2            =>  the same, as DOUBLE
    LLM('...', x) ->> 'title'    =>  TRY(LLM('...', x) ->> 'title')

So an answer never aborts a query. If it is not a valid value of the type, or if an expression over
it fails, the result is NULL. sql.answers.checks reports each such value, row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from relquery.errors import QueryError
from relquery.sql.answers.checks import WRITTEN, has_answer, is_answer, note, note_written
from relquery.sql.answers.kinds import Kinds
from relquery.sql.answers.readings import is_macro, reading
from relquery.sql.form.normalize import without_alias
from relquery.sql.functions.naming import field_name
from relquery.sql.functions.task import task_of
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.numbers import beyond_double, needs_number
from relquery.sql.read.scopes import calls_in, has_call
from relquery.sql.read.source import FIELD_NAME, call_number, readable

_COMPARISONS = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In, exp.Case, exp.Nullif)
# Types that DuckDB compares with text as text.
_COMPARED_AS_TEXT = ("VARCHAR", "BLOB", "VARIANT", "TIME_NS", "ENUM(", "UNION(", '"NULL"')
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Pow)
_OPERATIONS = (exp.Func, exp.Binary, exp.Unary, exp.Bracket, exp.Interval, exp.AtTimeZone)
_NEVER_FAIL = (
    exp.And,
    exp.Or,
    exp.Not,
    exp.Predicate,
    exp.Paren,
    exp.Case,
    exp.If,
    exp.Coalesce,
    exp.Nullif,
    exp.Cast,
    exp.Try,
    exp.Collate,
    exp.Concat,
    exp.DPipe,
    exp.Lower,
    exp.Upper,
    exp.Trim,
    exp.Length,
    exp.Substring,
    exp.Struct,
    exp.Array,
)
_MAY_FAIL = (exp.RegexpLike, exp.SimilarTo)  # predicates whose pattern may be invalid
# Parts of an expression that are not values themselves.
_NO_VALUES = (exp.PropertyEQ, exp.Kwarg, exp.Slice, exp.Explode, exp.UDTF, exp.Distinct)
_OF_A_WINDOW = (exp.Window, exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)


def convert(
    select: exp.Select, kinds: Kinds, aggregates: Aggregates, wanted: Sequence[str] = ()
) -> exp.Select:
    """A SELECT that gives the same rows if all answers are valid values of the types needed.

    select: normalized. wanted: types of the columns that its columns are written to, if any.
    """
    whole = _Conversion(kinds, aggregates, tries=True).of(select, wanted)
    if kinds.binds(whole):
        return whole
    # TRY accepts neither volatile functions nor subqueries.
    return _Conversion(kinds, aggregates, tries=False).of(select, wanted)


@dataclass(frozen=True, slots=True)
class _Conversion:
    kinds: Kinds
    aggregates: Aggregates
    tries: bool

    def of(self, select: exp.Select, wanted: Sequence[str]) -> exp.Select:
        select = select.copy()
        _note_as_written(select)
        for item, kind in zip(list(select.expressions), wanted, strict=False):
            self._note_written(item, kind)
        for node in reversed(list(_nodes(select))):  # inner ones first
            if has_answer(node):
                self._convert(node)
        return select

    def _note_written(self, item: exp.Expr, kind: str) -> None:
        """Note that an item of the select list is cast when it is written."""
        node = without_alias(item)
        given = self.kinds.of(node)
        if has_call(node) and self._is_row_level(node) and given not in (None, kind):
            node.replace(note_written(node.copy(), kind, given == "VARCHAR"))

    def _convert(self, node: exp.Expr) -> None:
        match node:
            case exp.Anonymous() if call_number(node) is not None:
                if needs_number(node):
                    _replace(node, self._number(node))
            case exp.TryCast():
                pass
            case exp.Cast():
                self._convert_cast(node)
            case _ if isinstance(node, _COMPARISONS):
                self._convert_compared(node)
            case _ if self.tries and self._may_fail(node):
                _replace(node, note(exp.Try(this=node.copy()), node, None))

    def _number(self, call: exp.Expr) -> exp.Expr:
        others = beyond_double(call)
        kind = (self.kinds.of(exp.func("coalesce", *others)) if others else None) or "DOUBLE"
        return self._read(call, kind)

    def _read(self, text: exp.Expr, kind: str, to: exp.DataType | None = None) -> exp.Expr:
        """Text read as a type. Raises QueryError if none of its labels is a value of it."""
        labels = task_of(text).sampling.labels if call_number(text) is not None else ()
        if labels and not any(self.kinds.is_value(label, kind) for label in labels):
            raise QueryError(
                f"{readable(text)} is read as {kind}, but none of its labels is a valid {kind}: "
                f"{', '.join(map(repr, labels))}."
            )
        return note(reading(text.copy(), kind, to), text, kind)

    def _convert_cast(self, node: exp.Cast) -> None:
        if any(task_of(call).output is not None for call in _calls_read(node.this)):
            return  # the answers are values already
        kind = self.kinds.named(node.to)
        if kind in (None, "VARCHAR") or not self._is_row_level(node.this):
            return
        assert kind is not None
        text = node.this.unnest()
        if self._is_text(text):
            _replace(node, self._read(text, kind, node.to.copy()))
        else:
            value = exp.TryCast(this=text.copy(), to=node.to.copy())
            _replace(node, note(value, text, kind))

    def _convert_compared(self, node: exp.Expr) -> None:
        """If answer text is compared with another type, read it as that type."""
        sides = _sides(node)
        texts = [side for side in sides if has_answer(side) and self._is_row_level(side)]
        texts = [side for side in texts if self._is_text(side)]
        kind = self._common_kind([side for side in sides if not _among(side, texts)])
        if kind is None:
            return
        for side in texts:
            read = self._read(side, kind)
            if isinstance(node, exp.Nullif) and side is node.this:
                _replace(node, _null_if_equal(side, read, node.expression))
            else:
                _replace(side, read)

    def _common_kind(self, others: list[exp.Expr]) -> str | None:
        """The type that text is cast to when compared with `others`; None if it stays text."""
        typed = [other for other in others if not _is_open(other)]
        if not typed:
            return None
        kind = self.kinds.of(typed[0] if len(typed) == 1 else exp.func("coalesce", *typed))
        return None if kind is None or kind.startswith(_COMPARED_AS_TEXT) else kind

    def _is_text(self, node: exp.Expr) -> bool:
        return is_answer(node) or self.kinds.of(node) == "VARCHAR"

    def _is_row_level(self, node: exp.Expr) -> bool:
        """Whether an expression depends only on its row."""
        return next(self.aggregates.inside(node), None) is None and not any(
            isinstance(part, exp.Query | exp.Window | exp.Explode | exp.UDTF)
            for part in node.walk()
        )

    def _may_fail(self, node: exp.Expr) -> bool:
        safe = isinstance(node, (*_NEVER_FAIL, *_NO_VALUES)) or _is_double(node)
        if not isinstance(node, _OPERATIONS) or (safe and not isinstance(node, _MAY_FAIL)):
            return False
        return not isinstance(node.parent, _OF_A_WINDOW) and self._is_row_level(node)


def _calls_read(node: exp.Expr) -> Iterator[exp.Anonymous]:
    """The call whose value is the value of a node: the node itself, or what its CASE gives."""
    if isinstance(node, exp.Anonymous) and call_number(node) is not None:
        yield node
    elif isinstance(node, exp.Case) and not node.args.get("default"):
        for branch in node.args["ifs"]:
            yield from _calls_read(branch.args["true"])


def _nodes(select: exp.Select) -> Iterator[exp.Expr]:
    """Nodes of a SELECT from the outside in; subqueries have no calls."""
    return select.walk(
        bfs=False, prune=lambda node: node is not select and isinstance(node, exp.Query)
    )


def _note_as_written(select: exp.Select) -> None:
    """Record the text of expressions with calls, for errors and field names."""
    for node in _nodes(select):
        if has_answer(node):
            node.meta[WRITTEN] = readable(node)
    for call in calls_in(select):
        for argument in call.expressions[1:]:
            if call_number(argument) is None and not isinstance(argument, exp.Column):
                argument.meta.setdefault(FIELD_NAME, field_name(argument))


def _sides(comparison: exp.Expr) -> list[exp.Expr]:
    """The values that a comparison compares; none if one side is a subquery."""
    if isinstance(comparison, exp.Case):
        first = comparison.args.get("this")
        return [first, *(branch.this for branch in comparison.args["ifs"])] if first else []
    if isinstance(comparison, exp.In) and not comparison.expressions:
        return []
    return list(comparison.iter_expressions())


def _null_if_equal(text: exp.Expr, value: exp.Expr, other: exp.Expr) -> exp.Expr:
    """NULLIF that compares text as another type but returns the text."""
    equal = exp.EQ(this=value, expression=exp.paren(other))
    return exp.Case(ifs=[exp.If(this=equal, true=exp.null())], default=text.copy())


def _is_open(node: exp.Expr) -> bool:
    """Whether a literal takes the type of what it is compared with."""
    node = node.unnest()
    return isinstance(node, exp.Null) or (isinstance(node, exp.Literal) and node.is_string)


def _is_double(node: exp.Expr) -> bool:
    """Whether a node reads an answer as DOUBLE, or computes with an answer read as DOUBLE."""
    if isinstance(node, (exp.Paren, *_ARITHMETIC)):
        return any(map(_is_double, node.iter_expressions()))
    return is_macro(node)


def _among(node: exp.Expr, nodes: list[exp.Expr]) -> bool:
    return any(node is one for one in nodes)


def _replace(node: exp.Expr, by: exp.Expr) -> None:
    """Replace an expression with another form of it, keeping its names."""
    by.meta.update({key: node.meta[key] for key in (FIELD_NAME, WRITTEN) if key in node.meta})
    node.replace(by)
