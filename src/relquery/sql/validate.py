"""Checks all statements of a query before the first one runs, as far as that is possible.

A statement that reads nothing that those before it write is checked as if it came first.
"""

from __future__ import annotations

from collections.abc import Sequence

from relquery.errors import QueryError
from relquery.prompt import Sampling
from relquery.sql.binder.bind import unbound_checks
from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.binder.statement import (
    Calling,
    Keeping,
    Plain,
    Statement,
    read_statement,
)
from relquery.sql.define import check_defined_calls
from relquery.sql.host.database import Database
from relquery.sql.parser.parameters import Parameters
from relquery.sql.parser.parse import parser
from relquery.sql.parser.shell import Shell, read_shell
from relquery.sql.parser.statements import Text
from relquery.sql.parser.tokens import tokenize
from relquery.sql.parser.tree import Function, Node, Query, Select, Show, Table
from relquery.sql.run import check_option, place, rehearse

_QUERIES = {"SELECT", "EXPLAIN", "TRANSACTION", "PREPARE"}
# Statements that write only to what they name.
_WRITES = {"INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "COPY", "MERGE_INTO"}
_BINDABLE = {"SELECT", "INSERT", "UPDATE", "DELETE"}


def validate_script(
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
                _check_form(read, database, defaults)
            elif isinstance(read, Keeping) and read.defined is not None:
                check_defined_calls(read.defined, database, defaults)
            if has_asked and written is not None and _is_apart(read, written, database):
                _check(read, database, defaults)
        read.effect(kept)
        has_asked |= isinstance(read, Calling) and (text.option is None or text.analyzes)
        names = _written(read)
        written = None if names is None or written is None else written | names


def _check_form(calling: Calling, database: Database, defaults: Sampling) -> None:
    """Check a statement as far as that is possible without its tables. Raises QueryError."""
    check_option(calling)
    tree, expansion = calling.tree.copy(), calling.expansion()
    expansion.write_out(tree)
    unbound_checks(tree, calling.values, calling.objects, database, defaults)


def _check(read: Statement, database: Database, defaults: Sampling) -> None:
    if isinstance(read, Calling):
        rehearse(read, database, defaults)
    elif isinstance(read, Plain):
        database.bind(read.text.given, read.values)


def _is_apart(read: Statement, written: set[str], database: Database) -> bool:
    """Whether a statement reads only tables that no statement before it names."""
    if isinstance(read, Plain) and read.text.kind not in _BINDABLE:
        return False
    tree: Node | None = None
    shell = read.shell if isinstance(read, Calling) else read_shell(read.text.query)
    if shell.path and shell.path[-1].lower() in written:
        return False
    if isinstance(read, Calling):
        tree, expansion = read.tree.copy(), read.expansion()
        expansion.write_out(tree)
        if any(one.kind == "VIEW" and not one.columns for one, _ in expansion.used.values()):
            return False  # the view is not created yet
    else:
        tree = _tree(shell)
    is_about = isinstance(tree, Select) and isinstance(tree.source, Show)
    # What is searched may be what is written.
    if tree is None or is_about or database.needs_preparation(read.text.query):
        return False
    read_tables = {table.table.lower() for table in tree.find_all(Table)}
    called = {one.name.lower() for one in tree.find_all(Function)}
    if read_tables & written or called & FunctionCatalog.of(database).macros:
        return False
    tables = database.fetch(
        "SELECT lower(table_name) FROM duckdb_tables() "
        "UNION ALL SELECT lower(view_name) FROM duckdb_views()"
    )
    entries = {entry.name.lower() for query in tree.find_all(Query) for entry in query.entries}
    return read_tables <= {*tables.column(0).to_pylist(), *entries}


def _written(read: Statement) -> set[str] | None:
    """Names among which are all that a statement writes to; None if it may change anything."""
    kind = read.text.kind
    analyzes = read.text.analyzes  # DuckDB calls its kind EXPLAIN, though it writes
    if isinstance(read, Keeping) or (not analyzes and (read.text.option or kind in _QUERIES)):
        return set()
    shell = read_shell(read.text.query)
    if shell.kind == "QUERY":
        return set()
    if shell.fills or shell.kind == "CREATE TABLE":
        return {shell.path[-1].lower()}
    if kind not in _WRITES and not analyzes:
        return None
    return {token.name.lower() for token in tokenize(read.text.query)}


def _tree(shell: Shell) -> Query | None:
    try:
        return None if shell.kind == "OTHER" else parser().query(shell.query)
    except QueryError:
        return None
