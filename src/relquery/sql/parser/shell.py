"""A statement around its query. DuckDB gives trees of queries alone, so the words around it stay
text: of INSERT INTO t SELECT ... and the like.

UPDATE and DELETE become a query for what changes, and the statement that applies its rows:

UPDATE t SET a = LLM('...', b) WHERE c
=> SELECT t.rowid AS r, LLM('...', b) AS x FROM t WHERE c
   UPDATE t SET a = n.x FROM (...) AS n WHERE t.rowid = n.r

DELETE FROM t USING u WHERE c
=> SELECT t.rowid AS r FROM t, u WHERE c
   DELETE FROM t WHERE rowid IN (SELECT r FROM (...))

So all that may be asked is asked before anything changes, and one statement changes everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from relquery.errors import UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.parser.tokens import (
    Cursor,
    Token,
    between_commas,
    blank,
    on_top,
    words,
)

Kind = Literal["QUERY", "INSERT", "CREATE TABLE", "COPY", "CHANGE", "OTHER"]
_QUERIES = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "PIVOT", "UNPIVOT", "DESCRIBE", "SHOW")
_ROW, _DEFAULT = "rowid", "DEFAULT"


@dataclass(frozen=True, slots=True)
class Shell:
    """A statement around its query.

    kind: which statement; CHANGE for UPDATE and DELETE. head, tail: its text before and after the
    query. query: the query's text, with blanks before it. entries: text of a WITH clause before the
    statement. target: the table that it writes to, as written. columns: of that table, if it names
    them; of a CHANGE one for each column of the query, whose type that has. by_name: INSERT BY
    NAME.
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
    file: str | None = None
    word: str = field(default="", compare=False)

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
    for first, read in _READERS.items():
        if text.take(*first) and (shell := read(text)) is not None:
            return replace(shell, word=first[0]) if shell.kind == "CHANGE" else shell
        text.at = 0
    word = text.tokens[0].word if text.tokens else ""
    return Shell("QUERY" if word in (*_QUERIES, "(", "SUMMARIZE") else "OTHER", text.sql, word=word)


def _after_with(tokens: Sequence[Token]) -> int | None:
    """Where the statement begins that follows a WITH clause; None without one."""
    if words(tokens, 0, 1) != ["WITH"]:
        return None
    starts = (*_QUERIES, "INSERT", "UPDATE", "DELETE", "MERGE")
    after = (index for index in on_top(tokens, 1) if tokens[index].word in starts)
    return next((index for index in after if tokens[index - 1].text == ")"), None)


def _cut(kind: Kind, text: Cursor, start: int, end: int) -> Shell:
    """The statement around the tokens of a query."""
    sql, first, last = text.sql, text.tokens[start].start, text.tokens[end - 1].end
    return Shell(kind, blank(sql[:first]) + sql[first:last], sql[:first], sql[last:])


def _names(tokens: Sequence[Token]) -> tuple[str, ...]:
    return tuple(token.name for token in tokens if token.text != ",")


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
    pairs = ((index, words(tokens, index, 2)) for index in on_top(tokens, start))
    ends = (index for index, pair in pairs if pair == ["ON", "CONFLICT"] or pair[0] == "RETURNING")
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
    if words(text.tokens, end - 3, 3) == ["WITH", "NO", "DATA"]:
        return Shell("OTHER", text.sql, word="CREATE TABLE WITH NO DATA")
    end -= 2 * (words(text.tokens, end - 2, 2) == ["WITH", "DATA"])
    shell = _cut("CREATE TABLE", text, start, end)
    return replace(
        shell, target=target, columns=columns, path=path, replaces=replaces, temporary=temporary,
        if_not_exists=if_not_exists,
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
        plain = (
            column[1:-1].replace('""', '"') if column.startswith('"') else column
            for column in columns
        )
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
        equals = next((index for index, token in enumerate(part) if token.text == "="), None)
        assert equals is not None
        values, names = [text.text(part[equals + 1 :])], [part[0].text]
        if part[0].text == "(":
            names = [token.text for token in part[1:equals] if token.text not in (",", ")")]
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


_READERS: dict[tuple[str, ...], Callable[[Cursor], Shell | None]] = {
    ("INSERT",): _insert,
    ("CREATE",): _create,
    ("COPY",): _copy,
    ("UPDATE",): _update,
    ("DELETE", "FROM"): _delete,
}
