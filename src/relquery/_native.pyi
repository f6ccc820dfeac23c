"""The extension that src/relquery/native is compiled to: each function is described there."""

from collections.abc import Sequence
from typing import final

import numpy as np
import numpy.typing as npt

from relquery.arrays import Bools, Int32s, Int64s
from relquery.reordering.solvers.problem import Objective, Problem

Bits = npt.NDArray[np.uint64]
Lattice = tuple[Int64s, Int64s, Int64s, Int64s, Int64s, Bools, Int64s]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Tables = tuple[Floats, Floats]
Fields = npt.NDArray[np.int16] | npt.NDArray[np.int32]

def prefix_tree(
    ids: Int32s, offsets: Int64s, roots: Int64s, window: int
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
def find_classes(items: Int32s, weights: Int64s) -> tuple[Int64s, Int64s, Bits]: ...
def intersect(rows: Bits, most: int) -> Bits: ...
def find_beginnings(
    items: Int32s,
    weights: Int64s,
    rank: Int32s,
    shared: Int64s,
    least: Int64s,
    class_of: Int64s,
    class_weight: Int64s,
    rows: Bits,
    sets: Bits,
    most: int,
) -> tuple[Int64s, Int64s, Int64s, Int64s]: ...

class Graph:
    def __init__(self, lattice: Lattice, terminal: Bools) -> None: ...
    @property
    def arcs(self) -> int: ...
    def parents_in(self, opened: Bools) -> Int64s: ...
    def ascend(self, parent: Int64s) -> tuple[int, Int64s]: ...
    def branch_costs(self, left: Int64s) -> Int64s: ...
    def paid_nodes(self, left: Int64s) -> Bools: ...
    def paid_arcs(self, left: Int64s) -> Int64s: ...
    def label_parts(self) -> Int64s: ...

def find_parents(lattice: Lattice, opened: Bools) -> Int64s: ...
def improve(
    lattice: Lattice, terminal: Bools, opened: Bools, most: int
) -> tuple[int, Int64s, int]: ...
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
def arrange(first: Int64s, cached: Bools, ends: Int64s, most: int) -> Int64s: ...
def served(first: Int64s, cached: Bools, ends: Int64s, waves: Int64s) -> int: ...
def join(prefix: Int32s, ids: Int32s, offsets: Int64s, sent: Int32s, out: Int32s) -> None: ...

SPLIT_LEAST: int

def plan_attention(
    slots: Int64s,
    lengths: Sequence[int],
    starts: Sequence[int],
    chunks: Sequence[tuple[int, int, int, int]],
    spans: Sequence[tuple[int, int]],
    share: bool,
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
def formats() -> list[tuple[str, int, int]]: ...
def target() -> str: ...
def targets() -> list[str]: ...

@final
class Rows:
    def __init__(self, bytes: Bytes, format: int, count: int, width: int) -> None: ...
    def floats(self) -> Floats: ...

@final
class Store:
    def __init__(
        self, layers: Sequence[tuple[int, int, int]], slots: int, kind: int, keeps: bool = True
    ) -> None: ...
    @property
    def slots(self) -> int: ...
    @property
    def slot_bytes(self) -> int: ...
    def read(self, layer: int, slots: Int64s) -> tuple[Bytes, Bytes]: ...
    def write(self, layer: int, slots: Int64s, keys: Bytes, values: Bytes) -> None: ...
    def move(
        self,
        sources: Int64s,
        targets: Int64s,
        turns: Sequence[Tables],
        rotations: Sequence[int],
        threads: int,
    ) -> None: ...
    def reserve(self) -> None: ...

@final
class Seen:
    def __init__(
        self,
        slots: Int64s,
        tasks: Int64s,
        visits: Int64s,
        tokens: Int64s,
        at: Int64s,
        shifts: Int64s,
        targets: Int64s,
        positions: Int64s,
        merged: Int64s,
        shift_values: Int64s,
        places: int,
        row_places: Int64s,
        key_places: Int64s,
        turns: Sequence[Tables],
    ) -> None: ...

@final
class Adapted:
    def __init__(self, rows: Int64s, ends: Int64s) -> None: ...

@final
class Slice:
    def __init__(
        self,
        tokens: Int64s,
        positions: Int64s,
        slots: Int64s,
        seen: Seen,
        wanted: Int64s,
        wanted_seen: Seen | None,
        adapted: Adapted,
        wanted_adapted: Adapted,
    ) -> None: ...

@final
class Network:
    def __init__(self, kind: int, rounds_once: bool = False, in_int8: bool = False) -> None: ...
    def add_weight(
        self,
        parts: Sequence[Rows],
        bias: Bytes | None,
        threads: int,
        groups: int = 1,
        bits: int = 0,
    ) -> int: ...
    def add_rows(self, rows: Rows) -> int: ...
    def add_buffer(self, width: int, own: bool = False) -> int: ...
    def add_rotation(self) -> int: ...
    def set_tables(self, rotation: int, cosines: Floats, sines: Floats) -> None: ...
    def positions(self, rotation: int) -> int: ...
    def look_up(
        self,
        weight: int,
        rows: int,
        result: int,
        scale: float = 1.0,
        of_positions: bool = False,
    ) -> None: ...
    def normalize(
        self,
        source: int,
        added: int,
        result: int,
        weight: Sequence[float],
        epsilon: float,
        added_scale: float = 1.0,
        centered: bool = False,
        bias: Sequence[float] = (),
    ) -> None: ...
    def multiply(
        self, source: int, weight: int, result: int, activation: int | None = None
    ) -> None: ...
    def activate(self, source: int, result: int, activation: int) -> None: ...
    def rotate(
        self,
        source: int,
        result: int,
        layer: int,
        heads: int,
        kv_heads: int,
        rotation: int,
        query_weight: Sequence[float],
        key_weight: Sequence[float],
        epsilon: float,
    ) -> None: ...
    def attend(
        self,
        source: int,
        result: int,
        layer: int,
        heads: int,
        rotation: int,
        scale: float,
        window: int,
        cap: float,
        ahead: int = 0,
    ) -> None: ...
    def choose(self, source: int, result: int) -> None: ...
    def set_head(self, source: int, weight: int, scale: float = 1.0, cap: float = 0.0) -> None: ...
    def mix(
        self,
        source: int,
        logits: int,
        up: int,
        down: int,
        gathered: int,
        both: int,
        gated: int,
        result: int,
        chosen: int,
        divides: bool,
        activation: int,
    ) -> None: ...
    def gates(self, weight: int) -> bool: ...
    def adapt(
        self, source: int, first: int, second: int, result: int, gathered: int, between: int
    ) -> None: ...
    def run(
        self,
        slices: Sequence[Slice],
        store: Store,
        own: Store,
        threads: int,
    ) -> int: ...
    def step_bytes(
        self,
        slices: Sequence[Slice],
        store: Store,
        own: Store,
        threads: int,
    ) -> int: ...
    def next_logits(self, threads: int) -> int: ...
    def logits(self, rows: int) -> Bytes: ...
    def largest(self, rows: int) -> Int64s: ...
    @property
    def has_few_bits(self) -> bool: ...
    @property
    def weight_bytes(self) -> int: ...
    def close(self) -> None: ...
    def forget(self) -> None: ...
    def close_stores(self, stores: Sequence[Store]) -> None: ...

def fixed(problem: Problem) -> tuple[Int64s, Int32s]: ...
def ggr(problem: Problem, limits: tuple[int, int, int], visits: int) -> tuple[Int64s, Int32s]: ...
def look_ahead(
    problem: Problem, objective: Objective, reach: tuple[int, int, int, int]
) -> tuple[Int64s, Int32s, Int32s]: ...
def total_worth(
    objective: Objective, weights: Int64s, items: Int32s, rows: Int64s, fields: Int32s
) -> float: ...

@final
class Trie:
    def __init__(self, items: Int32s, weights: Int64s, stopped: Bools) -> None: ...
    def plant(self, order: Int64s, slots: Int32s, items: Int32s) -> None: ...
    def insert_all(self, order: Int64s, most: int) -> None: ...
    def move_rows(self, most: int) -> int: ...
    def break_groups(self, most: int) -> int: ...
    def arrange(
        self, rank: Int32s, shared: Int64s, least: Int64s, column: Int32s, items: Int32s
    ) -> tuple[Int64s, Int32s]: ...
    def structure(
        self,
    ) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s, Int32s, Int64s, Int64s]: ...
    def worth(self) -> int: ...
    @property
    def steps(self) -> int: ...
