"""The descriptions of jobs. The server's process has these, and none of the code that does them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from relquery.backends.local.host import Facts
from relquery.engine.requests.declared import Declared


@dataclass(frozen=True, slots=True)
class RegisteredTable:
    """A registered table."""

    schema: str
    """ "main", or the name of the DuckDB file that it comes from."""
    name: str
    columns: tuple[tuple[str, str], ...]
    """Names and types."""
    rows: int


class WorkerJob(NamedTuple):
    """A job to be done: one of the functions of `jobs`, and its arguments."""

    name: str
    given: Mapping[str, Any]


class LimitedJob(NamedTuple):
    """A job and its limits. Sent to a worker first; it says what comes of it by a Replied."""

    job: WorkerJob
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
