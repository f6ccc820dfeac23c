"""Keeps the rows of a statement between its stages."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from relquery.spark.paths import to_read, to_write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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

    def written(self, frame: DataFrame) -> DataFrame:
        """The rows of a frame, from files."""
        if self.folder is None:
            return frame
        place = self.folder / uuid4().hex
        frame.write.parquet(to_write(place))
        return frame.sparkSession.read.schema(frame.schema).parquet(to_read(place))

    def held(self, frame: DataFrame) -> DataFrame:
        """A frame whose rows Spark keeps in memory, or on its disks, until `keep`."""
        from pyspark import StorageLevel

        if self.folder is None:
            return frame
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._held.append(kept)
        return kept

    def keep(self, frames: Iterable[DataFrame]) -> None:
        """Let go of everything that some frames do not read."""
        for frame in self._held:
            frame.unpersist()
        self._held.clear()
        if self.folder is None or not self.folder.exists():
            return
        read = {part for frame in frames for file in frame.inputFiles() for part in file.split("/")}
        for place in self.folder.iterdir():
            if place.name not in read:
                shutil.rmtree(place, ignore_errors=True)

    def remove(self) -> None:
        """Let go of everything."""
        self.keep(())
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
