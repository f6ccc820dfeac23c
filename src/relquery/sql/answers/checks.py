"""Finds rows whose answer is not a valid value where the query reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from relquery.sql import names as ours
from relquery.sql.answers.readings import is_number, reading, text_of
from relquery.sql.form.guards import guard_of
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.source import DIALECT, call_number, readable

# Metadata of a node: its text as the user wrote it, before any rewriting.
WRITTEN = "written"

_NOTE, _IS_ANSWER = "note", "answer"
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Note:
    """What the query expects of an expression over answers at one place.

    kind: a type; None if the expression itself may fail. whole: the expression as written; empty
    if it is the answer itself. later: whether the cast happens when the value is written to a
    table, not here. is_text: whether the value is text until then.
    """

    kind: str | None
    whole: str
    later: bool = False
    is_text: bool = True

    def read(self, value: exp.Expr) -> exp.Expr:
        """Convert a value to the expected type."""
        assert self.kind is not None
        if self.is_text:
            return reading(value, self.kind)
        return exp.TryCast(this=value, to=exp.DataType.build(self.kind, DIALECT, udt=True))


@dataclass(frozen=True, slots=True)
class Check:
    """A place that reads answers. Expressions are over the rows of a plan.

    failed: true for rows where the value is not valid. value: the failed value, as text.
    calls: the calls whose answers are read. needs: these, plus the calls that decide whether the
    place is read. note: what the query expects here.
    """

    failed: exp.Expr
    value: exp.Expr
    calls: tuple[int, ...]
    needs: frozenset[int]
    note: Note

    def trouble(self, value: str | None) -> str:
        """What is wrong with a value that failed."""
        kind, whole = self.note.kind, self.note.whole
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


def note(node: exp.Expr, read: exp.Expr, kind: str | None) -> exp.Expr:
    """Mark a node: `read`, which contains calls, may not give a valid value there; see Note."""
    node.meta[_NOTE] = Note(kind, _whole(read))
    return node


def note_written(value: exp.Expr, kind: str, is_text: bool) -> exp.Expr:
    """An expression with calls, marked as written to a column of type `kind`."""
    noted = exp.paren(value)
    noted.meta[_NOTE] = Note(kind, _whole(value), later=True, is_text=is_text)
    return noted


def note_on(node: exp.Expr) -> Note | None:
    """The note on a node, or on the node that it was copied from."""
    found: Note | None = node.meta_get(_NOTE)
    return found


def note_to_write(item: exp.Expr) -> Note | None:
    """How a column of a SELECT is cast when it is written; None if DuckDB casts it by itself."""
    found = note_on(item)
    return found if found is not None and found.later else None


def mark_answer(column: exp.Column) -> None:
    """Mark a column as containing answers."""
    column.meta[_IS_ANSWER] = True


def is_answer(node: exp.Expr) -> bool:
    """Whether a node is a call or a column marked with `mark_answer`."""
    return call_number(node) is not None or bool(node.meta_get(_IS_ANSWER))


def has_answer(node: exp.Expr) -> bool:
    """Whether a tree reads an answer."""
    return any(map(is_answer, node.walk()))


def checks_in(tree: exp.Expr, aggregates: Aggregates) -> Iterator[Check]:
    """The checks of part of a plan whose calls have been replaced by their answer columns."""
    for _, check in noted_in(tree, aggregates):
        yield check


def noted_in(tree: exp.Expr, aggregates: Aggregates) -> Iterator[tuple[exp.Expr, Check]]:
    """The nodes of a tree that have a note, with their checks."""
    for node in tree.walk():
        if (found := note_on(node)) is not None:
            yield node, _check(node, found, tree, aggregates)


def answers_in(node: exp.Expr) -> tuple[int, ...]:
    """The calls whose answers an expression reads."""
    names = (ours.call_of(name.name) for name in node.find_all(exp.Identifier, bfs=False))
    return tuple(dict.fromkeys(call for call in names if call is not None))


def _check(node: exp.Expr, asked: Note, tree: exp.Expr, aggregates: Aggregates) -> Check:
    calls = answers_in(node)
    if asked.kind is None:
        marked = (part for part in node.walk() if is_answer(part))
        value: exp.Expr = exp.column(ours.answer(calls[0])) if calls else next(marked)
        # A hash is never NULL, so TRY gives NULL only for failures.
        failed: exp.Expr = _is_null(exp.Try(this=exp.func("hash", node.this)))
    else:
        value = node.this if asked.later else text_of(node)
        read = asked.read(value.copy()) if asked.later else node
        failed = exp.and_(exp.not_(_is_null(value)), _is_null(read))
    if (where := guard_of(node, tree, aggregates)) is not None:
        failed = exp.and_(where, failed)
    shown = exp.cast(value, "text")
    return Check(failed, shown, calls, frozenset(answers_in(failed)), asked)


def _whole(read: exp.Expr) -> str:
    return "" if is_answer(read) else read.meta_get(WRITTEN) or readable(read)


def _is_null(node: exp.Expr) -> exp.Expr:
    return exp.Is(this=exp.paren(node), expression=exp.null())
