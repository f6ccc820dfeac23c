"""What is planned for Spark, and what tasks compute, without a session."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest
import sqlglot

from relquery import errors
from relquery.errors import QueryError, UnsupportedQueryError
from relquery.spark.asks import Local
from relquery.spark.dialect import Hoisted, to_spark
from relquery.spark.shadow import _of_task
from relquery.sql import names as ours
from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.host.catalog import ListedFunction
from relquery.sql.names import DECIMAL
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Select
from tests.cases import values

AGGREGATES = ("avg", "count", "count_star", "list", "quantile_cont", "string_agg", "sum")
FUNCTIONS = FunctionCatalog(
    {name: [ListedFunction(name, "aggregate", False, True, False, (), None)] for name in AGGREGATES}
)
SETUP = """
    CREATE TABLE _rq_rows AS
    SELECT i % 3 AS _rq_a, 'x' || (i * 7 % 5) AS _rq_b, i * 1.5 AS _rq_c FROM range(20) r(i);
    CREATE TABLE t AS SELECT _rq_a AS a, _rq_b AS b, _rq_c AS c FROM _rq_rows;
"""
COMPUTED = values(__file__, "computed.txt")
ORDERED = [
    "SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, c DESC LIMIT 2",
    "SELECT DISTINCT ON (a, b) b AS x, c FROM t ORDER BY a, x, c OFFSET 3",
    "SELECT a, c FROM t QUALIFY rank() OVER (PARTITION BY a ORDER BY c) = 2 ORDER BY c LIMIT 2",
    "WITH w AS (SELECT a, c FROM t WHERE c > 3) SELECT DISTINCT ON (a) a, c FROM w ORDER BY a, c",
    "SELECT count(*) FROM (SELECT DISTINCT ON (b) b FROM t ORDER BY b, c LIMIT 3)",
    "SELECT DISTINCT ON (1) a, c FROM t ORDER BY 1, 2 DESC LIMIT 2",
    "SELECT a FROM (SELECT DISTINCT ON (a) a, c FROM t ORDER BY a, c) "
    "QUALIFY rank() OVER (ORDER BY c) < 3 ORDER BY a DESC LIMIT 1",
]
REFUSED = [
    ("SELECT DISTINCT ON (a) a FROM t QUALIFY rank() OVER (ORDER BY b) > 1", "in a subquery"),
    ("SELECT DISTINCT ON (a) * FROM t", "Name the columns"),
    ("SELECT DISTINCT ON (a) a FROM t ORDER BY ALL", "Name the columns"),
    ("SELECT list(a ORDER BY b) FROM t", "order inside of list"),
    ("SELECT * FROM range(3)", r"Make a view of Spark"),
    (f"SELECT {DECIMAL}('3')", "Cast it where it is asked for"),
]


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as database:
        database.execute(SETUP)
        yield database


@pytest.mark.parametrize(("query", "count"), COMPUTED)
def test_what_rows_have_by_themselves_is_computed_beforehand(
    database: duckdb.DuckDBPyConnection, query: str, count: int
) -> None:
    select = parser().query(query)
    assert isinstance(select, Select)
    hoisted = Hoisted(FUNCTIONS)
    rest = parser().sql(hoisted.select(select))
    assert len(hoisted.columns) == count
    added = [f"{parser().sql(node)} AS {name}" for name, node in hoisted.columns.items()]
    rows = f"(SELECT {', '.join(['*', *added])} FROM _rq_rows) AS _rq_rows"
    found = database.execute(rest.replace("FROM _rq_rows", f"FROM {rows}", 1)).fetchall()
    assert found == database.execute(query).fetchall()


@pytest.mark.parametrize("query", ORDERED)
def test_rows_are_ordered_and_cut_after_they_are_chosen(
    database: duckdb.DuckDBPyConnection, query: str
) -> None:
    (found,) = sqlglot.transpile(to_spark(parser().query(query)), read="spark", write="duckdb")
    assert "DISTINCT ON" not in found
    assert database.execute(found).fetchall() == database.execute(query).fetchall()


@pytest.mark.parametrize(("query", "message"), REFUSED)
def test_what_cannot_be_written_for_spark_is_refused(query: str, message: str) -> None:
    with pytest.raises(UnsupportedQueryError, match=message):
        to_spark(parser().query(query))


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        ("x\nrelquery.errors.ModelError: No route.\n\nat py", errors.ModelError, "No route."),
        ("x\nrelquery.errors.NoSuchError: Odd.", errors.QueryError, "Odd."),
        ("ModuleNotFoundError: No module named 'duckdb'", errors.ConfigError, "has no duckdb"),
        ("Out of disk. SQLSTATE: 5310 and so on", errors.QueryError, "query. Out of disk."),
    ],
)
def test_an_error_of_a_task_is_the_one_that_it_raised(
    said: str, kind: type[errors.RelqueryError], message: str
) -> None:
    found = _of_task(said)
    assert type(found) is kind
    assert message in str(found)
    assert "SQLSTATE" not in str(found)


NUMBERS = pa.schema([("n", pa.int32())])
ROWS = pa.table({"answer": ["12", " 7 ", "0x1F", "nan", None, "```\n5\n```"]})


def _over(sql: str, schema: pa.Schema, zone: str = "UTC") -> pa.Table:
    batches = Local(sql, schema, zone).over(iter(ROWS.to_batches(max_chunksize=2)))
    return pa.Table.from_batches(batches, schema)


def test_answers_are_read_by_the_rule_of_one_machine() -> None:
    number = f"TRY_CAST({ours.DECIMAL}(answer) AS DOUBLE)"
    schema = pa.schema([("number", pa.float64())])
    found = _over(f"SELECT {number} AS number FROM {ours.ROWS}", schema)
    assert found.column(0).to_pylist() == [12.0, 7.0, None, None, None, 5.0]


def test_what_it_gives_has_the_types_that_were_said() -> None:
    schema = pa.schema([("length", pa.int32())])
    assert _over(f"SELECT length(answer) AS length FROM {ours.ROWS}", schema).schema == schema


def test_times_are_written_in_the_zone_of_the_session() -> None:
    sql = f"SELECT CAST(to_timestamp(0) AS VARCHAR) AS text FROM {ours.ROWS} LIMIT 1"
    schema = pa.schema([("text", pa.string())])
    utc, tokyo = (_over(sql, schema, zone).column(0)[0].as_py() for zone in ("UTC", "Asia/Tokyo"))
    assert utc.startswith("1970-01-01 00:00:00")
    assert tokyo.startswith("1970-01-01 09:00:00")


def test_an_error_is_one_of_ours() -> None:
    with pytest.raises(QueryError):
        _over(
            f"SELECT CAST(answer AS INTEGER) AS n FROM {ours.ROWS}", pa.schema([("n", pa.int32())])
        )
