"""A statement around its query. DuckDB gives trees of queries alone, so the words around it stay
text: of INSERT INTO t SELECT ... and the like.

UPDATE, DELETE and MERGE become a query for what changes, and the statement that applies its rows:

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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Literal

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.parser.parse import NoTreeError, parser
from relquery.sql.parser.tokens import (
    Cursor,
    Token,
    between_commas,
    blank,
    closing,
    on_top,
    read_path,
    step,
    words,
)

Kind = Literal["QUERY", "INSERT", "CREATE TABLE", "COPY", "PIVOT", "CHANGE", "OTHER"]
_QUERIES = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "PIVOT", "UNPIVOT", "DESCRIBE", "SHOW")
_ROW, _ACT, _DEFAULT, _TEXT = "rowid", ours.new(1), "DEFAULT", "''"


@dataclass(frozen=True, slots=True)
class Shell:
    """A statement around its query.

    kind: which statement; CHANGE for UPDATE, DELETE and MERGE. head, tail: its text before and
    after the query. query: the query's text, with blanks before it. entries: text of a WITH clause
    before the statement. target: the table that it writes to, as written, with its columns if it
    names them; of a CHANGE one for each column of the query, whose type that has: `#1` is the
    first of the table, `''` a text. by_name: INSERT BY NAME. is_whole: whether a PIVOT is the
    whole statement, and names none of the columns that it makes.
    """

    kind: Kind
    query: str
    head: str = ""
    tail: str = ""
    entries: str = ""
    target: str = ""
    columns: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    by_name: bool = False
    replaces: bool = False
    temporary: bool = False
    if_not_exists: bool = False
    has_data: bool = True
    file: str | None = None
    word: str = field(default="", compare=False)
    is_whole: bool = False

    @property
    def fills(self) -> bool:
        """Whether it writes to columns of a table that exists."""
        return self.kind in ("INSERT", "CHANGE")

    def around(self, query: str) -> str:
        """The statement with another query."""
        if self.kind == "QUERY":
            return query
        return f"{self.head.strip()} {query} {self.tail.strip()}".strip()


def read_shell(sql: str) -> Shell:
    """Find the query in a statement."""
    text = Cursor.of(sql)
    start = _after_with(text.tokens)
    if start is not None and text.tokens[start].word not in _QUERIES:
        text = text.numbered()
        start = text.tokens[_after_with(text.tokens) or 0].start
        entries = text.sql[:start]
        return replace(read_shell(blank(entries) + text.sql[start:]), entries=entries)
    if (pivot := _pivot(text)) is not None:
        return pivot
    for first, read in _READERS.items():
        if text.take(*first) and (found := read(text)) is not None:
            return replace(found, word=first[0]) if found.kind == "CHANGE" else found
        text.at = 0
    word = text.tokens[0].word if text.tokens else ""
    return Shell("QUERY" if word in (*_QUERIES, "(", "SUMMARIZE") else "OTHER", text.sql, word=word)


def _pivot(text: Cursor) -> Shell | None:
    """A PIVOT of a query that lists no values: several statements for DuckDB, and no tree.

    PIVOT v AS x ON m  =>  PIVOT (FROM v AS x) AS x ON m
    PIVOT (FROM t) ON LLM(a)  =>  PIVOT (SELECT * EXCLUDE (a), LLM(a) AS c FROM (FROM t)) ON c
    """
    tokens = text.tokens
    for at in range(len(tokens) - 1):
        if tokens[at].word != "PIVOT":
            continue
        if tokens[at + 1].text != "(":
            is_end = (one.word in ("ON", "USING", "GROUP") for one in tokens[at + 2 :])
            after = next((end for end, found in enumerate(is_end, at + 2) if found), at + 1)
            is_table = all(one.is_name or one.text == "." for one in tokens[at + 1 : after])
            if after > at + 1 and is_table:
                source = text.sql[tokens[at + 1].start : tokens[after - 1].end]
                name = text.sql[tokens[after - 1].start : tokens[after - 1].end]
                head = f"{text.sql[: tokens[at].end]} (FROM {source}) AS {name}"
                return _pivot(Cursor.of(head + text.sql[tokens[after - 1].end :]))
            continue
        last = closing(tokens, at + 1)
        depths = accumulate(map(step, tokens[last + 1 :]))
        end = next((one for one, depth in enumerate(depths, last + 1) if depth < 0), len(tokens))
        _check_folded(tokens[last + 1 : end])
        if tokens[at + 2].word in (*_QUERIES, "(") and not _lists_values(text, at, last, end):
            if (answered := _answered_before(text, at, last, end)) is not None:
                return _pivot(Cursor.of(answered))
            shell, start = _cut("PIVOT", text, at + 2, last), _after_with(tokens) or 0
            start = 0 if start > at else start
            entries = text.sql[: tokens[start].start] if start else ""
            beside = (one for one in range(start, len(tokens) - 1) if not at < one < last)
            if any(_is_call(tokens, one) for one in beside):
                raise UnsupportedQueryError(
                    "An LLM call is beside a PIVOT that lists no values. Write its rows to a table "
                    "first, or list the values: ON a IN ('x', 'y')."
                )
            orders = any(tokens[one].word == "ORDER" for one in on_top(tokens, last + 1))
            head, is_whole = shell.head[len(entries) :], at == start and not orders
            return replace(shell, head=head, entries=entries, is_whole=is_whole)
    return None


def _lists_values(text: Cursor, at: int, last: int, end: int) -> bool:
    """Whether a PIVOT from one token to another lists the values, so that DuckDB gives a tree.
    last: the end of its source."""
    tokens = text.tokens
    if all(tokens[one].word != "IN" for one in on_top(tokens[:end], last + 1)):
        return False
    try:
        parser().query(text.sql[tokens[at].start : tokens[end - 1].end])
    except NoTreeError:  # it is a condition
        return False
    except QueryError:
        return True
    return True


def _check_folded(tokens: Sequence[Token]) -> None:
    """Raises UnsupportedQueryError for a call about several rows in the clauses of a PIVOT."""
    for at in range(len(tokens) - 1):
        word = tokens[at].word
        if _is_call(tokens, at) and word.lower() in (*ours.AGGREGATES, "ai_rank"):
            raise UnsupportedQueryError(
                f"{word} is in a PIVOT, which cannot have one. Answer it in the subquery that the "
                "PIVOT reads: PIVOT (SELECT k, AI_AGG(...) AS a FROM t GROUP BY k) ON k."
            )


def _answered_before(text: Cursor, at: int, last: int, end: int) -> str | None:
    """The text in which the source of a PIVOT has the answers that it names; None without calls."""
    tokens, sql, one = text.tokens, text.sql, last + 1
    calls = list[tuple[int, int]]()
    while one < end - 1:
        if _is_call(tokens, one):
            calls.append((one, closing(tokens, one + 1)))
            one = calls[-1][1]
        one += 1
    if not calls:
        return None
    inside = {one for first, final in calls for one in range(first, final + 1)}
    kept = {tokens[one].name.lower() for one in range(last + 1, end) if one not in inside}
    is_grouped = any(tokens[one].word == "GROUP" for one in on_top(tokens[:end], last + 1))
    read = [] if is_grouped else [tokens[one].name.lower() for one in inside if tokens[one].is_name]
    unread = ", ".join(map(ours.quoted_text, dict.fromkeys(one for one in read if one not in kept)))
    star = f"COLUMNS(lambda c: lower(c) NOT IN ({unread}))" if unread else "*"
    texts = [sql[tokens[first].start : tokens[final].end] for first, final in calls]
    items = (f"{each} AS {ours.column(number)}" for number, each in enumerate(texts))
    alias = tokens[last + 1 + (tokens[last + 1].word == "AS")]
    named = f" AS {sql[alias.start : alias.end]}" if alias.word not in _AFTER_SOURCE else ""
    source = sql[tokens[at + 1].start : tokens[last].end]
    found = f"{sql[: tokens[at].end]} (SELECT {star}, {', '.join(items)} FROM {source}{named})"
    edits = [
        (tokens[first].start, tokens[final].end, ours.column(number))
        for number, (first, final) in enumerate(calls)
    ]
    for begun, done in _unnamed_aggregates(tokens, last, end):
        if inside & {*range(begun, done + 1)}:
            whole = sql[tokens[begun].start : tokens[done].end]
            edits.append((tokens[done].end, tokens[done].end, f" AS {ours.quoted(whole)}"))
    place = tokens[last].end
    for start, stop, put in sorted(edits):
        found, place = f"{found}{sql[place:start]}{put}", stop
    return found + sql[place:]


def _is_call(tokens: Sequence[Token], at: int) -> bool:
    return tokens[at].word.lower() in ours.FUNCTIONS and tokens[at + 1].text == "("


_AFTER_SOURCE = ("ON", "USING", "GROUP", "ORDER", "LIMIT")


def _unnamed_aggregates(tokens: Sequence[Token], last: int, end: int) -> list[tuple[int, int]]:
    """Where each of several aggregates of a PIVOT stands that has no name of its own."""
    top = list(on_top(tokens[:end], last + 1))
    using = next((one for one in top if tokens[one].word == "USING"), None)
    if using is None:
        return []
    stops = ("GROUP", "ORDER", "LIMIT", "OFFSET")
    after = next((one for one in top if one > using and tokens[one].word in stops), end)
    commas = [one for one in top if using < one < after and tokens[one].text == ","]
    if not commas:
        return []
    begins, dones = [using, *commas], [*commas, after]
    found = [(begun + 1, done - 1) for begun, done in zip(begins, dones, strict=True)]
    return [(begun, done) for begun, done in found if tokens[done].text == ")"]


def _after_with(tokens: Sequence[Token]) -> int | None:
    """Where the statement begins that follows a WITH clause; None without one."""
    if words(tokens, 0, 1) != ["WITH"]:
        return None
    starts = (*_QUERIES, "INSERT", "UPDATE", "DELETE", "MERGE")
    after = (at for at in on_top(tokens, 1) if tokens[at].word in starts)
    return next((at for at in after if tokens[at - 1].text == ")"), None)


def _cut(kind: Kind, text: Cursor, start: int, end: int) -> Shell:
    """The statement around the tokens of a query."""
    sql, first, last = text.sql, text.tokens[start].start, text.tokens[end - 1].end
    return Shell(kind, blank(sql[:first]) + sql[first:last], sql[:first], sql[last:])


def _names(tokens: Sequence[Token]) -> tuple[str, ...]:
    return tuple(one.name for one in tokens if one.text != ",")


def _insert(text: Cursor) -> Shell:
    text.until("INTO")
    text.at += 1
    path, target = text.path()
    text.at += 2 * text.is_at("AS")
    is_list = text.is_at("(") and text.tokens[text.at + 1].word not in (*_QUERIES, "(")
    columns = _names(text.inside()) if is_list else ()
    by_name = text.is_at("BY", "NAME")
    text.at += 2 * text.is_at("BY")
    tokens, start = text.tokens, text.at
    pairs = ((at, words(tokens, at, 2)) for at in on_top(tokens, start))
    ends = (at for at, pair in pairs if pair == ["ON", "CONFLICT"] or pair[0] == "RETURNING")
    shell = _cut("INSERT", text, start, next(ends, len(tokens)))
    return replace(shell, target=target, columns=columns, path=path, by_name=by_name)


def _create(text: Cursor) -> Shell:
    replaces = text.take("OR", "REPLACE")
    temporary = text.take("TEMP") or text.take("TEMPORARY")
    if not text.take("TABLE"):
        word = " ".join(["CREATE", *words(text.tokens, text.at, 1)])
        return Shell("OTHER", text.sql, word=word)
    if_not_exists = text.take("IF", "NOT", "EXISTS")
    path, target = text.path()
    columns = _names(text.inside()) if text.is_at("(") else ()
    start, end = text.find("AS") + 1, len(text.tokens)
    if start > end:
        return Shell("OTHER", text.sql, word="CREATE TABLE")
    without_data = words(text.tokens, end - 3, 3) == ["WITH", "NO", "DATA"]
    if without_data or words(text.tokens, end - 2, 2) == ["WITH", "DATA"]:
        end -= 2 + without_data
    shell = _cut("CREATE TABLE", text, start, end)
    return replace(
        shell, tail="" if without_data else shell.tail, target=target, columns=columns, path=path,
        replaces=replaces, temporary=temporary, if_not_exists=if_not_exists,
        has_data=not without_data,
    )  # fmt: skip


def _copy(text: Cursor) -> Shell | None:
    """COPY of a query or a whole table to a file; None for other forms."""
    first = text.at
    if text.is_at("("):
        text.inside()
        shell = _cut("COPY", text, first + 1, text.at - 1)
    else:
        _, name = text.path()
        end = text.tokens[text.at - 1].end
        shell = Shell("COPY", f"SELECT * FROM {name}", "COPY (", f"){text.sql[end:]}")
    if not text.take("TO"):
        return None
    file = text.tokens[text.at].text
    return replace(shell, file=file[1:-1].replace("''", "'") if file.startswith("'") else None)


@dataclass(frozen=True, slots=True)
class _Changed:
    """The table that a statement changes. target: with its alias, as written. row: its rowid."""

    path: tuple[str, ...]
    target: str
    row: str

    @classmethod
    def read(cls, text: Cursor, *after: str) -> _Changed:
        """The table that is next. after: what may follow in the place of an alias."""
        first, (path, name) = text.at, text.path()
        text.take("AS")
        if text.at < len(text.tokens) and text.tokens[text.at].word not in after:
            name = text.tokens[text.at].text
            text.at += 1
        return cls(path, text.since(first), f"{name}.{_ROW}")

    def shell(self, query: str, head: str, tail: str, columns: Sequence[str] = ()) -> Shell:
        """The statement that applies the rows of a query; columns: behind their rowid."""
        plain = (one[1:-1].replace('""', '"') if one.startswith('"') else one for one in columns)
        return Shell(
            "CHANGE", query, head, tail, target=self.target, columns=(_ROW, *plain), path=self.path
        )


def _update(text: Cursor) -> Shell:
    text = text.numbered()
    text.at = 1
    table = _Changed.read(text, "SET")
    first, text.at = text.at + 1, text.find("FROM", "WHERE", "RETURNING")
    items, columns, sets = [f"{table.row} AS {ours.new(0)}"], list[str](), list[str]()
    for name, value in _assigned(text, text.tokens[first : text.at]):
        new = ours.new(len(items))
        if value == _DEFAULT:
            sets.append(f"{name} = {value}")
        else:
            sets.append(f"{name} = {ours.NEW}.{new}")
            items.append(f"({value}) AS {new}")
            columns.append(name)
    source, where, returning = _rest(text, table)
    return table.shell(
        f"SELECT {', '.join(items)} FROM {source} {where}",
        f"UPDATE {table.target} SET {', '.join(sets)} FROM (",
        f") AS {ours.NEW} WHERE {table.row} = {ours.NEW}.{ours.new(0)} {returning}",
        columns,
    )


def _delete(text: Cursor) -> Shell:
    text = text.numbered()
    text.at = 2
    table = _Changed.read(text, "USING", "WHERE", "RETURNING")
    source, where, returning = _rest(text, table)
    return table.shell(
        f"SELECT {table.row} AS {ours.new(0)} FROM {source} {where}",
        f"DELETE FROM {table.target} WHERE {table.row} IN (FROM (",
        f") AS {ours.NEW}) {returning}",
    )


def _rest(text: Cursor, table: _Changed) -> tuple[str, str, str]:
    """The tables that an UPDATE or DELETE reads, its WHERE and its RETURNING."""
    text.at += text.is_at("FROM") or text.is_at("USING")
    others = text.until("WHERE", "RETURNING")
    source = f"{table.target}, {others}" if others else table.target
    return source, text.until("RETURNING"), text.until()


def _assigned(text: Cursor, tokens: Sequence[Token]) -> Iterator[tuple[str, str]]:
    """(column, value) of `a = x, (b, c) = (y, z)`, as written."""
    for part in between_commas(tokens):
        equals = next((at for at, one in enumerate(part) if one.text == "="), None)
        if equals is None:  # `SET *` of MERGE
            raise _unnamed()
        values, names = [text.text(part[equals + 1 :])], [part[0].text]
        if part[0].text == "(":
            names = [one.text for one in part[1:equals] if one.text not in (",", ")")]
        if len(names) > 1:
            starts = ("SELECT", "FROM", "WITH")
            is_row = words(part, equals + 1, 1) == ["("] and part[equals + 2].word not in starts
            inside = between_commas(part[equals + 2 : -1] if is_row else [])
            values = list(map(text.text, inside))
        if len(names) != len(values):
            raise UnsupportedQueryError(
                f"SET ({', '.join(names)}) takes its values from one expression, which does not go "
                "with LLM calls. Set each column by itself."
            )
        yield from zip(names, values, strict=True)


def _merge(text: Cursor) -> Shell:
    text = text.numbered()
    text.at = 2
    table = _Changed.read(text, "USING")
    text.at += 1
    first, source = text.at, text.until("ON", "USING")
    name, start = _name_of(text.tokens[first : text.at]), text.at
    starts = [at for at in on_top(text.tokens, start) if _begins(words(text.tokens, at, 3))]
    clauses = list(_clauses(text, starts))
    on = text.text(text.tokens[start : starts[0]])
    there = f"{name}.{ours.new(0)} IS NOT NULL"
    act = " ".join(one.case(at, table.row, there) for at, one in enumerate(clauses))
    items = [f"{table.row} AS {ours.new(0)}", f"CASE {act} END AS {_ACT}"]
    columns, actions = [_ROW], list[str]()
    for at, one in enumerate(clauses):
        values = list[str]()
        for column, value in one.assigned:
            if value == _DEFAULT:
                values.append(value)
                continue
            new = ours.new(len(items))
            values.append(f"{ours.NEW}.{new}")
            items.append(f"CASE WHEN (CASE {act} END) = {at} THEN ({value}) END AS {new}")
            columns.append(column)
        state = "NOT MATCHED" if one.state == "NOT MATCHED" else "MATCHED"
        actions.append(f"WHEN {state} AND {ours.NEW}.{_ACT} = {at} THEN {one.applied(values)}")
    states = {one.state for one in clauses}
    kind = _JOINS["NOT MATCHED" in states, "NOT MATCHED BY SOURCE" in states]
    return table.shell(
        f"SELECT {', '.join(items)} FROM {table.target} {kind} JOIN "
        f"(SELECT true AS {ours.new(0)}, * FROM {source}) AS {name} {on}",
        f"MERGE INTO {table.target} USING (",
        f") AS {ours.NEW} ON {table.row} = {ours.NEW}.{ours.new(0)} {' '.join(actions)} "
        f"{text.until()}",
        columns,
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

    action: UPDATE, INSERT or ERROR; others as they are written. assigned: (column, value) of what
    these write; `#1` for a column that they do not name, `''` for what ERROR says.
    """

    state: str
    condition: str
    action: str
    assigned: list[tuple[str, str]]

    def case(self, number: int, row: str, there: str) -> str:
        """The branch that says whether the clause is the one for a row."""
        wanted = {"MATCHED": f"{row} IS NOT NULL AND {there}", "NOT MATCHED": f"{row} IS NULL"}
        when = wanted.get(self.state, f"NOT ({there})")
        also = f" AND ({self.condition})" if self.condition else ""
        return f"WHEN {when}{also} THEN {number}"

    def applied(self, values: Sequence[str]) -> str:
        """The action with other values."""
        names = [column for column, _ in self.assigned]
        if self.action == "UPDATE":
            pairs = zip(names, values, strict=True)
            return f"UPDATE SET {', '.join(f'{name} = {value}' for name, value in pairs)}"
        if self.action == "INSERT":
            named = "" if names[0].startswith("#") else f" ({', '.join(names)})"
            return f"INSERT{named} VALUES ({', '.join(values)})"
        return " ".join([self.action, *values])


def _clauses(text: Cursor, starts: Sequence[int]) -> Iterator[_Clause]:
    """The clauses that begin at some places. Goes to what follows them."""
    tokens, text.at = text.tokens, starts[-1]
    for start, end in zip(starts, [*starts[1:], text.find("RETURNING")], strict=True):
        text.at = start + 1
        state = "NOT MATCHED" if text.take("NOT") else "MATCHED"
        text.at += 1
        if text.take("BY"):
            state += " BY SOURCE" * text.is_at("SOURCE")
            text.at += 1
        first = text.at + 1
        thens = (at for at in on_top(tokens, text.at) if tokens[at].word == "THEN")
        text.at = 1 + next(at for at in thens if tokens[at + 1].word in _ACTIONS)
        condition = text.text(tokens[first : text.at - 1])
        yield _Clause(state, condition, *_action(text, end))
        text.at = end


_ACTIONS = ("UPDATE", "DELETE", "INSERT", "DO", "ERROR")


def _begins(after: list[str]) -> bool:
    return after[:2] == ["WHEN", "MATCHED"] or after == ["WHEN", "NOT", "MATCHED"]


def _action(text: Cursor, end: int) -> tuple[str, list[tuple[str, str]]]:
    """The action of a clause, and what it assigns."""
    written = text.text(text.tokens[text.at : end])
    if text.take("UPDATE", "SET"):
        return "UPDATE", list(_assigned(text, text.tokens[text.at : end]))
    if text.take("INSERT"):
        columns = [one.text for one in text.inside() if one.text != ","] if text.is_at("(") else []
        if not text.is_at("VALUES", "("):
            raise _unnamed()
        text.at += 1
        values = list(map(text.text, between_commas(text.inside())))
        columns = columns or [f"#{at}" for at in range(1, len(values) + 1)]
        if len(columns) != len(values):
            raise QueryError(
                f"INSERT of MERGE names {len(columns)} columns ({', '.join(columns)}), but has "
                f"{len(values)} values. Write a value for each."
            )
        return "INSERT", list(zip(columns, values, strict=True))
    if text.take("ERROR"):
        said = text.text(text.tokens[text.at : end])
        return "ERROR", [(_TEXT, said)] if said else []
    if text.is_at("UPDATE"):
        raise _unnamed()
    return written, []


def _name_of(source: Sequence[Token]) -> str:
    """What the source of a MERGE is called."""
    is_query = source[0].text == "("
    after = closing(source, 0) + 1 if is_query else read_path(source, 0)[1]
    after += words(source, after, 1) == ["AS"]
    if after < len(source):
        return source[after].text
    return "unnamed_subquery" if is_query else source[-1].text


def _unnamed() -> UnsupportedQueryError:
    return UnsupportedQueryError(
        "A MERGE with LLM calls names the columns that it writes: UPDATE SET a = s.a, or "
        "INSERT (a) VALUES (s.a)."
    )


_READERS: dict[tuple[str, ...], Callable[[Cursor], Shell | None]] = {
    ("INSERT",): _insert,
    ("CREATE",): _create,
    ("COPY",): _copy,
    ("UPDATE",): _update,
    ("DELETE", "FROM"): _delete,
    ("MERGE", "INTO"): _merge,
}
