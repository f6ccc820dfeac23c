"""Queries over tables that outgrow one machine: planned here, run by Spark.

from relquery.spark import connect
con = connect(spark, "http://gpu-box:8000/v1", ledger="/shared/answers")
con.sql("SELECT id, LLM('Summarize.', review) AS s FROM reviews")   # a DataFrame of Spark
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relquery.spark.connection import SparkConnection, connect

__all__ = ["SparkConnection", "connect"]


def __getattr__(name: str) -> Any:
    """Imported when asked for: executors need only what tasks run."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from relquery.spark import connection

    return getattr(connection, name)
