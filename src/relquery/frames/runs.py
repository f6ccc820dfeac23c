"""Runs of frames: the SQL, the explanation, and rows in the form of a library."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from relquery.connection import Connection
from relquery.errors import MissingExtraError, TableError, UnknownColumnError
from relquery.frames.data import KEEPS_TYPES, Library, in_form, with_column
from relquery.frames.expressions import THE_FRAME
from relquery.frames.recall import described, with_recall
from relquery.frames.relation import Relation
from relquery.progress.watch import Checked
from relquery.sql.exchange.python import for_polars
from relquery.sql.names import quoted
from relquery.sql.result import Result
from relquery.sql.temp_tables import Place

T = TypeVar("T")


class _Stopped(Exception):  # noqa: N818
    """The end of a query whose task was cancelled."""


@dataclass(slots=True)
class _Run:
    """A run in another thread."""

    connection: Connection
    place: Place
    """In the line for the connection."""
    is_in: bool = False
    """Whether it has its turn, so that it may be interrupted."""
    is_stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while these change, so that no other run is interrupted."""

    def __call__(self, method: Callable[..., T], frame: Runs, options: Mapping[str, Any]) -> T:
        given = dict(options)
        if method.__name__ != "explain":
            given["progress"] = Checked(self._tell, given.get("progress", self.connection.progress))
        self.place.wait()
        self._begin()
        try:
            return method(frame, **given)
        except KeyboardInterrupt:  # DuckDB was interrupted
            self._check()
            raise
        finally:
            self._end()

    def stop(self) -> bool:
        """End the query as soon as an answer arrives, or at once if DuckDB works.

        One that waits leaves the line. Gives whether it had begun.
        """
        with self.lock:
            self.is_stopped = True
            if self.is_in:
                self.connection.database.connection.interrupt()
            elif self._waits:
                self.connection.lent.turn.leave(self.place)
            return self.is_in

    @property
    def _waits(self) -> bool:
        return self.place in self.connection.lent.turn.line

    def _begin(self) -> None:
        with self.lock:
            self._check()
            self.is_in = True

    def _end(self) -> None:
        with self.lock:
            self.is_in = False
            self.connection.lent.turn.leave(self.place)

    def _tell(self, stage: str, done: int, total: int) -> None:
        self._check()

    def _check(self) -> None:
        if self.is_stopped:
            raise _Stopped


async def apart(
    connection: Connection, method: Callable[..., T], frame: Runs, options: Mapping[str, Any]
) -> T:
    """What a method of a frame gives, computed in another thread.

    If the task is cancelled, the query ends at the next answer, or at once if it waits for its
    turn. The connection stays usable, and the ledger has the answers that came.
    """
    run = _Run(connection, connection.lent.turn.ask())
    own = ThreadPoolExecutor(1)  # those of the loop may all wait for a frame that has none
    context = contextvars.copy_context()
    work = asyncio.get_running_loop().run_in_executor(own, context.run, run, method, frame, options)
    own.shutdown(wait=False)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if run.stop():
            await asyncio.wait([work])
            work.exception()  # it was asked to end
        else:
            work.cancel()
        raise


def _async(run: Callable[..., T]) -> Callable[..., Coroutine[Any, Any, T]]:
    """The async form of a method of a frame."""

    async def later(frame: Runs, **options: Any) -> T:
        return await apart(frame.connection, run, frame, options)

    later.__name__, later.__doc__ = f"a{run.__name__}", f"The async form of `{run.__name__}`."
    return later


if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa

    from relquery.sql.explain.explanation import SqlExplanation


_Read = Callable[[Sequence[str] | None, int | None], "polars.DataFrame"]
"""Gives some columns of the first rows; None for all of them."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Runs:
    """A pipeline over the tables of a connection.

    Options of what runs it are those of `Connection.sql`. Each such method has an async form:
    `collect` and `acollect`.
    """

    relation: Relation
    connection: Connection
    library: Library
    """The form in which `collect` gives the rows."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns of the result."""
        return list(self.relation.columns)

    def sql(self) -> str:
        """The frame as one statement, for `Connection.sql`. It works as long as the frame lives."""
        return self.relation.sql(self.connection.tables())

    def explain(self, **options: Any) -> SqlExplanation:
        """What the frame would ask; see `Connection.explain`.

        Joins with blocking count the pairs that are near, and say what else is asked.
        """
        with self._in_its_words():
            explanation = self.connection.explain(self.sql(), **options)
        notes = [described(join.blocking) for join in self.relation.blocked]
        return replace(explanation, warnings=(*explanation.warnings, *notes))

    def result(self, **options: Any) -> Result:
        """The rows with the errors of single rows and the report.

        A frame with blocking gives a `FrameResult`, which tells the recall.
        """
        return self._ran(self.sql(), options)

    def _ran(self, sql: str, options: dict[str, Any]) -> Result:
        with self._in_its_words():
            result = self.connection.sql(sql, **options)
            return with_recall(result, self.relation.blocked, self.connection, options)

    @contextmanager
    def _in_its_words(self) -> Iterator[None]:
        """A block whose errors list no column that the user has not made."""
        try:
            yield
        except UnknownColumnError as error:
            columns = [name for name in error.columns if name in self.relation.known]
            raise UnknownColumnError(
                error.column, THE_FRAME, columns, complete=error.complete
            ) from error

    def collect(self, **options: Any) -> Any:
        """The rows in the library that the input came from.

        pandas, polars, Arrow, lists of dicts and dicts of columns give the same; a LazyFrame gives
        a polars frame, as its own collect does (see `pl` for a LazyFrame); a relation of DuckDB
        gives a relation; a file or a table of the connection give a `Result`. Rows of a pandas
        frame keep their index, unless a verb makes new rows of them.
        """
        return self.collected(**options)[0]

    def collected(self, **options: Any) -> tuple[Any, Result]:
        """The rows as `collect` gives them, and the result with its report and errors."""
        is_numbered = self.library in KEEPS_TYPES
        sql = self.relation.sql(self.connection.tables(), is_numbered=is_numbered)
        result = self._ran(sql, options)
        rows = give_back(result, self.relation, self.library)
        shown = result.table.select(range(len(self.columns)))
        return rows, replace(result, table=shown)

    def arrow(self, **options: Any) -> pa.Table:
        """The rows as an Arrow table."""
        return self.result(**options).arrow()

    def df(self, **options: Any) -> pandas.DataFrame:
        """The rows as a pandas frame, without an index of the input."""
        return self.result(**options).df()

    @overload
    def pl(self, *, lazy: Literal[False] = False, **options: Any) -> polars.DataFrame: ...

    @overload
    def pl(self, *, lazy: Literal[True], **options: Any) -> polars.LazyFrame: ...

    def pl(self, *, lazy: bool = False, **options: Any) -> polars.DataFrame | polars.LazyFrame:
        """The rows as a polars frame; with `lazy` as a LazyFrame, which makes no call before its
        own `collect`, and then only those for the rows and columns that it reads.
        """
        if not lazy:
            return self.result(**options).pl()

        def read(columns: Sequence[str] | None, rows: int | None) -> polars.DataFrame:
            relation = self.relation if rows is None else self.relation.limit(rows)
            if columns is not None:
                relation = relation.choose([(name, name) for name in columns])
            return replace(self, relation=relation).result(**options).pl()

        with self._in_its_words():
            return _scan(self.sql(), self.connection, read)

    aexplain = _async(explain)
    aresult = _async(result)
    acollect = _async(collect)
    acollected = _async(collected)
    aarrow = _async(arrow)
    adf = _async(df)
    apl = _async(pl)

    def __await__(self) -> Generator[Any, None, Any]:
        return self.acollect().__await__()

    def __repr__(self) -> str:
        return f"<relquery frame of {', '.join(self.columns)}>"


def _scan(sql: str, connection: Connection, read: _Read) -> polars.LazyFrame:
    """A LazyFrame with the columns of a query, whose rows are read when it is collected.

    Reading only some columns or the first rows asks only what these need. Raises QueryError.
    """
    try:
        from polars.io.plugins import register_io_source
    except ImportError as error:
        raise MissingExtraError("pl(lazy=True)", "polars") from error
    empty = _empty(sql, connection)

    def rows(
        columns: list[str] | None, condition: polars.Expr | None, limit: int | None, _: int | None
    ) -> Iterator[polars.DataFrame]:
        read_by = [] if condition is None else condition.meta.root_names()
        needed = [name for name in empty.columns if name in {*(columns or ()), *read_by}]
        frame = _checked(read(needed if columns is not None and needed else None, limit), empty)
        frame = frame if condition is None else frame.filter(condition)
        yield frame if columns is None else frame.select(columns)

    return register_io_source(rows, schema=empty.schema)


def _empty(sql: str, connection: Connection) -> polars.DataFrame:
    """The result of a query without its rows. Makes no call."""
    import polars

    described = connection.sql(f"DESCRIBE {sql}").fetchall()
    nulls = ", ".join(f"CAST(NULL AS {kind}) AS {quoted(name)}" for name, kind, *_ in described)
    table = connection.database.result(f"SELECT {nulls} LIMIT 0")
    frame = polars.from_arrow(for_polars(table, table.column_names))
    assert isinstance(frame, polars.DataFrame)
    return frame


def _checked(frame: polars.DataFrame, empty: polars.DataFrame) -> polars.DataFrame:
    """The same. Raises TableError for values that made a column text, as polars has none of them.

    A LazyFrame has to know its types before its rows.
    """
    for name, kind in frame.schema.items():
        if kind != empty.schema[name]:
            raise TableError(
                f"Column '{name}' has values that polars cannot hold as {empty.schema[name]}. "
                "Write f.pl(), where they are text."
            )
    return frame


def give_back(result: Result, relation: Relation, library: Library) -> Any:
    """The rows in the form of a library; columns that no verb has changed are those of the data.

    result: with the numbers of rows of the relation's sources as its last columns, or without.
    """
    width = len(relation.columns)
    table, numbers = result.table.select(range(width)), result.table.columns[width:]
    shown = in_form(replace(result, table=table), library)
    for name, (place, column) in relation.untouched.items() if numbers else ():
        if relation.sources[place].library == library:
            values = relation.sources[place].column(column, numbers[place])
            shown = with_column(shown, relation.columns.index(name), values)
    if library == "pandas" and relation.keeps_rows:
        shown.index = relation.sources[0].data.index.take(numbers[0].to_numpy())
    return shown
