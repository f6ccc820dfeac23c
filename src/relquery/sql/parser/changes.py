"""UPDATE, DELETE and MERGE as a query for what changes, and the statement that applies its rows.

UPDATE t SET a = LLM('...', b) WHERE c
=> SELECT t.rowid AS r, LLM('...', b) AS x FROM t WHERE c
   UPDATE t SET a = n.x FROM (...) AS n WHERE t.rowid = n.r

DELETE FROM t USING u WHERE c
=> SELECT t.rowid AS r FROM t, u WHERE c
   DELETE FROM t WHERE rowid IN (SELECT r FROM (...))

MERGE INTO t USING s ON c WHEN MATCHED AND d THEN UPDATE SET a = e
=> SELECT t.rowid AS r, CASE WHEN d THEN 0 END AS act, CASE act WHEN 0 THEN e END AS x
   FROM t JOIN s ON c
   MERGE INTO t USING (...) AS n ON t.rowid = n.r
   WHEN MATCHED AND n.act = 0 THEN UPDATE SET a = n.x

So all that may be asked is asked before anything changes, and one statement changes everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from relquery.errors import UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.parser.tokens import (
    Token,
    between_commas,
    closing,
    numbered,
    on_top,
    read_path,
    words,
)

_ROW, _ACT = "rowid", ours.new(1)
_QUERY = ("SELECT", "FROM", "WITH")
_ACTIONS = ("UPDATE", "DELETE", "INSERT", "DO", "ERROR")


@dataclass(frozen=True, slots=True)
class Change:
    """A statement that changes rows of a table.

    query: gives what changes. head, tail: the statement around it. columns: of the table, one for
    each column of the query, whose type that has; `#1` is the first of the table.
    """

    path: tuple[str, ...]
    target: str
    query: str
    head: str
    tail: str
    columns: tuple[str, ...]


def read_change(sql: str, tokens: list[Token]) -> Change | None:
    """The parts of an UPDATE, DELETE or MERGE; None for any other statement."""
    if words(tokens, 0, 1) not in (["UPDATE"], ["DELETE"], ["MERGE"]):
        return None
    sql, tokens = numbered(sql, tokens)
    if words(tokens, 0, 1) == ["UPDATE"]:
        return _update(_Text(sql, tokens, 1, ("SET",)))
    if words(tokens, 0, 2) == ["DELETE", "FROM"]:
        return _delete(_Text(sql, tokens, 2, ("USING", "WHERE", "RETURNING")))
    if words(tokens, 0, 2) == ["MERGE", "INTO"]:
        return _merge(_Text(sql, tokens, 2, ("USING",)))
    return None


@dataclass(slots=True)
class _Text:
    """The text of a statement, cut at its keywords.

    target: the table, with its alias as it is written; name: how the statement calls it. at: the
    place of the token after that.
    """

    sql: str
    tokens: Sequence[Token]
    at: int
    after: tuple[str, ...]
    path: tuple[str, ...] = field(init=False)
    target: str = field(init=False)
    name: str = field(init=False)

    def __post_init__(self) -> None:
        first = self.at
        self.path, end = read_path(self.tokens, first)
        self.name = self.text(first, end)
        end += words(self.tokens, end, 1) == ["AS"]
        if end < len(self.tokens) and self.tokens[end].word not in self.after:
            self.name = self.tokens[end].text
            end += 1
        self.target, self.at = self.text(first, end), end

    def text(self, start: int, end: int) -> str:
        """What stands from one token up to before another one."""
        return self.sql[self.tokens[start].start : self.tokens[end - 1].end] if start < end else ""

    def find(self, *wanted: str) -> int:
        """The place of the first of some keywords, in no parentheses, from here on; or the end."""
        for at in on_top(self.tokens, self.at):
            is_comparison = at and self.tokens[at - 1].word == "DISTINCT"  # IS DISTINCT FROM
            if self.tokens[at].word in wanted and not is_comparison:
                return at
        return len(self.tokens)

    def take(self, *wanted: str) -> str:
        """What stands up to the first of some keywords, and go there."""
        start, self.at = self.at, self.find(*wanted)
        return self.text(start, self.at)


def _update(text: _Text) -> Change:
    text.at += 1
    first, end = text.at, text.find("FROM", "WHERE", "RETURNING")
    sets, columns, items = list[str](), list[str](), list[str]()
    for name, value in _assigned(text, first, end):
        sets.append(f"{name} = {value}")
        if value != "DEFAULT":
            items.append(f"({value}) AS {ours.new(len(items) + 1)}")
            columns.append(name)
            sets[-1] = f"{name} = {ours.NEW}.{ours.new(len(items))}"
    text.at = end
    others = text.take("WHERE", "RETURNING")
    where, returning = text.take("RETURNING"), text.take()
    listed = ", ".join([f"{text.name}.{_ROW} AS {ours.new(0)}", *items])
    source = text.target + (f", {others[len('FROM') :]}" if others else "")
    return Change(
        text.path,
        text.target,
        f"SELECT {listed} FROM {source} {where}",
        f"UPDATE {text.target} SET {', '.join(sets)} FROM (",
        f") AS {ours.NEW} WHERE {text.name}.{_ROW} = {ours.NEW}.{ours.new(0)} {returning}",
        (_ROW, *map(_plain, columns)),
    )


def _delete(text: _Text) -> Change:
    others = text.take("WHERE", "RETURNING")
    where, returning = text.take("RETURNING"), text.take()
    source = text.target + (f", {others[len('USING') :]}" if others else "")
    return Change(
        text.path,
        text.target,
        f"SELECT {text.name}.{_ROW} AS {ours.new(0)} FROM {source} {where}",
        f"DELETE FROM {text.target} WHERE {text.name}.{_ROW} IN (FROM (",
        f") AS {ours.NEW}) {returning}",
        (_ROW,),
    )


def _assigned(text: _Text, start: int, end: int) -> Iterator[tuple[str, str]]:
    """(column, value) of `a = x, (b, c) = (y, z)`, as written."""
    for part in between_commas(text.tokens[start:end]):
        equals = next((at for at, one in enumerate(part) if one.text == "="), None)
        if equals is None:  # `SET *` of MERGE
            raise _unnamed()
        values = [text.sql[part[equals + 1].start : part[-1].end]]
        names = [part[0].text]
        if part[0].text == "(":
            names = [one.text for one in part[1:equals] if one.text not in (",", ")")]
        if len(names) > 1:
            is_row = words(part, equals + 1, 1) == ["("] and part[equals + 2].word not in _QUERY
            inside = between_commas(part[equals + 2 : -1] if is_row else [])
            values = [text.sql[one[0].start : one[-1].end] for one in inside]
        if len(names) != len(values):
            raise UnsupportedQueryError(
                f"SET ({', '.join(names)}) takes its values from one expression, which does not go "
                "with LLM calls. Set each column by itself."
            )
        yield from zip(names, values, strict=True)


def _merge(text: _Text) -> Change:
    text.at += 1
    source, first = text.take("ON", "USING"), text.at
    name = _name_of(text.tokens[: text.at], text.tokens, source)
    clauses = list(_clauses(text))
    on, returning = text.text(first, clauses[0].start), text.text(clauses[-1].end, len(text.tokens))
    there = f"{name}.{ours.new(0)} IS NOT NULL"
    act = " ".join(one.case(at, f"{text.name}.{_ROW}", there) for at, one in enumerate(clauses))
    items, columns, actions = list[str](), [_ROW, _ROW], list[str]()
    for at, one in enumerate(clauses):
        values = list(one.values(text))
        named = [ours.new(len(items) + 2 + place) for place in range(len(values))]
        whens = (f"CASE WHEN (CASE {act} END) = {at} THEN ({value[1]}) END" for value in values)
        items += [f"{when} AS {new}" for when, new in zip(whens, named, strict=True)]
        columns += [_plain(value[0]) for value in values]
        state = "NOT MATCHED" if one.state == "NOT MATCHED" else "MATCHED"
        read = [f"{ours.NEW}.{new}" for new in named]
        done = one.applied(read, text)
        actions.append(f"WHEN {state} AND {ours.NEW}.{_ACT} = {at} THEN {done}")
    states = {one.state for one in clauses}
    kind = _JOINS["NOT MATCHED" in states, "NOT MATCHED BY SOURCE" in states]
    listed = ", ".join(
        [f"{text.name}.{_ROW} AS {ours.new(0)}", f"CASE {act} END AS {_ACT}", *items]
    )
    return Change(
        text.path,
        text.target,
        f"SELECT {listed} FROM {text.target} {kind} JOIN "
        f"(SELECT true AS {ours.new(0)}, * FROM {source}) AS {name} {on}",
        f"MERGE INTO {text.target} USING (",
        f") AS {ours.NEW} ON {text.name}.{_ROW} = {ours.NEW}.{ours.new(0)} {' '.join(actions)} "
        f"{returning}",
        tuple(columns),
    )


_JOINS = {
    (False, False): "INNER",
    (True, False): "RIGHT",
    (False, True): "LEFT",
    (True, True): "FULL",
}


@dataclass(frozen=True, slots=True)
class _Clause:
    """WHEN state AND condition THEN action. state: MATCHED, NOT MATCHED or NOT MATCHED BY SOURCE.

    start, end: the places of its tokens. action: the place of the action.
    """

    state: str
    condition: str
    start: int
    action: int
    end: int

    def case(self, number: int, row: str, there: str) -> str:
        """The branch that says whether the clause is the one for a row."""
        wanted = {"MATCHED": f"{row} IS NOT NULL AND {there}", "NOT MATCHED": f"{row} IS NULL"}
        when = wanted.get(self.state, f"NOT ({there})")
        also = f" AND ({self.condition})" if self.condition else ""
        return f"WHEN {when}{also} THEN {number}"

    def values(self, text: _Text) -> Iterator[tuple[str, str]]:
        """(column, value) of what the action computes; `#1` for a column that it does not name."""
        tokens, at = text.tokens, self.action
        if words(tokens, at, 2) == ["UPDATE", "SET"]:
            assigned = _assigned(text, at + 2, self.end)
            yield from ((name, value) for name, value in assigned if value != "DEFAULT")
        elif words(tokens, at, 1) == ["INSERT"]:
            columns, values = self._inserted(text)
            yield from ((name, value) for name, value in zip(columns, values, strict=True)
                        if value != "DEFAULT")  # fmt: skip
        elif words(tokens, at, 1) == ["UPDATE"]:
            raise _unnamed()

    def _inserted(self, text: _Text) -> tuple[list[str], list[str]]:
        tokens, at, columns = text.tokens, self.action + 1, list[str]()
        if words(tokens, at, 1) == ["("]:
            last = closing(tokens, at)
            columns, at = [one.text for one in tokens[at + 1 : last] if one.text != ","], last + 1
        if words(tokens, at, 2) != ["VALUES", "("]:
            raise _unnamed()
        inside = between_commas(tokens[at + 2 : closing(tokens, at + 1)])
        values = [text.sql[one[0].start : one[-1].end] for one in inside]
        return columns or [f"#{at}" for at in range(1, len(values) + 1)], values

    def applied(self, read: list[str], text: _Text) -> str:
        """The action with its values read from computed columns."""
        new = iter(read)
        written = text.text(self.action, self.end)
        if words(text.tokens, self.action, 1) == ["UPDATE"]:
            assigned = _assigned(text, self.action + 2, self.end)
            pairs = ((one, value if value == "DEFAULT" else next(new)) for one, value in assigned)
            return f"UPDATE SET {', '.join(f'{one} = {value}' for one, value in pairs)}"
        if words(text.tokens, self.action, 1) == ["INSERT"]:
            names, values = self._inserted(text)
            put = ", ".join(value if value == "DEFAULT" else next(new) for value in values)
            named = "" if names[0].startswith("#") else f" ({', '.join(names)})"
            return f"INSERT{named} VALUES ({put})"
        return written


def _clauses(text: _Text) -> Iterator[_Clause]:
    starts = [at for at in on_top(text.tokens, text.at) if _begins(text.tokens, at)]
    text.at = starts[-1] if starts else len(text.tokens)
    ends = [*starts[1:], text.find("RETURNING")]
    for start, end in zip(starts, ends, strict=True):
        at = start + 1
        state = "MATCHED"
        if words(text.tokens, at, 1) == ["NOT"]:
            at, state = at + 1, "NOT MATCHED"
        at += 1
        if words(text.tokens, at, 1) == ["BY"]:
            state += " BY SOURCE" * (words(text.tokens, at + 1, 1) == ["SOURCE"])
            at += 2
        then = next(
            one
            for one in on_top(text.tokens, at)
            if text.tokens[one].word == "THEN" and text.tokens[one + 1].word in _ACTIONS
        )
        yield _Clause(state, text.text(at + 1, then), start, then + 1, end)


def _begins(tokens: Sequence[Token], at: int) -> bool:
    after = words(tokens, at + 1, 2)
    return tokens[at].word == "WHEN" and (after[:1] == ["MATCHED"] or after == ["NOT", "MATCHED"])


def _name_of(before: Sequence[Token], tokens: Sequence[Token], source: str) -> str:
    """What the source of a MERGE is called."""
    start = next(at for at, one in enumerate(before) if one.word == "USING") + 1
    part = list(before[start:])
    is_query = part[0].text == "("
    after = closing(part, 0) + 1 if is_query else read_path(part, 0)[1]
    after += words(part, after, 1) == ["AS"]
    if after < len(part):
        return part[after].text
    return "unnamed_subquery" if is_query else part[-1].text


def _plain(name: str) -> str:
    """A column's name without quotes."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _unnamed() -> UnsupportedQueryError:
    return UnsupportedQueryError(
        "A MERGE with LLM calls names the columns that it writes: UPDATE SET a = s.a, or "
        "INSERT (a) VALUES (s.a)."
    )
