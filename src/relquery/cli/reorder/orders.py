"""Writing an order of rows and fields to a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from relquery.cli.terminal.show import to_json
from relquery.table.schedule import Schedule


def order_table(schedule: Schedule, names: Sequence[str]) -> pa.Table:
    """`row`: numbers from 0, in the order to send. `fields`: each row's columns, in order."""
    rows, fields = schedule.fields.shape
    flat = pa.array(names, pa.string()).take(pa.array(schedule.fields.reshape(-1)))
    starts = pa.array(np.arange(rows + 1, dtype=np.int64) * fields)
    return pa.table({"row": schedule.rows, "fields": pa.LargeListArray.from_arrays(starts, flat)})


def _write_parquet(order: pa.Table, path: Path) -> None:
    pq.write_table(order, path)


def _write_csv(order: pa.Table, path: Path) -> None:
    """Fields as a JSON list, as CSV has none of its own."""
    fields = [json.dumps(names, ensure_ascii=False) for names in order["fields"].to_pylist()]
    pa_csv.write_csv(order.set_column(1, "fields", pa.array(fields, pa.string())), path)


def _write_json(order: pa.Table, path: Path) -> None:
    path.write_text(to_json(order.to_pylist()), encoding="utf-8")


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".json": _write_json,
}
