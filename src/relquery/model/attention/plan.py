"""Who sees what in a step, as tasks and visits for the attention kernels.

What a chunk attends to in its own chain is a path of slots, and the paths of a batch form a trie:
chunks whose paths have the same beginning share a part of them. Sorted by path, the chunks that
share a part are neighbours. So a task takes neighbouring tokens, and each of its visits a part of
the cache that a range of its tokens sees: what they share is read once, and nothing is merged
(Hydragen and cascade inference share prefixes by merging partial results). Only an independent
span that chunks far apart use at other positions than its own becomes tasks of its own, whose
results are merged with the others.

A plan is made once per step and used for all layers, in compiled code without Python objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from relquery.arrays import Int64s
from relquery.engine.executor import Chunk
from relquery.model.kernels.attention import BLOCK, NO_SHIFT, OWN_SHIFTS, ROWS

SHARE_LEAST = 16
"""Keys that sharing must save reading, for one more visit."""
MERGE = 3
"""Keys whose reading takes about as long as merging one more partial result."""
SPLIT_LEAST = 512
"""Keys of a part at least, where few rows are split by keys to give all threads work."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The arrays that relquery.model.kernels.attention describes, and counts.

    shift_values: (shift numbers,) by how many positions keys are used later than computed.
    places: partial results, 0 for none. pairs: query-key pairs, about.
    """

    tasks: Int64s
    visits: Int64s
    tokens: Int64s
    at: Int64s
    shifts: Int64s
    targets: Int64s
    slots: Int64s
    positions: Int64s
    merged: Int64s
    shift_values: Int64s
    places: int
    pairs: int


def plan_step(
    chunks: Sequence[Chunk],
    *,
    share: bool,
    by_shift: bool,
    heads: int,
    kv_heads: int,
    threads: int,
) -> Plan:
    """Plan the attention of a step.

    chunks: in packed order: token i of the batch is token i of their concatenation. share:
    whether what several chunks see is read once, instead of for each. by_shift: whether a span is
    shared only by chunks that use it at the same position. threads: to have work for.
    """
    parts: list[Int64s] = []
    starts: list[int] = []
    paths = [0]
    spans: list[tuple[int, int, int, int]] = []  # chunk, part, start, shift
    for number, chunk in enumerate(chunks):
        for segment in chunk.context:
            if not segment.shift:
                parts.append(segment.slots)
                starts.append(segment.start)
        parts.append(chunk.writes)
        starts.append(chunk.position)
        paths.append(len(parts))
    for number, chunk in enumerate(chunks):
        for segment in chunk.context:
            if segment.shift:
                spans.append((number, len(parts), segment.start, segment.shift))
                parts.append(segment.slots)
                starts.append(segment.start)
    shift_values, numbers = np.unique(
        np.array([span[3] for span in spans], dtype=np.int64), return_inverse=True
    )
    listed = np.array(spans, dtype=np.int64).reshape(-1, 4)
    listed[:, 3] = numbers
    begins = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=begins[1:])
    slots = np.concatenate(parts)
    group = heads // kv_heads
    tokens_of = np.array([len(chunk.tokens) for chunk in chunks], dtype=np.int64)
    least = -(-int(tokens_of.sum()) * kv_heads // (2 * threads))
    tasks, visits, rows, merged, positions, places, pairs = _plan(
        tokens_of,
        np.array([chunk.position for chunk in chunks], dtype=np.int64),
        np.array(paths, dtype=np.int64),
        begins,
        np.array(starts, dtype=np.int64),
        slots,
        listed,
        shift_values,
        share,
        by_shift,
        max(1, min(ROWS // group, least)),
        -(-2 * threads // kv_heads),
    )
    tokens, at, shifts, targets = np.ascontiguousarray(rows.T)
    return Plan(
        tasks,
        visits,
        tokens,
        at,
        shifts,
        targets,
        slots,
        positions,
        merged,
        shift_values,
        int(places),
        int(pairs),
    )


@njit(cache=True)
def _differs(slots: Any, one: Any, other: Any, length: Any) -> Any:
    """How many slots two parts have in common at their beginnings, up to `length`."""
    at = 0
    while at + BLOCK <= length:  # without an exit in the inner loop, it becomes vector code
        different = np.int64(0)
        for i in range(at, at + BLOCK):
            different |= slots[one + i] ^ slots[other + i]
        if different:
            break
        at += BLOCK
    while at < length and slots[one + at] == slots[other + at]:
        at += 1
    return at


@njit(cache=True)
def _sorted_by_path(slots: Any, begins: Any, ends: Any) -> Any:
    """Numbers of the paths in lexicographic order, by merging runs."""
    count = len(begins)
    order = np.arange(count)
    other = np.empty_like(order)
    width = 1
    while width < count:
        for low in range(0, count, 2 * width):
            middle, high = min(low + width, count), min(low + 2 * width, count)
            i, j = low, middle
            for at in range(low, high):
                if j >= high:
                    first = True
                elif i >= middle:
                    first = False
                else:
                    p, q = order[i], order[j]
                    length = min(ends[p] - begins[p], ends[q] - begins[q])
                    same = _differs(slots, begins[p], begins[q], length)
                    if same == length:
                        first = ends[p] - begins[p] <= ends[q] - begins[q]
                    else:
                        first = slots[begins[p] + same] < slots[begins[q] + same]
                if first:
                    other[at] = order[i]
                    i += 1
                else:
                    other[at] = order[j]
                    j += 1
        order, other = other, order
        width *= 2
    return order


@njit(cache=True)
def _same_spans(
    spans: Any, begins: Any, slots: Any, shift_values: Any, tokens_of: Any, by_shift: Any
) -> Any:
    """For each span, the number of the first equal one if sharing them pays, else -1."""
    count = len(spans)
    first = np.empty(count, dtype=np.int64)
    users = np.zeros(count, dtype=np.int64)
    queries = np.zeros(count, dtype=np.int64)
    distinct = np.empty(count, dtype=np.int64)
    known = 0
    for number in range(count):
        part = spans[number, 1]
        at, length = begins[part], begins[part + 1] - begins[part]
        found = number
        for i in range(known):
            other = distinct[i]
            theirs = begins[spans[other, 1]]
            if begins[spans[other, 1] + 1] - theirs != length or slots[theirs] != slots[at]:
                continue
            if spans[other, 2] != spans[number, 2]:
                continue
            if by_shift and spans[other, 3] != spans[number, 3]:
                continue
            if _differs(slots, theirs, at, length) == length:
                found = other
                break
        if found == number:
            distinct[known] = number
            known += 1
        first[number] = found
        users[found] += 1
        queries[found] += tokens_of[spans[number, 0]]
    for number in range(count):
        found = first[number]
        part = spans[found, 1]
        length = begins[part + 1] - begins[part]
        if (users[found] - 1) * length <= MERGE * queries[found]:
            first[number] = -1
    return first


@njit(cache=True)
def _plan(
    tokens_of: Any,
    position_of: Any,
    paths: Any,
    begins: Any,
    starts: Any,
    slots: Any,
    spans: Any,
    shift_values: Any,
    share: Any,
    by_shift: Any,
    most: Any,
    splits: Any,
) -> Any:
    """For the results see Plan; rows are (tokens, at, shifts, targets) of each."""
    chunks = len(tokens_of)
    positions = np.empty(len(slots), dtype=np.int64)
    for part in range(len(starts)):
        for i in range(begins[part + 1] - begins[part]):
            positions[begins[part] + i] = starts[part] + i
    path_from, path_to = begins[paths[:-1]], begins[paths[1:]]
    packed = np.zeros(chunks + 1, dtype=np.int64)
    for chunk in range(chunks):
        packed[chunk + 1] = packed[chunk] + tokens_of[chunk]
    if share:
        order = _sorted_by_path(slots, path_from, path_to)
    else:
        order = np.arange(chunks)
    same = _same_spans(spans, begins, slots, shift_values, tokens_of, by_shift)
    if not share:
        same[:] = -1
    span_from = np.zeros(chunks + 1, dtype=np.int64)
    for span in range(len(spans)):
        span_from[spans[span, 0] + 1] += 1
    span_from = span_from.cumsum()

    tasks = [(np.int64(0), np.int64(0), np.int64(0), np.int64(0))][:0]
    visits = [(np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0))][:0]
    rows = [(np.int64(0), np.int64(0), np.int64(0), np.int64(0))][:0]
    pieces = [(np.int64(0), np.int64(0), np.int64(0), np.int64(0))][:0]
    open_parts = [(np.int64(0), np.int64(0), np.int64(0))][:0]
    pairs = np.int64(0)
    number, done = 0, np.int64(0)  # the next chunk in order, and how many of its tokens are taken
    while number < chunks:
        # A task: pieces of neighbouring chunks, each (chunk, its tokens from, to, first of task).
        pieces.clear()
        room, taken = np.int64(most), np.int64(0)
        while number < chunks and room > 0:
            chunk = order[number]
            stop = min(tokens_of[chunk], done + room)
            pieces.append((chunk, done, stop, taken))
            taken += stop - done
            room -= stop - done
            for i in range(done, stop):
                rows.append((packed[chunk] + i, position_of[chunk] + i, NO_SHIFT, np.int64(-1)))
            done = stop
            if done == tokens_of[chunk]:
                number, done = number + 1, np.int64(0)
        first_visit = len(visits)
        common = np.zeros(len(pieces), dtype=np.int64)
        if share:
            for i in range(1, len(pieces)):
                p, q = pieces[i - 1][0], pieces[i][0]
                length = min(path_to[p] - path_from[p], path_to[q] - path_from[q])
                common[i] = _differs(slots, path_from[p], path_from[q], length)
        open_parts.clear()
        open_parts.append((np.int64(0), np.int64(len(pieces)), np.int64(0)))
        while len(open_parts) > 0:
            low, high, depth = open_parts.pop()
            chunk, begin, stop, row = pieces[low]
            if high - low == 1:
                until = path_to[chunk] - (tokens_of[chunk] - stop)
                if until > path_from[chunk] + depth:
                    seen = until - path_from[chunk] - depth
                    visits.append(
                        (row, row + stop - begin, path_from[chunk] + depth, until, NO_SHIFT)
                    )
                    pairs += seen * (stop - begin)
                continue
            shared = common[low + 1 : high].min()
            if (high - low - 1) * (shared - depth) >= SHARE_LEAST:
                last = pieces[high - 1]
                end = last[3] + last[2] - last[1]
                visits.append(
                    (row, end, path_from[chunk] + depth, path_from[chunk] + shared, NO_SHIFT)
                )
                pairs += (shared - depth) * (end - row)
                depth = shared
            cut = high
            for i in range(high - 1, low, -1):
                if common[i] == shared:
                    open_parts.append((np.int64(i), np.int64(cut), depth))
                    cut = i
            open_parts.append((low, np.int64(cut), depth))
        for chunk, begin, stop, row in pieces:
            for span in range(span_from[chunk], span_from[chunk + 1]):
                if same[span] < 0:
                    part = spans[span, 1]
                    visits.append(
                        (row, row + stop - begin, begins[part], begins[part + 1], spans[span, 3])
                    )
                    pairs += (begins[part + 1] - begins[part]) * (stop - begin)
        tasks.append((len(rows) - taken, np.int64(len(rows)), first_visit, np.int64(len(visits))))

    # Spans that several chunks use: the rows of all users, in tasks of their own.
    for span in range(len(spans)):
        if same[span] != span:
            continue
        part = spans[span, 1]
        begin = np.int64(len(rows))
        for user in range(span, len(spans)):
            if same[user] == span:
                chunk = spans[user, 0]
                for i in range(tokens_of[chunk]):
                    rows.append(
                        (packed[chunk] + i, position_of[chunk] + i, spans[user, 3], np.int64(-1))
                    )
        end = np.int64(len(rows))
        pairs += (begins[part + 1] - begins[part]) * (end - begin)
        while begin < end:
            stop = min(end, begin + most)
            tasks.append((begin, stop, np.int64(len(visits)), np.int64(len(visits) + 1)))
            shift = spans[span, 3] if by_shift else np.int64(OWN_SHIFTS)
            visits.append((np.int64(0), stop - begin, begins[part], begins[part + 1], shift))
            begin = stop

    # Few tasks are split by keys, so that all threads have work.
    if len(tasks) < splits:
        whole = tasks.copy()
        tasks.clear()
        for first, last, first_visit, last_visit in whole:
            keys = np.int64(0)
            for i in range(first_visit, last_visit):
                keys += visits[i][3] - visits[i][2]
            count = min(splits // len(whole), keys // SPLIT_LEAST)
            if count < 2:
                tasks.append((first, last, first_visit, last_visit))
                continue
            share_of = -(-keys // count // BLOCK) * BLOCK
            begin_visit, left = np.int64(len(visits)), share_of
            copies = 0
            for i in range(first_visit, last_visit):
                low, high, key, stop, shift = visits[i]
                while key < stop:
                    end = min(stop, key + left)
                    visits.append((low, high, key, end, shift))
                    left -= end - key
                    key = end
                    if left == 0:
                        tasks.append((first, last, begin_visit, np.int64(len(visits))))
                        begin_visit, left = np.int64(len(visits)), share_of
            if begin_visit < len(visits):
                tasks.append((first, last, begin_visit, np.int64(len(visits))))
            # Each part has rows of its own, which say where its results go.
            for i in range(len(tasks) - 1, -1, -1):
                if tasks[i][0] != first or tasks[i][1] != last:
                    break
                if copies > 0:
                    begin = np.int64(len(rows))
                    for row in range(first, last):
                        rows.append(rows[row])
                    tasks[i] = (begin, np.int64(len(rows)), tasks[i][2], tasks[i][3])
                copies += 1

    # Tokens with several partial results.
    parts_of = np.zeros(packed[-1], dtype=np.int64)
    for first, last, first_visit, last_visit in tasks:
        for row in range(first, last):
            parts_of[rows[row][0]] += 1
    place_of = np.zeros(packed[-1], dtype=np.int64)
    places = np.int64(0)
    merged_tokens = 0
    for token in range(packed[-1]):
        if parts_of[token] > 1:
            place_of[token] = places
            places += parts_of[token]
            merged_tokens += 1
    merged = np.empty((merged_tokens, 3), dtype=np.int64)
    at = 0
    for token in range(packed[-1]):
        if parts_of[token] > 1:
            merged[at] = token, place_of[token], place_of[token] + parts_of[token]
            at += 1
    table = np.empty((len(rows), 4), dtype=np.int64)
    for row in range(len(rows)):
        token = rows[row][0]
        target = np.int64(-1)
        if parts_of[token] > 1:
            target = place_of[token]
            place_of[token] += 1
        table[row] = token, rows[row][1], rows[row][2], target
    task_table = np.empty((len(tasks), 4), dtype=np.int64)
    for i in range(len(tasks)):
        task_table[i] = tasks[i]
    visit_table = np.empty((len(visits), 5), dtype=np.int64)
    for i in range(len(visits)):
        visit_table[i] = visits[i]
    return task_table, visit_table, table, merged, positions, places, pairs
