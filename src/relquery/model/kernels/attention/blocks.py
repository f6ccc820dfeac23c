"""Blocks of keys and values: where they are, on their way into the caches, and copied."""

from __future__ import annotations

from typing import NamedTuple

from relquery.arrays import Int64s
from relquery.model.kernels.attention.arguments import (
    BLOCK,
    KEYS,
    OWN_KEYS,
    OWN_STORE,
    OWN_VALUES,
    SCRATCH_FROM,
    SLOTS,
    STORE,
    VALUES,
)
from relquery.model.kernels.attention.rotation import turn
from relquery.model.kernels.attention.state import TOGETHER, ZERO, Shape, Visit, Work
from relquery.model.kernels.compiled import compiled, floats, integers, integers32, padded
from relquery.model.kernels.instructions import amx
from relquery.model.kernels.instructions.llvm import FLOAT32
from relquery.model.kernels.instructions.vectors import pair_rows, prefetch, widen


class Block(NamedTuple):
    """Some keys of a visit.

    begin, length: which of the step's keys. keys, values: where their addresses are. next_keys,
    next_values: where those of the next block are, and `ahead` how many. pace: how many of these
    begin to be read for each key that is used.
    """

    begin: int
    length: int
    keys: int
    values: int
    next_keys: int
    next_values: int
    ahead: int
    pace: int


@compiled
def find_block(
    a: Int64s, shape: Shape, work: Work, visit: Visit, head: int, begin: int, known: Int64s
) -> Block:
    """A block of a visit, and the next one of its task.

    known: the block whose addresses are listed already, or -1, and which half of `places` they are
    in. It is the next one afterwards.
    """
    count = min(visit.step, visit.end - begin)
    half = known[1]
    if known[0] != begin:
        _locate(a, shape, work, head, begin, count, half)
    following, end, step = begin + count, visit.end, visit.step
    if following == visit.end:
        following, end, step = visit.then
    ahead = min(step, end - following)
    known[0] = -1
    if ahead > 0:
        _locate(a, shape, work, head, following, ahead, 1 - half)
        known[0], known[1] = following, 1 - half
    here, there = _list(work, 2 * half), _list(work, 2 * (1 - half))
    pace = -(-ahead // count)
    return Block(begin, count, here, here + 8 * BLOCK, there, there + 8 * BLOCK, ahead, pace)


@compiled
def _list(work: Work, number: int) -> int:
    """Where one of the lists of addresses is."""
    return work.places + 8 * BLOCK * number


@compiled
def _locate(
    a: Int64s, shape: Shape, work: Work, head: int, begin: int, count: int, half: int
) -> None:
    """List the addresses of keys and values; the last is repeated."""
    key_size, value_size = shape.width * shape.size, shape.value_width * shape.size
    keys = a[KEYS] + head * a[STORE] * key_size
    values = a[VALUES] + head * a[STORE] * value_size
    own_from = head * a[OWN_STORE] - a[SCRATCH_FROM]
    own_keys, own_values = a[OWN_KEYS] + own_from * key_size, a[OWN_VALUES] + own_from * value_size
    slots = integers(a[SLOTS] + 8 * begin, count)
    keys_at = integers(_list(work, 2 * half), BLOCK)
    values_at = integers(_list(work, 2 * half + 1), BLOCK)
    for j in range(count):
        is_own = slots[j] >= a[SCRATCH_FROM]
        keys_at[j] = (own_keys if is_own else keys) + slots[j] * key_size
        values_at[j] = (own_values if is_own else values) + slots[j] * value_size
    for j in range(count, (count + TOGETHER - 1) // TOGETHER * TOGETHER):
        keys_at[j], values_at[j] = keys_at[j - 1], values_at[j - 1]


@compiled
def prefetch_keys(shape: Shape, block: Block, first: int) -> None:
    """Begin to read some keys of the next block, when those from `first` on are used."""
    for at in range(_begun(block, first), _begun(block, first + TOGETHER), TOGETHER):
        prefetch(block.next_keys + 8 * at, TOGETHER, shape.width * shape.size)


@compiled
def prefetch_values(shape: Shape, block: Block, first: int) -> None:
    """Begin to read some values of the next block, when those from `first` on are used."""
    for at in range(_begun(block, first), _begun(block, first + TOGETHER), TOGETHER):
        prefetch(block.next_values + 8 * at, TOGETHER, shape.value_width * shape.size)


@compiled
def _begun(block: Block, first: int) -> int:
    """How much of the next block is being read when that much of this one is used."""
    return min(first * block.pace, block.ahead)


@compiled
def copy_block(
    a: Int64s, shape: Shape, work: Work, visit: Visit, block: Block, turns_keys: bool
) -> Block:
    """Copy a block to float32, rotated by the visit's shift if asked for."""
    sources = integers(block.keys, BLOCK), integers(block.values, BLOCK)
    keys, values = _list(work, 4), _list(work, 5)
    keys_at, values_at = integers(keys, BLOCK), integers(values, BLOCK)
    for j in range(block.length):
        key, value = work.keys + 4 * j * shape.wide, work.values + 4 * j * shape.deep
        widen_padded(key, sources[0][j], shape.kind, shape.width)
        widen_padded(value, sources[1][j], shape.kind, shape.value_width)
        keys_at[j], values_at[j] = key, value
        if turns_keys:
            numbers = floats(key, shape.wide)
            turn(numbers, numbers, a, visit.shift, False)
    for j in range(block.length, (block.length + TOGETHER - 1) // TOGETHER * TOGETHER):
        keys_at[j], values_at[j] = keys_at[j - 1], values_at[j - 1]
    return _read_from(block, keys, values)


@compiled
def pair_block(shape: Shape, work: Work, block: Block) -> Block:
    """Copy the values of a block two by two; then they are in half as many lines."""
    sources = integers(block.values, BLOCK)
    values = _list(work, 5)
    values_at = integers(values, BLOCK)
    for pair in range((block.length + 1) // 2):
        target = work.values + 4 * pair * shape.deep
        pair_rows(target, sources[2 * pair], sources[2 * pair + 1], shape.deep)
        values_at[pair] = target
    return _read_from(block, block.keys, values)


@compiled
def tile_block(shape: Shape, work: Work, block: Block) -> Block:
    """Copy a block for AMX: keys one after another, values two by two.

    The values of missing keys, up to a whole tile, are 0.
    """
    sources = integers(block.keys, BLOCK)
    for key in range(0, block.length, TOGETHER):
        prefetch_keys(shape, block, key)
        prefetch_values(shape, block, key)
        for j in range(key, min(key + TOGETHER, block.length)):
            # Two bfloat16 numbers are copied as one of four bytes.
            widen(work.keys + 2 * j * shape.wide, sources[j], FLOAT32, shape.wide // 2)
    block = pair_block(shape, work, block)
    values, used = integers(block.values, BLOCK), (block.length + 1) // 2
    if block.length % 2:  # the last value is there twice; a weight of 0 must not meet infinity
        _halve(values[used - 1], shape.deep)
    for pair in range(used, -(-block.length // amx.DEEP) * amx.DEEP // 2):
        floats(work.values + 4 * pair * shape.deep, shape.deep)[:] = ZERO
    return block


@compiled
def _halve(pairs: int, count: int) -> None:
    """Set the second number of each pair to 0."""
    numbers = integers32(pairs, count)
    for at in range(count):
        numbers[at] &= 0xFFFF


@compiled
def _read_from(block: Block, keys: int, values: int) -> Block:
    return Block(
        block.begin,
        block.length,
        keys,
        values,
        block.next_keys,
        block.next_values,
        block.ahead,
        block.pace,
    )


@compiled
def widen_padded(target: int, source: int, kind: int, width: int) -> None:
    """Copy `width` numbers of a kind to float32, and zeros up to the next multiple of LANES."""
    widen(target, source, kind, width)
    rest = floats(target + 4 * width, padded(width) - width)
    for at in range(len(rest)):
        rest[at] = ZERO
