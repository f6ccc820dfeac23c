"""A million rows: the driver's memory, the hits, and a killed executor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import psutil
import pyarrow as pa
from pyarrow import parquet

from benchmarks.harness import Figure, Say, Settings
from benchmarks.parts import Part
from benchmarks.spark.program import COLUMNS, ROOT, Done, Job
from benchmarks.templates import template
from relquery.errors import RelqueryError
from relquery.ledger.folder import SUFFIX, read_lines
from relquery.sql import names as ours
from relquery.sql.binder.call import Task
from relquery.sql.inputs.cells import Cells, Form
from relquery.sql.inputs.inputs import Inputs, Question

WORDS = template("spark")
GIB = 2**30
FULL = (1_000_000, 200_000, 16)
QUICK = (4_000, 800, 4)


@dataclass(slots=True)
class Watched:
    """What the program did. driver: the most memory that the driver's processes held, in bytes.

    jvm: Spark's part of it. killed: answers that were in the ledger when an executor was killed.
    twice: answers that are in the ledger twice.
    """

    done: Done
    driver: int
    jvm: int
    killed: int
    twice: int


@dataclass(slots=True)
class Million(Part):
    """The part. whole: the share that is hit if all inputs are ordered together."""

    name = "million"
    title = "A million rows"
    job: Job | None = None
    watched: Watched | None = None
    whole: float = 0.0
    solving: float = 0.0

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        rows, inputs, partitions = QUICK if settings.quick else FULL
        with tempfile.TemporaryDirectory() as folder:
            ledger, table = f"{folder}/ledger", f"{folder}/reviews"
            self.job = job = Job(rows, inputs, partitions, ledger, table)
            self.watched = watched = _watched(job, say)
            self.whole, self.solving = _whole(Path(table))
        done = watched.done
        gap = 100 * (self.whole - done.phr)
        yield Figure(
            "the driver's memory, GiB",
            watched.driver / GIB,
            1.0,
            at_least=False,
            note=f"{watched.jvm / GIB:.2f} of it Spark's own",
        )
        yield Figure(
            "prefix hits below one machine's order, points",
            gap,
            3.0,
            at_least=False,
            note=f"{done.phr:.1%} in {partitions} partitions, {self.whole:.1%} in one",
        )
        yield Figure(
            "answers that had arrived and were asked again",
            watched.twice,
            0,
            at_least=False,
            note=f"an executor killed after {watched.killed:,} of {inputs:,} answers",
            any_size=True,
        )
        yield Figure(
            "rows answered", done.answered, rows, note=f"{done.errors} errors", any_size=True
        )
        yield Figure("seconds", done.seconds, None, note=f"{done.calls:,} calls, 2 executors")

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        del drawn
        if self.job is None or self.watched is None:
            return
        done = self.watched.done
        yield WORDS.block(
            "million",
            rows=self.job.rows,
            inputs=self.job.inputs,
            partitions=self.job.partitions,
            solving=self.solving,
            cached=done.cached_tokens / max(1, done.prompt_tokens),
        )


def _watched(job: Job, say: Say) -> Watched:
    """Run the program; kill one of its executors when half of the answers have come."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-m", "benchmarks.spark.program", json.dumps(asdict(job))]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=env
    )
    driver = jvm = killed = 0
    told = perf_counter()
    while child.poll() is None:
        own, of_spark, executors = _processes(child.pid)
        driver, jvm = max(driver, own + of_spark), max(jvm, of_spark)
        kept = 0 if killed else _kept(Path(job.ledger))
        if perf_counter() - told > 30:
            say(f"{kept:,} answers, the driver holds {driver / GIB:.2f} GiB")
            told = perf_counter()
        if not killed and kept > job.inputs // 2 and executors:
            os.kill(executors[0], signal.SIGKILL)
            killed = kept
            say(f"killed an executor after {kept:,} answers")
        time.sleep(0.2)
    out, err = child.communicate()
    if child.returncode:
        raise RelqueryError(f"The program ended. It printed:\n{err[-3000:]}")
    keys: set[bytes] = set()
    total = 0
    for path in Path(job.ledger).glob(f"*{SUFFIX}"):
        total += path.read_bytes().count(b"\n")
        keys.update(read_lines(path)[0])
    done = Done(**json.loads(out.strip().splitlines()[-1]))
    return Watched(done, driver, jvm, killed, total - len(keys))


def _processes(pid: int) -> tuple[int, int, list[int]]:
    """(bytes of the driver's Python, bytes of its Spark, ids of the executors)."""
    own = of_spark = 0
    executors: list[int] = []
    with suppress(psutil.Error):
        parent = psutil.Process(pid)
        own = parent.memory_info().rss
        for process in parent.children(recursive=True):
            with suppress(psutil.Error):  # it has just ended
                command = " ".join(process.cmdline())
                if "CoarseGrainedExecutorBackend" in command:
                    executors.append(process.pid)
                elif "SparkSubmit" in command:
                    of_spark += process.memory_info().rss
    return own, of_spark, executors


def _kept(ledger: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in ledger.glob(f"*{SUFFIX}"))


def _whole(table: Path) -> tuple[float, float]:
    """(hits, seconds) if one machine orders all distinct inputs."""
    rows = parquet.read_table(table, columns=list(COLUMNS))
    distinct = rows.group_by(list(COLUMNS)).aggregate([])
    names, every = tuple(COLUMNS), np.arange(distinct.num_rows)
    texts = distinct.select(names).rename_columns(
        [ours.field(index) for index in range(len(names))]
    )
    form: Form = "string"
    cells = Cells(names, (form,) * len(names), every, lambda places: texts.take(pa.array(places)))
    inputs = Inputs.of(Question("all", Task(("Is it good?",)), distinct.num_rows, cells))
    began = perf_counter()
    schedule = inputs.schedule(every, "tree")
    assert schedule is not None
    return float(schedule.report.phr), perf_counter() - began
