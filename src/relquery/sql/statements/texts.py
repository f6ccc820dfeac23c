"""The statements of a text, each with its position in the text and its EXPLAIN."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import TokenType

from relquery.errors import QueryError
from relquery.sql.host.database import Database
from relquery.sql.read.source import without_names
from relquery.sql.read.tokens import spaced, tokenize

_BLANK = r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
_EXPLAIN = re.compile(
    rf"{_BLANK}EXPLAIN\b(?P<option>{_BLANK}ANALYZE\b(?:{_BLANK}\([^)]*\))?"
    rf"|{_BLANK}\({_BLANK}(?:ANALYZE|FORMAT|COST)\b[^)]*\))?",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Text:
    """One statement of a text.

    given: as DuckDB runs it, with `$1` for `?`. query: what follows its EXPLAIN, behind as many
        blanks as there are characters before, so that errors have the right line and column.
    option: the option given to EXPLAIN, "" for none; None if there is no EXPLAIN.
    kind: what DuckDB calls it. parameters: names of its parameters; `?` is `$1`, `$2`, ...
    costs: whether EXPLAIN has the option COST, which DuckDB does not know; the others leave it out.
    number, of: its place among the statements, from 1, and how many there are.
    """

    given: str
    query: str
    option: str | None
    kind: str
    parameters: frozenset[str]
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
        words = [token.text.upper() for token in tokenize(self.option or "")]
        return words in (["ANALYZE"], ["(", "ANALYZE", ")"])


def split(sql: str, database: Database) -> list[Text]:
    """The statements of a text. Raises SqlSyntaxError, and QueryError if there are none."""
    _check_encoding(sql)
    sql = spaced(sql)
    plain = _without_cost(sql)
    accepted = without_names(plain)  # of the same length
    parsed = database.statements(accepted, sql)
    if not parsed:
        raise QueryError("The query is empty. Give a statement, e.g. SELECT * FROM t.")
    texts = []
    end = marks = 0
    for number, one in enumerate(parsed, 1):
        start = accepted.index(one.text, end)
        end = start + len(one.text)
        given, found, names = sql[start:end], 0, one.parameters
        if any(name.isdigit() for name in names):
            given, found = _numbered(given, marks)
            if found and marks:
                names = frozenset(str(int(name) + marks) for name in names)
        costs = plain[start:end] != sql[start:end]
        if costs:
            given = plain[start:end] if not found else _without_cost(given)
        option, query = _explained(blank(sql[:start]) + given)
        texts.append(Text(given, query, option, one.kind, names, number, len(parsed), costs))
        marks += found
    return texts


def _without_cost(sql: str) -> str:
    """A text with blanks in place of `(COST)` after the EXPLAIN that begins a statement."""
    if "cost" not in sql.lower():
        return sql
    tokens, found = tokenize(sql), sql
    for at in range(len(tokens) - 3):
        begins = at == 0 or tokens[at - 1].token_type == TokenType.SEMICOLON
        words = [one.text.upper() for one in tokens[at : at + 4]]
        if begins and words == ["EXPLAIN", "(", "COST", ")"]:
            start, end = tokens[at + 1].start, tokens[at + 3].end + 1
            found = found[:start] + blank(found[start:end]) + found[end:]
    return found


def is_explain(sql: str) -> bool:
    """Whether a text starts with an EXPLAIN that does not run its statement."""
    option, _ = _explained(sql)
    return option is not None and "ANALYZE" not in option.upper()


def _explained(sql: str) -> tuple[str | None, str]:
    """The option of a statement's EXPLAIN (None without one), and the statement without it."""
    found = _EXPLAIN.match(sql)
    if found is None:
        return None, sql
    return (found["option"] or "").strip(), blank(found[0]) + sql[found.end() :]


def blank(text: str) -> str:
    """As many blanks and line ends as a text has, to keep lines and columns."""
    return re.sub(r"[^\n]", " ", text)


def _numbered(sql: str, before: int) -> tuple[str, int]:
    """A statement with `$3` for its third `?`, and how many it has. before: in the text before."""
    parts, end, count = [], 0, 0
    for token in tokenize(sql):
        if token.token_type == TokenType.PLACEHOLDER:
            has_number = sql[token.end + 1 : token.end + 2].isdigit()  # `?1` is `$1`
            count += not has_number
            parts += [sql[end : token.start], "$" if has_number else f"${before + count}"]
            end = token.end + 1
    return spaced("".join([*parts, sql[end:]])), count


def _check_encoding(sql: str) -> None:
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise QueryError(
            f"The SQL contains half a character at position {error.start} (a lone surrogate). "
            "Decode it as UTF-16 with surrogate pairs joined."
        ) from error
