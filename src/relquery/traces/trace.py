"""A trace: which relQueries arrive when, as JSON Lines with one relQuery per line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from math import inf
from pathlib import Path
from typing import Any

from relquery.errors import TableError


@dataclass(frozen=True, slots=True)
class TracedQuery:
    """One relQuery of a trace.

    arrival: seconds since the trace began. kind: its type, e.g. "filter". table: the table of its
    rows. instruction: the beginning of each prompt. rows: how each prompt continues.
    output_limit: the most tokens of an answer (max_tokens). outputs: the tokens of each answer, for
    simulation. tenant: the client.
    """

    arrival: float
    kind: str
    table: str
    instruction: str
    rows: tuple[str, ...]
    output_limit: int
    outputs: tuple[int, ...]
    tenant: str = ""

    def __post_init__(self) -> None:
        if len(self.rows) != len(self.outputs):
            raise TableError(
                f"There are {len(self.rows)} rows, but {len(self.outputs)} output lengths; the "
                "numbers must be equal."
            )
        if not all(1 <= output <= self.output_limit for output in self.outputs):
            raise TableError(f"Every output must have from 1 to {self.output_limit} tokens.")
        if not 0 <= self.arrival < inf:
            raise TableError(f"`arrival` is {self.arrival}; it must be finite and not negative.")

    @property
    def prompts(self) -> Iterator[str]:
        """The prompts, row by row."""
        return (self.instruction + row for row in self.rows)


def save(queries: Iterable[TracedQuery], path: Path) -> None:
    """Write a trace."""
    with path.open("w", encoding="utf-8") as file:
        for query in queries:
            file.write(json.dumps(asdict(query), ensure_ascii=False) + "\n")


def load(path: Path) -> list[TracedQuery]:
    """Read a trace, in order of arrival. Raises TableError with the number of a bad line."""
    queries = []
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    queries.append(_read(line, f"{path}, line {number}"))
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"The trace {path} cannot be read: {error}.") from error
    return sorted(queries, key=lambda query: query.arrival)


_TEXTS = ("kind", "table", "instruction", "tenant")
_LISTS: dict[str, type] = {"rows": str, "outputs": int}
_NAMES = [field.name for field in fields(TracedQuery)]


def _read(line: str, where: str) -> TracedQuery:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TableError(f"{where} is not valid JSON: {error}. {_REMEDY}") from error
    try:
        return TracedQuery(**_checked(given))
    except TableError as error:
        raise TableError(f"{where}: {error} {_REMEDY}") from error


_REMEDY = "Write traces with `relquery trace`."


def _checked(given: object) -> dict[str, Any]:
    """The fields of a line. Raises TableError for what is missing, unknown or of a wrong type."""
    if not isinstance(given, dict):
        raise TableError("The line is not an object with the fields of a relQuery.")
    unknown = [name for name in given if name not in _NAMES]
    missing = [name for name in _NAMES if name not in given and name != "tenant"]
    if unknown or missing:
        what = f"unknown: {unknown[0]!r}" if unknown else f"missing: {missing[0]!r}"
        raise TableError(f"A field is {what}.")
    found: dict[str, Any] = {"tenant": "", **given}
    for name in _TEXTS:
        _check_text(name, found[name])
    for name, kind in _LISTS.items():
        if not isinstance(found[name], list):
            raise TableError(f"`{name}` must be a list.")
        for each in found[name]:
            if not isinstance(each, kind) or isinstance(each, bool):
                raise TableError(f"`{name}` contains {each!r:.40}; each must be {_WORDS[kind]}.")
            if kind is str:
                _check_text(name, each)
        found[name] = tuple(found[name])
    if not isinstance(found["output_limit"], int) or isinstance(found["output_limit"], bool):
        raise TableError("`output_limit` must be a whole number.")
    try:
        if isinstance(found["arrival"], (bool, str)):
            raise TypeError
        found["arrival"] = float(found["arrival"])
    except (TypeError, OverflowError):
        raise TableError("`arrival` must be a number of seconds.") from None
    return found


_WORDS = {str: "text", int: "a whole number"}


def _check_text(name: str, text: object) -> None:
    if not isinstance(text, str):
        raise TableError(f"`{name}` must be text.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TableError(f"`{name}` contains half a surrogate pair, which is not text.") from None
