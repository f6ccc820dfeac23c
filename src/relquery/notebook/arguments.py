"""The options of a magic, which come before its SQL."""

from __future__ import annotations

import argparse
import shlex
from ast import literal_eval
from collections.abc import Sequence
from typing import Any, NoReturn

from relquery.errors import ConfigError

_CONNECT = "connect"


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


def _connect_parser() -> _Parser:
    parser = _Parser("%relquery connect", add_help=False, allow_abbrev=False)
    parser.add_argument("model")
    parser.add_argument("options", nargs="*", metavar="NAME=VALUE")
    parser.add_argument("--con", default="con", metavar="NAME")
    parser.add_argument("--database", metavar="FILE")
    parser.add_argument("--ledger", metavar="FILE")
    parser.add_argument("--order")
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


def read_connect(line: str) -> argparse.Namespace | None:
    """The arguments of `connect`; None if a line is something else. Raises ConfigError."""
    if line.split()[:1] != [_CONNECT]:
        return None
    return _connect_parser().parse_intermixed_args(_words(line)[1:])


def pairs(options: Sequence[str]) -> dict[str, Any]:
    """`cache_tokens=4096` as an option of `rq.connect`: a Python literal, or else text."""
    found: dict[str, Any] = {}
    for one in options:
        name, equals, text = one.partition("=")
        if not equals or not name:
            raise ConfigError(f"{one}: expected NAME=VALUE, e.g. cache_tokens=4096.")
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
