"""What the attention kernels are told: the numbers of their arguments, and sizes."""

from __future__ import annotations

from relquery import _native
from relquery.model.kernels.threads import Body

BLOCK = 64
"""Keys that are read at a time."""
ROWS = 64
"""Rows of a task at most: a token has one for each head that shares its keys."""

NO_SHIFT, OWN_SHIFTS = -1, -2
"""Shift numbers of a visit: none, or each token its own."""

# Addresses unless said otherwise, strides in bytes.
(
    NEXT,  # the next pair of task and head
    TICKET,  # the next thread's number
    KIND,  # of queries, keys, values and outputs
    HEADS,
    KV_HEADS,
    WIDTH,  # of a key
    VALUE_WIDTH,
    TASKS,  # (tasks, 4): rows from, to, visits from, to
    TASK_COUNT,
    VISITS,  # (visits, 5): tokens of the task from, to, keys from, to, shift number
    TOKENS,  # of tasks: (rows,) tokens of the packed batch
    POSITIONS,  # of tasks: (rows,)
    SHIFTS,  # of tasks: (rows,) shift numbers where visits say OWN_SHIFTS
    TARGETS,  # of tasks: (rows,) places for partial results, -1 for the output
    SLOTS,  # (keys,); from SCRATCH_FROM on in the step's own store
    KEY_POSITIONS,  # (keys,)
    SCRATCH_FROM,
    QUERIES,
    QUERY_TOKEN,
    QUERY_HEAD,
    OUTPUTS,  # (tokens, heads, value width)
    KEYS,  # (kv heads, slots, width)
    VALUES,
    STORE,  # slots in them
    OWN_KEYS,  # the same of the step's own store
    OWN_VALUES,
    OWN_STORE,
    PARTIALS,  # (places, heads, 2 + padded value width): maximum, sum, output
    MERGED,  # (merged, 3): token, places from, to
    MERGED_COUNT,
    WORK,  # memory of the threads
    WORK_BYTES,  # of each
    SCALE,  # bits of a float32, as are the next two; a power of two
    REST,  # of the scale
    CAP,  # 0 for none
    WINDOW,  # 0 for none
    SLOPES,  # (heads,) of ALiBi; 0 for none
    SHIFT_VALUES,  # (shift numbers,)
    COSINES,  # (shift numbers, half); 0 if keys carry no position
    SINES,
    HALF,  # of the rotated dimensions
    INTERLEAVED,  # whether neighbours are a pair
    TURN_KEYS,  # whether keys are rotated instead of queries
    PAIRED,  # whether products are of pairs of bfloat16 numbers
    TILED,  # whether AMX multiplies these
    ROW_PLACES,  # what distances are counted by; 0 for positions
    KEY_PLACES,
    ARGUMENTS,
) = range(48)

PLAN = (
    TASKS,
    TASK_COUNT,
    VISITS,
    TOKENS,
    POSITIONS,
    SHIFTS,
    TARGETS,
    SLOTS,
    KEY_POSITIONS,
    SHIFT_VALUES,
    PARTIALS,
    MERGED,
    MERGED_COUNT,
)
"""Arguments that a step's plan gives; the others are the network's and the caches'."""
OWN = OWN_KEYS, OWN_VALUES, OWN_STORE
ROTATION = COSINES, SINES, HALF, INTERLEAVED


ATTEND, MERGE = Body("attend"), Body("merge")
work_bytes = _native.attention_work
"""Memory that a thread needs, for so many heads that share keys, and the widths of keys and
values."""
