"""Reads from a ledger what answers were expected to read from a provider's cache, and did read."""

from __future__ import annotations

from dataclasses import dataclass

from relquery.ledger.records.reading import ENTRIES, Filter, Records

_COLUMNS = (
    "e.key, x.run, x.model, e.plan, e.place, e.writer, e.prefix, e.why, e.tokens, e.shared, "
    "e.counted, e.sent, x.at, e.told, x.prompt_tokens, x.cached_tokens, x.written_tokens, "
    "p.minimum, p.step, p.marked, p.lifetime, p.uncached, p.write, p.read"
)
# Of a call that failed and was answered later, the answer; of several failures, the last.
_LAST = f"""
    SELECT * FROM (SELECT *, row_number() OVER (
        PARTITION BY key ORDER BY failure IS NULL DESC, at DESC) AS nth FROM ({ENTRIES}))
    WHERE nth = 1"""
_SELECT = f"""
    SELECT {_COLUMNS}, {{}} FROM expected e JOIN ({_LAST}) x ON x.key = e.key
    LEFT JOIN plans p ON p.plan = e.plan ORDER BY x.run, x.model, x.at, e.key"""
_UNPLANNED = f"""
    SELECT run, model, count(*) FROM ({_LAST}) x
    WHERE key NOT IN (SELECT key FROM expected) AND {{}} GROUP BY run, model"""


@dataclass(frozen=True, slots=True)
class Entry:
    """An answer, or a failure, with what was expected of it.

    Those from `plan` to `counted` are the fields of Expected; sent, came: seconds since 1970, sent
    is None where it is not known. told: whether the provider says what was cached. prompt, cached,
    written: tokens as it counts them. The rest are the fields of Plan. wanted: whether it is asked
    about; others are read to tell what wrote and used an entry of the cache.
    """

    key: bytes
    run: int | None
    model: str
    plan: bytes
    place: int
    writer: int | None
    prefix: bytes | None
    why: str
    tokens: int
    shared: int
    counted: int
    sent: float | None
    came: float
    told: bool
    prompt: int
    cached: int
    written: int
    minimum: int | None
    step: int | None
    marked: bool | None
    lifetime: float | None
    uncached: float | None
    write: float | None
    read: float | None
    wanted: bool

    @property
    def scale(self) -> float:
        """The provider's tokens per token as relquery counts them."""
        return self.prompt / self.counted if self.counted else 1.0

    @property
    def is_answered(self) -> bool:
        """Whether the provider has computed something for it."""
        return self.prompt > 0


def entries_of(records: Records, wanted: Filter) -> list[Entry]:
    """Those with an expectation, by run and model, in the order in which they came."""
    condition, values = wanted.condition()
    rows = records.connection.execute(_SELECT.format(condition), values)
    return [Entry(*row) for row in rows]


def unplanned(records: Records, wanted: Filter) -> dict[tuple[int | None, str | None], int]:
    """How many answers and failures have no expectation, by run and model."""
    condition, values = wanted.condition()
    rows = records.connection.execute(_UNPLANNED.format(condition), values)
    return {(run, model): count for run, model, count in rows}
