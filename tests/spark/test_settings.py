"""Settings of a Spark session change no row; what cannot be is said."""

from __future__ import annotations

import datetime
import os
import shutil
import socket
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relquery.errors import ConfigError, QueryError, UnsupportedQueryError
from relquery.spark import SparkConnection
from relquery.spark.shadow import _zone
from relquery.spark.store import RUNS
from tests.spark.conftest import opened
from tests.spark.stand_in import StandIn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning")
TIMES = """SELECT 1 AS id, TIMESTAMP '2021-07-01 12:00:00.123456' AS moment,
    DATE '0001-01-01' AS day,
    TIMESTAMP '1500-01-01 00:00:00.000001' AS old"""


@contextmanager
def setting(spark: SparkSession, **values: str) -> Iterator[None]:
    """A block in which a session has other settings, by the last words of their names."""
    names = {
        "escapedStringLiterals": "spark.sql.parser.escapedStringLiterals",
        "outputTimestampType": "spark.sql.parquet.outputTimestampType",
        "datetimeRebaseModeInWrite": "spark.sql.parquet.datetimeRebaseModeInWrite",
        "int96RebaseModeInWrite": "spark.sql.parquet.int96RebaseModeInWrite",
        "timeZone": "spark.sql.session.timeZone",
        "caseSensitive": "spark.sql.caseSensitive",
    }
    before = {names[name]: spark.conf.get(names[name], None) for name in values}
    for name, value in values.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Spark Connect's own, of names that are deprecated
            spark.conf.set(names[name], value)
    try:
        yield
        assert {name: spark.conf.get(names[name]) for name in values} == values
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, was in before.items():
                spark.conf.unset(name) if was is None else spark.conf.set(name, was)


@pytest.mark.long
def test_times_keep_all_digits_however_files_are_written(
    spark: SparkSession, con: SparkConnection
) -> None:
    spark.sql(TIMES).createOrReplaceTempView("times")
    expected = spark.sql("SELECT moment, day, old FROM times").collect()
    with setting(
        spark,
        outputTimestampType="TIMESTAMP_MILLIS",
        datetimeRebaseModeInWrite="EXCEPTION",
        int96RebaseModeInWrite="EXCEPTION",
    ):
        frame = con.sql("SELECT moment, day, old, LLM('up', moment) AS u FROM times")
        (row,) = frame.collect()
    assert row[:3] == expected[0][:3]
    assert row[0] == datetime.datetime(2021, 7, 1, 12, 0, 0, 123456)
    assert row[3].startswith("2021-07-01 12:00:00.123456")


def test_an_offset_is_a_time_zone(spark: SparkSession, con: SparkConnection) -> None:
    with setting(spark, timeZone="+02:00"):
        spark.sql("SELECT TIMESTAMP '2021-07-01 12:00:00' AS moment").createOrReplaceTempView(
            "noon"
        )
        ((said,),) = con.sql("SELECT LLM('up', moment) FROM noon").collect()
    assert said == "2021-07-01 12:00:00+02"
    with (
        setting(spark, timeZone="+05:17"),
        pytest.raises(ConfigError, match="Set it to a name such as"),
    ):
        con.sql("SELECT LLM('up', moment) FROM noon")


def test_time_zones_have_the_names_of_duckdb() -> None:
    names = ["+02:00", "-11", "GMT+2", "UTC+00:00", "Z", "+05:30", "Asia/Kathmandu"]
    zones = ["Etc/GMT-2", "Etc/GMT+11", "Etc/GMT-2", "UTC", "UTC", "+05:30", "Asia/Kathmandu"]
    assert [_zone(name) for name in names] == zones


def test_texts_read_without_escapes_and_columns_that_differ_in_case_alone_are_refused(
    spark: SparkSession, con: SparkConnection, server: StandIn
) -> None:
    with (
        setting(spark, escapedStringLiterals="true"),
        pytest.raises(ConfigError, match="escapedStringLiterals is true"),
    ):
        con.sql("SELECT LLM('up', title) FROM films")
    with setting(spark, caseSensitive="true"):
        spark.sql("SELECT 1 AS a, 2 AS A").createOrReplaceTempView("cased")
        with pytest.raises(UnsupportedQueryError, match="differ only in case"):
            con.sql("SELECT LLM('up', A) FROM cased")
    assert not server.asked


def test_rows_that_cannot_be_read_are_an_error_of_the_query(
    spark: SparkSession, con: SparkConnection, tmp_path: Path
) -> None:
    place = tmp_path / "gone"
    spark.range(3).write.parquet(f"file:{place}")
    spark.read.parquet(f"file:{place}").createOrReplaceTempView("gone")
    shutil.rmtree(place)
    with pytest.raises(QueryError, match="could not run the query") as raised:
        con.sql("SELECT LLM('up', id) FROM gone")
    assert len(str(raised.value)) < 700


@pytest.mark.parametrize("ledger", ["s3a://b/answers", "hdfs:///answers", "dbfs:/answers"])
def test_a_ledger_in_a_store_is_refused_and_makes_no_folder(
    ledger: str,
    spark: SparkSession,
    server: StandIn,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"is in a store .* mount it"):
        opened(spark, server, ledger=ledger)
    assert not list(tmp_path.iterdir())


def test_rows_that_a_killed_program_has_left_are_removed(
    spark: SparkSession, server: StandIn, tmp_path: Path
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    here = socket.gethostname()
    left = tmp_path / RUNS / f"{here}-{ended.pid}-abc"
    others = [
        tmp_path / RUNS / f"{here}-{os.getpid()}-abc",
        tmp_path / RUNS / f"another-{here}-{ended.pid}-abc",
    ]
    for place in (left, *others):
        (place / "rows").mkdir(parents=True)
    opened(spark, server, ledger=tmp_path).close()
    assert not left.exists()
    assert all(place.exists() for place in others)
