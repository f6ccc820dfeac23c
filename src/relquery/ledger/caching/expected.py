"""What a prompt was expected to read from a provider's cache, as it is stored beside its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from relquery.prompt import Answer

Why = Literal[
    "reads", "writes", "alone", "below", "pinned", "little", "unpriced", "batch"
]  # fmt: skip
"""What was expected of a prompt:

reads: that it reads a prefix. writes: that it is the first with a prefix that others read. The rest
say why neither: alone: it was the only one. below: what it shares with others is below the
provider's minimum. pinned: so it is, and its fields were not to be put in another order, in which
they would reach the minimum. little: marks would have saved less than one percent. unpriced: no
price of the model is known. batch: requests of a batch run together.
"""

# Beside the facts, so that earlier versions read and write the file as before.
PLANS = (
    "CREATE TABLE IF NOT EXISTS plans (plan BLOB PRIMARY KEY, minimum INTEGER, step INTEGER, "
    "marked INTEGER, lifetime REAL, uncached REAL, write REAL, read REAL) WITHOUT ROWID"
)
EXPECTED = (
    "CREATE TABLE IF NOT EXISTS expected (key BLOB PRIMARY KEY, plan BLOB NOT NULL, "
    "place INTEGER NOT NULL, writer INTEGER, prefix BLOB, why TEXT NOT NULL, "
    "tokens INTEGER NOT NULL, shared INTEGER NOT NULL, counted INTEGER NOT NULL, "
    "sent REAL, told INTEGER NOT NULL) WITHOUT ROWID"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """By what rules the prompts of a call were planned; None where they are not known.

    number: unlike that of any other plan. minimum: tokens of the shortest prefix that is cached.
    step: hits come in so many tokens above it. marked: whether prefixes are cached where they are
    marked alone. lifetime: seconds after its last use that an entry lives. uncached, write, read:
    USD per million tokens of the prompt.
    """

    number: bytes
    minimum: int | None = None
    step: int | None = None
    marked: bool | None = None
    lifetime: float | None = None
    uncached: float | None = None
    write: float | None = None
    read: float | None = None

    @property
    def row(self) -> tuple[Any, ...]:
        """The values of its columns."""
        known = (self.minimum, self.step, self.marked, self.lifetime)
        return (self.number, *known, self.uncached, self.write, self.read)


@dataclass(frozen=True, slots=True)
class Expected:
    """What was expected of one prompt. Tokens are as relquery counts them.

    place: in the order sent. tokens: of the prefix that it reads. shared: of the longest prefix
    that it has in common with another. counted: of the prompt. writer: the place of the prompt
    that wrote what this one reads. prefix: a hash of what it reads, else of what it writes.
    """

    plan: Plan
    place: int
    why: Why
    tokens: int = 0
    shared: int = 0
    counted: int = 0
    writer: int | None = None
    prefix: bytes | None = None


Foreseen = Callable[[int], Expected]
"""What was expected of a prompt, by its place in the order sent."""


def write_expected(connection: Any, some: Sequence[tuple[bytes, Expected, Answer, float]]) -> None:
    """Write in a transaction that has begun: (key, expected, answer, when it came)."""
    if not some:
        return
    connection.execute(PLANS)
    connection.execute(EXPECTED)
    plans = {one.plan.number: one.plan.row for _, one, _, _ in some}
    _insert(connection, "plans", plans.values())
    _insert(connection, "expected", (_row(*each) for each in some))


def _row(key: bytes, one: Expected, answer: Answer, at: float) -> tuple[Any, ...]:
    sent = None if answer.took is None else at - answer.took
    place = (one.plan.number, one.place, one.writer, one.prefix, one.why)
    counts = (one.tokens, one.shared, one.counted)
    return (key, *place, *counts, sent, answer.tells_cached)


def _insert(connection: Any, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    rows = list(rows)
    marks = ", ".join("?" * len(rows[0]))
    connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", rows)
