"""Plans for tables that fit on no machine here, from the histograms of their keys alone."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.templates import template
from relquery.arrays import Int64s
from relquery.spark.partitions import DrawnSample, Partitions, sampled

WORDS = template("spark")
MIB = 2**20
SIZES = (10**6, 10**7, 10**8, 10**9)
EACH = (250_000, 25_000)
"""Inputs of a partition."""

# By column: distinct values (None: as many as rows), and characters of an item.
KEYS: tuple[tuple[int | None, int], ...] = (
    (2_000, 30), (500, 24), (20_000, 30), (24, 18), (5, 18), (None, 100),
)  # fmt: skip
ITEM = {"maker": (150, 30), "style": (60, 20), "description": (2_000, 210)}
"""Columns that the first key decides."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan. memory: bytes that making it took at most. sent: bytes that tasks are sent.

    saved: the share of all characters that rows are expected to share with those before them.
    """

    rows: int
    partitions: int
    drawn: int
    memory: int
    sent: int
    seconds: float
    saved: float


@dataclass(slots=True)
class Growth(Part):
    """The part."""

    name = "growth"
    title = "Up to 10⁹ rows"
    plans: list[Planned] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        sizes = SIZES[:2] if settings.quick else SIZES
        for rows in sizes:
            for each in EACH:
                self.plans.append(planned(rows, max(1, rows // each), settings.seed))
                last = self.plans[-1]
                say(f"{rows:,} rows, {last.partitions:,} partitions: {last.memory / MIB:.0f} MiB")
        most = max(self.plans, key=lambda one: one.memory)
        yield Figure(
            "memory of the largest plan, MiB",
            most.memory / MIB,
            1024,
            at_least=False,
            note=f"{most.rows:,} rows in {most.partitions:,} partitions",
        )
        first, last = self.plans[0], self.plans[-2]
        yield Figure(
            "hits expected at the most rows over those at the fewest",
            last.saved / first.saved,
            None,
            note=f"{last.saved:.1%} and {first.saved:.1%}, {EACH[0]:,} inputs a partition",
        )

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        del drawn
        yield WORDS.block("growth")
        yield from table(
            ("rows", "partitions", "drawn", "memory", "sent to a task", "seconds", "hits expected"),
            [
                (
                    f"{one.rows:,}",
                    f"{one.partitions:,}",
                    f"{one.drawn:,}",
                    f"{one.memory / MIB:.1f} MiB",
                    f"{one.sent / MIB:.2f} MiB",
                    f"{one.seconds:.1f}",
                    f"{one.saved:.1%}",
                )
                for one in self.plans
            ],
        )


def planned(rows: int, partitions: int, seed: int) -> Planned:
    """A plan for a table of so many rows, made as the driver makes it."""
    drawn = min(rows, sampled(partitions))
    tracemalloc.start()
    began = perf_counter()
    sample = _sample(rows, drawn, seed)
    plan = Partitions.plan(sample, partitions)
    seconds = perf_counter() - began
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    weight = float(sample.lengths.sum(axis=1).mean()) * rows
    return Planned(
        rows, partitions, drawn, memory, len(pickle.dumps(plan)), seconds, plan.saved / weight
    )


def _sample(rows: int, drawn: int, seed: int) -> DrawnSample:
    """Rows drawn by the histograms: values of a key are as frequent as words, by Zipf."""
    rng = np.random.default_rng(seed)
    columns: list[Int64s] = []
    lengths = []
    for kinds, length in KEYS:
        if kinds is None:
            columns.append(rng.integers(0, rows, drawn))
        else:
            shares = 1 / np.arange(1, kinds + 1)
            columns.append(rng.choice(kinds, drawn, p=shares / shares.sum()))
        lengths.append(length)
    for kinds, length in ITEM.values():
        columns.append(columns[0] % kinds)
        lengths.append(length)
    # Equal cells of two columns are different items.
    items = np.column_stack([column * 64 + at for at, column in enumerate(columns)])
    return DrawnSample(items, np.tile(np.array(lengths), (drawn, 1)), rows)
