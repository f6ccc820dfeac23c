"""The text of a query: where its LLM calls are, and the tree that sqlglot parses from it.

Every call gets a number before parsing (`LLM(` becomes `_rq_llm_3(`). So a node of the tree knows
its own text, and the names of result columns can be taken from the original text. Names of fields
(`LLM('...', price * 2 AS total)`) are taken out before parsing, since SQL has no such names, and so
is DISTINCT, since the parser knows no options (`x := 1`) behind it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sqlglot import TokenType, exp
from sqlglot.errors import ParseError, TokenError

from relquery.errors import SqlSyntaxError, UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.host.errors import from_sqlglot
from relquery.sql.read.agreement import agree
from relquery.sql.read.locate import CallText, locate
from relquery.sql.read.tokens import Reading, UnbalancedError, parse, tokenize

DIALECT = "duckdb"
# Metadata of a node that a query's parameter became: its value, as Python has it.
VALUE = "value"
# Metadata of an expression that replaced a name: the name, which the model sees.
FIELD_NAME = "field_name"
# Metadata of an argument that AS gives a name: it is a field, even if it is a text.
NAMED = "named"
# Metadata of a call: whether DISTINCT is before its arguments.
DISTINCT = "distinct"
# Metadata of what stands for a function in the tree: the call as written, for people to read.
AS_WRITTEN = "as_written"
# Metadata of a comparison that was moved into a branch of a set operation, where it may be about
# the values of the other branch.
OF_BRANCH = "of a branch"
# Metadata of an expression that is AI_RANK of a row.
RANKS = "ranks"
# Metadata of a call: the function as written, in lower case, e.g. "ai_filter".
FUNCTION = "function"
_CALL_NAME = re.compile(rf"{ours.CALL}(\d+)")
_MAYBE_A_CALL = re.compile(rf"\b(?:{'|'.join(sorted(ours.FUNCTIONS))})\b", re.IGNORECASE)
_ANY_CASE = re.compile(rf"{ours.CALL}\d+", re.IGNORECASE)


# Of a statement that the parser does not know, DuckDB says what is wrong.
logging.getLogger("sqlglot").addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Source:
    """One statement and its calls, in the order of the text."""

    sql: str
    calls: tuple[CallText, ...]

    def text(self, index: int) -> str:
        """Call `index` as written, with its name in lower case like DuckDB's function names."""
        call = self.calls[index]
        return call.function + self.sql[call.opening : call.end]

    def parse(self) -> exp.Expression:
        """The tree with numbered calls. Raises SqlSyntaxError, and UnsupportedQueryError for what
        would mean something else once it is written again.
        """
        numbered = [
            (call.name, call.opening, f"{ours.CALL}{index}")
            for index, call in enumerate(self.calls)
        ]
        unnamed = [(name.start, name.end, "") for call in self.calls for name in call.names]
        all_rows = [(*call.distinct, "") for call in self.calls if call.distinct]
        sql = self._spliced(sorted(numbered + unnamed + all_rows))
        try:
            tree = parse(sql)
        except (ParseError, TokenError) as error:
            raise from_sqlglot(_as_written(self.sql) or error, self.sql) from error
        # A call with DISTINCT is refused elsewhere, with a remedy of its own.
        is_distinct = any(
            each.parent is not None and call_number(each.parent) is not None
            for each in tree.find_all(exp.Distinct)
        )
        if self.calls and not is_distinct and not agree(sql, to_sql(tree)):
            raise UnsupportedQueryError(
                "With LLM calls in it, this statement would be run as another one. Write the part "
                "that differs in another way, or compute it in a query without calls, e.g. a "
                f"view.\nyours: {' '.join(self.sql.split())}\nrun:   {unnumbered(tree)}"
            )
        for node in list(tree.find_all(exp.Anonymous)):
            if (number := call_number(node)) is not None:
                node.meta[FUNCTION] = self.calls[number].function
                node.meta[DISTINCT] = self.calls[number].distinct is not None
                for name in self.calls[number].names:
                    given = node.expressions[name.argument]
                    given = given.this if isinstance(given, exp.Order) else given
                    given.meta.update({FIELD_NAME: name.name, NAMED: True})
        return tree

    def with_calls(self, replacement: Callable[[int], str]) -> str:
        """The text with every outermost call replaced."""
        outermost = []
        end = 0
        for index, call in enumerate(self.calls):
            if call.name >= end:
                outermost.append((call.name, call.end, replacement(index)))
                end = call.end
        return self._spliced(outermost)

    def _spliced(self, replacements: Iterable[tuple[int, int, str]]) -> str:
        parts = []
        at = 0
        for start, end, text in replacements:
            parts += [self.sql[at:start], text]
            at = end
        return "".join([*parts, self.sql[at:]])


def _as_written(sql: str) -> ParseError | TokenError | None:
    """The parse error for the text without call numbers, so its positions match the user's text."""
    try:
        parse(sql)
    except (ParseError, TokenError) as error:
        return error
    return None


def read_source(sql: str) -> Source:
    """Find the LLM calls of a statement that DuckDB parses; drops semicolons at the end.

    Raises SqlSyntaxError, and UnbalancedError for what DuckDB does not parse.
    """
    try:
        tokens = tokenize(sql)
    except TokenError as error:
        raise from_sqlglot(error, sql) from error
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    return Source(sql[: tokens[-1].end + 1] if tokens else sql, locate(tokens))


def may_call(sql: str) -> bool:
    """Whether a text may have a call; it may also have a column called `llm`."""
    return _MAYBE_A_CALL.search(sql) is not None


def without_names(sql: str) -> str:
    """The text as DuckDB can parse it: blanks where fields of calls are named."""
    if not may_call(sql):
        return sql
    try:
        source = read_source(sql)
    except (SqlSyntaxError, UnbalancedError):  # DuckDB will say what is wrong
        return sql
    for call in source.calls:
        for name in call.names:
            blank = re.sub(r"[^\n]", " ", sql[name.start : name.end])
            sql = sql[: name.start] + blank + sql[name.end :]
    return sql


def call_number(node: exp.Expr) -> int | None:
    """The number of an LLM call, None for any other node."""
    if not isinstance(node, exp.Anonymous) or not isinstance(node.this, str):
        return None
    found = _CALL_NAME.fullmatch(node.this)
    return int(found[1]) if found else None


def named_like(put: exp.Expr, node: exp.Expr) -> exp.Expr:
    """What is put in the place of a field, with the name that the field was given."""
    put.meta.update({key: node.meta[key] for key in (FIELD_NAME, NAMED) if key in node.meta})
    return put


def to_sql(node: exp.Expr) -> str:
    """An expression as DuckDB reads it."""
    return node.sql(dialect=Reading, comments=False)


def readable(node: exp.Expr) -> str:
    """An expression for people to read: calls and columns have their own names again."""
    return unnumbered(node.transform(_as_written_before))


def unnumbered(node: exp.Expr) -> str:
    """An expression as DuckDB would read it if it had LLM; equal calls have equal texts."""
    return _ANY_CASE.sub("LLM", to_sql(node))


def _as_written_before(node: exp.Expr) -> exp.Expr:
    if (written := node.meta_get(AS_WRITTEN)) is not None:
        return exp.Var(this=written)
    if (
        isinstance(node, exp.Column)
        and node.name.startswith(ours.PREFIX)
        and node.meta_get(FIELD_NAME) is not None
    ):
        return exp.Var(this=node.meta[FIELD_NAME])
    if isinstance(node, exp.Column) and node.text("db") == ours.OUTER:
        return exp.column(node.this.copy(), table=node.args["table"].copy())
    return node
