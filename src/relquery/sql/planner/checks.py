"""Finds rows whose answer is not a valid value where the query reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relquery.sql import names as ours
from relquery.sql.binder.call import Call, readable
from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Column, Expression, Node
from relquery.sql.planner.guards import guard_of
from relquery.sql.planner.readings import is_number, reading, text_of

_NOTE, _IS_ANSWER = "note", "answer"
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Note:
    """What the query expects of an expression over answers at one place.

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
        if is_number(kind):
            which = "" if kind == "DOUBLE" else f" ({kind})"
            return (
                f"{needs} a number{which} here. Ask for just a number in the prompt, or pass "
                "labels := ['1', '2', ...]."
            )
        return f"{needs} a value of type {kind} here. Ask for just that in the prompt."


def note(node: Expression, read: Expression, kind: str | None) -> Expression:
    """Mark a node: `read`, which contains calls, may not give a valid value there; see Note."""
    node.meta[_NOTE] = Note(kind, None if is_answer(read) else as_written(read))
    return node


def note_written(value: Expression, kind: str, is_text: bool) -> Expression:
    """An expression with calls, marked as written to a column of type `kind`."""
    whole = None if is_answer(value) else as_written(value)
    value.meta[_NOTE] = Note(kind, whole, later=True, is_text=is_text)
    return value


AS_WRITTEN = "as written"
"""Note on a node: itself, before any rewriting."""


def as_written(node: Node) -> Node:
    """A copy of a node before any rewriting."""
    found: Node = node.meta.get(AS_WRITTEN) or node.copy()
    return found


def note_on(node: Node) -> Note | None:
    """The note on a node, or on the node that it was copied from."""
    found: Note | None = node.meta.get(_NOTE)
    return found


def note_to_write(item: Node) -> Note | None:
    """How a column of a SELECT is cast when it is written; None if DuckDB casts it by itself."""
    found = note_on(item)
    return found if found is not None and found.later else None


def mark_answer(column: Column) -> None:
    """Mark a column as containing answers."""
    column.meta[_IS_ANSWER] = True


def is_answer(node: Node) -> bool:
    """Whether a node is a call or a column marked with `mark_answer`."""
    return isinstance(node, Call) or bool(node.meta.get(_IS_ANSWER))


def has_answer(node: Node) -> bool:
    """Whether a tree reads an answer."""
    return any(map(is_answer, node.walk()))


def checks_in(tree: Node, functions: FunctionCatalog) -> Iterator[Check]:
    """The checks of part of a plan whose calls have been replaced by their answer columns."""
    for _, check in noted_in(tree, functions):
        yield check


def noted_in(tree: Node, functions: FunctionCatalog) -> Iterator[tuple[Expression, Check]]:
    """The nodes of a tree that have a note, with their checks."""
    for node in tree.walk():
        if isinstance(node, Expression) and (found := note_on(node)) is not None:
            yield node, _check(node, found, tree, functions)


def answers_in(node: Node) -> tuple[int, ...]:
    """The calls whose answers an expression reads."""
    calls = (ours.call_of(column.name) for column in node.find_all(Column))
    return tuple(dict.fromkeys(call for call in calls if call is not None))


def _check(node: Expression, asked: Note, tree: Node, functions: FunctionCatalog) -> Check:
    calls = answers_in(node)
    if asked.kind is None:
        value: Expression
        if calls:
            value = build.column(ours.answer(calls[0]))
        else:
            value = next(
                part.copy()
                for part in node.walk()
                if is_answer(part) and isinstance(part, Expression)
            )
        # A hash is never NULL, so TRY gives NULL only for failures.
        (tried,) = node.args["children"]
        hashed = build.function("hash", tried.copy())
        failed: Expression = build.operation(build.IS_NULL, build.operation(build.TRY, hashed))
    else:
        value = unnoted(node) if asked.later else text_of(node).copy()
        read = asked.read(value.copy()) if asked.later else unnoted(node)
        is_there = build.operation(build.IS_NOT_NULL, value.copy())
        failed = build.all_of([is_there, build.operation(build.IS_NULL, read)])
    if (where := guard_of(node, tree, functions)) is not None:
        failed = build.all_of([where, failed])
    shown = build.cast(value, build.plain_type("VARCHAR"))
    return Check(failed, shown, calls, frozenset(answers_in(failed)), asked)


def unnoted(node: Expression) -> Expression:
    """A copy without a name or a note."""
    copy = node.copy()
    copy.alias = ""
    copy.meta.pop(_NOTE, None)
    return copy
