"""`%relquery connect MODEL` and `%%relquery`: queries in cells of IPython and Jupyter."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import warnings
from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, NoReturn

from relquery.connection import Connection, connect
from relquery.errors import (
    ConfigError,
    PartialResultWarning,
    QueryError,
    RelqueryError,
    did_you_mean,
)
from relquery.sql.parser.statements import Text, split
from relquery.sql.variables import lent

_COMMAND = "connect"
_LIKE = 0.7  # of 1: how similar a word must be to `connect` to be taken for it
_MODEL = "--model"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise instead of ending the program."""
        raise ConfigError(f"{message}.\n{self.format_usage().strip()}")

    def check(self, words: Sequence[str]) -> None:
        """Raises ConfigError for an option that does not exist, with the nearest one."""
        known = re.findall(r"--[\w-]+", self.format_usage())
        for word in words:
            name = word.partition("=")[0]
            if not name.startswith("--") or name in known:
                continue
            hint = did_you_mean(name, [*known, _MODEL])
            if f"'{_MODEL}'" in hint:
                hint = " The model is chosen once: %relquery connect MODEL."
            raise ConfigError(
                f"{self.prog} has no option {name}. Options: {', '.join(known)}.{hint}"
            )


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


def _connect_parser() -> _Parser:
    parser = _Parser("%relquery connect", add_help=False, allow_abbrev=False)
    parser.add_argument("model", nargs="?")
    parser.add_argument("options", nargs="*", metavar="NAME=VALUE")
    parser.add_argument("--con", default="con", metavar="NAME")
    parser.add_argument("--database", metavar="FILE")
    parser.add_argument("--ledger", metavar="FILE")
    parser.add_argument("--order")
    # parse_intermixed_args takes its usage as a format, in which a % counts.
    parser.usage = parser.format_usage().removeprefix("usage: ").strip().replace("%", "%%")
    return parser


def read_query(line: str) -> tuple[argparse.Namespace, str]:
    """(the options that a line begins with, the SQL after them). Raises ConfigError."""
    parser, words, rest = _query_parser(), list[str](), line.lstrip()
    flags = {"--explain", "--preview"}
    while rest.startswith("--") and not rest.startswith("-- "):
        for _ in range(1 if rest.split()[0] in flags or "=" in rest.split()[0] else 2):
            word, rest = _word(rest)
            words += word
    parser.check(words)
    return parser.parse_args(words), rest


def read_connect(line: str) -> argparse.Namespace | None:
    """The arguments of `connect`; None if a line is something else. Raises ConfigError."""
    first = next(iter(line.split()), "")
    if first != _COMMAND:
        if get_close_matches(first.lower(), [_COMMAND], cutoff=_LIKE):
            raise ConfigError(f"{first!r} is neither SQL nor a command. Did you mean '{_COMMAND}'?")
        return None
    parser, words = _connect_parser(), _words(line)[1:]
    parser.check(words)
    arguments = parser.parse_intermixed_args(words)
    if arguments.model is None:
        raise ConfigError("Name a model: %relquery connect demo")
    return arguments


def pairs(options: Sequence[str]) -> dict[str, Any]:
    """Options of `rq.connect` such as `cache_tokens=4096`. A value that is no literal is text."""
    found: dict[str, Any] = {}
    for one in options:
        name, equals, text = one.partition("=")
        if not equals or not name:
            raise ConfigError(f"{one!r} must be NAME=VALUE, e.g. cache_tokens=4096.")
        try:
            found[name] = literal_eval(text)
        except (ValueError, SyntaxError):
            found[name] = text
    return found


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
