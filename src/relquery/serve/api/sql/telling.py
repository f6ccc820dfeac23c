"""Progress of a statement, told not too often."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from relquery.serve.tasks import Stopping

_PAUSE = 0.1  # seconds between two events of a stage


class Telling:
    """A Progress that says what it is told at most ten times a second, and ends a stopped task.

    tell: None if nobody wants to hear.
    """

    def __init__(
        self,
        tell: Callable[[dict[str, Any]], None] | None,
        stopping: Stopping,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell, self._stopping, self._clock = tell, stopping, clock
        self._last: dict[str, float] = {}

    def __call__(self, stage: str, answered: int, total: int) -> None:
        """Raises CancelledError if the task has been stopped."""
        self._stopping.check()
        now = self._clock()
        is_due = answered == total or now - self._last.get(stage, -1.0) >= _PAUSE
        if self._tell is not None and is_due:
            self._last[stage] = now
            self._tell({"type": "progress", "stage": stage, "answered": answered, "total": total})
