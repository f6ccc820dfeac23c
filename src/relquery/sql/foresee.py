"""Checks all statements of a query before the first one runs, as far as that is possible.

A statement that reads nothing that those before it write is checked as if it came first.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from relquery.errors import SqlSyntaxError
from relquery.prompt import Sampling
from relquery.sql.host.database import Database
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.source import read_source
from relquery.sql.read.tokens import tokenize
from relquery.sql.run import check_defined_calls, check_form, place, rehearse
from relquery.sql.statements.parameters import Parameters
from relquery.sql.statements.statement import Calling, Keeping, Plain, Statement, read_statement
from relquery.sql.statements.texts import Text

_QUERIES = {"SELECT", "EXPLAIN", "TRANSACTION", "PREPARE"}
# Statements that write only to what they name.
_WRITES = {"INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "COPY", "MERGE_INTO"}
_BINDABLE = {"SELECT", "INSERT", "UPDATE", "DELETE"}


def foresee(
    texts: Sequence[Text], parameters: Parameters, database: Database, defaults: Sampling
) -> None:
    """Raises QueryError for what is wrong whatever the statements before do."""
    kept = database.kept.copy()
    written: set[str] | None = set()
    has_asked = False
    for text in texts:
        with place(text):
            read = read_statement(text, kept, parameters)
            if isinstance(read, Calling):
                check_form(read, database, defaults)
            elif isinstance(read, Keeping) and read.defined is not None:
                check_defined_calls(read.defined, database, defaults)
            if has_asked and written is not None and _is_apart(read, written, database):
                _check(read, database, defaults)
        read.effect(kept)
        has_asked |= isinstance(read, Calling) and (text.option is None or text.analyzes)
        names = _written(read)
        written = None if names is None or written is None else written | names


def _check(read: Statement, database: Database, defaults: Sampling) -> None:
    if isinstance(read, Calling):
        rehearse(read, database, defaults)
    elif isinstance(read, Plain):
        database.bind(read.text.given, read.values)


def _is_apart(read: Statement, written: set[str], database: Database) -> bool:
    """Whether a statement reads only tables that no statement before it names."""
    if isinstance(read, Plain) and read.text.kind not in _BINDABLE:
        return False
    tree = read.tree if isinstance(read, Calling) else _tree(read.text)
    if isinstance(read, Calling) and any(
        definition.kind == "VIEW" and not definition.columns for definition, _ in read.source.used
    ):
        return False  # the view is not created yet
    if tree is None or isinstance(tree, exp.Describe):
        return False
    read_tables = {table.name.lower() for table in tree.find_all(exp.Table)}
    # What is searched may be what is written.
    if read_tables & written or database.needs_preparation(read.text.query):
        return False
    called = {str(call.this).lower() for call in tree.find_all(exp.Anonymous)}
    if called & Aggregates.of(database, tree).macros:
        return False
    tables = database.fetch(
        "SELECT lower(table_name) FROM duckdb_tables() "
        "UNION ALL SELECT lower(view_name) FROM duckdb_views()"
    )
    known = tables.column(0).to_pylist()
    entries = [entry.alias.lower() for entry in tree.find_all(exp.CTE)]
    return read_tables <= {*known, *entries}


def _written(read: Statement) -> set[str] | None:
    """Names among which are all that a statement writes to; None if it may change anything."""
    kind = read.text.kind
    analyzes = read.text.analyzes  # DuckDB calls its kind EXPLAIN, though it writes
    if isinstance(read, Keeping) or (not analyzes and (read.text.option or kind in _QUERIES)):
        return set()
    tree = read.tree if isinstance(read, Calling) else _tree(read.text)
    if isinstance(tree, exp.Query | exp.Describe):
        return set()
    if isinstance(tree, exp.Insert | exp.Update | exp.Delete | exp.Create):
        target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        if isinstance(target, exp.Table):
            return {target.name.lower()}
    if kind not in _WRITES and not analyzes:
        return None
    return {token.text.lower() for token in tokenize(read.text.query)}


def _tree(text: Text) -> exp.Expr | None:
    try:
        return read_source(text.query).parse()
    except SqlSyntaxError:
        return None
