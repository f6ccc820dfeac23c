"""The options of a magic, which come before its SQL."""

from __future__ import annotations

import argparse
import re
import shlex
from ast import literal_eval
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from relquery.errors import ConfigError, did_you_mean

_CONNECT = "connect"
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
    if first != _CONNECT:
        if get_close_matches(first.lower(), [_CONNECT], cutoff=_LIKE):
            raise ConfigError(f"{first!r} is neither SQL nor a command. Did you mean '{_CONNECT}'?")
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
