"""Compiling the solvers before the first request needs them."""

from __future__ import annotations

import random

import pyarrow as pa

from relquery.table.reorder import reorder

ROWS = 20
"""Enough cells that the solvers are compiled, not interpreted."""
SECONDS = 0.02
"""Of search and of polishing: enough that each of their loops is called."""


def warm() -> None:
    """Order a small table, so that what orders tables is compiled. Minutes on a new installation,
    in which a first query would wait and hold up all others; a second after that.
    """
    draw = random.Random(0)
    names = [f"column {number}" for number in range(4)]
    words = [f"word {number} " * number for number in range(1, 9)]
    cells = {name: [draw.choice(words) for _ in range(ROWS)] for name in names}
    reorder(pa.table(cells), seconds=SECONDS)
