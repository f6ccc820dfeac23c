"""`original`: rows and fields in the given order."""

from __future__ import annotations

import numpy as np

from relquery.arrays import Int32s, Int64s
from relquery.table.solvers.segment import Problem


def original(problem: Problem) -> tuple[Int64s, Int32s]:
    """(rows, fields by row id)."""
    columns, rows = problem.items.shape
    fields = np.broadcast_to(np.arange(columns, dtype=np.int32), (rows, columns))
    return np.arange(rows, dtype=np.int64), fields
