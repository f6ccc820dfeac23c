"""How far a stage is, while Spark runs its tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str, int, int], None]
"""Called with the stage, the inputs answered so far, and how many there are."""

_EVERY = 0.5  # seconds


@contextmanager
def following(
    spark: SparkSession, progress: Progress | None, name: str, total: int
) -> Iterator[None]:
    """A block whose jobs answer `total` inputs of a stage, in tasks of about equal size.

    What ends the block early cancels its jobs.
    """
    context, group, over = spark.sparkContext, uuid4().hex, threading.Event()
    tracker = context.statusTracker()

    def look() -> None:
        told = -1
        while not over.wait(_EVERY):
            share = 0.0
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                last = None if info is None else tracker.getStageInfo(max(info.stageIds))
                if last is not None:
                    share = max(share, last.numCompletedTasks / max(1, last.numTasks))
            done = int(total * share)
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
