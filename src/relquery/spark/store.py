"""Keeps the rows of a statement between its stages."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from relquery.ledger.claims import is_running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUNS = "runs"
"""The folder inside the ledger with the rows of statements, one folder for each statement."""

_OF_PATTERNS = re.compile(r"[\\*?\[\]{}]")
_EXACT = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
}
"""Settings under which Parquet files hold exactly what was written."""


@dataclass(slots=True)
class Store:
    """Rows and answers in a folder that all machines see.

    Rows that a stage has answered are written there, and the next one reads them. So its plan
    begins with a file: a plan that contains those of all stages before it, several times each,
    doubles with every call. Rows that are computed again after an executor was lost are the same
    rows, with the same numbers. folder: None to write nothing, where plans are only checked.
    """

    folder: Path | None
    _held: list[DataFrame] = field(default_factory=list)
    _kept: list[DataFrame] = field(default_factory=list)

    @classmethod
    def under(cls, ledger: Path) -> Store:
        """A new store inside the ledger's folder, named after this process."""
        return cls(ledger / RUNS / f"{_host()}-{os.getpid()}-{uuid4().hex}")

    def written(self, frame: DataFrame) -> DataFrame:
        """Write a frame's rows to files now; returns a frame that reads them."""
        if self.folder is None:
            return frame
        place = self.folder / uuid4().hex
        with _exactly(frame.sparkSession):
            frame.write.parquet(to_write(place))
        return frame.sparkSession.read.schema(frame.schema).parquet(to_read(place))

    def held(self, frame: DataFrame) -> DataFrame:
        """Let Spark keep a frame's rows in memory, or on its disks, until `tidy`."""
        from pyspark import StorageLevel

        if self.folder is None:
            return frame
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._held.append(kept)
        return kept

    def keep(self, frame: DataFrame) -> DataFrame:
        """Keep a frame's files when `tidy` removes the rest; returns the frame."""
        # Each frame is named, since Spark's list of a result's files lacks those of subqueries.
        self._kept.append(frame)
        return frame

    def tidy(self) -> None:
        """Remove the rows that no kept frame reads, from memory and from disk."""
        for frame in self._held:
            frame.unpersist()
        self._held.clear()
        if self.folder is None or not self.folder.exists():
            return
        read: set[str] = set()
        for frame in self._kept:  # planned anew, since nothing is held in memory now
            read.update(part for file in frame.select("*").inputFiles() for part in file.split("/"))
        for place in self.folder.iterdir():
            if place.name not in read:
                shutil.rmtree(place, ignore_errors=True)
        self._kept.clear()  # their files are all that is left

    def remove(self) -> None:
        """Remove all rows and answers."""
        self._kept.clear()
        self.tidy()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def remove_left(ledger: Path) -> None:
    """Remove rows left in a ledger's folder by programs that were killed on this machine."""
    with suppress(OSError):
        for place in (ledger / RUNS).iterdir():
            host, _, rest = place.name.rpartition("-")[0].rpartition("-")
            if host == _host() and rest.isdigit() and not is_running(int(rest)):
                shutil.rmtree(place, ignore_errors=True)


def _host() -> str:
    return socket.gethostname()


@contextmanager
def _exactly(spark: SparkSession) -> Iterator[None]:
    """Apply the settings in _EXACT inside the block."""
    before = {name: spark.conf.get(name, None) for name in _EXACT}
    for name, value in _EXACT.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)


def to_write(path: Path) -> str:
    """A path on this machine's disks, or on what is mounted there, as Spark writes it.

    Spark's paths are no URIs: it decodes no percent signs.
    """
    return f"file:{path}"


def to_read(path: Path, pattern: str = "") -> str:
    """The same, which Spark reads as a pattern. pattern: of files in the folder."""
    escaped = _OF_PATTERNS.sub(r"\\\g<0>", str(path))
    return f"file:{escaped}/{pattern}" if pattern else f"file:{escaped}"
