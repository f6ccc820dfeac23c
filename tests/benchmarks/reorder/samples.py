"""A table of passages, for the tests of the reorder benchmark."""

from __future__ import annotations

import pyarrow as pa

from benchmarks.reorder.tables import RealTable

PAIRS = RealTable("squad", "nowhere.csv", 0.5, None, 0.5, bags=(("first", "second"),))


def passages(rows: int) -> pa.Table:
    """Questions with two passages, the same ones in either place."""
    texts = [f"{word} " * 12 for word in ("alpha", "beta", "gamma", "delta")]
    return pa.table(
        {
            "question": [f"what is {row}" for row in range(rows)],
            "first": [texts[row % 3] for row in range(rows)],
            "second": [texts[(row + 1 + row % 2) % 4] for row in range(rows)],
        }
    )
