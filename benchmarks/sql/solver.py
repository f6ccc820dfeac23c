"""How long the solver takes."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow.csv as pa_csv

from benchmarks.harness import Figure, Say, Settings
from benchmarks.parts import Part
from benchmarks.templates import template
from relquery.reordering.encode import encode
from relquery.reordering.reorder import reorder

WORDS = template("sql")

FILE = "beer/beer.csv"
DEPENDENCIES = [("beer/beerId", "beer/name")]


class Solver(Part):
    """The part."""

    name = "solver"
    title = "The solver"

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        path = settings.data / FILE
        if not path.exists():
            yield Figure("ggr_beer_seconds", None, 1.0, False, f"{path} is absent")
            return
        table = pa_csv.read_csv(path)
        columns = encode(table)
        reorder(columns, "ggr", DEPENDENCIES)  # compiles
        report = reorder(columns, "ggr", DEPENDENCIES).report
        note = f"{table.num_rows:,} rows x {table.num_columns} columns, PHR {report.phr:.1%}"
        yield Figure("ggr_beer_seconds", report.seconds, 1.0, False, note, any_size=True)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("solver")
