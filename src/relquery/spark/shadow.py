"""A database without rows in which a statement over Spark's tables is planned.

DuckDB checks and plans the statement over empty tables that have the names and the types of
Spark's. What has rows is in Spark alone.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from relquery import errors
from relquery.errors import ConfigError, QueryError, RelqueryError, UnsupportedQueryError
from relquery.spark.asks import plain
from relquery.spark.dialect import to_spark
from relquery.spark.session import is_remote
from relquery.sql import names as ours
from relquery.sql.binder.arguments import VALUE
from relquery.sql.binder.definitions import read
from relquery.sql.binder.sources import entry_of
from relquery.sql.host.database import Database
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.shell import read_shell
from relquery.sql.parser.tree import Expression, Parameter, Query, Table

_OF_TASK = re.compile(r"^relquery\.errors\.(\w+): (.*)", re.MULTILINE | re.DOTALL)
_MISSING = re.compile(
    r"^ModuleNotFoundError: No module named '(relquery|pyarrow|duckdb)'", re.MULTILINE
)
_STATE = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)


@contextmanager
def translated() -> Iterator[None]:
    """A block in which errors that Spark raises become errors of relquery.

    Spark's client logs each with a page of what its own code was doing; ours say what it was.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, PySparkException

    log = logging.getLogger("SQLQueryContextLogger")
    was, log.disabled = log.disabled, True
    try:
        yield
    except AnalysisException as error:  # and ParseException
        said = _STATE.sub("", str(error)).strip()
        if ours.PREFIX in said:  # about what we have written, which no user knows
            said = f"{(error.getCondition() or 'it fails').replace('_', ' ').lower()}."
        raise UnsupportedQueryError(
            f"Spark cannot run a part of the query: {said} Compute that part in a subquery, or in "
            "a view of Spark."
        ) from error
    except PySparkException as error:
        raise _of_task(str(error)) from error
    except Py4JJavaError as error:
        said = str(error.java_exception.getMessage() or error.java_exception)
        raise _of_task(said) from error
    finally:
        log.disabled = was


def _of_task(text: str) -> RelqueryError:
    """What a task has raised, by what Spark says of it."""
    missing = _MISSING.search(text)
    if missing is not None:
        return ConfigError(
            f"The Python of Spark's workers has no {missing[1]}. Install relquery[spark] there, or "
            "set PYSPARK_PYTHON to a Python that has it before the session starts."
        )
    match = _OF_TASK.search(text)
    if match is None:
        return QueryError(f"Spark could not run the query. {_STATE.sub('', text).strip()[-500:]}")
    kind = getattr(errors, match[1], QueryError)
    message = match[2].split("\n\n")[0].strip()
    try:
        return kind(message) if issubclass(kind, RelqueryError) else QueryError(message)
    except TypeError:  # it takes more than a message
        return RelqueryError(message)


if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_EMPTY = f"{ours.PREFIX}empty"
_SCRATCH = re.compile(rf"\b{ours.PREFIX}table_\d+\b")


@dataclass(frozen=True, slots=True)
class Shadow:
    """spark: whose tables. database: which has them without rows. zone: the session's time zone.

    tables: Spark's views with the rows of the plan's scratch tables, by the names of these.
    """

    spark: SparkSession
    database: Database
    zone: str
    tables: dict[str, str] = field(default_factory=dict)
    _views: list[str] = field(default_factory=list)

    @classmethod
    @contextmanager
    def open(cls, spark: SparkSession, views: list[str]) -> Iterator[Shadow]:
        """An empty one, for one statement.

        views: gets the names of views that its frames read after that, to be dropped later. Spark
        Connect looks them up whenever a frame is read.
        """
        with closing(Database.open()) as database:
            zone = _zone(str(spark.conf.get("spark.sql.session.timeZone")))
            database.execute("SET threads = 1")
            try:
                database.execute(f"SET TimeZone = '{zone}'")
            except QueryError:
                raise ConfigError(
                    f"spark.sql.session.timeZone is {zone!r}, which DuckDB does not know. Set it "
                    "to a name such as UTC, Europe/Berlin or Etc/GMT-2."
                ) from None
            shadow = cls(spark, database, zone)
            try:
                yield shadow
            finally:
                if is_remote(spark):
                    views += shadow._views
                for name in () if is_remote(spark) else shadow._views:  # all that reads them has
                    spark.catalog.dropTempView(name)

    def mirror(self, sql: str) -> None:
        """Make the tables that a statement names, as far as Spark has them.

        Raises UnsupportedQueryError for a column of a type that DuckDB does not have.
        """
        try:
            tree = read(read_shell(sql), {})
        except QueryError:  # what is wrong is said when it is read
            return
        tables = (table for table in tree.find_all(Table) if entry_of(table) is None)
        for path in dict.fromkeys(table.path for table in tables):
            name = ".".join(f"`{part.replace('`', '``')}`" for part in path)
            if not self.spark.catalog.tableExists(name):
                continue
            if len(path) == 3:
                self.database.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {_path(path[:1])}")
            if len(path) > 1:
                self.database.execute(f"CREATE SCHEMA IF NOT EXISTS {_path(path[:-1])}")
            schema = self.arrow(self.spark.table(name).schema, ".".join(path))
            with self._empty(_EMPTY, schema):
                self.database.execute(f"CREATE OR REPLACE TABLE {_path(path)} AS FROM {_EMPTY}")

    def arrow(self, schema: StructType, of: str = "the query") -> pa.Schema:
        """A schema of Spark as Arrow has it. of: whose, for the error.

        Raises UnsupportedQueryError for a type that DuckDB does not have.
        """
        from pyspark.sql.pandas.types import to_arrow_type
        from pyspark.sql.types import VariantType

        fields = []
        names: dict[str, str] = {}
        for column in schema.fields:
            kind = column.dataType
            like = names.setdefault(column.name.lower(), column.name)
            if like != column.name:
                raise UnsupportedQueryError(
                    f"The columns {like!r} and {column.name!r} of {of} differ only in case, which "
                    "a query with LLM calls does not tell apart. Make a view with other names."
                )
            try:
                if isinstance(kind, VariantType):
                    raise TypeError
                fields.append((column.name, to_arrow_type(kind, timezone=self.zone)))
            except Exception:
                raise UnsupportedQueryError(
                    f"The column {column.name!r} of {of} is of Spark's type "
                    f"{kind.simpleString()}, which a query with LLM calls cannot read. Make a "
                    "view without it, or one that casts it to a string."
                ) from None
        return pa.schema(fields)

    def schema_of(self, sql: str, rows: pa.Schema) -> pa.Schema:
        """What a query over ours.ROWS gives, in types that Spark has, without running it.

        rows: the schema of ours.ROWS. Raises QueryError.
        """
        with self._empty(ours.ROWS, rows):
            schema = self.database.fetch(sql).schema
        return pa.schema([(field.name, plain(field.type)) for field in schema])

    def types_of(self, items: str, rows: pa.Schema) -> list[str]:
        """The types of some items over ours.ROWS, as DuckDB names them. Raises QueryError."""
        with self._empty(ours.ROWS, rows):
            types = self.database.columns(f"SELECT {items} FROM {ours.ROWS}")
        return [kind for _, kind in types]

    @contextmanager
    def _empty(self, name: str, schema: pa.Schema) -> Iterator[None]:
        self.database.register(name, schema.empty_table())
        try:
            yield
        finally:
            self.database.unregister(name)

    def with_values(self, query: Query) -> Query:
        """A copy of a query with literals in place of its parameters, whose values are bound."""
        copy = query.copy()
        for parameter in list(copy.find_all(Parameter)):
            value = self._literal(parameter)
            value.meta.update(parameter.meta)
            parameter.replace(value.named(parameter.alias))
        return copy

    def _literal(self, parameter: Parameter) -> Expression:
        value, name = parameter.meta[VALUE], f"${parameter.name}"
        if value is None or type(value) is int:
            return build.null() if value is None else build.number(value)
        if isinstance(value, bytes | bytearray | memoryview):
            raise UnsupportedQueryError(
                f"The parameter {name} has bytes, which is not supported over Spark. Give their "
                "hexadecimal digits, and write unhex(...)."
            )
        table = self.database.fetch(f"SELECT typeof({name}), CAST({name} AS VARCHAR)")
        kind, text = (column[0].as_py() for column in table.columns)
        return build.cast(build.text(text), parser().type(kind))

    def run(self, query: Query) -> DataFrame:
        """What Spark gives for a query. Raises UnsupportedQueryError."""
        sql = _SCRATCH.sub(lambda one: self.tables.get(one[0], one[0]), to_spark(query))
        return self.spark.sql(sql)

    def publish(self, frame: DataFrame) -> str:
        """Make a frame a view of Spark for this statement. Returns its name."""
        name = f"{ours.PREFIX}frame_{uuid4().hex}"
        frame.createOrReplaceTempView(name)
        self._views.append(name)
        return name


_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])0?(\d{1,2})(?::?00)?(?::?00)?|Z")


def _zone(name: str) -> str:
    """DuckDB's name for a time zone of Spark, e.g. Etc/GMT-2 for `+02:00`."""
    match = _OFFSET.fullmatch(name)
    if match is None:
        return name
    if match[1] is None or match[2] == "0":
        return "UTC"
    return f"Etc/GMT{'-' if match[1] == '+' else '+'}{match[2]}"


def _path(names: tuple[str, ...]) -> str:
    return ".".join(map(ours.quoted, names))
