"""A database without rows in which a statement over Spark's tables is planned.

DuckDB checks and plans the statement over empty tables that have the names and the types of
Spark's. What has rows is in Spark alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from sqlglot import exp

from relquery.errors import ConfigError, QueryError, SqlSyntaxError, UnsupportedQueryError
from relquery.spark.tasks.types import plain
from relquery.sql import names as ours
from relquery.sql.answers import readings
from relquery.sql.host.database import Database
from relquery.sql.read import check as stub
from relquery.sql.read.source import read_source
from relquery.sql.read.tokens import UnbalancedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_EMPTY = f"{ours.PREFIX}empty"


@dataclass(frozen=True, slots=True)
class Shadow:
    """spark: whose tables. database: which has them without rows. zone: the session's time zone."""

    spark: SparkSession
    database: Database
    zone: str
    _views: list[str] = field(default_factory=list)

    @classmethod
    @contextmanager
    def open(cls, spark: SparkSession) -> Iterator[Shadow]:
        """An empty one, for one statement."""
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
            stub.install(database)
            readings.install(database)
            shadow = cls(spark, database, zone)
            try:
                yield shadow
            finally:
                for name in shadow._views:  # what has read them needs them no more
                    spark.catalog.dropTempView(name)

    def mirror(self, sql: str) -> None:
        """Make the tables that a statement names, as far as Spark has them.

        Raises UnsupportedQueryError for a column of a type that DuckDB does not have.
        """
        try:
            tree = read_source(sql).parse()
        except (SqlSyntaxError, UnbalancedError):  # what is wrong is said when it is read
            return
        entries = {entry.alias.lower() for entry in tree.find_all(exp.CTE)}
        for table in tree.find_all(exp.Table):
            path = [part.name for part in table.parts if isinstance(part, exp.Identifier)]
            if not path or (len(path) == 1 and path[0].lower() in entries):
                continue
            name = ".".join(f"`{part.replace('`', '``')}`" for part in path)
            if self.spark.catalog.tableExists(name):
                self._make(path, self.spark.table(name).schema)

    def _make(self, path: list[str], schema: StructType) -> None:
        if len(path) == 3:
            self.database.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {_quoted(path[0])}")
        if len(path) > 1:
            self.database.execute(f"CREATE SCHEMA IF NOT EXISTS {_path(path[:-1])}")
        empty = self.arrow(schema, ".".join(path)).empty_table()
        self.database.register(_EMPTY, empty)
        self.database.execute(f"CREATE OR REPLACE TABLE {_path(path)} AS FROM {_EMPTY}")
        self.database.unregister(_EMPTY)

    def arrow(self, schema: StructType, of: str = "the query") -> pa.Schema:
        """A schema of Spark as Arrow has it. of: whose, for the error.

        Raises UnsupportedQueryError for a type that DuckDB does not have.
        """
        from pyspark.sql.pandas.types import to_arrow_type
        from pyspark.sql.types import VariantType

        fields = []
        names: dict[str, str] = {}
        for one in schema.fields:
            kind = one.dataType
            like = names.setdefault(one.name.lower(), one.name)
            if like != one.name:
                raise UnsupportedQueryError(
                    f"The columns {like!r} and {one.name!r} of {of} differ only in case, which a "
                    "query with LLM calls does not tell apart. Make a view with other names."
                )
            try:
                if isinstance(kind, VariantType):
                    raise TypeError
                fields.append((one.name, to_arrow_type(kind, timezone=self.zone)))
            except Exception:
                raise UnsupportedQueryError(
                    f"The column {one.name!r} of {of} is of Spark's type "
                    f"{kind.simpleString()}, which a query with LLM calls cannot read. Make a "
                    "view without it, or one that casts it to a string."
                ) from None
        return pa.schema(fields)

    def schema_of(self, sql: str, rows: pa.Schema) -> pa.Schema:
        """What a query over ours.ROWS gives, in types that Spark has, without running it.

        rows: the schema of ours.ROWS. Raises QueryError.
        """
        self.database.register(ours.ROWS, rows.empty_table())
        try:
            found = self.database.fetch(sql).schema
        finally:
            self.database.unregister(ours.ROWS)
        return pa.schema([(field.name, plain(field.type)) for field in found])

    def types_of(self, items: str, rows: pa.Schema) -> list[str]:
        """The types of some items over ours.ROWS, as DuckDB names them. Raises QueryError."""
        self.database.register(ours.ROWS, rows.empty_table())
        try:
            found = self.database.describe(f"SELECT {items} FROM {ours.ROWS}")
        finally:
            self.database.unregister(ours.ROWS)
        return [kind for _, kind in found]

    def publish(self, frame: DataFrame) -> str:
        """Make a frame a view of Spark, and a table without rows here, for this statement.

        Returns its name.
        """
        name = f"{ours.PREFIX}frame_{uuid4().hex}"
        frame.createOrReplaceTempView(name)
        self._views.append(name)
        self._make([name], frame.schema)
        return name


_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])0?(\d{1,2})(?::?00)?(?::?00)?|Z")


def _zone(name: str) -> str:
    """DuckDB's name for a time zone of Spark, e.g. Etc/GMT-2 for `+02:00`."""
    found = _OFFSET.fullmatch(name)
    if found is None:
        return name
    if found[1] is None or found[2] == "0":
        return "UTC"
    return f"Etc/GMT{'-' if found[1] == '+' else '+'}{found[2]}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _path(names: list[str]) -> str:
    return ".".join(map(_quoted, names))
