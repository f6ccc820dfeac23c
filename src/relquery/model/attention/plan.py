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
from typing import NamedTuple

import numpy as np

from relquery.arrays import Int64s
from relquery.engine.executor import Chunk, Segment
from relquery.model.kernels.attention.arguments import BLOCK, NO_SHIFT, OWN_SHIFTS, ROWS
from relquery.table.compiled import compiled

SHARE_LEAST = 16
"""Keys that sharing must save reading, for one more visit."""
MERGE = 3
"""Keys whose reading takes about as long as merging one more partial result."""
SPLIT_LEAST = 512
"""Keys of a part at least, where few rows are split by keys to give all threads work."""

_NONE = np.empty(0, dtype=np.int64)

Visit = tuple[int, int, int, int, int]
"""Rows of the task from and to, keys from and to, and a shift number."""


@dataclass(slots=True, eq=False)
class Plan:
    """The arrays that relquery.model.kernels.attention.arguments describes, and counts.

    shift_values: (shift numbers,) by how many positions keys are used later than computed.
    places: partial results, 0 for none. pairs: query-key pairs, about. ends: (chunks,) where each
    path ends among the keys. room: keys that each path can still grow by.
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
    ends: Int64s
    room: int

    def grow(self, slots: Int64s) -> bool:
        """Make this the plan of a step whose chunks each follow one of this step's by one token,
        and write to these slots (chunks,). False if it cannot be."""
        if self.room == 0:
            return False
        if not _grow(self.tasks, self.visits, self.ends, self.at, self.slots, slots):
            return False
        self.room -= 1
        return True


def plan_step(
    chunks: Sequence[Chunk],
    *,
    share: bool,
    by_shift: bool,
    heads: int,
    kv_heads: int,
    threads: int,
    room: int = 0,
) -> Plan:
    """Plan the attention of a step.

    chunks: in packed order: token i of the batch is token i of their concatenation. share:
    whether what several chunks see is read once, instead of for each. by_shift: whether a span is
    shared only by chunks that use it at the same position. threads: to have work for. room: steps
    for which the plan can grow, if each chunk is one token and all it attends to is in its chain.
    """
    shifted: list[tuple[int, Segment]] = []
    parts: list[Int64s] = []  # of the step's keys: the chunks' paths, then spans
    starts: list[int] = []  # the position of each part's first key
    later = np.zeros(room, dtype=np.int64)
    paths, ends = [], []
    for number, chunk in enumerate(chunks):
        paths.append(len(parts))
        for each in chunk.context:
            if each.shift:
                shifted.append((number, each))
            else:
                parts.append(each.slots)
                starts.append(each.start)
        parts.append(chunk.writes)
        starts.append(chunk.position)
        ends.append(len(parts))
        if room:
            parts.append(later)
            starts.append(chunk.position + 1)
    of_chunks = len(parts)
    parts += [each.slots for _, each in shifted]
    starts += [each.start for _, each in shifted]
    begins = _running_sums([len(part) for part in parts])
    shift_values = shift_numbers = _NONE
    if shifted:
        shift_values, shift_numbers = np.unique(
            np.array([each.shift for _, each in shifted]), return_inverse=True
        )
    users = np.array([number for number, _ in shifted], dtype=np.int64)
    of_spans = begins[of_chunks:]
    spans = _Spans(
        users,
        of_spans[:-1],
        of_spans[1:],
        np.array([each.start for _, each in shifted], dtype=np.int64),
        shift_numbers.astype(np.int64),
        np.searchsorted(users, np.arange(len(chunks) + 1)),
        np.full(len(users), -1),
    )
    tokens = [len(chunk.tokens) for chunk in chunks]
    positions = np.array([chunk.position for chunk in chunks], dtype=np.int64)
    placed = _Chunks(
        np.array(tokens), positions, _running_sums(tokens), begins[paths], begins[ends]
    )
    slots = np.concatenate(parts)
    enough = 2 * threads  # tasks and heads, so that no thread waits long for another
    tasks, visits, rows, targets, merged, places, pairs = _plan(
        slots,
        placed,
        spans,
        share,
        by_shift,
        max(1, min(ROWS * kv_heads // heads, -(-sum(tokens) * kv_heads // enough))),
        -(-enough // kv_heads),
    )
    token, at, shift = np.ascontiguousarray(rows.T)
    return Plan(
        tasks,
        visits,
        token,
        at,
        shift,
        targets,
        slots,
        _positions(begins, np.array(starts, dtype=np.int64)),
        merged,
        shift_values,
        places,
        pairs,
        placed.path_to,
        room,
    )


def _running_sums(counts: Sequence[int]) -> Int64s:
    """0, and the sum of the first 1, 2, ... counts."""
    sums = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


class _Found(NamedTuple):
    """What is planned so far.

    tasks: rows from and to, visits from and to. rows: token, position, shift number.
    """

    tasks: list[tuple[int, int, int, int]]
    visits: list[Visit]
    rows: list[tuple[int, int, int]]


class _Chunks(NamedTuple):
    """Per chunk: its tokens, the position of the first, where they begin in the packed batch, and
    where its path begins and ends among the step's keys. The last of `packed` is their number."""

    tokens: Int64s
    positions: Int64s
    packed: Int64s
    path_from: Int64s
    path_to: Int64s


class _Spans(NamedTuple):
    """Spans at other positions than their own, chunk by chunk.

    chunks, keys_from, keys_to, starts, shifts: (spans,), shifts as numbers. of_chunk: (chunks + 1,)
    where each chunk's begin. same: (spans,) the first span with the same keys if reading them once
    pays, else -1.
    """

    chunks: Int64s
    keys_from: Int64s
    keys_to: Int64s
    starts: Int64s
    shifts: Int64s
    of_chunk: Int64s
    same: Int64s


@compiled
def _common(slots: Int64s, one: int, other: int, length: int) -> int:
    """How many slots two parts have in common at their beginnings, up to `length`."""
    at = 0
    while at + BLOCK <= length:  # without an exit in the inner loop, it becomes vector code
        different = 0
        for i in range(at, at + BLOCK):
            different |= slots[one + i] ^ slots[other + i]
        if different != 0:
            break
        at += BLOCK
    while at < length and slots[one + at] == slots[other + at]:
        at += 1
    return at


@compiled
def _comes_first(slots: Int64s, chunks: _Chunks, one: int, other: int, shared: int) -> bool:
    """Whether the path of a chunk is before another's in lexicographic order, or equal.

    shared: how many slots at their beginnings are known to be the same.
    """
    p, q = chunks.path_from[one] + shared, chunks.path_from[other] + shared
    lengths = chunks.path_to[one] - p, chunks.path_to[other] - q
    common = _common(slots, p, q, min(lengths))
    if common == min(lengths):
        return bool(lengths[0] <= lengths[1])
    return bool(slots[p + common] < slots[q + common])


@compiled
def _by_path(slots: Int64s, chunks: _Chunks) -> Int64s:
    """The chunks in the lexicographic order of their paths, by merging ordered runs."""
    count = len(chunks.tokens)
    order, merged = np.arange(count), np.arange(count)
    shared = chunks.path_to[0] - chunks.path_from[0]  # by all, as far as that is known
    for chunk in range(1, count):
        length = min(shared, chunks.path_to[chunk] - chunks.path_from[chunk])
        shared = _common(slots, chunks.path_from[0], chunks.path_from[chunk], length)
    width = 1
    while width < count:
        for low in range(0, count, 2 * width):
            middle, high = min(low + width, count), min(low + 2 * width, count)
            i, j = low, middle
            for at in range(low, high):
                if j >= high or (
                    i < middle and _comes_first(slots, chunks, order[i], order[j], shared)
                ):
                    merged[at] = order[i]
                    i += 1
                else:
                    merged[at] = order[j]
                    j += 1
        order, merged = merged, order
        width *= 2
    return order


@compiled
def _find_same(slots: Int64s, chunks: _Chunks, spans: _Spans, by_shift: bool) -> None:
    """Fill in `spans.same`."""
    count = len(spans.chunks)
    distinct = np.empty(count, dtype=np.int64)
    users, queries = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    known = 0
    for span in range(count):
        at, length = spans.keys_from[span], spans.keys_to[span] - spans.keys_from[span]
        found = span
        for other in distinct[:known]:
            theirs = spans.keys_from[other]
            if (
                spans.keys_to[other] - theirs == length
                and slots[theirs] == slots[at]
                and spans.starts[other] == spans.starts[span]
                and (not by_shift or spans.shifts[other] == spans.shifts[span])
                and _common(slots, theirs, at, length) == length
            ):
                found = other
                break
        if found == span:
            distinct[known] = span
            known += 1
        spans.same[span] = found
        users[found] += 1
        queries[found] += chunks.tokens[spans.chunks[span]]
    for span in range(count):
        found = spans.same[span]
        length = spans.keys_to[span] - spans.keys_from[span]
        if (users[found] - 1) * length <= MERGE * queries[found]:
            spans.same[span] = -1


@compiled
def _cut_into_tasks(chunks: _Chunks, order: Int64s, most: int) -> Int64s:
    """Cut the chunks so that tasks have `most` tokens: (pieces, 4) of chunk, its tokens from and
    to, task."""
    bound = len(order) + chunks.packed[-1] // most + 1
    pieces = np.empty((bound, 4), dtype=np.int64)
    count, task, room = 0, 0, most
    for chunk in order:
        done = 0
        while done < chunks.tokens[chunk]:
            if room == 0:
                task, room = task + 1, most
            stop = min(chunks.tokens[chunk], done + room)
            pieces[count] = chunk, done, stop, task
            count += 1
            room -= stop - done
            done = stop
    return pieces[:count]


@compiled
def _see_paths(
    slots: Int64s, chunks: _Chunks, pieces: Int64s, share: bool, visits: list[Visit]
) -> None:
    """Add what the pieces of one task see of their chains: a visit for each part of the trie that
    is worth one, and one for the rest of each piece."""
    first_rows = np.zeros(len(pieces) + 1, dtype=np.int64)
    for i in range(len(pieces)):
        first_rows[i + 1] = first_rows[i] + pieces[i, 2] - pieces[i, 1]
    common = np.zeros(len(pieces), dtype=np.int64)  # with the previous piece's path
    for i in range(1, len(pieces) if share else 0):
        p, q = pieces[i - 1, 0], pieces[i, 0]
        lengths = (
            chunks.path_to[p] - chunks.path_from[p],
            chunks.path_to[q] - chunks.path_from[q],
        )
        common[i] = _common(slots, chunks.path_from[p], chunks.path_from[q], min(lengths))
    ranges = [(0, len(pieces), 0)]  # of pieces, and how many of their first keys are done
    while len(ranges) > 0:
        low, high, depth = ranges.pop()
        chunk, _, stop, _ = pieces[low]
        begin = chunks.path_from[chunk]
        if high - low == 1:  # up to the last of its tokens; the kernel hides what is later
            end = chunks.path_to[chunk] - (chunks.tokens[chunk] - stop)
            if end > begin + depth:
                visits.append((first_rows[low], first_rows[high], begin + depth, end, NO_SHIFT))
            continue
        shared = common[low + 1 : high].min()
        if (high - low - 1) * (shared - depth) >= SHARE_LEAST:
            visits.append(
                (first_rows[low], first_rows[high], begin + depth, begin + shared, NO_SHIFT)
            )
            depth = shared
        last = high
        for i in range(high - 1, low, -1):
            if common[i] == shared:
                ranges.append((i, last, depth))
                last = i
        ranges.append((low, last, depth))


@compiled
def _see_spans(spans: _Spans, pieces: Int64s, visits: list[Visit]) -> None:
    """Add what the pieces of one task see at other positions, except what has tasks of its own."""
    row = 0
    for chunk, begin, stop, _ in pieces:
        for span in range(spans.of_chunk[chunk], spans.of_chunk[chunk + 1]):
            if spans.same[span] < 0:
                keys = spans.keys_from[span], spans.keys_to[span]
                visits.append((row, row + stop - begin, keys[0], keys[1], spans.shifts[span]))
        row += stop - begin


@compiled
def _share_span(
    chunks: _Chunks, spans: _Spans, span: int, by_shift: bool, most: int, found: _Found
) -> None:
    """Add the tasks of a span that several chunks use, with the rows of all of them."""
    begin = len(found.rows)
    for user in range(span, len(spans.chunks)):
        if spans.same[user] == span:
            chunk = spans.chunks[user]
            for i in range(chunks.tokens[chunk]):
                found.rows.append(
                    (chunks.packed[chunk] + i, chunks.positions[chunk] + i, spans.shifts[user])
                )
    shift = spans.shifts[span] if by_shift else OWN_SHIFTS
    for first in range(begin, len(found.rows), most):
        last = min(first + most, len(found.rows))
        found.tasks.append((first, last, len(found.visits), len(found.visits) + 1))
        found.visits.append((0, last - first, spans.keys_from[span], spans.keys_to[span], shift))


@compiled
def _split_by_keys(found: _Found, parts: int) -> None:
    """Split each task into up to `parts` with about equally many keys and rows of their own."""
    for number in range(len(found.tasks)):
        first, last, first_visit, last_visit = found.tasks[number]
        keys = 0
        for i in range(first_visit, last_visit):
            keys += found.visits[i][3] - found.visits[i][2]
        count = min(parts, keys // SPLIT_LEAST)
        if count < 2:
            continue
        room = -(-keys // count)
        begin, left, is_first = len(found.visits), room, True
        for i in range(first_visit, last_visit):
            low, high, key, end, shift = found.visits[i]
            while key < end:
                stop = min(end, key + left)
                found.visits.append((low, high, key, stop, shift))
                left -= stop - key
                key = stop
                if left > 0 and not (i == last_visit - 1 and key == end):
                    continue
                if is_first:
                    found.tasks[number] = (first, last, begin, len(found.visits))
                else:
                    rows = len(found.rows)
                    for row in range(first, last):
                        found.rows.append(found.rows[row])
                    found.tasks.append((rows, len(found.rows), begin, len(found.visits)))
                begin, left, is_first = len(found.visits), room, False


@compiled
def _targets(found: _Found, tokens: int) -> tuple[Int64s, Int64s, int]:
    """Where each row's result goes, the tokens that are merged as in Plan, and partial results."""
    parts, places = np.zeros(tokens, dtype=np.int64), np.zeros(tokens, dtype=np.int64)
    for first, last, _, _ in found.tasks:
        for row in range(first, last):
            parts[found.rows[row][0]] += 1
    merged = np.empty(((parts > 1).sum(), 3), dtype=np.int64)
    count, used = 0, 0
    for token in range(tokens):
        if parts[token] > 1:
            merged[count] = token, used, used + parts[token]
            places[token] = used
            used += parts[token]
            count += 1
    targets = np.full(len(found.rows), -1)
    for row in range(len(found.rows)):
        token = found.rows[row][0]
        if parts[token] > 1:
            targets[row] = places[token]
            places[token] += 1
    return targets, merged, used


@compiled
def _pairs(found: _Found) -> int:
    """Query-key pairs of all visits, without what causality hides."""
    pairs = 0
    for low, high, begin, end, _ in found.visits:
        pairs += (high - low) * (end - begin)
    return pairs


@compiled
def _grow(
    tasks: Int64s, visits: Int64s, ends: Int64s, at: Int64s, slots: Int64s, written: Int64s
) -> bool:
    """See Plan.grow. Nothing is changed if it returns False."""
    grown = np.empty(len(ends), dtype=np.int64)
    count = 0
    for _, _, first, last in tasks:
        for visit in range(first, last):
            low, high, _, end, _ = visits[visit]
            path = np.searchsorted(ends, end)
            if path < len(ends) and ends[path] == end:
                if high - low > 1 or count == len(ends):
                    # The whole path is also the beginning of another.
                    return False
                grown[count] = visit
                count += 1
    if count < len(ends):
        return False
    for i in range(count):
        visits[grown[i], 3] += 1
    for path in range(len(ends)):
        slots[ends[path]] = written[path]
        ends[path] += 1
    at += 1
    return True


@compiled
def _positions(begins: Int64s, starts: Int64s) -> Int64s:
    """Of every key, by where the parts begin and the positions of their first keys."""
    positions = np.empty(begins[-1], dtype=np.int64)
    for part in range(len(starts)):
        of_part, start = positions[begins[part] : begins[part + 1]], starts[part]
        for i in range(len(of_part)):
            of_part[i] = start + i
    return positions


@compiled
def _plan(
    slots: Int64s,
    chunks: _Chunks,
    spans: _Spans,
    share: bool,
    by_shift: bool,
    most: int,
    wanted: int,
) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s, int, int]:
    """Tasks, visits, rows (token, position, shift number), targets, merged, places, pairs.

    most: tokens of a task. wanted: tasks at least, if keys suffice.
    """
    # Lists begin with a row of each kind, so that the compiler knows what they hold.
    found = _Found([(0, 0, 0, 0)], [(0, 0, 0, 0, 0)], [(0, 0, 0)])
    found.tasks.clear()
    found.visits.clear()
    found.rows.clear()
    order = _by_path(slots, chunks) if share else np.arange(len(chunks.tokens))
    if share:
        _find_same(slots, chunks, spans, by_shift)
    pieces = _cut_into_tasks(chunks, order, most)
    begin = 0
    while begin < len(pieces):
        end = begin
        first, first_visit = len(found.rows), len(found.visits)
        while end < len(pieces) and pieces[end, 3] == pieces[begin, 3]:
            chunk = pieces[end, 0]
            for i in range(pieces[end, 1], pieces[end, 2]):
                found.rows.append((chunks.packed[chunk] + i, chunks.positions[chunk] + i, NO_SHIFT))
            end += 1
        _see_paths(slots, chunks, pieces[begin:end], share, found.visits)
        _see_spans(spans, pieces[begin:end], found.visits)
        found.tasks.append((first, len(found.rows), first_visit, len(found.visits)))
        begin = end
    for span in range(len(spans.chunks)):
        if spans.same[span] == span:
            _share_span(chunks, spans, span, by_shift, most, found)
    pairs = _pairs(found)
    if len(found.tasks) < wanted:
        _split_by_keys(found, wanted // len(found.tasks))
    targets, merged, places = _targets(found, chunks.packed[-1])
    tasks = np.array(found.tasks)
    visits, rows = np.array(found.visits), np.array(found.rows)
    return tasks, visits, rows, targets, merged, places, pairs
