"""Columns with types, which a verb adds: output="tag VARCHAR", output="name, amount DECIMAL"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from relquery.errors import ConfigError
from relquery.sql.names import quoted

_PIECES = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[^'"]""", re.DOTALL)
_NAMED = re.compile(r'\s*("(?:[^"]|"")+"|\w+)\s*(.*)', re.DOTALL)
_TEXT = "VARCHAR"


@dataclass(frozen=True, slots=True)
class Output:
    """A new column. kind: its type in SQL."""

    name: str
    kind: str

    @property
    def is_text(self) -> bool:
        """Whether the value is the answer as it is."""
        return self.kind.upper() in (_TEXT, "TEXT", "STRING")


def read_outputs(text: object, verb: str) -> tuple[Output, ...]:
    """The columns of a text such as `tag VARCHAR, stars INTEGER`; a name alone is VARCHAR.

    Raises ConfigError.
    """
    found = [_NAMED.fullmatch(part) for part in _split(text)] if isinstance(text, str) else []
    outputs = tuple(
        Output(_name(one[1]), " ".join(one[2].split()) or _TEXT) for one in found if one is not None
    )
    if not outputs or len(outputs) < len(found):
        raise ConfigError(
            f"output of {verb} is {text!r}; it must be a name and a type, e.g. 'tag VARCHAR', or "
            "several after commas."
        )
    check_names([one.name for one in outputs], f"output of {verb}")
    return outputs


def check_names(names: Iterable[object], verb: str) -> None:
    """Raises ConfigError for a name that is not a text, or that SQL could not tell from another."""
    taken: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(f"{verb} names a column {name!r}; it must be a text.")
        if name.lower() in taken:
            raise ConfigError(
                f"{verb} gives two columns the name {name!r}. Give each column its own name, which "
                "differs in more than case; rename one of them first if need be."
            )
        taken.add(name.lower())


def written(outputs: tuple[Output, ...]) -> str:
    """Several outputs as one type, for the option `output` of SQL."""
    return ", ".join(f"{quoted(one.name)} {one.kind}" for one in outputs)


def _name(given: str) -> str:
    return given[1:-1].replace('""', '"') if given[0] == '"' else given


def _split(text: str) -> list[str]:
    """The parts between commas that are not in brackets or quotes."""
    parts, depth = [""], 0
    for piece in _PIECES.findall(text):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(piece, 0)
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return parts
