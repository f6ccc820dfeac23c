"""The same asked again: after the process was killed, and of a table that has grown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.peers.parts.compared import Compared
from benchmarks.peers.tasks import AGAIN, Task


@dataclass(slots=True)
class Again(Compared):
    """The part."""

    name = "again"
    title = "Asked again"

    @property
    def tasks(self) -> Sequence[Task]:
        """See Compared."""
        return AGAIN
