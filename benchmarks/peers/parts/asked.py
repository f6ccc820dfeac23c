"""What is asked: maps, a filter, labels, structs, groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.peers.parts.compared import Compared
from benchmarks.peers.tasks import ASKED, Task


@dataclass(slots=True)
class Asked(Compared):
    """The part."""

    name = "asked"
    title = "Six questions"
    compares_forms = True

    @property
    def tasks(self) -> Sequence[Task]:
        """See Compared."""
        return ASKED
