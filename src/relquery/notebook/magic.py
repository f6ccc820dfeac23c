"""`%relquery connect MODEL` and `%%relquery`: queries in cells of a notebook."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from relquery.connection import Connection, connect
from relquery.errors import ConfigError, PartialResultWarning, QueryError, RelqueryError
from relquery.notebook.arguments import pairs, read_connect, read_query
from relquery.sql.parser.statements import Text, split
from relquery.sql.variables import lent


def parameters(texts: Sequence[Text], variables: Mapping[str, Any]) -> dict[str, Any] | None:
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


def statements(con: Connection, sql: str) -> list[Text]:
    """The statements of a text. Raises QueryError."""
    return split(sql, con.database)


_CONNECT = "Connect first: %relquery connect demo"


class NotebookError(RelqueryError):
    """An error in a cell. IPython shows only its message, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Magic:
    """SQL with LLM calls.

    %relquery connect MODEL [NAME=VALUE ...] [--con NAME] [--database FILE] [--ledger FILE]
    %relquery [options] SQL
    %%relquery [options]

    Options: --con NAME (the variable with the connection), --out NAME (a variable for the result),
    --explain, --preview, --order ORDER, --max-tokens N.
    $name in the SQL is the value of the variable `name`. Frames and Arrow tables can be read by the
    names of their variables.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._con: Connection | None = None
        self.__name__ = "relquery"

    def __call__(self, line: str, cell: str | None = None) -> Any:
        """Run a line or a cell, and return what to show. Raises NotebookError."""
        try:
            with _warnings_as_lines():
                return self._run(line, cell)
        except RelqueryError as error:
            raise NotebookError(f"{type(error).__name__}: {error}") from None

    def _run(self, line: str, cell: str | None) -> Any:
        if cell is None and read_connect(line) is not None:
            line = self._shell.var_expand(line)  # {name} and $name, as in other line magics
            if (arguments := read_connect(line)) is not None:
                return self._connect(arguments)
        options, rest = read_query(line)
        if cell is not None and rest.strip():
            raise ConfigError(
                f"{rest.strip()!r} is on the first line of the cell. SQL begins on the line below."
            )
        found = self._ask(options, rest if cell is None else cell)
        if options.out is not None:
            self._shell.push({options.out: found})
        return found

    def _connect(self, arguments: argparse.Namespace) -> Connection:
        given = ("database", "ledger", "order")
        settings = {name: getattr(arguments, name) for name in given if getattr(arguments, name)}
        self._con = connect(arguments.model, **settings, **pairs(arguments.options))
        self._shell.push({arguments.con: self._con})
        return self._con

    def _ask(self, options: argparse.Namespace, sql: str) -> Any:
        con, variables = self._connection(options.con), self._shell.user_ns
        texts = statements(con, sql)
        params = parameters(texts, variables)
        given = {"order": options.order, "max_tokens": options.max_tokens}
        with lent(con.database, sql, variables):
            if options.explain:
                return con.explain(sql, params, **given)
            return (con.preview if options.preview else con.sql)(sql, params, **given)

    def _connection(self, name: str | None) -> Connection:
        """The connection in a variable; by default that of the last `connect`, or `con`."""
        if name is None and self._con is not None:
            return self._con
        found = self._shell.user_ns.get(name or "con")
        if isinstance(found, Connection):
            return found
        if name is not None:
            raise ConfigError(f"The variable {name!r} is not a relquery connection. {_CONNECT}")
        raise ConfigError(f"There is no connection. {_CONNECT}")


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Print the warnings of this block as lines, except for missing values: the result has them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", PartialResultWarning)
        try:
            yield
        finally:
            for text in dict.fromkeys(str(one.message) for one in caught):
                print(f"Warning: {text}", file=sys.stderr)


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython with its shell."""
    from IPython.core.magic import no_var_expand

    # IPython would write the values of variables into the SQL, for $name and {name}.
    magic = no_var_expand(Magic(shell))
    shell.register_magic_function(magic, "line_cell", "relquery")
