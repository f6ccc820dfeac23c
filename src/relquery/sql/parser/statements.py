"""The statements of a text, and the query inside of each.

DuckDB gives trees of queries alone. So of INSERT INTO t SELECT ... and the like the words around
the query stay text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from relquery.errors import QueryError
from relquery.sql.host.database import Database
from relquery.sql.parser.changes import read_change
from relquery.sql.parser.tokens import (
    Token,
    blank,
    closing,
    numbered,
    on_top,
    read_path,
    tokenize,
    without_field_names,
    words,
)

_QUERIES = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "PIVOT", "UNPIVOT", "DESCRIBE", "SHOW")


@dataclass(frozen=True, slots=True)
class Text:
    """One statement of a text.

    given: as DuckDB runs it. query: what follows its EXPLAIN, behind as many blanks as there are
        bytes before, so that errors have the right line and column.
    option: the option given to EXPLAIN, "" for none; None if there is no EXPLAIN.
    kind: what DuckDB calls it. parameters: names of its parameters, as DuckDB counts them.
    before: how many `?` the statements before have.
    number, of: its place among the statements, from 1, and how many there are.
    costs: whether EXPLAIN has the option COST, which DuckDB does not know; the others leave it out.
    """

    given: str
    query: str
    option: str | None
    kind: str
    parameters: frozenset[str]
    before: int = 0
    number: int = 1
    of: int = 1
    costs: bool = False

    @property
    def analyzes(self) -> bool:
        """Whether it starts with EXPLAIN ANALYZE, which runs it."""
        return "ANALYZE" in (self.option or "").upper()

    @property
    def only_analyzes(self) -> bool:
        """Whether ANALYZE is the only option."""
        return [one.word for one in tokenize(self.option or "")] in (
            ["ANALYZE"],
            ["(", "ANALYZE", ")"],
        )

    def number_of(self, parameter: str) -> str:
        """The number of a parameter among those of the whole text; a name as it is."""
        return str(int(parameter) + self.before) if parameter.isdigit() else parameter.lower()


def split(sql: str, database: Database) -> list[Text]:
    """The statements of a text. Raises SqlSyntaxError, and QueryError if there are none."""
    _check_encoding(sql)
    tokens = tokenize(sql)
    plain = _without_cost(sql, tokens)
    accepted = without_field_names(plain, tokens)
    parsed = database.statements(accepted, sql)
    if not parsed:
        raise QueryError("The query is empty. Give a statement, e.g. SELECT * FROM t.")
    texts: list[Text] = []
    # Names of fields may have more bytes than characters, and so more blanks.
    marks, end, given_end = 0, 0, 0
    for number, one in enumerate(parsed, 1):
        start = accepted.index(one.text, end)
        end = start + len(one.text)
        first = _same_place(plain, accepted, start)
        given_end = _same_place(plain, accepted, end)
        given = plain[first:given_end]
        found = _marks(given)
        before = marks if found else 0
        option, query = explained(blank(plain[:first]) + given)
        costs = given != sql[first:given_end]
        texts.append(
            Text(given, query, option, one.kind, one.parameters, before, number, len(parsed), costs)
        )
        marks += found
    return texts


def _same_place(plain: str, accepted: str, at: int) -> int:
    """The place in characters of one text that has as many bytes before it as in another."""
    if plain.isascii():
        return at
    return len(plain.encode()[: len(accepted[:at].encode())].decode(errors="ignore"))


def _marks(sql: str) -> int:
    """How many `?` a statement has; `?1` is `$1`."""
    tokens = tokenize(sql)
    after = [*tokens[1:], None]
    return sum(
        one.text == "?" and not (then is not None and then.start == one.end and then.text.isdigit())
        for one, then in zip(tokens, after, strict=True)
    )


def _without_cost(sql: str, tokens: Sequence[Token]) -> str:
    """A text with blanks in place of `(COST)` after the EXPLAIN that begins a statement."""
    for at in range(len(tokens) - 3):
        begins = at == 0 or tokens[at - 1].text == ";"
        if begins and words(tokens, at, 4) == ["EXPLAIN", "(", "COST", ")"]:
            start, end = tokens[at + 1].start, tokens[at + 3].end
            sql = sql[:start] + " " * (end - start) + sql[end:]
    return sql


def is_explain(sql: str) -> bool:
    """Whether a text starts with an EXPLAIN that does not run its statement."""
    option, _ = explained(sql)
    return option is not None and "ANALYZE" not in option.upper()


def explained(sql: str) -> tuple[str | None, str]:
    """The option of a statement's EXPLAIN (None without one), and the statement without it."""
    tokens = tokenize(sql)
    if words(tokens, 0, 1) != ["EXPLAIN"]:
        return None, sql
    at = 1
    at += words(tokens, at, 1) == ["ANALYZE"]
    if words(tokens, at, 1) == ["("] and words(tokens, at + 1, 1)[:1] in (
        ["ANALYZE"],
        ["FORMAT"],
        ["COST"],
    ):
        at = closing(tokens, at) + 1
    first, last = tokens[0].end, tokens[at - 1].end
    return sql[first:last].strip(), blank(sql[:last]) + sql[last:]


def _check_encoding(sql: str) -> None:
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise QueryError(
            f"The SQL contains half a character at position {error.start} (a lone surrogate). "
            "Decode it as UTF-16 with surrogate pairs joined."
        ) from error


Kind = Literal["QUERY", "INSERT", "CREATE TABLE", "COPY", "PIVOT", "CHANGE", "OTHER"]


@dataclass(frozen=True, slots=True)
class Shell:
    """A statement around its query.

    kind: which statement; CHANGE for UPDATE, DELETE and MERGE. head, tail: its text before and
    after the query. query: the query's text, with blanks before it. entries: text of a WITH clause
    before the statement. target: the table that it writes to, as written, with its columns if it
    names them. by_name: INSERT BY NAME.
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
    tokens = tokenize(sql)
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    sql = sql[: tokens[-1].end] if tokens else sql
    first = words(tokens, 0, 1)
    at = _after_with(tokens)
    if at is not None and tokens[at].word not in _QUERIES:
        sql, tokens = numbered(sql, tokens)
        start = tokens[_after_with(tokens) or 0].start
        entries = sql[:start]
        inner = read_shell(blank(entries) + sql[start:])
        return replace(inner, entries=entries)
    pivot, words_there = _pivot(sql, tokens), (*_QUERIES, "(", "SUMMARIZE")
    word = first[0] if first else ""
    readers = {"INSERT": _insert, "CREATE": _create, "COPY": _copy}
    if pivot is not None:
        return pivot
    if (change := read_change(sql, tokens)) is not None:
        return Shell(
            "CHANGE", change.query, change.head, change.tail, target=change.target,
            columns=change.columns, path=change.path, word=word,
        )  # fmt: skip
    if word in readers and (found := readers[word](sql, tokens)) is not None:
        return found
    return Shell("QUERY" if word in words_there else "OTHER", sql, word=word)


def _pivot(sql: str, tokens: Sequence[Token]) -> Shell | None:
    """A PIVOT of a query that lists no values: several statements for DuckDB, and no tree."""
    for at in range(len(tokens) - 1):
        if tokens[at].word != "PIVOT" or tokens[at + 1].text != "(":
            continue
        last = closing(tokens, at + 1)
        around = next((one for one in range(at, -1, -1) if tokens[one].text == "("), None)
        end = len(tokens) if around is None else closing(tokens, around)
        lists_values = any(tokens[one].word == "IN" for one in on_top(tokens[:end], last + 1))
        if tokens[at + 2].word in (*_QUERIES, "(") and not lists_values:
            head, query, tail = _cut(sql, tokens, at + 2, last)
            start = _after_with(tokens)
            entries = "" if start is None or start > at else sql[: tokens[start].start]
            return Shell("PIVOT", query, head[len(entries) :], tail, entries=entries)
    return None


def _after_with(tokens: Sequence[Token]) -> int | None:
    """Where the statement begins that follows a WITH clause; None without one."""
    if words(tokens, 0, 1) != ["WITH"]:
        return None
    starts = (*_QUERIES, "INSERT", "UPDATE", "DELETE", "MERGE")
    after = (at for at in on_top(tokens, 1) if tokens[at].word in starts)
    return next((at for at in after if tokens[at - 1].text == ")"), None)


def _insert(sql: str, tokens: Sequence[Token]) -> Shell:
    into = next(at for at in on_top(tokens) if tokens[at].word == "INTO")
    path, at = read_path(tokens, into + 1)
    target = sql[tokens[into].end : tokens[at - 1].end].strip()
    if words(tokens, at, 1) == ["AS"]:
        at += 2
    columns: tuple[str, ...] = ()
    if words(tokens, at, 1) == ["("] and tokens[at + 1].word not in (*_QUERIES, "("):
        last = closing(tokens, at)
        columns = tuple(one.name for one in tokens[at + 1 : last] if one.text != ",")
        at = last + 1
    by_name = words(tokens, at, 2) == ["BY", "NAME"]
    at += 2 if words(tokens, at, 1) == ["BY"] else 0
    end = len(tokens)
    for place in on_top(tokens, at):
        pair = words(tokens, place, 2)
        if pair == ["ON", "CONFLICT"] or pair[:1] == ["RETURNING"]:
            end = place
            break
    head, query, tail = _cut(sql, tokens, at, end)
    return Shell(
        "INSERT", query, head, tail, target=target, columns=columns, path=path, by_name=by_name
    )


def _create(sql: str, tokens: Sequence[Token]) -> Shell:
    at = 1
    replaces = words(tokens, at, 2) == ["OR", "REPLACE"]
    at += 2 * replaces
    temporary = words(tokens, at, 1) in (["TEMP"], ["TEMPORARY"])
    at += temporary
    if words(tokens, at, 1) != ["TABLE"]:
        return Shell("OTHER", sql, word=" ".join(["CREATE", *words(tokens, at, 1)]))
    at += 1
    if_not_exists = words(tokens, at, 3) == ["IF", "NOT", "EXISTS"]
    at += 3 * if_not_exists
    path, after = read_path(tokens, at)
    target = sql[tokens[at].start : tokens[after - 1].end]
    columns: tuple[str, ...] = ()
    if words(tokens, after, 1) == ["("]:
        last = closing(tokens, after)
        columns = tuple(one.name for one in tokens[after + 1 : last] if one.text != ",")
    start = next((place for place in on_top(tokens, after) if tokens[place].word == "AS"), None)
    if start is None:
        return Shell("OTHER", sql, word="CREATE TABLE")
    end, has_data = len(tokens), True
    for length, found in ((3, ["WITH", "NO", "DATA"]), (2, ["WITH", "DATA"])):
        if words(tokens, len(tokens) - length, length) == found:
            end, has_data = len(tokens) - length, length == 2
    head, query, tail = _cut(sql, tokens, start + 1, end)
    return Shell(
        "CREATE TABLE", query, head, tail if has_data else "", target=target, columns=columns,
        path=path, replaces=replaces, temporary=temporary, if_not_exists=if_not_exists,
        has_data=has_data,
    )  # fmt: skip


def _copy(sql: str, tokens: Sequence[Token]) -> Shell | None:
    """COPY of a query or a whole table to a file; None for other forms."""
    if words(tokens, 1, 1) == ["("]:
        last = closing(tokens, 1)
        head, query, tail = _cut(sql, tokens, 2, last)
    else:
        last = read_path(tokens, 1)[1] - 1
        name = sql[tokens[1].start : tokens[last].end]
        head, query, tail = "COPY (", f"SELECT * FROM {name}", f"){sql[tokens[last].end :]}"
    if words(tokens, last + 1, 1) != ["TO"]:
        return None
    after_to = tokens[last + 2]
    is_file = after_to.text.startswith("'")
    file = after_to.text[1:-1].replace("''", "'") if is_file else None
    return Shell("COPY", query, head, tail, file=file)


def _cut(sql: str, tokens: Sequence[Token], start: int, end: int) -> tuple[str, str, str]:
    """What is before the tokens of a query, the query with blanks before it, and what is after."""
    first, last = tokens[start].start, tokens[end - 1].end
    return sql[:first], blank(sql[:first]) + sql[first:last], sql[last:]
