"""How time and memory grow with the rows of a synthetic table."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from relquery.reordering.encode import Columns, encode
from relquery.reordering.reorder import reorder

NO_SEARCH = 1e-6  # seconds
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Growth:
    """Seconds at one size: encoding the table, `tree` by default, and `tree` without its search."""

    rows: int
    encoding: float
    default: float
    unsearched: float
    hit_rate: float


def synthetic(rows: int, seed: int) -> pa.Table:
    """A shop's orders in 10 columns of skewed values, some of them dependent.

    Values are Zipf-distributed. `state` follows from `city`, and `category` from `product`; `zip`
    is one of a few in its city; `brand` mostly follows from `product`; notes are all different.
    """
    rng = np.random.default_rng(seed)
    city, product = _zipf(rng, rows, 2_000), _zipf(rng, rows, 10_000)
    noise = rng.random(rows) < 0.05
    codes = {
        "channel": (_zipf(rng, rows, 3), 6),
        "rating": (_zipf(rng, rows, 5), 4),
        "state": (city % 50, 12),
        "city": (city, 16),
        "zip": (city * 8 + _zipf(rng, rows, 8), 5),
        "category": (product % 40, 20),
        "brand": (np.where(noise, _zipf(rng, rows, 400), product % 400), 14),
        "product": (product, 40),
        "customer": (_zipf(rng, rows, max(rows // 10, 1)), 18),
        "note": (rng.permutation(rows), 30),
    }
    return pa.table({name: _texts(name, *column) for name, column in codes.items()})


def _zipf(rng: np.random.Generator, rows: int, values: int) -> Codes:
    """(rows,), value k drawn in proportion to 1 / (k + 1)."""
    cumulative = np.cumsum(1 / np.arange(1, values + 1))
    drawn: Codes = np.searchsorted(cumulative, rng.random(rows) * cumulative[-1]).astype(np.int64)
    return drawn


def _texts(name: str, codes: Codes, length: int) -> pa.Array:
    """A different text for each code, padded to `length` characters."""
    distinct, places = np.unique(codes, return_inverse=True)
    texts = pa.array([f"{code} {name}".ljust(length, ".") for code in distinct.tolist()])
    return pa.DictionaryArray.from_arrays(pa.array(places), texts).cast(pa.string())


def measure(rows: int, seed: int) -> Growth:
    """One size."""
    table = synthetic(rows, seed)
    start = time.perf_counter()
    columns = encode(table)
    encoding = time.perf_counter() - start
    default, hit_rate = _time(columns, None)
    unsearched, _ = _time(columns, NO_SEARCH)
    return Growth(rows, encoding, default, unsearched, hit_rate)


def _time(columns: Columns, search: float | None) -> tuple[float, float]:
    """(seconds of the whole call, hit rate)."""
    start = time.perf_counter()
    schedule = reorder(columns, "tree", weight="tokens", seconds=search)
    return time.perf_counter() - start, schedule.report.phr


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """b of the best fit seconds = a (n log n)^b."""
    work = [math.log(size * math.log(size)) for size in sizes]
    slope, _ = np.polyfit(work, np.log(seconds), 1)
    return float(slope)


def last_step(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Growth of the time from the second-largest to the largest size, relative to n log n."""
    before, after = (size * math.log(size) for size in sizes[-2:])
    return seconds[-1] / seconds[-2] / (after / before)


def peak_bytes(rows: int, seed: int) -> int:
    """Peak memory of a fresh process that makes, encodes and reorders such a table."""
    command = [sys.executable, "-m", __spec__.name, str(rows), str(seed)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(json.loads(done.stdout))


def _main(rows: int, seed: int) -> None:
    reorder(synthetic(rows, seed), weight="tokens")
    print(_peak())


def _peak() -> int:
    """Bytes that this process held at most."""
    import resource

    status = Path("/proc/self/status")
    if status.exists():
        # What getrusage tells on Linux includes the process that started this one, as it was then.
        (peak,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # of macOS, in bytes


if __name__ == "__main__":
    _main(*map(int, sys.argv[1:]))
