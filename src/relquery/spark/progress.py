"""How far a stage is, while Spark runs its tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from relquery.ledger.folder import SUFFIX
from relquery.progress.watch import Advance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY = 0.5  # seconds


@dataclass(slots=True)
class Answered:
    """Counts the answers that the tasks of a run have stored, by the lines of their files."""

    folder: Path
    run: str
    count: int = 0
    _read: dict[Path, int] = field(default_factory=dict)

    def __call__(self) -> int:
        for path in self.folder.glob(f"{self.run}-*{SUFFIX}"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                more = file.read()
                self._read[path] = file.tell()
            self.count += more.count(b"\n")
        return self.count


@contextmanager
def following(
    spark: SparkSession,
    progress: Advance | None,
    name: str,
    total: int,
    answered: Callable[[], int],
) -> Iterator[None]:
    """A block whose jobs answer `total` inputs of a stage. What ends it early cancels them.

    Answers that no ledger keeps, since they would differ each time, are told of at the end.
    """
    context, group, over = spark.sparkContext, uuid4().hex, threading.Event()

    def look() -> None:
        told = 0
        while not over.wait(_EVERY):
            done = answered()  # twice, where two attempts of a task have asked
            if progress is not None and told < done < total:
                progress(name, done, total)
                told = done

    context.setJobGroup(group, f"relquery: {name}", interruptOnCancel=True)
    watcher = threading.Thread(target=look, daemon=True)
    if progress is not None:
        progress(name, 0, total)
        watcher.start()
    try:
        yield
    except BaseException:
        context.cancelJobGroup(group)
        raise
    finally:
        over.set()
        if watcher.is_alive():
            watcher.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    if progress is not None:
        progress(name, total, total)
