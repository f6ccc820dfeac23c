"""Translation of DuckDB's errors to ours. No other module does this."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import duckdb

from relquery.errors import (
    QueryError,
    RelqueryError,
    SqlSyntaxError,
    TableError,
    UnknownColumnError,
    UnknownTableError,
    UnsupportedQueryError,
    unknown,
)
from relquery.sql import names as ours

Tables = Mapping[str, list[str]]

_NO_TABLE = re.compile(r"Table with name (.*?) does not exist")
_NO_COLUMN = re.compile(r'Referenced column "(.+?)" (?:was )?not found')
_NO_COLUMN_OF = re.compile(r'(?:Table|Values list) "(.+?)" does not have a column named "(.+?)"')
_NO_SOURCE = re.compile(r'Referenced table "(.+?)" not found')
_OURS = "|".join((*sorted(ours.FUNCTIONS), "prompt", "module", "bag"))
_NO_LLM = re.compile(rf"Function with name ({_OURS}) does not exist", re.IGNORECASE)
_NO_FUNCTION = re.compile(r"Function with name (\w+) does not exist")
_NO_EXTENSION = re.compile(r"install the required extension '(\w+)")
_NO_ROWS = re.compile(r"Table Function with name (\w+) does not exist", re.IGNORECASE)
_OTHER_COUNT = re.compile(r"Macro (\w+)\(\) does not support the supplied arguments")
_CSV = re.compile(r"CSV Error on Line: (\d+)")
_CSV_FILE = re.compile(r"^  file = (.*)$", re.MULTILINE)
_QUOTED = re.compile(r'"([^"]+)"')
_OF_PYTHON = re.compile(r"Python exception occurred while executing the UDF: \w+: (.*)", re.DOTALL)
_TEXT_ARGUMENT = re.compile(r"No function matches .*\(.*VARCHAR.*\)")


def from_duckdb(error: Exception, sql: str, used: Tables, known: list[str]) -> RelqueryError:
    """Our error for one of DuckDB's.

    used: the columns of the tables that the query names. known: all tables of the database.
    """
    message = str(error)
    if (match := _OF_PYTHON.search(message)) is not None:
        return QueryError(first_line(match[1]))
    if isinstance(error, duckdb.ParserException):
        return _syntax_error(message, sql)
    if isinstance(error, duckdb.InternalException):
        return UnsupportedQueryError(
            f"DuckDB itself fails on this form of the statement ({first_line(message)}). Write the "
            "answers to a table first: CREATE TABLE answers AS SELECT ..., LLM(...)."
        )
    return (
        _connection_error(error)
        or _unknown_name(message, used, known)
        or _file_error(error)
        or _misused_search(message)
        or _misused_call(message)
        or QueryError(first_line(message))
    )


def _connection_error(error: Exception) -> QueryError | None:
    if isinstance(error, duckdb.ResourceInUseException):
        return busy()
    if isinstance(error, duckdb.ConnectionException):
        return QueryError("The connection is closed. Open a new one with rq.connect(...).")
    return None


_EXAMPLES = {
    "PROMPT": "PROMPT('Is {0} late?', column)",
    "MODULE": "'prompt', MODULE(column)",
    "BAG": "'prompt', BAG(list)",
}


def _file_error(error: Exception) -> TableError | None:
    message = str(error)
    if isinstance(error, duckdb.IOException | duckdb.HTTPException):
        return TableError(first_line(message))
    if match := _NO_EXTENSION.search(message):
        return TableError(
            f"DuckDB needs its extension {match[1]} for this, and could not fetch it. Run INSTALL "
            f"{match[1]} where there is a network, or register a file of this machine."
        )
    return TableError(_csv_error(message)) if _CSV.search(message) else None


def _misused_search(message: str) -> QueryError | None:
    """What is wrong with the call of a function that asks no model."""
    match = _NO_ROWS.search(message) or _OTHER_COUNT.search(message)
    usage = ours.USAGES.get(match[1].lower()) if match else None
    if match is None or usage is None:
        return None
    name = usage.partition("(")[0]
    if match.re is _NO_ROWS:
        return QueryError(
            f"{name} gives a value, not rows, so it cannot stand in FROM. Write SELECT {usage}."
        )
    return QueryError(f"{name} was called with too few or too many arguments. Write {usage}.")


def _misused_call(message: str) -> QueryError | None:
    if match := _NO_LLM.search(message):
        name = match[1].upper()
        if name in _EXAMPLES:
            return UnsupportedQueryError(
                f"{name} is only an argument of LLM, AI_FILTER and the like. Write "
                f"LLM({_EXAMPLES[name]})."
            )
        return UnsupportedQueryError(
            f"{name} is called in a form that is not supported. Write {name}('prompt', column, "
            "...) in a SELECT, without a schema or value before it (s.LLM, x.LLM). Its answers "
            "cannot be read in FROM or RETURNING; write them to a table first."
        )
    if "cannot contain DEFAULT" in message:
        return QueryError(
            "DEFAULT cannot stand in VALUES beside an LLM call. Name the other columns and leave "
            "its column out: INSERT INTO t (a) VALUES (LLM(...))."
        )
    match = _NO_FUNCTION.search(message)
    if match and match[1].lower().startswith(("ai_", "llm_")):
        known = sorted((ours.FUNCTIONS - {"llm"}) | (set(ours.USAGES) - {ours.PASSAGES}))
        return QueryError(unknown("function", match[1].upper(), map(str.upper, known)))
    if _TEXT_ARGUMENT.search(message):
        return QueryError(
            f"{first_line(message)} An LLM answer is text. If a number is needed, write "
            "CAST(LLM(...) AS DOUBLE)."
        )
    return None


def is_aborted(error: RelqueryError) -> bool:
    """Whether an error only says that one before it has ended the transaction."""
    return isinstance(error.__cause__, duckdb.TransactionException)


def busy() -> QueryError:
    """The error for a connection that is already in use."""
    return QueryError(
        "This connection is running another query. Open a second one with rq.connect(...), or wait."
    )


def _unknown_name(message: str, used: Tables, known: list[str]) -> QueryError | None:
    if match := _NO_TABLE.search(message):
        return UnknownTableError(match[1].strip('"'), known)
    if match := _NO_COLUMN_OF.search(message):
        columns = used.get(match[1].lower(), [])
        table, nearest = f"table {match[1]}", columns or _candidates(message)
        return UnknownColumnError(match[2], table, nearest, complete=bool(columns))
    if match := _NO_COLUMN.search(message):
        columns = [column for table in used.values() for column in table]
        nearest = columns or _candidates(message)
        return UnknownColumnError(match[1], _tables_in_words(used), nearest, complete=bool(columns))
    if match := _NO_SOURCE.search(message):
        sources = _candidates(message)
        return QueryError(unknown("table", match[1], sources, of="this FROM clause"))
    return None


def _syntax_error(message: str, sql: str) -> QueryError:
    with duckdb.connect() as plain:
        (tree,) = plain.execute("SELECT json_serialize_sql(?)", [sql]).fetchone() or ("{}",)
    before = sql.encode(errors="replace")[: int(json.loads(tree).get("position", 0))]
    *above, last = before.decode(errors="replace").split("\n")
    said = first_line(message).removesuffix(".")
    if "unterminated string" in said:
        said += ". An apostrophe inside a text is written twice: 'What''s new?'"
    if ours.PREFIX in sql.lower():  # text that we rewrote: its positions mean nothing to the user
        return QueryError(f"The SQL around the LLM calls has a syntax error: {said}.")
    return SqlSyntaxError(f"The SQL has a syntax error: {said}", sql, len(above) + 1, len(last) + 1)


def first_line(message: str) -> str:
    """The sentence that states the error, without DuckDB's prefix, its listings or our names."""
    for name, in_words in ours.IN_MESSAGES.items():  # texts in our calls may have many lines
        message = name.sub(in_words, message)
    return re.sub(r"^[A-Z]\w*(?: \w+)? Error: ", "", message.split("\n", 1)[0]).strip()


def _csv_error(message: str) -> str:
    """Where a CSV file is wrong, why, and what to do, without DuckDB's list of reader settings."""
    line, file = _CSV.search(message), _CSV_FILE.search(message)
    where = f"Line {line[1] if line else '?'}{f' of {file[1]}' if file else ''}"
    if "not utf-8" in message.lower():
        return (
            f"{where} is not UTF-8 text. Convert the file to UTF-8, or register it as a pandas "
            "frame: pandas.read_csv(path, encoding='latin-1')."
        )
    # DuckDB reports the position, the original text (maybe several lines) and the error.
    said = [part.strip() for part in message.splitlines()[1:]]
    shown = [part for part in said if not part.startswith("Original Line:")]
    reasons = [part for part in said if part.startswith("Expected")] or shown
    why = reasons[0].rstrip(".") if reasons else "DuckDB gives no reason"
    return (
        f"{where} cannot be read: {why}. Correct the line, or register the file as a pandas "
        "frame: pandas.read_csv(path, ...)."
    )


def _candidates(message: str) -> list[str]:
    _, _, listing = message.partition("Candidate")
    return _QUOTED.findall(listing.split("\n", 1)[0])


def _tables_in_words(used: Tables) -> str:
    names = sorted(used)
    if not names:
        return "this query"
    return f"table{'s' if len(names) > 1 else ''} {', '.join(names)}"
