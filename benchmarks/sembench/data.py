"""SemBench's Movie scenario: its tables, right results, and the runs that its authors published."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from relquery.arrays import Floats

QUERIES = tuple(f"Q{number}" for number in range(1, 11))
SYSTEMS = ("lotus", "palimpzest", "thalamusdb", "bigquery")
_LIMITS = {"Q1": 5, "Q2": 5, "Q5": 10, "Q6": 10}
_OPTIONS = pa_csv.ParseOptions(newlines_in_values=True)


@dataclass(frozen=True, slots=True)
class Published:
    """A published run of a query."""

    tokens: int
    """In and out."""
    usd: float
    system: str


@dataclass(frozen=True, slots=True, eq=False)
class Scenario:
    """The tables, the right results by query, and published runs by query, the cheapest first."""

    reviews: pa.Table
    movies: pa.Table
    gold: dict[str, pa.Table]
    published: dict[str, list[Published]]

    @classmethod
    def read(cls, folder: Path) -> Scenario | None:
        """None if it is not in the folder of real tables."""
        place = folder / "sembench"
        if not (place / "Reviews.csv").exists():
            return None
        reviews, movies = (
            pa_csv.read_csv(place / f"{name}.csv", parse_options=_OPTIONS)
            for name in ("Reviews", "Movies")
        )
        with duckdb.connect() as database:
            database.register("Reviews", reviews)
            database.register("Movies", movies)
            gold = {
                name: database.sql(
                    (place / f"queries/{name}.gold.sql").read_text(encoding="utf-8")
                ).to_arrow_table()
                for name in QUERIES
            }
        return cls(reviews, movies, gold, _published(place / "metrics"))

    def texts(self, movie: str | None) -> list[str]:
        """The distinct reviews of a movie, or of all."""
        rows = zip(
            self.reviews["id"].to_pylist(), self.reviews["reviewText"].to_pylist(), strict=True
        )
        return list(dict.fromkeys(text for id_, text in rows if movie in (None, id_)))

    def quality(self, name: str, found: pa.Table) -> tuple[str, float]:
        """(the measure that SemBench has for a query, its value for a result)."""
        gold, rows = (
            self.gold[name],
            list(zip(*(c.to_pylist() for c in found.columns), strict=True)),
        )
        right = list(zip(*(c.to_pylist() for c in gold.columns), strict=True))
        if name in ("Q9", "Q10"):
            return "Spearman", spearman(dict(right), dict(rows))
        if name == "Q8":
            counts = dict(rows)
            off = [abs(counts.get(label, 0) - count) / count for label, count in right]
            return "relative error", sum(off) / len(off)
        if name in ("Q3", "Q4"):
            return "relative error", abs(rows[0][0] - right[0][0]) / right[0][0]
        # A review that is there twice has two rows in a result.
        hits = (Counter(rows) & Counter(right)).total()
        wanted = min(len(right), _LIMITS.get(name, len(right)))
        return "F1", 2 * hits / (len(rows) + wanted)


def spearman(gold: Mapping[Any, float | None], found: Mapping[Any, float | None]) -> float:
    """The rank correlation of two scores over what both have; NaN where one is always the same."""
    both = [
        (gold[key], value)
        for key, value in found.items()
        if value is not None and gold.get(key) is not None
    ]
    first, second = (_ranks(np.array(side, np.float64)) for side in zip(*both, strict=True))
    with np.errstate(invalid="ignore"):
        return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: Floats) -> Floats:
    """The rank of each; equal ones share the mean of theirs."""
    _, number, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[number]
    return ranks


def _published(folder: Path) -> dict[str, list[Published]]:
    """A run of 0 tokens is a failure of the counter."""
    runs: dict[str, list[Published]] = defaultdict(list)
    for system in SYSTEMS:
        for file in sorted(folder.glob(f"{system}.*.json")):
            for name, run in json.loads(file.read_text(encoding="utf-8")).items():
                if run.get("token_usage"):
                    runs[name].append(
                        Published(int(run["token_usage"]), float(run["money_cost"]), system)
                    )
    return {name: sorted(some, key=lambda run: run.tokens) for name, some in runs.items()}


def best_of(runs: Sequence[Published], system: str) -> Published | None:
    """The run of a system with the fewest tokens."""
    return next((run for run in runs if run.system == system), None)
