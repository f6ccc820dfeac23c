"""What a worker is told to do. The server's process has these, and none of what does them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from relquery.backends.local.host import Facts
from relquery.engine.requests.declared import Declared

if TYPE_CHECKING:
    from relquery.ir.wire import WireQuery


@dataclass(frozen=True, slots=True)
class Table:
    """A registered table."""

    schema: str
    """ "main", or the name of the DuckDB file that it comes from."""
    name: str
    columns: tuple[tuple[str, str], ...]
    """Names and types."""
    rows: int


@dataclass(frozen=True, slots=True)
class Explain:
    """Gives the text and the rows of an explanation. params, options: of Connection.explain."""

    query: str
    params: Any
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """Reads a span query in its wire form, and tells whether it is a map."""

    body: bytes


@dataclass(frozen=True, slots=True)
class SpanQuery:
    """Answers a span query, which may search the tables and the documents that came with it; or
    computes the states of what it reads in any order, and gives of how many texts."""

    query: WireQuery
    prepares: bool = False


@dataclass(frozen=True, slots=True)
class MarkupPrompt:
    """Answers a prompt over a schema. options: of Connection.prompt."""

    schema: str
    prompt: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """Runs a statement, and tells its result in parts; of a stream lines of JSON, with progress.
    params, options: of Connection.sql.
    """

    query: str
    params: Any
    options: Mapping[str, Any]
    form: Literal["json", "arrow", "stream"]
    max_calls: int | None = None
    """Calls that it may ask at most."""
    rows: int | None = None
    """Rows that are told at most."""


Job = Explain | ReadQuery | SpanQuery | MarkupPrompt | Statement


class Work(NamedTuple):
    """A job and its limits. Sent to a worker first; it says what comes of it by a Replied."""

    job: Job
    facts: Facts
    tenant: str
    declared: Declared | None
    adapter: str
    called: tuple[str, ...]
    """By which clients call the model; its calls may name no other."""
    answers: Path
    """The file of the tenant's answers."""
    window: int
    """Prompts that may be open at once."""
    most: int
    """Prompts that it may ask."""
    gives_way: bool = False
    """Whether first statements of others go first from the beginning."""
