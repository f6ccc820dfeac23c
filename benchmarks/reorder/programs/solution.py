"""A program of the ADRS leaderboard on tables: python -m benchmarks.reorder.programs.solution FILE

FILE has, as JSON: the path of the program, tables (a CSV file each, and the columns to merge), and
where the results go: for each table the seconds of `Solution.solve`, and the rows before and after
it as texts, values joined without anything between, as the leaderboard's evaluator joins them.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd

SETTINGS: dict[str, Any] = {
    "early_stop": 100_000,
    "row_stop": 4,
    "col_stop": 2,
    "one_way_dep": [],
    "distinct_value_threshold": 0.7,
    "parallel": True,
}
"""Those of the evaluator."""


def load(path: Path) -> Any:
    """The class `Solution` of a program, which may import what stands beside it."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("solution", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Solution


def joined(frame: pd.DataFrame) -> list[str]:
    """The rows as texts."""
    cells = zip(frame.to_numpy(object), frame.isna().to_numpy(), strict=True)
    return [
        "".join("" if missing else str(value) for value, missing in zip(*row, strict=True))
        for row in cells
    ]


def main(path: Path) -> None:
    """Run the program on all tables."""
    job = json.loads(path.read_text(encoding="utf-8"))
    solution, results = load(Path(job["program"])), []
    for table in job["tables"]:
        frame = pd.read_csv(table["file"], low_memory=False)
        given = joined(frame)
        began = time.perf_counter()
        result = solution().solve(frame, col_merge=table["merged"], **SETTINGS)
        seconds = time.perf_counter() - began
        results.append({"seconds": seconds, "given": given, "rows": joined(result)})
    Path(job["results"]).write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
