"""`%%relquery`: queries in cells of IPython and Jupyter."""

from __future__ import annotations

import argparse
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from relquery.connection import Connection
from relquery.errors import (
    ConfigError,
    PartialResultWarning,
    QueryError,
    RelqueryError,
)
from relquery.sql.parser.statements import StatementText, split
from relquery.sql.variables import lent


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise instead of ending the program."""
        raise ConfigError(f"{message}.\n{self.format_usage().strip()}")


def _query_parser() -> _Parser:
    parser = _Parser("%%relquery", add_help=False, allow_abbrev=False)
    parser.add_argument("--con", metavar="NAME")
    parser.add_argument("--out", metavar="NAME")
    parser.add_argument("--order")
    parser.add_argument("--max-tokens", type=int, metavar="N")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--explain", action="store_true")
    modes.add_argument("--preview", action="store_true")
    return parser


def read_query(line: str) -> tuple[argparse.Namespace, str]:
    """(the options that a line begins with, the SQL after them). Raises ConfigError."""
    parser, words, rest = _query_parser(), list[str](), line.lstrip()
    flags = {"--explain", "--preview"}
    while rest.startswith("--") and not rest.startswith("-- "):
        for _ in range(1 if rest.split()[0] in flags or "=" in rest.split()[0] else 2):
            word, rest = _word(rest)
            words += word
    return parser.parse_args(words), rest


def _word(text: str) -> tuple[list[str], str]:
    """(the first word, if there is one, and what follows it)."""
    first, _, rest = text.partition(" ")
    if first[:1] in ("'", '"') and (end := text.find(first[0], 1)) > 0:
        first, rest = text[: end + 1], text[end + 1 :]
    return _words(first), rest.lstrip()


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{text}: {error}.") from error


def parameters(
    texts: Sequence[StatementText], variables: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The values of `$name`; None if the SQL has none.

    Raises QueryError for a name that is not a variable.
    """
    names = sorted({name for text in texts for name in text.parameters})
    for name in names:
        if name not in variables:
            raise QueryError(
                f"The query reads ${name}, but there is no variable {name!r}. Set it in an earlier "
                f"cell: {name} = ..."
                if name.isidentifier()
                else "The query reads ? or $1. In a notebook, write $name for a variable's value."
            )
    return {name: variables[name] for name in names} or None


_CONNECT = "Connect first: con = relquery.connect('demo')"


class NotebookError(RelqueryError):
    """An error in a cell. IPython shows only its message, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Magic:
    """SQL with LLM calls.

    %relquery [options] SQL
    %%relquery [options]

    Options: --con NAME (the variable with the connection, by default con), --out NAME (a variable
    for the result), --explain, --preview, --order ORDER, --max-tokens N.
    $name in the SQL is the value of the variable `name`. Frames and Arrow tables can be read by the
    names of their variables.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self.__name__ = "relquery"

    def __call__(self, line: str, cell: str | None = None) -> Any:
        """Run a line or a cell, and return what to show. Raises NotebookError."""
        try:
            with _warnings_as_lines():
                return self._run(line, cell)
        except RelqueryError as error:
            raise NotebookError(f"{type(error).__name__}: {error}") from None

    def _run(self, line: str, cell: str | None) -> Any:
        options, rest = read_query(line)
        if cell is not None and rest.strip():
            raise ConfigError(
                f"{rest.strip()!r} is on the first line of the cell. SQL begins on the line below."
            )
        answer = self._ask(options, rest if cell is None else cell)
        if options.out is not None:
            self._shell.push({options.out: answer})
        return answer

    def _ask(self, options: argparse.Namespace, sql: str) -> Any:
        con, variables = self._connection(options.con or "con"), self._shell.user_ns
        params = parameters(split(sql, con.database), variables)
        given = {"order": options.order, "max_tokens": options.max_tokens}
        with lent(con.database, sql, variables):
            if options.explain:
                return con.explain(sql, params, **given)
            return (con.preview if options.preview else con.sql)(sql, params, **given)

    def _connection(self, name: str) -> Connection:
        """The connection in a variable."""
        connection = self._shell.user_ns.get(name)
        if not isinstance(connection, Connection):
            raise ConfigError(f"The variable {name!r} is not a relquery connection. {_CONNECT}")
        return connection


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Print the warnings of this block as lines, except for missing values: the result has them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", PartialResultWarning)
        try:
            yield
        finally:
            for text in dict.fromkeys(str(warning.message) for warning in caught):
                print(f"Warning: {text}", file=sys.stderr)


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython with its shell."""
    from IPython.core.magic import no_var_expand

    # IPython would write the values of variables into the SQL, for $name and {name}.
    magic = no_var_expand(Magic(shell))
    shell.register_magic_function(magic, "line_cell", "relquery")
