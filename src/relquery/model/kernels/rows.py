"""What a decoder computes before and between its matrix products, row by row, in one pass each.

Numbers are rounded to the network's type where `transformers` rounds them, except that rotation
happens in float32.
"""

from __future__ import annotations

from relquery.model.kernels.arguments import padded
from relquery.model.kernels.threads import Body

SILU, GELU_TANH = range(2)
"""Activations."""

# Arguments of all kernels here: addresses unless said otherwise.
(
    NEXT,  # the next row
    TICKET,  # the next thread's number
    KIND,
    ROWS,
    WIDTH,  # of a row
    WORK,  # memory of the threads, work_bytes(WIDTH) each
    SOURCE,
    RESULT,
    EPSILON,  # bits of a float32
    # look up
    TOKENS,  # (rows,): which rows of the source
    # normalize
    ADDED,  # to the source, in place, before; 0 for nothing
    WEIGHT,  # (width,) in float32
    # rotate
    HEADS,
    KV_HEADS,
    QUERY_WEIGHT,  # (head's width,) in float32; 0 if heads are not normalized
    KEY_WEIGHT,
    COSINES,  # (positions, HALF)
    SINES,
    HALF,  # of the rotated dimensions; 0 for none
    POSITIONS,  # (rows,)
    SLOTS,  # (rows,); from SCRATCH_FROM on in the step's own store
    SCRATCH_FROM,
    KEYS,  # (kv heads, STORE, width)
    VALUES,
    STORE,
    OWN_KEYS,
    OWN_VALUES,
    OWN_STORE,
    # activate
    ACTIVATION,
    ADDED_SCALE,  # of what is added, 0 for none; bits of a float32
    ROUNDS_ONCE,  # whether normalized numbers are rounded only when weighed
    ARGUMENTS,
) = range(32)
OWN = OWN_KEYS, OWN_VALUES, OWN_STORE


def work_bytes(width: int) -> int:
    """Memory that a thread needs."""
    return 4 * padded(width)


LOOK_UP, NORMALIZE, ROTATE, ACTIVATE = map(Body, ("look_up", "normalize", "rotate", "activate"))
