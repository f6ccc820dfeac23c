"""Choose the order of rows, and of fields in each row, so that prompts share prefixes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from relquery.config import ORDERS, Order
from relquery.errors import ConfigError, UnknownColumnError, did_you_mean
from relquery.table.columns import Columns, Int32s, Int64s
from relquery.table.fixed import fixed
from relquery.table.ggr import Limits, ggr
from relquery.table.measure import Fields, phc, phr
from relquery.table.original import original
from relquery.table.segment import Problem

NO_LIMIT = 2**62
GGR_DEFAULTS: dict[str, int | None] = {"row_depth": 4, "column_depth": 2, "threshold": 100_000}


@dataclass(frozen=True, slots=True)
class Report:
    """What a solver reached: see relquery.table.measure for PHC and PHR. `seconds` is solving."""

    method: Order
    seconds: float
    phc: int
    phr: float


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """An order to send a table in.

    rows: (n,), row ids in the order to send.
    fields: (n, m), at position i the column ids of row `rows[i]` in the order to send.
    """

    rows: Int64s
    fields: Fields
    report: Report


def reorder(
    columns: Columns,
    method: Order = "ggr",
    dependencies: Sequence[tuple[str, ...]] = (),
    *,
    clock: Callable[[], float] = time.perf_counter,
    **options: int | None,
) -> Schedule:
    """Order a table by `original`, `fixed` or `ggr`.

    dependencies: groups of columns that determine one another, e.g. ("beer/beerId", "beer/name");
        groups that overlap are one. They are sent side by side.
    clock: gives seconds, for the report.
    options: those of ggr (see relquery.table.ggr): `row_depth` 4, `column_depth` 2, `threshold`
        100,000. None lifts a depth; as the threshold it means that only the depths count.
        Algorithm 1 without early stopping is `row_depth=None, column_depth=None`.

    Raises UnknownColumnError for a dependency on a column that is not there, ConfigError for an
    unknown method or option.
    """
    if method not in ORDERS:
        raise ConfigError(
            f"method is '{method}'. Methods: {', '.join(ORDERS)}." + did_you_mean(method, ORDERS)
        )
    limits = _limits(method, options)
    classes = _classes(columns.names, dependencies)
    problem = Problem(columns.codes.T, columns.offsets, columns.lengths**2, classes)
    start = clock()
    if columns.codes.size == 0 or method == "original":
        rows, by_row = original(problem)
    elif method == "fixed":
        rows, by_row = fixed(problem)
    else:
        rows, by_row = ggr(problem, limits)
    fields: Fields = np.ascontiguousarray(by_row[rows])
    if len(columns.names) < 2**15:
        fields = fields.astype(np.int16)
    seconds = clock() - start
    report = Report(method, seconds, phc(columns, rows, fields), phr(columns, rows, fields))
    return Schedule(rows, fields, report)


def _limits(method: Order, options: dict[str, int | None]) -> Limits:
    known: dict[str, int | None] = dict(GGR_DEFAULTS) if method == "ggr" else {}
    for name, value in options.items():
        if name not in known:
            raise ConfigError(
                f"'{name}' is not an option of {method}. Options: {', '.join(known) or 'none'}."
                + did_you_mean(name, known)
            )
        if value is not None and value < 0:
            raise ConfigError(f"{name} is {value}; it must not be negative.")
    chosen = {
        name: NO_LIMIT if value is None else value
        for name, value in {**GGR_DEFAULTS, **options}.items()
    }
    return Limits(chosen["row_depth"], chosen["column_depth"], chosen["threshold"])


def _classes(names: Sequence[str], dependencies: Sequence[tuple[str, ...]]) -> Int32s:
    """(m,), the same number for columns that determine one another."""
    classes = np.arange(len(names), dtype=np.int32)
    for group in dependencies:
        for name in group:
            if name not in names:
                raise UnknownColumnError(name, "the table", names)
        members = [i for i, name in enumerate(names) if name in group]
        joined = np.isin(classes, classes[members])
        classes[joined] = classes[members].min()
    return classes
