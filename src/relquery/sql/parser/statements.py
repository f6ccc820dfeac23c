"""The statements of a text, and what they begin with: EXPLAIN, CREATE or DROP of a view or macro.

CREATE OR REPLACE TEMP VIEW v(a, b) AS SELECT ...  =>  the name v, columns a and b, the query
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relquery.errors import QueryError
from relquery.sql.host.catalog import Definition, Key
from relquery.sql.host.database import Database
from relquery.sql.parser.tokens import (
    Cursor,
    Token,
    between_commas,
    blank,
    tokenize,
    unnumbered,
    words,
)


@dataclass(frozen=True, slots=True)
class StatementText:
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

    def number_of(self, parameter: str) -> str:
        """The number of a parameter among those of the whole text; a name as it is."""
        return str(int(parameter) + self.before) if parameter.isdigit() else parameter.lower()


def split(sql: str, database: Database) -> list[StatementText]:
    """The statements of a text. Raises SqlSyntaxError, and QueryError if there are none."""
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise half_a_character("The SQL", error) from error
    tokens = tokenize(sql)
    plain = _without_cost(sql, tokens)
    parsed = database.statements(plain)
    if not parsed:
        raise QueryError("The query is empty. Give a statement, e.g. SELECT * FROM t.")
    texts: list[StatementText] = []
    marks, end = 0, 0
    for number, each in enumerate(parsed, 1):
        start = plain.index(each.text, end)
        end, given = start + len(each.text), each.text
        count = len(unnumbered(tokenize(given), given))
        option, query = explained(blank(plain[:start]) + given)
        texts.append(
            StatementText(
                given, query, option, each.kind, each.parameters, marks if count else 0, number,
                len(parsed), costs=given != sql[start:end],
            )
        )  # fmt: skip
        marks += count
    return texts


def half_a_character(what: str, error: UnicodeEncodeError) -> QueryError:
    """The error for a text that cannot be encoded."""
    return QueryError(
        f"{what} contains half a character at position {error.start} (a lone surrogate). "
        "Decode it as UTF-16 with surrogate pairs joined."
    )


def _without_cost(sql: str, tokens: Sequence[Token]) -> str:
    """A text with blanks in place of `(COST)` after the EXPLAIN that begins a statement."""
    for index in range(len(tokens) - 3):
        begins = index == 0 or tokens[index - 1].text == ";"
        if begins and words(tokens, index, 2) == ["EXPLAIN", "COST"]:  # without parentheses
            sql = sql[: tokens[index + 1].start] + " " * 4 + sql[tokens[index + 1].end :]
        if begins and words(tokens, index, 4) == ["EXPLAIN", "(", "COST", ")"]:
            start, end = tokens[index + 1].start, tokens[index + 3].end
            sql = sql[:start] + " " * (end - start) + sql[end:]
    return sql


def is_explain(sql: str) -> bool:
    """Whether a text starts with an EXPLAIN that does not run its statement."""
    option, _ = explained(sql)
    return option is not None and "ANALYZE" not in option.upper()


def explained(sql: str) -> tuple[str | None, str]:
    """The option of a statement's EXPLAIN (None without one), and the statement without it."""
    text = Cursor(sql, tokenize(sql))
    if not text.take("EXPLAIN"):
        return None, sql
    text.take("ANALYZE")
    if any(text.is_at("(", option) for option in ("ANALYZE", "FORMAT", "COST")):
        text.inside()
    first, last = text.tokens[0].end, text.tokens[text.at - 1].end
    return sql[first:last].strip(), blank(sql[:last]) + sql[last:]


_KINDS = {"VIEW": "VIEW", "MACRO": "MACRO", "FUNCTION": "MACRO", "TABLE": "TABLE"}


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of CREATE or DROP of a table, view or macro.

    is_create: whether it creates. kind: "TABLE", "VIEW", "MACRO" or "TABLE MACRO". is_there: IF
    NOT EXISTS, or IF EXISTS. path: the parts of the name. rest: the tokens after the name.
    """

    is_create: bool
    kind: str
    replaces: bool
    temporary: bool
    is_there: bool
    path: tuple[str, ...]
    rest: Sequence[Token]

    @property
    def name(self) -> str:
        """The name without database and schema."""
        return self.path[-1]

    @property
    def key(self) -> Key:
        """The key of the definition that the name may mean here: a table's may mean a view."""
        return "MACRO" if self.kind.endswith("MACRO") else "VIEW", self.name.lower()


def read_head(sql: str) -> Head | None:
    """The beginning of a statement that creates or drops a table, view or macro; else None."""
    text = Cursor.of(sql)
    is_create = text.take("CREATE")
    if not is_create and not text.take("DROP"):
        return None
    replaces = text.take("OR", "REPLACE")
    temporary = text.take("TEMP") or text.take("TEMPORARY")
    kind = next((_KINDS[word] for word in _KINDS if text.take(word)), None)
    if kind == "MACRO" and text.is_at("TABLE"):
        kind = "TABLE MACRO"
    is_there = text.take(*(("IF", "NOT", "EXISTS") if is_create else ("IF", "EXISTS")))
    path, _ = text.path()
    if kind is None or not path:
        return None
    rest = text.tokens[text.at :]
    if kind == "MACRO" and is_create and text.is_at("("):
        text.inside()
        kind = "TABLE MACRO" if text.is_at("AS", "TABLE") else kind
    return Head(is_create, kind, replaces, temporary, is_there, path, rest)


def read_definition(sql: str, head: Head) -> tuple[Definition, int, str]:
    """The view or macro that a statement creates, where its body starts, and what of a macro does
    not go with LLM calls: "" for nothing."""
    text = Cursor(sql, head.rest)
    parts = between_commas(text.inside()) if text.is_at("(") else []
    body, odd = head.rest[text.at + 1 :], ""
    if head.kind == "TABLE MACRO":
        odd = "gives rows. Create a view, and filter its rows where it is read."
    elif typed := next((part for part in parts if len(part) > 1), None):
        name = typed[0].name
        odd = (
            f"has a type or a default value for {name}. Leave it out, and cast {name} in the body."
        )
    elif head.kind == "MACRO" and len(between_commas(body)) > 1:
        odd = "has several forms. Create a macro of its own for each."
    names = tuple(part[0].name for part in parts)
    return Definition(head.key[0], head.name, names, text.text(body)), body[0].start, odd
