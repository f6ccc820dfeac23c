"""The extension that src/relquery/native is compiled to: each function is described there."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from relquery.arrays import Bools, Int32s, Int64s

Fields = npt.NDArray[np.int16] | npt.NDArray[np.int32]

def prefix_tree(
    ids: Int32s, offsets: Int64s, roots: Int64s | None, window: int
) -> tuple[Int64s, Int64s, Int64s, Int64s]: ...
def block_tree(ids: Int32s, ends: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]: ...
def hits_in_flight(parent: Int64s, depth: Int64s, leaf: Int64s, gap: int) -> Int64s: ...
def previous_hits(ids: Int32s, offsets: Int64s) -> Int64s: ...
def lru_hits(ids: Int32s, offsets: Int64s, blocks: int, block_size: int) -> Int64s: ...
def common_prefix(shared: Int64s, least: Int64s, a: int, b: int) -> int: ...
def shared_with_previous(data: npt.NDArray[np.uint8], offsets: Int64s, order: Int64s) -> Int64s: ...
def prefix_hit_count(items: Int32s, weights: Int64s, rows: Int64s, fields: Fields) -> int: ...
def depths(
    sequences: Int32s, weight: Int64s, shared: Int64s, least: Int64s
) -> tuple[Int64s, Int64s, Int64s]: ...
def machines(
    parent: Int64s, depth: Int64s, leaf: Int64s, minimum: int, rate: float, limit: float
) -> Int64s: ...
def cheapest_marks(
    parent: Int64s,
    depth: Int64s,
    leaf: Int64s,
    window: int,
    uncached: float,
    write: float,
    read: float,
    minimum: int,
    breakpoints: int,
) -> tuple[int, int, Int64s, Int64s]: ...
def writers(first: Int64s, cached: Bools, ends: Int64s) -> Int64s: ...
def arrange(first: Int64s, cached: Bools, ends: Int64s, most: int | None) -> Int64s: ...
def served(first: Int64s, cached: Bools, ends: Int64s, waves: Int64s) -> int: ...
def join(prefix: Int32s, ids: Int32s, offsets: Int64s, sent: Int32s, out: Int32s) -> None: ...
def refine(
    rows: Int32s, starts: Int64s, codes: Int32s, counts: Int64s
) -> tuple[Int32s, Int64s]: ...
def violations(rows: Int32s, starts: Int64s, codes: Int32s, counts: Int64s, limit: int) -> int: ...
def violations_of_each(
    rows: Int32s,
    starts: Int64s,
    asked: Bools,
    codes: Int32s,
    counts: Int64s,
    limit: int,
    distinct: Int64s,
) -> Int64s: ...
def shuffle_within(rows: Int32s, starts: Int64s, draws: Int64s, count: int) -> Int32s: ...

SPLIT_LEAST: int

def plan_attention(
    slots: Int64s,
    lengths: Sequence[int],
    starts: Sequence[int],
    chunks: Sequence[tuple[int, int, int, int]],
    spans: Sequence[tuple[int, int]],
    share: bool,
    by_shift: bool,
    most: int,
    wanted: int,
) -> tuple[
    Int64s,
    Int64s,
    Int64s,
    Int64s,
    Int64s,
    Int64s,
    Int64s,
    Int64s,
    Int64s,
    int,
    int,
    Int64s,
]: ...
def grow_attention(
    tasks: Int64s, visits: Int64s, ends: Int64s, at: Int64s, slots: Int64s, written: Int64s
) -> bool: ...

PRODUCT_WORK: int

def target() -> str: ...
def targets() -> list[str]: ...
def body(name: str, target: str = "") -> int: ...
def run(body: int, arguments: int, threads: int) -> None: ...
def use_openmp(parallel: int, num_threads: int) -> None: ...
def attention_work(group: int, width: int, value_width: int) -> int: ...
