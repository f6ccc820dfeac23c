"""Hit rates on the text that is sent, counted without the product's own measure."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from benchmarks.reorder.tables import RealTable
from relquery.config import Order
from relquery.reordering.encode import encode
from relquery.reordering.reorder import reorder
from relquery.reordering.schedule import Schedule

METHODS: tuple[Order, ...] = ("original", "fixed", "ggr", "tree")


@dataclass(frozen=True, slots=True)
class Reached:
    """What a method reaches on a table.

    hit_rate: on the text sent. reported: the hit rate in the schedule's own report. seconds: of
    solving, as reported. wall: the whole call with encoded columns, including its report.
    """

    method: Order
    hit_rate: float
    reported: float
    seconds: float
    wall: float


def measure(table: RealTable, rows: pa.Table, repeats: int) -> list[Reached]:
    """All methods on one table; median times of `repeats` runs."""
    return [_measure(table, rows, method, repeats) for method in METHODS]


def _measure(table: RealTable, rows: pa.Table, method: Order, repeats: int) -> Reached:
    columns = encode(rows)
    seconds, walls = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        schedule = reorder_as_told(table, columns, method)
        walls.append(time.perf_counter() - start)
        seconds.append(schedule.report.seconds)
    return Reached(
        method=method,
        hit_rate=hit_rate(prompts(rows, table.bags, schedule)),
        reported=schedule.report.phr,
        seconds=statistics.median(seconds),
        wall=statistics.median(walls),
    )


def reorder_as_told(table: RealTable, rows: object, method: Order) -> Schedule:
    """Reorder with the dependencies and bags of the table, with weight "tokens"."""
    return reorder(rows, method, table.dependencies, table.bags, weight="tokens")


def prompts(
    rows: pa.Table,
    bags: Sequence[Sequence[str]],
    schedule: Schedule,
    prefix: str = "",
    end: str = "",
) -> list[str]:
    """The prompts: for each row the prefix, then its cells as "column: value"."""
    return [prefix + "".join(cells) for cells in cells_sent(rows, bags, schedule, end)]


def cells_sent(
    rows: pa.Table, bags: Sequence[Sequence[str]], schedule: Schedule, end: str = ""
) -> list[list[str]]:
    """By row its cells as "column: value", in the order sent."""
    bagged = {name for bag in bags for name in bag}
    cells = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        label = "passage" if name in bagged else name
        values = column.cast(pa.large_string()).to_pylist()
        cells.append([f"{label}: {'' if value is None else value}{end}" for value in values])
    order = zip(schedule.rows.tolist(), schedule.fields.tolist(), strict=True)
    return [[cells[field][row] for field in fields] for row, fields in order]


def hit_rate(texts: Sequence[str]) -> float:
    """Share of characters that belong to a prefix shared with a text sent earlier.

    The cache has no limit, so the total of hits is the length of all texts minus the size of their
    trie, whatever their order. In sorted order, each text leaves the trie where it differs from its
    predecessor.
    """
    total = sum(map(len, texts))
    hit = sum(_shared(before, text) for before, text in pairwise(sorted(texts)))
    return hit / total if total else 0.0


def _shared(a: str, b: str) -> int:
    """Length of the longest common prefix."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
