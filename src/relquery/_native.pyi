"""The extension that src/relquery/native is compiled to. What each function does stands beside it."""

from relquery.arrays import Bools, Int32s, Int64s

def refine(
    rows: Int32s, starts: Int64s, codes: Int32s, counts: Int64s
) -> tuple[Int32s, Int64s]: ...
def violations(
    rows: Int32s, starts: Int64s, codes: Int32s, counts: Int64s, limit: int
) -> int: ...
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
