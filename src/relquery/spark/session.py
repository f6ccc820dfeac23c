"""Facts about a session of Spark, whether its driver is in this process or behind Spark Connect.

Spark Connect has no `sparkContext`. What only that has is asked for in another way there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from relquery.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MANY = 10_000  # rows, more than can be asked for at once anywhere


def is_remote(spark: SparkSession) -> bool:
    """Whether it is a session of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def check_session(spark: object) -> None:
    """Raises ConfigError for what is no session, or has ended, and MissingExtraError."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError("Queries over Spark", "spark") from None
    kinds: list[type[Any]] = [SparkSession]
    with suppress(ImportError):  # where Spark Connect is not installed
        from pyspark.sql.connect.session import SparkSession as Remote

        kinds.append(Remote)
    if not isinstance(spark, tuple(kinds)):
        raise ConfigError(
            f"spark is {spark!r:.60}. Give a session: SparkSession.builder.getOrCreate()."
        )
    session: Any = spark
    if session.is_stopped if is_remote(session) else session.sparkContext._jsc is None:
        raise ConfigError("The Spark session has ended. Open a new one, and connect to that.")


def master(spark: SparkSession) -> str:
    """Where Spark runs, e.g. `local[2]`."""
    if is_remote(spark):
        return str(spark.conf.get("spark.master", "") or "")
    return spark.sparkContext.master or ""


def is_local(spark: SparkSession) -> bool:
    """Whether all of its processes are on this machine."""
    return master(spark).startswith("local")


def use_this_python(spark: SparkSession) -> None:
    """Let workers on this machine run the Python that runs this, unless another was chosen."""
    # Without it they run whatever `python3` is on the path, which may lack relquery.
    if is_local(spark) and not is_remote(spark) and "PYSPARK_PYTHON" not in os.environ:
        spark.sparkContext.pythonExec = sys.executable


def parallelism(spark: SparkSession) -> int:
    """How many tasks it runs at once."""
    if not is_remote(spark):
        return spark.sparkContext.defaultParallelism
    from pyspark.sql import functions as F

    parts = spark.range(_MANY).select(F.spark_partition_id().alias("part"))
    return parts.distinct().count()


def tasks_of_executor(spark: SparkSession) -> int:
    """How many tasks an executor runs at once."""
    where = master(spark)
    if where.startswith("local-cluster"):
        return int(where.split(",")[1])
    if where.startswith("local"):
        return parallelism(spark)
    return int(spark.conf.get("spark.executor.cores", None) or 1)


@contextmanager
def jobs(spark: SparkSession, name: str) -> Iterator[None]:
    """A block whose jobs have a name. What ends it early cancels them."""
    group = uuid4().hex
    if is_remote(spark):
        spark.addTag(group)
    else:
        spark.sparkContext.setJobGroup(group, f"relquery: {name}", interruptOnCancel=True)
    try:
        yield
    except BaseException:
        if is_remote(spark):
            spark.interruptTag(group)
        else:
            spark.sparkContext.cancelJobGroup(group)
        raise
    finally:
        if is_remote(spark):
            spark.removeTag(group)
        else:
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
