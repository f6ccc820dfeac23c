"""Rows of cells as lines of text that fit a terminal."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

WIDTH = 80
"""Columns where there is no terminal."""

_BETWEEN = " | "
_LEAST = 8  # columns that a cell keeps, however many there are
_DOTS = "..."


def terminal_width() -> int:
    """Columns of the terminal, or what COLUMNS says."""
    return shutil.get_terminal_size((WIDTH, 24)).columns


def aligned(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Lines with the cells below each other, and a rule below the first row.

    width: columns of the terminal. Cells are cut if they do not fit, and if there are too many
    columns for it, lines are longer.
    """
    natural = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    widths = shares(natural, width - len(_BETWEEN) * (len(natural) - 1))
    lines = [_BETWEEN.join(map(_fitted, row, widths)).rstrip() for row in rows]
    lines.insert(1, "-+-".join("-" * one for one in widths))
    return lines


def shares(natural: Sequence[int], width: int) -> list[int]:
    """The width of each column: its natural one, or an equal share of what the others leave.

    At least _LEAST, so that there may be more in all than `width`.
    """
    widths, left = list(natural), width
    by_width = sorted(range(len(natural)), key=natural.__getitem__)
    for place, column in enumerate(by_width):
        share = max(left // (len(natural) - place), _LEAST)
        widths[column] = min(natural[column], share)
        left -= widths[column]
    return widths


def _fitted(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - len(_DOTS)) + _DOTS
