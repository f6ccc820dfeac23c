"""The reading of answers as values of other types, and checks for those that are not valid.

One rule applies wherever an answer is cast. Surrounding white space and a code fence are removed,
then DuckDB's TRY_CAST applies: the result is NULL if the text is not a valid value of the type. A
number must be decimal (-1.5, 1e3) and within the type's range; NaN, inf, 0x1F and 1_000 are
rejected. Types that take any text keep all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relquery.sql import names as ours
from relquery.sql.binder.call import Call, readable
from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Cast, Column, Expression, FunctionCall, Node, Operator
from relquery.sql.planner.guards import guard_of
from relquery.sql.types.leaves import NUMBERS

_ANY_TEXT = ("VARCHAR", "BLOB", "VARIANT", "UNION(")
_NESTED = ("STRUCT(", "MAP(")

_IS_ANSWER = "answer"
NOTE = "note"
"""Note on a node: a Note."""
AS_WRITTEN = "as written"
"""Note on a node: itself, before any rewriting."""
_SHOWN = 60


def is_macro(node: Node) -> bool:
    """Whether a node calls one of these macros."""
    return isinstance(node, FunctionCall) and node.name.lower() in ours.MACROS


def _is_number(kind: str) -> bool:
    return kind in (*NUMBERS, "BIGNUM") or kind.startswith("DECIMAL(")


def reading(text: Expression, kind: str, to: Node | None = None) -> Expression:
    """Convert text to a type; NULL if the text is not a valid value of it.

    kind: the type as DuckDB names it. to: the type as written in the query, if it was written.
    """
    to = parser().type(kind) if to is None else to
    if _is_number(kind):
        value = build.cast(build.function(ours.DECIMAL, text), to, is_try=True)
        return build.function(ours.FINITE, value) if kind in ("FLOAT", "DOUBLE") else value
    if not kind.startswith(_ANY_TEXT):
        text = build.function(ours.TRIMMED, text)
    if kind.endswith("]") or kind.startswith(_NESTED):
        # TRY_CAST would give NULL for a bad item alone.
        return build.operation(build.TRY, build.cast(text, to))
    return build.cast(text, to, is_try=True)


def _text_of(value: Node) -> Expression:
    """The text inside a cast made by `reading`, or inside a plain TRY_CAST."""
    if isinstance(value, FunctionCall) and is_macro(value):
        value = value.values[0]
    if isinstance(value, Operator):
        value = value.operands[0]
    assert isinstance(value, Cast)
    inner = value.value
    return inner.values[0] if isinstance(inner, FunctionCall) and is_macro(inner) else inner


@dataclass(frozen=True, slots=True)
class Note:
    """The query's expectation of an expression over answers at one place.

    kind: a type; None if the expression itself may fail. whole: the expression as written, before
    any rewriting; None if it is the answer itself. later: whether the cast happens when the value
    is written to a table, not here. is_text: whether the value is text until then.
    """

    kind: str | None
    whole: Node | None
    later: bool = False
    is_text: bool = True

    def read(self, value: Expression) -> Expression:
        """Convert a value to the expected type."""
        assert self.kind is not None
        if self.is_text:
            return reading(value, self.kind)
        return build.cast(value, parser().type(self.kind), is_try=True)


@dataclass(frozen=True, slots=True)
class Check:
    """A place that reads answers. Expressions are over the rows of a plan.

    failed: true for rows where the value is not valid. value: the failed value, as text.
    calls: the calls whose answers are read. needs: these, plus the calls that decide whether the
    place is read. note: what the query expects here.
    """

    failed: Expression
    value: Expression
    calls: tuple[int, ...]
    needs: frozenset[int]
    note: Note

    def trouble(self, value: str | None) -> str:
        """What is wrong with a value that failed."""
        kind = self.note.kind
        whole = "" if self.note.whole is None else readable(self.note.whole)
        shown = "NULL" if value is None else repr(value[:_SHOWN])
        if kind is None:
            return f"{whole} fails for the answer {shown}. Ask for another format in the prompt."
        needs = f"{whole or 'The answer'} is {shown}; the query needs"
        if _is_number(kind):
            which = "" if kind == "DOUBLE" else f" ({kind})"
            return (
                f"{needs} a number{which} here. Ask for just a number in the prompt, or pass "
                "labels := ['1', '2', ...]."
            )
        return f"{needs} a value of type {kind} here. Ask for just that in the prompt."


def noted(
    node: Expression,
    read: Expression,
    kind: str | None,
    *,
    later: bool = False,
    is_text: bool = True,
) -> Expression:
    """Mark a node: `read`, which contains calls, may not give a valid value there; see Note."""
    whole = None if is_answer(read) else read.meta.get(AS_WRITTEN) or read.copy()
    node.meta[NOTE] = Note(kind, whole, later, is_text)
    return node


def note_on(node: Node) -> Note | None:
    """The note on a node, or on the node that it was copied from."""
    note: Note | None = node.meta.get(NOTE)
    return note


def mark_answer(column: Column) -> None:
    """Mark a column as containing answers."""
    column.meta[_IS_ANSWER] = True


def is_answer(node: Node) -> bool:
    """Whether a node is a call or a column marked with `mark_answer`."""
    return isinstance(node, Call) or bool(node.meta.get(_IS_ANSWER))


def has_answer(node: Node) -> bool:
    """Whether a tree reads an answer."""
    return any(map(is_answer, node.walk()))


def answers_in(node: Node) -> tuple[int, ...]:
    """The calls whose answers an expression reads."""
    calls = (ours.call_of(column.name) for column in node.find_all(Column))
    return tuple(dict.fromkeys(call for call in calls if call is not None))


def checks_in(tree: Node, functions: FunctionCatalog) -> Iterator[tuple[Expression, Check]]:
    """The nodes with a note in part of a plan whose calls have been replaced by their answer
    columns, and their checks."""
    for node in tree.walk():
        if isinstance(node, Expression) and (note := note_on(node)) is not None:
            yield node, _check(node, note, tree, functions)


def _check(node: Expression, note: Note, tree: Node, functions: FunctionCatalog) -> Check:
    calls = answers_in(node)
    bare = node.copy().named("")
    bare.meta.pop(NOTE)
    if note.kind is None:
        answers = (answer.copy() for answer in node.find_all(Expression) if is_answer(answer))
        value = build.column(ours.answer(calls[0])) if calls else next(answers)
        # A hash is never NULL, so TRY gives NULL only for failures.
        (tried,) = node.args["children"]
        hashed = build.function("hash", tried.copy())
        failed: Expression = build.operation(build.IS_NULL, build.operation(build.TRY, hashed))
    else:
        value = bare if note.later else _text_of(node).copy()
        read = note.read(value.copy()) if note.later else bare
        is_there = build.operation(build.IS_NOT_NULL, value.copy())
        failed = build.all_of([is_there, build.operation(build.IS_NULL, read)])
    if (where := guard_of(node, tree, functions)) is not None:
        failed = build.all_of([where, failed])
    shown = build.cast(value, build.plain_type("VARCHAR"))
    return Check(failed, shown, calls, frozenset(answers_in(failed)), note)
