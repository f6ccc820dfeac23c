"""What answers the calls of a query, with which settings, and what it is paid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from relquery.backends.base import Backend
from relquery.config import QueryConfig
from relquery.ledger import AnswerStore
from relquery.prompt import Answer
from relquery.report import StageReport
from relquery.sql.record import Recording, StageRecord

if TYPE_CHECKING:
    from relquery.prices.price import Price
    from relquery.sql.planner.plan import PlannedCall

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """What answers calls, and with which settings. clock: seconds from any start, for reports.

    recording: notes what is sent, if that is asked for. on_answer: told of each answer of the
    backend, for progress. record: that of the stage which asks.
    """

    backend: Backend
    config: QueryConfig
    ledger: AnswerStore | None
    progress: Progress | None
    clock: Callable[[], float]
    recording: Recording | None = None
    on_answer: Callable[[Answer], None] | None = None
    record: StageRecord | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The model names used in the ledger. An in-memory ledger has only one model."""
        is_lasting = self.ledger is not None and self.ledger.path is not None
        return self.backend.known_as() if is_lasting else (self.backend.name,)

    def of_stage(self, name: str, earlier: StageReport | None) -> ExecutionContext:
        """The context of a stage: what is sent is noted there.

        earlier: what the stage has asked before, which its progress counts too. The total grows
        with each batch; how many rows a stage asks in the end is not known before.
        """
        context = self
        if self.recording is not None:
            context = replace(self, record=self.recording.stage(name))
        if earlier is None or self.progress is None:
            return context
        progress, before = self.progress, earlier.calls + earlier.ledger_hits
        return replace(
            context,
            progress=lambda name, done, total: progress(name, before + done, before + total),
        )

    def tell(self, name: str, done: int, total: int) -> None:
        """Tell how far a stage is, if anybody listens."""
        if self.progress is not None:
            self.progress(name, done, total)

    def modules(self, call: PlannedCall) -> tuple[int, ...]:
        """Which fields of a call are modules, where the backend has them; opens it if there are."""
        return call.modules if call.modules and self.backend.limits.has_modules else ()


def usd_of(backend: Backend) -> Callable[[Answer], float | None]:
    """Gives what an answer of a backend has cost in USD; None if its model has no known price.

    The backend's name is asked for when the first answer is there, as it may not be open before.
    """

    @cache
    def price() -> Price | None:
        from relquery.prices.table import known_price

        known, part = known_price(backend.name), backend.limits.price_share
        if known is None or part == 1:
            return known
        return known.in_batch if part == known.batch else known.times(part)

    def usd(answer: Answer) -> float | None:
        if (known := price()) is None:
            return None
        of_cache = answer.cached_tokens, answer.written_tokens, answer.written_1h_tokens
        return known.call_usd(answer.prompt_tokens, answer.output_tokens, *of_cache)

    return usd


def waiting_of(backend: Backend) -> Callable[[], float]:
    """Gives the seconds until a backend sends more, because of a provider's limits."""

    def waiting() -> float:
        tally = backend.tally()
        return 0.0 if tally is None else tally.waiting

    return waiting
