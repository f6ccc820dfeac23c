"""What threads do: take tasks, attend, and join partial results."""

from __future__ import annotations

from typing import Any

import numpy as np

from relquery.arrays import Int64s
from relquery.model.kernels.attention.arguments import (
    ARGUMENTS,
    KV_HEADS,
    MERGED,
    MERGED_COUNT,
    NEXT,
    OUTPUTS,
    PARTIALS,
    POSITIONS,
    QUERIES,
    QUERY_HEAD,
    QUERY_TOKEN,
    SCALE,
    SHIFTS,
    TARGETS,
    TASK_COUNT,
    TASKS,
    TOKENS,
)
from relquery.model.kernels.attention.blocks import widen_padded
from relquery.model.kernels.attention.rotation import turn_queries, turns_queries
from relquery.model.kernels.attention.state import (
    MANY,
    NOTHING,
    ONE,
    ZERO,
    Rows,
    Shape,
    Work,
    find_shape,
    find_visit,
    find_work,
)
from relquery.model.kernels.attention.visits import attend_visit, is_paired, set_columns
from relquery.model.kernels.compiled import Floats, compiled, floats, integers
from relquery.model.kernels.instructions import amx
from relquery.model.kernels.instructions.elementary import exp
from relquery.model.kernels.instructions.vectors import (
    float_of_bits,
    narrow,
    prefetch_line,
    take_number,
)
from relquery.model.kernels.threads import Body

AHEAD = 8
"""Queries that are on their way while one is read: those of a head are far apart."""


@compiled
def _query(a: Int64s, shape: Shape, rows: Rows, head: int, row: int) -> int:
    """Where a row's query is."""
    by_head = head * shape.group + row % shape.group
    token = rows.tokens[row // shape.group]
    return int(a[QUERIES] + token * a[QUERY_TOKEN] + by_head * a[QUERY_HEAD])


@compiled
def _begin_rows(a: Int64s, shape: Shape, work: Work, rows: Rows, head: int) -> None:
    """Read a task's queries for one head of keys, scaled, and forget earlier results."""
    scale = float_of_bits(np.int32(a[SCALE]))
    count = len(rows.tokens) * shape.group
    for row in range(min(AHEAD, count)):
        prefetch_line(_query(a, shape, rows, head, row), shape.width * shape.size)
    for row in range(count):
        if row + AHEAD < count:
            prefetch_line(_query(a, shape, rows, head, row + AHEAD), shape.width * shape.size)
        target = work.queries + 4 * row * shape.wide
        widen_padded(target, _query(a, shape, rows, head, row), shape.kind, shape.width)
        query = floats(target, shape.wide)
        for at in range(shape.wide):
            query[at] *= scale
        work.maxima[row], work.sums[row] = NOTHING, ZERO
    outputs = floats(work.outputs, count * shape.deep)
    for at in range(len(outputs)):
        outputs[at] = ZERO


@compiled
def _end_rows(a: Int64s, shape: Shape, work: Work, rows: Rows, head: int) -> None:
    """Write a task's results for one head of keys: outputs, or partial results."""
    for row in range(len(rows.tokens) * shape.group):
        token, target = rows.tokens[row // shape.group], rows.targets[row // shape.group]
        by_head = head * shape.group + row % shape.group
        line = floats(work.outputs + 4 * row * shape.deep, shape.deep)
        if target >= 0:
            length = 2 + shape.deep
            part = floats(a[PARTIALS] + 4 * (target * shape.heads + by_head) * length, length)
            part[0], part[1] = work.maxima[row], work.sums[row]
            part[2:] = line
            continue
        share = ONE / work.sums[row] if work.sums[row] > ZERO else ZERO
        for at in range(shape.deep):
            line[at] *= share
        place = (token * shape.heads + by_head) * shape.value_width * shape.size
        narrow(a[OUTPUTS] + place, line.ctypes.data, shape.kind, shape.value_width)


@compiled
def _attend_task(a: Int64s, shape: Shape, work: Work, task: int, head: int) -> None:
    listed = integers(a[TASKS] + 4 * 8 * task, 4)
    first, count = listed[0], listed[1] - listed[0]
    rows = Rows(
        integers(a[TOKENS] + 8 * first, count),
        integers(a[POSITIONS] + 8 * first, count),
        integers(a[SHIFTS] + 8 * first, count),
        integers(a[TARGETS] + 8 * first, count),
    )
    _begin_rows(a, shape, work, rows, head)
    columns = 0  # whose queries they hold now: none, numbers, or pairs
    known = np.array([-1, 0])
    for number in range(listed[2], listed[3]):
        visit = find_visit(a, shape, rows, number, number + 1 == listed[3])
        paired = is_paired(a, shape, visit)
        queries = work.queries
        if turns_queries(a, visit):
            turn_queries(a, shape, work, rows, visit)
            queries = work.turned
            columns = 0
            if visit.rows >= MANY:
                set_columns(shape, work, queries, visit.first, visit.rows, paired)
        elif visit.rows >= MANY and columns != 1 + paired:
            set_columns(shape, work, queries, 0, count * shape.group, paired)
            columns = 1 + paired
        attend_visit(a, shape, work, rows, visit, head, queries, known)
    _end_rows(a, shape, work, rows, head)


@compiled
def _attend_tasks(a: Int64s) -> None:
    """What one thread does: take tasks and heads until none is left."""
    shape = find_shape(a)
    work = find_work(a, shape)
    heads = a[KV_HEADS]
    # Padding is computed with. Whatever the memory held would be as good, but for numbers so small
    # that processors take a hundred times as long for them.
    floats(work.columns, shape.wide * shape.across)[:] = ZERO
    work.largest[:], work.totals[:] = ZERO, ZERO
    if shape.tiled:
        amx.set_tiles(work.scores, amx.ROWS)
    while True:
        number = take_number(a.ctypes.data + 8 * NEXT)
        if number >= a[TASK_COUNT] * heads:
            break
        _attend_task(a, shape, work, number // heads, number % heads)
    if shape.tiled:
        amx.end_tiles()


@compiled
def _merge_token(a: Int64s, shape: Shape, number: int, head: int, joined: Floats) -> None:
    """Join the partial results of a token and head, each by its share of the softmax's sum."""
    listed = integers(a[MERGED] + 3 * 8 * number, 3)
    length = 2 + shape.deep
    largest, total = NOTHING, ZERO
    for place in range(listed[1], listed[2]):
        part = floats(a[PARTIALS] + 4 * (place * shape.heads + head) * length, length)
        largest = max(largest, part[0])
    joined[:] = ZERO
    for place in range(listed[1], listed[2]):
        part = floats(a[PARTIALS] + 4 * (place * shape.heads + head) * length, length)
        if part[1] > ZERO:
            weight = exp(part[0] - largest)
            total += weight * part[1]
            for at in range(shape.deep):
                joined[at] += weight * part[2 + at]
    share = ONE / total if total > ZERO else ZERO
    for at in range(shape.deep):
        joined[at] *= share
    place = (listed[0] * shape.heads + head) * shape.value_width * shape.size
    narrow(a[OUTPUTS] + place, joined.ctypes.data, shape.kind, shape.value_width)


@compiled
def _merge_tokens(a: Int64s) -> None:
    """What one thread does: take tokens with partial results until none is left."""
    shape = find_shape(a)
    joined = floats(find_work(a, shape).outputs, shape.deep)
    while True:
        number = take_number(a.ctypes.data + 8 * NEXT)
        if number >= a[MERGED_COUNT]:
            return
        for head in range(shape.heads):
            _merge_token(a, shape, number, head, joined)


def _attend(place: Any) -> None:
    _attend_tasks(integers(place, ARGUMENTS))


def _merge(place: Any) -> None:
    _merge_tokens(integers(place, ARGUMENTS))


ATTEND, MERGE = Body(_attend), Body(_merge)
