"""Whether the command line understands a command, which is not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relquery.cli.app import command as command_of


def check_flags(words: Sequence[str]) -> None:
    """Raises what the command line says of words after `relquery` that it does not understand."""
    command: Any = command_of(words[0])
    rest = list(words[1:])
    while hasattr(command, "commands"):
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context(words[0], rest)
