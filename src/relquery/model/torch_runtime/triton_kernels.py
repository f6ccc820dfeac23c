"""The same attention on a GPU, in Triton: tasks and visits of a plan, partial results merged.

A program computes one task for one head of keys. Shared parts of the cache are read once for all
rows of a task, at their slots, and products are those of matrices, which tensor cores compute
(FlashAttention-2, Dao 2023: outputs stay in registers and are divided by the sum at the end).
"""

from __future__ import annotations

import triton
import triton.language as tl

from relquery.model.attention_plan import NO_SHIFT, OWN_SHIFTS

WITHOUT_SHIFT, EACH_ITS_OWN = tl.constexpr(NO_SHIFT), tl.constexpr(OWN_SHIFTS)
FAR = tl.constexpr(1 << 40)
"""Beyond any position."""


@triton.jit
def _partners(dims, half: tl.constexpr, interleaved: tl.constexpr):
    """Of each dimension: the other one of its pair, the pair's number, and whether it is first."""
    if interleaved:
        first = dims % 2 == 0
        return tl.where(first, dims + 1, dims - 1), dims // 2, first
    first = dims < half
    return tl.where(first, dims + half, dims - half), tl.where(first, dims, dims - half), first


@triton.jit
def _turned_back(numbers, partners, first, cosines, sines):
    """Numbers of pairs, rotated; partners: the other number of each pair."""
    return numbers * cosines + partners * tl.where(first, sines, -sines)


@triton.jit
def _lines(
    stored,
    own,
    slot,
    is_slot,
    scratch_from,
    head,
    store,
    own_store,
    column,
    is_column,
    width: tl.constexpr,
    has_store: tl.constexpr,
    has_own: tl.constexpr,
):
    """Some columns (slots, columns) of keys or values, 0 where there is no slot or column."""
    is_own = is_slot & (slot >= scratch_from)
    line = tl.where(is_own, head * own_store + slot - scratch_from, head * store + slot)
    place = line[:, None] * width + column[None]
    lines = tl.zeros(place.shape, stored.dtype.element_ty)
    if has_store:
        wanted = (is_slot & (slot < scratch_from))[:, None] & is_column[None]
        lines = tl.load(stored + place, mask=wanted, other=0.0)
    if has_own:
        lines += tl.load(own + place, mask=is_own[:, None] & is_column[None], other=0.0)
    return lines


@triton.jit
def _softened(scores, largest, total, output, values):
    """Maxima, sums and outputs of rows after scores (rows, keys) with a block of values."""
    larger = tl.maximum(largest, tl.max(scores, 1))
    finite = tl.where(larger == float("-inf"), 0.0, larger)
    weights = tl.exp(scores - finite[:, None])
    factor = tl.exp(largest - finite)
    added = tl.dot(weights.to(values.dtype), values, input_precision="ieee")
    return larger, total * factor + tl.sum(weights, 1), output * factor[:, None] + added


@triton.jit
def _is_reached(key_at, is_key, at, is_seen, window, has_window: tl.constexpr):
    """Whether any row sees any key of a block."""
    reached = tl.min(key_at) <= tl.max(tl.where(is_seen, at, -FAR))
    if has_window:
        earliest = tl.min(tl.where(is_seen, at, FAR))
        reached = reached & (earliest - tl.max(tl.where(is_key, key_at, -FAR)) < window)
    return reached


@triton.jit
def _finished(
    scores,
    distance,
    sees,
    cap,
    window,
    slope,
    has_cap: tl.constexpr,
    has_window: tl.constexpr,
    has_slopes: tl.constexpr,
):
    """Scores (rows, keys), bounded, lowered by the distance under ALiBi, and masked."""
    if has_cap:
        scores = cap * _tanh(scores / cap)
    if has_slopes:
        scores -= slope[:, None] * distance.to(tl.float32)
    sees = sees & (distance >= 0)
    if has_window:
        sees = sees & (distance < window)
    return tl.where(sees, scores, float("-inf"))


@triton.jit(do_not_specialize=["store", "own_store"])  # slots, which may differ in every step
def attend_tasks(  # noqa: PLR0915
    queries,
    query_token,
    query_head,
    outputs,
    partials,
    keys,
    values,
    store,
    own_keys,
    own_values,
    own_store,
    scratch_from,
    tasks,
    visits,
    tokens,
    positions,
    shifts,
    targets,
    slots,
    key_positions,
    shift_values,
    cosines,
    sines,
    slopes,
    scale,
    cap,
    window,
    heads: tl.constexpr,
    kv_heads: tl.constexpr,
    width: tl.constexpr,
    value_width: tl.constexpr,
    wide: tl.constexpr,
    value_wide: tl.constexpr,
    rows: tl.constexpr,
    block: tl.constexpr,
    half: tl.constexpr,
    interleaved: tl.constexpr,
    has_store: tl.constexpr,
    has_own: tl.constexpr,
    has_cap: tl.constexpr,
    has_window: tl.constexpr,
    has_slopes: tl.constexpr,
):
    """One task and head of keys. For the arrays see arguments.py; widths are padded to powers of
    two, wide and value_wide. half is 0 if keys carry no position or none is used elsewhere."""
    task, head = tl.program_id(0), tl.program_id(1)
    group: tl.constexpr = heads // kv_heads
    dtype = queries.dtype.element_ty
    first_row = tl.load(tasks + 4 * task)
    last_row = tl.load(tasks + 4 * task + 1)
    first_visit = tl.load(tasks + 4 * task + 2)
    last_visit = tl.load(tasks + 4 * task + 3)

    row = tl.arange(0, rows)
    of_task = row // group
    is_row = of_task < last_row - first_row
    token = tl.load(tokens + first_row + of_task, mask=is_row, other=0)
    position = tl.load(positions + first_row + of_task, mask=is_row, other=0)
    own_shift = tl.load(shifts + first_row + of_task, mask=is_row, other=0)
    query_row = head * group + row % group
    place = queries + token * query_token + query_row * query_head

    dim, deep = tl.arange(0, wide), tl.arange(0, value_wide)
    is_dim, is_deep = dim < width, deep < value_width
    query = tl.load(place[:, None] + dim[None], mask=is_row[:, None] & is_dim[None], other=0.0)
    if half > 0:
        partner, pair, is_first = _partners(dim, half, interleaved)
        rotates = dim < 2 * half
        query_partner = tl.load(
            place[:, None] + partner[None], mask=is_row[:, None] & rotates[None], other=0.0
        )
    slope = tl.load(slopes + query_row) if has_slopes else scale

    largest = tl.full([rows], float("-inf"), tl.float32)
    total = tl.zeros([rows], tl.float32)
    output = tl.zeros([rows, value_wide], tl.float32)
    for visit in range(first_visit, last_visit):
        low = tl.load(visits + 5 * visit)
        high = tl.load(visits + 5 * visit + 1)
        begin = tl.load(visits + 5 * visit + 2)
        end = tl.load(visits + 5 * visit + 3)
        shift = tl.load(visits + 5 * visit + 4)
        is_seen = (of_task >= low) & (of_task < high)
        key_position, used = position, query
        if shift != WITHOUT_SHIFT:
            number = tl.maximum(tl.where(shift == EACH_ITS_OWN, own_shift, shift), 0)
            key_position = position - tl.load(shift_values + number)
            if half > 0:
                angle = number[:, None] * half + pair[None]
                cosine = tl.load(cosines + angle, mask=rotates[None], other=1.0)
                sine = tl.load(sines + angle, mask=rotates[None], other=0.0)
                used = _turned_back(
                    query.to(tl.float32),
                    query_partner.to(tl.float32),
                    is_first[None],
                    cosine,
                    sine,
                ).to(dtype)
        for key in range(begin, end, block):
            number_of_key = key + tl.arange(0, block)
            is_key = number_of_key < end
            key_at = tl.load(key_positions + number_of_key, mask=is_key, other=FAR)
            if _is_reached(key_at, is_key, key_position, is_seen, window, has_window):
                slot = tl.load(slots + number_of_key, mask=is_key, other=0)
                k = _lines(
                    keys,
                    own_keys,
                    slot,
                    is_key,
                    scratch_from,
                    head,
                    store,
                    own_store,
                    dim,
                    is_dim,
                    width,
                    has_store,
                    has_own,
                )
                v = _lines(
                    values,
                    own_values,
                    slot,
                    is_key,
                    scratch_from,
                    head,
                    store,
                    own_store,
                    deep,
                    is_deep,
                    value_width,
                    has_store,
                    has_own,
                )
                scores = _finished(
                    tl.dot(used, tl.trans(k), input_precision="ieee") * scale,
                    key_position[:, None] - key_at[None],
                    is_seen[:, None] & is_key[None],
                    cap,
                    window,
                    slope,
                    has_cap,
                    has_window,
                    has_slopes,
                )
                largest, total, output = _softened(scores, largest, total, output, v)

    target = tl.load(targets + first_row + of_task, mask=is_row, other=-1)
    share = 1.0 / tl.where(total > 0, total, 1.0)
    result = outputs + (token * heads + query_row)[:, None] * value_width + deep[None]
    ends = is_row & (target < 0)
    finished = (output * share[:, None]).to(dtype)
    tl.store(result, finished, mask=ends[:, None] & is_deep[None])
    partial = partials + (target * heads + query_row) * (2 + value_wide)
    waits = is_row & (target >= 0)
    tl.store(partial, largest, mask=waits)
    tl.store(partial + 1, total, mask=waits)
    tl.store(partial[:, None] + 2 + deep[None], output, mask=waits[:, None] & is_deep[None])


@triton.jit
def merge_tokens(
    outputs,
    partials,
    merged,
    heads: tl.constexpr,
    value_width: tl.constexpr,
    value_wide: tl.constexpr,
):
    """Join the partial results of one token and head, each by its share of the softmax's sum.

    An entry without partial results is left out.
    """
    number, head = tl.program_id(0), tl.program_id(1)
    token = tl.load(merged + 3 * number)
    begin, end = tl.load(merged + 3 * number + 1), tl.load(merged + 3 * number + 2)
    deep = tl.arange(0, value_wide)
    is_deep = deep < value_width
    largest = tl.load(partials + (begin * heads + head) * (2 + value_wide))
    for place in range(begin + 1, end):
        largest = tl.maximum(largest, tl.load(partials + (place * heads + head) * (2 + value_wide)))
    finite = tl.where(largest == float("-inf"), 0.0, largest)
    total = tl.zeros([1], tl.float32)
    output = tl.zeros([value_wide], tl.float32)
    for place in range(begin, end):
        part = partials + (place * heads + head) * (2 + value_wide)
        weight = tl.exp(tl.load(part) - finite)
        total += weight * tl.load(part + 1)
        output += weight * tl.load(part + 2 + deep, mask=is_deep, other=0.0)
    output *= 1.0 / tl.where(total > 0, total, 1.0)
    place = outputs + (token * heads + head) * value_width + deep
    stored = tl.where(begin < end, value_width, 0)
    tl.store(place, output.to(outputs.dtype.element_ty), mask=deep < stored)


@triton.jit
def _tanh(x):
    """By a falling exponential, which cannot overflow; near 0, where the difference would lose
    digits, by a series."""
    falling = tl.exp(-2.0 * tl.abs(x))
    far = (1.0 - falling) / (1.0 + falling)
    square = x * x
    near = x + x * square * (-1.0 / 3.0 + square * (2.0 / 15.0 + square * (-17.0 / 315.0)))
    return tl.where(tl.abs(x) < 0.15, near, tl.where(x >= 0, far, -far))
