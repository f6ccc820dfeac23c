"""The real tables that reordering is measured on, with the best public solver's results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True)
class RealTable:
    """A table, and what is known about it.

    public, public_seconds: hit rate and time of the best public solver, as cited in the project's
        goals; no time if nothing beats the original order. goal: the hit rate to reach.
    small: sizes, in rows, at which orders are compared with the optimum.
    """

    name: str
    file: str
    public: float
    public_seconds: float | None
    goal: float
    dependencies: tuple[tuple[str, ...], ...] = ()
    bags: tuple[tuple[str, ...], ...] = ()
    small: tuple[int, ...] = (10, 25)


PASSAGES = tuple(f"context{i}" for i in range(1, 6))

TABLES = (
    RealTable("beer", "beer/beer.csv", 0.681, 25.6, 0.73, (("beer/beerId", "beer/name"),)),
    RealTable("ratebeer", "beer/ratebeer_10k.parquet", 0.345, None, 0.355),
    RealTable("contributions", "contributions/contributions.csv", 0.661, 28.0, 0.665),
    RealTable(
        name="movies",
        file="movies/movies.parquet",
        public=0.88,
        public_seconds=107.0,
        goal=0.88,
        dependencies=(("movieinfo", "movietitle", "rottentomatoeslink"),),
        small=(10, 25, 50),
    ),
    RealTable("posts", "bird/posts_comments.parquet", 0.646, 1.7, 0.646, small=(10, 25, 50)),
    RealTable("squad", "squad/squad_rag5.parquet", 0.335, 4.7, 0.555, bags=(PASSAGES,)),
)

SCORES = RealTable("pdmx", "pdmx/sample100_labelled.csv", 0.0, None, 0.0, small=(25,))
SCORE_COLUMNS = slice(1, 11)  # as many as paper 000 keeps; the first column numbers the rows


def read(table: RealTable, folder: Path) -> pa.Table | None:
    """The table's rows; None if its file is absent."""
    rows = read_all(table, folder)
    return (
        rows.select(rows.column_names[SCORE_COLUMNS])
        if rows is not None and table is SCORES
        else rows
    )


def read_all(table: RealTable, folder: Path) -> pa.Table | None:
    """The same with all columns of the file."""
    path = folder / table.file
    if not path.exists():
        return None
    return pa_csv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)
