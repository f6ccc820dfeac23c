"""A Spark session of two threads, tables as in the SQL tests, and a server that answers."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from relquery.spark import SparkConnection, connect
from tests.programs import needed
from tests.spark.stand_in import StandIn, standing_in
from tests.sql.conftest import MACROS, SETUP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
REMOTE = "RELQUERY_TEST_REMOTE"
"""Names the address of Spark Connect, e.g. `local[2]`, if the tests are to use it."""
QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def session(master: str, **settings: str) -> SparkSession:
    """A session whose processes find the tests' modules, too."""
    needed("java")
    from pyspark.sql import SparkSession

    paths = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    remote = os.environ.get(REMOTE)
    if remote:
        os.environ["PYSPARK_PYTHON"] = sys.executable  # read where the server starts
    builder = SparkSession.builder.remote(remote) if remote else SparkSession.builder.master(master)
    builder = builder.appName("relquery")
    for name, value in {**QUIET, **settings}.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.executorEnv.PYTHONPATH", os.pathsep.join(filter(None, paths)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Spark's own
        return builder.getOrCreate()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with duckdb.connect() as database:
        database.execute(SETUP)
        tables = {name: arrow(database, name) for name in ("films", "reviews", "empty")}
    spark = session("local[2]")
    from pyspark.sql.pandas.types import from_arrow_schema

    for name, table in tables.items():
        # Spark Connect makes no frame of a table without rows.
        rows, schema = (table, None) if table.num_rows else ([], from_arrow_schema(table.schema))
        spark.createDataFrame(rows, schema).createOrReplaceTempView(name)
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    """The same tables in plain DuckDB, where calls are macros."""
    with duckdb.connect() as database:
        database.execute(SETUP)
        database.execute(MACROS)
        yield database


@pytest.fixture
def server() -> Iterator[StandIn]:
    with standing_in() as server:
        yield server


@pytest.fixture
def con(spark: SparkSession, server: StandIn) -> Iterator[SparkConnection]:
    with opened(spark, server) as connection:
        yield connection


def opened(spark: SparkSession, server: StandIn, **options: Any) -> SparkConnection:
    """A connection to the server."""
    return connect(spark, "openai:stand-in", base_url=server.url, api_key="none", **options)


def arrow(database: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """The rows of a query or a table."""
    return database.sql(f"FROM {query}").to_arrow_table()
