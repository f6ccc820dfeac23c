"""What answers calls, and with which settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from relquery.backends.base import Backend
from relquery.config import QueryConfig
from relquery.ledger import AnswerStore
from relquery.prompt import Answer
from relquery.report import StageReport
from relquery.sql.executor.reading import short
from relquery.sql.planner.plan import PlannedCall
from relquery.sql.record.recording import Recording, StageRecord

Progress = Callable[[str, int, int], None]

_SHOWN_FIELDS = 3


@dataclass(frozen=True, slots=True)
class Asker:
    """What answers calls, and with which settings. clock: seconds from any start, for reports.

    recording: notes what is sent, if that is asked for. record: that of the stage which asks.
    usd: what an answer has cost, for the ledger; None where that is not known.
    heard: told of each answer of the backend, for progress.
    """

    backend: Backend
    config: QueryConfig
    ledger: AnswerStore | None
    progress: Progress | None
    clock: Callable[[], float]
    recording: Recording | None = None
    record: StageRecord | None = None
    usd: Callable[[Answer], float | None] | None = None
    heard: Callable[[Answer], None] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The model names used in the ledger. An in-memory ledger has only one model."""
        is_lasting = self.ledger is not None and self.ledger.path is not None
        return self.backend.known_as() if is_lasting else (self.backend.name,)

    def of_stage(self, name: str) -> Asker:
        """The asker for a stage: what is sent is noted there."""
        return self if self.recording is None else replace(self, record=self.recording.stage(name))

    def modules(self, call: PlannedCall) -> tuple[int, ...]:
        """Which fields of a call are modules, where the backend has them; opens it if there are."""
        return call.modules if call.modules and self.backend.has_modules else ()


def after(asker: Asker, earlier: StageReport | None) -> Asker:
    """The asker for more rows of a stage: its progress counts the earlier ones too.

    The total grows with each batch; how many rows a stage asks in the end is not known before.
    """
    if earlier is None or asker.progress is None:
        return asker
    progress, before = asker.progress, earlier.calls + earlier.ledger_hits
    return replace(
        asker, progress=lambda name, done, total: progress(name, before + done, before + total)
    )


def failed(stage: str, inputs: Mapping[str, str | None], trouble: str) -> str:
    """What stopped a query: the stage, the inputs of one of its rows, and the problem."""
    cells = [f"{name} = {short(cell)}" for name, cell in inputs.items()]
    more = f" and {len(cells) - _SHOWN_FIELDS} more" if len(cells) > _SHOWN_FIELDS else ""
    row = f" for {', '.join(cells[:_SHOWN_FIELDS])}{more}" if cells else ""
    return f"{stage}{row}: {trouble}"
