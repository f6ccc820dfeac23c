"""Products with a matrix in panels, as oneDNN packs it: of few rows at the speed of reading it.

oneDNN's own product of one row reads memory at two thirds of the speed that the machine has.
"""

from __future__ import annotations

from relquery import _native
from relquery.model.kernels.threads import Body

PANEL = 64
"""Outputs that are next to each other in a matrix of ours, for each input: as many as oneDNN has
there, but for bfloat16 on processors with AMX, where it has half as many."""
MOST = 64
"""Rows at a time. One row takes 0.75 to 0.9 of oneDNN's time, 32 rows 0.8 to 0.9, 64 the same; more
only if oneDNN has no fast product."""
TILE_WIDTH, TILE_DEEP = 32, 32
"""Outputs of a panel that AMX multiplies, and inputs of which rows have a multiple then."""

# The arguments: addresses unless said otherwise.
(
    NEXT,  # the next panel
    TICKET,  # the next thread's number
    KIND,  # of all numbers
    ROWS,
    INPUTS,  # a row has
    OUTPUTS,
    SOURCE,  # (rows, inputs)
    MATRIX,  # panels (inputs, width), the last one filled up; bfloat16: two inputs are a pair
    WIDTH,  # outputs of a panel, at most PANEL
    BIAS,  # (outputs,), 0 for none
    RESULT,  # (rows, outputs)
    WORK,  # memory of the threads
    TILED,  # whether AMX multiplies: panels of TILE_WIDTH, inputs a multiple of TILE_DEEP
    GATED,  # whether the result is activation(first half) * second half, whole panels each
    ACTIVATION,
    ARGUMENTS,
) = range(16)


WORK_BYTES = _native.PRODUCT_WORK
"""Memory that a thread needs."""
MULTIPLY = Body("multiply")
