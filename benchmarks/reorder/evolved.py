"""Programs of the ADRS leaderboard's problem LLM-SQL, and relquery, on the same tables.

The leaderboard (github.com/UCB-ADRS/ADRS-Leaderboard) has programs that models have evolved
to reorder tables. They are read from the folder `adrs` of --peers, as `NAME/solution.py` with what
stands beside it, and each runs in a process of its own. The evaluator counts characters of rows
whose values are joined without anything between, and does not look whether these are the table's
rows; some programs lose or repeat text. So a row counts as missed here if no row of the table has
its characters, and the score as the evaluator has it is shown beside.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from benchmarks.harness import Say, Settings
from benchmarks.peers.environments import DEFAULT, environment
from benchmarks.reorder.hits import hit_rate
from benchmarks.reorder.tables import SCORES, TABLES, read_all

FOLDER = "adrs"
OURS = "relquery"
MERGED = {
    "movies": [["movieinfo", "movietitle", "rottentomatoeslink"]],
    "beer": [["beer/beerId", "beer/name"]],
    "posts": [],
    "pdmx": [["path", "metadata"]],
}
"""By table, the columns that the evaluator lets programs merge, where they determine each other."""
_PACKAGES = ("pandas==2.2.3", "networkx")
"""The pandas that the programs were evolved with; with 3 some of them fail."""
_MOST_SECONDS = 12.0
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Evolved:
    """What a program reaches. hits: by table, of rows that are the table's. seconds: by table."""

    name: str
    hits: dict[str, float]
    seconds: dict[str, float]
    published: float
    """The score as the evaluator has it, which takes any rows."""

    @property
    def score(self) -> float:
        """The published score, of rows that are the table's."""
        return score([*self.hits.values()], [*self.seconds.values()])


def score(hits: Sequence[float], seconds: Sequence[float]) -> float:
    """The rule of the benchmark in OpenEvolve's examples."""
    mean = min(_MOST_SECONDS, sum(seconds) / len(seconds))
    return 0.95 * sum(hits) / len(hits) + 0.05 * (_MOST_SECONDS - mean) / _MOST_SECONDS


def measure(settings: Settings, rows: int | None, say: Say) -> Iterator[Evolved]:
    """relquery, and each program. rows: of each table; None for all."""
    folder = (settings.peers or DEFAULT) / FOLDER
    programs = sorted(folder.glob("*/solution.py"))
    if not programs:
        say(f"{folder} has no programs NAME/solution.py; see benchmarks/reorder/evolved.py")
        return
    tables = {
        table.name: found.slice(0, rows)
        for table in (*TABLES, SCORES)
        if table.name in MERGED and (found := read_all(table, settings.data)) is not None
    }
    python = environment(folder / "environment", "the evolved programs", _PACKAGES, say)
    ours = _ROOT / "benchmarks/reorder/programs/ours.py"
    yield _measure(OURS, Path(sys.executable), ours, tables)
    for program in programs:
        try:
            yield _measure(program.parent.name, python, program, tables)
        except subprocess.CalledProcessError as error:
            say(f"{program} failed: {error.stderr.strip().splitlines()[-1:]}")


def _measure(name: str, python: Path, program: Path, tables: dict[str, pa.Table]) -> Evolved:
    with TemporaryDirectory() as scratch:
        folder, listed = Path(scratch), []
        for table, rows in tables.items():
            pa_csv.write_csv(rows, folder / f"{table}.csv")
            listed.append({"file": str(folder / f"{table}.csv"), "merged": MERGED[table]})
        results = folder / "results.json"
        job = {"program": str(program.absolute()), "tables": listed, "results": str(results)}
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        command = [str(python), "-m", "benchmarks.reorder.programs.solution"]
        subprocess.run(
            [*command, str(folder / "job.json")],
            check=True,
            capture_output=True,
            text=True,
            cwd=_ROOT,
        )
        told: list[dict[str, Any]] = json.loads(results.read_text(encoding="utf-8"))
    seconds = {table: each["seconds"] for table, each in zip(tables, told, strict=True)}
    hits = {
        table: kept_hits(each["rows"], each["given"])
        for table, each in zip(tables, told, strict=True)
    }
    published = score([hit_rate(each["rows"]) for each in told], [*seconds.values()])
    return Evolved(name, hits, seconds, published)


def kept_hits(rows: Sequence[str], given: Sequence[str]) -> float:
    """The hit rate over a table's text, of rows that have the characters of one of its rows.

    rows: as a program gives them. given: as the table has them.
    """
    left = Counter("".join(sorted(text)) for text in given)
    kept = []
    for text in rows:
        same = "".join(sorted(text))
        if left[same]:
            left[same] -= 1
            kept.append(text)
    total = sum(map(len, given))
    return hit_rate(kept) * sum(map(len, kept)) / total if total else 0.0
