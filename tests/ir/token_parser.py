"""Parses a token sequence back into its tree, as an engine must do."""

from __future__ import annotations

from dataclasses import dataclass, field

from relquery.errors import QueryError
from relquery.ir.tokens import End, Join, Leaf, Mark, SpanTree, TokenForm


def parse_tokens(form: TokenForm) -> SpanTree:
    """The tree of a form, padded or not; `tokenize` turns it back into the form without pads.

    Trees with the same sequence give the same result: an ordered Join is flat, neighbouring tokens
    are one Leaf (except answers), and empty parts are left out.
    Raises QueryError with the position where parentheses do not match.
    """
    answers = {begin: end for begin, end in form.outputs if end > begin}
    open_: list[_Level] = [_Level(-1)]
    at = 0
    while at < len(form.items):
        item = form.items[at]
        top = open_[-1]
        if at in answers:
            tokens = tuple(token for token in form.items[at : answers[at]] if type(token) is int)
            top.add(Leaf(tokens, open_end=True))
            at = answers[at]
            continue
        if isinstance(item, int):
            top.run.append(item)
        elif item is Mark.BEGIN:
            open_.append(_Level(at))
        elif item is not Mark.PAD:
            if len(open_) == 1:
                raise _error(at, "no '(' is open here", "Put a '(' before it")
            top.siblings.append(top.content())
            if isinstance(item, End):
                _check(item, at, top)
                open_.pop()
                open_[-1].add(Join(tuple(top.siblings), independent=True))
        at += 1
    if len(open_) > 1:
        raise _error(open_[-1].begin, "this '(' is not closed", "Put a ')n' after its sub-tree")
    return open_[0].content()


@dataclass(slots=True)
class _Level:
    """An open sub-tree: its complete siblings and the parts of the current one."""

    begin: int
    siblings: list[SpanTree] = field(default_factory=list)
    parts: list[SpanTree] = field(default_factory=list)
    run: list[int] = field(default_factory=list)

    def add(self, part: SpanTree) -> None:
        self._end_run()
        self.parts.append(part)

    def content(self) -> SpanTree:
        """The parts so far as one tree; clears them."""
        self._end_run()
        parts, self.parts = self.parts, []
        if not parts:
            return Leaf(())
        return parts[0] if len(parts) == 1 else Join(tuple(parts))

    def _end_run(self) -> None:
        if self.run:
            self.parts.append(Leaf(tuple(self.run)))
            self.run = []


def _check(end: End, at: int, level: _Level) -> None:
    length = at - level.begin + 1
    if end.length != length:
        raise _error(
            at, f"')n' has n = {end.length}", f"Its '(' at {level.begin} makes it {length}"
        )


def _error(at: int, what: str, remedy: str) -> QueryError:
    return QueryError(f"Position {at} of the token sequence is wrong: {what}. {remedy}.")
