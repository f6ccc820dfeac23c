"""A provider in trouble: rows without an answer, calls that fail, settings that are refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.harness import Figure
from benchmarks.peers.environments import OURS
from benchmarks.peers.parts.compared import Compared
from benchmarks.peers.tasks import TROUBLED, Task

MAP = Task("no trouble", "map, to compare seconds with")


@dataclass(slots=True)
class Troubled(Compared):
    """The part. The first task is the same without trouble, to compare seconds with."""

    name = "trouble"
    title = "A provider in trouble"

    @property
    def tasks(self) -> Sequence[Task]:
        """See Compared."""
        return (MAP, *TROUBLED)

    def further(self) -> Iterator[Figure]:
        """See Compared."""
        without, failing = self.found[MAP.name], self.found["bad calls"]
        ratio = {name: failing[name].seconds / one.seconds for name, one in without.items()}
        yield Figure(
            "seconds with failing calls over those without",
            ratio[OURS],
            1.3,
            at_least=False,
            note="; ".join(
                f"{name} {failing[name].seconds:.1f} s over {one.seconds:.1f} s"
                for name, one in without.items()
            ),
        )
