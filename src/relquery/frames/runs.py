"""What makes a frame run: its SQL, its explanation, and its rows in the form of a library."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from relquery.connection import Connection
from relquery.errors import MissingExtraError, TableError, UnknownColumnError
from relquery.frames.compile import compile_frame
from relquery.frames.data import Source, give_back, with_dtypes, with_index
from relquery.frames.expressions import THE_FRAME
from relquery.frames.nodes import Choose, Limit, Node, all_columns, keeps_rows, origin
from relquery.frames.recall import blocked, described, with_recall
from relquery.progress.watch import Checked
from relquery.sql.exchange.python import for_polars
from relquery.sql.names import quoted
from relquery.sql.result import Result
from relquery.sql.temp_tables import Place

T = TypeVar("T")


class _Stopped(Exception):  # noqa: N818
    """Ends a query whose task was cancelled."""


@dataclass(slots=True)
class _Run:
    """A run in another thread.

    place: in the line for the connection. is_in: whether it has its turn, so that it may be
    interrupted. lock: held while these change, so that no other run is interrupted.
    """

    connection: Connection
    place: Place
    is_in: bool = False
    is_stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, function: Callable[..., T], options: Mapping[str, Any]) -> T:
        given = dict(options)
        if function.__name__ != "explain":
            given["progress"] = Checked(self._tell, given.get("progress", self.connection.progress))
        self.place.wait()
        self._begin()
        try:
            return function(**given)
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
    connection: Connection, function: Callable[..., T], options: Mapping[str, Any]
) -> T:
    """What a function gives, computed in another thread.

    If the task is cancelled, the query ends at the next answer, or at once if it waits for its
    turn. The connection stays usable, and the ledger has the answers that came.
    """
    run = _Run(connection, connection.lent.turn.ask())
    own = ThreadPoolExecutor(1)  # those of the loop may all wait for a frame that has none
    context = contextvars.copy_context()
    work = asyncio.get_running_loop().run_in_executor(own, context.run, run, function, options)
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


if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa

    from relquery.sql.explain.explanation import SqlExplanation


_Read = Callable[[Sequence[str] | None, int | None], "polars.DataFrame"]
"""Gives some columns of the first rows; None for all of them."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Runs:
    """A pipeline and where its rows come from.

    Options of what runs it are those of `Connection.sql`. Each such method has an async form:
    `collect` and `acollect`.
    """

    node: Node
    source: Source

    @property
    def connection(self) -> Connection:
        """The connection that runs it."""
        return self.source.connection

    @property
    def columns(self) -> list[str]:
        """Names of the columns of the result."""
        return list(self.node.columns)

    def sql(self) -> str:
        """The frame as one statement, for `Connection.sql`. It works as long as the frame lives."""
        return compile_frame(self.node, self.connection.tables())

    def explain(self, **options: Any) -> SqlExplanation:
        """What the frame would ask; see `Connection.explain`.

        Joins with blocking count the pairs that are near, and say what else is asked.
        """
        with self._in_its_words():
            explanation = self.connection.explain(self.sql(), **options)
        notes = [described(node) for node in blocked(self.node)]
        return replace(explanation, warnings=(*explanation.warnings, *notes))

    def result(self, **options: Any) -> Result:
        """The rows with the errors of single rows and the report.

        A frame with blocking gives a `FrameResult`, which tells the recall.
        """
        return self._ran(self.sql(), options)

    def _ran(self, sql: str, options: dict[str, Any]) -> Result:
        with self._in_its_words():
            result = self.connection.sql(sql, **options)
            return with_recall(result, self.node, self.connection, options)

    @contextmanager
    def _in_its_words(self) -> Iterator[None]:
        """A block whose errors list no column that the user has not made."""
        try:
            yield
        except UnknownColumnError as error:
            own = all_columns(self.node)
            columns = [name for name in error.columns if name in own]
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
        if self.source.library != "pandas":
            result = self.result(**options)
            return give_back(result, self.source), result
        numbered = keeps_rows(self.node)
        sql = compile_frame(self.node, self.connection.tables(), numbered=numbered)
        result, numbers = self._ran(sql, options), None
        if numbered:
            *_, numbers = result.table.columns
            result = replace(result, table=result.table.select(self.columns))
        frame = with_dtypes(result.df(), self._dtypes())
        return frame if numbers is None else with_index(frame, numbers, self.source), result

    def _dtypes(self) -> dict[str, Any]:
        """Of pandas, for columns that the verbs leave as they are."""
        found = {name: origin(self.node, name) for name in self.columns}
        return {
            name: one[0].dtypes[one[1]]
            for name, one in found.items()
            if one is not None and one[1] in one[0].dtypes
        }

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
            node = self.node if rows is None else Limit(self.node, rows)
            if columns is not None:
                node = Choose(node, tuple((name, name) for name in columns))
            return replace(self, node=node).result(**options).pl()

        with self._in_its_words():
            return _scan(self.sql(), self.connection, read)

    async def aexplain(self, **options: Any) -> SqlExplanation:
        """The async form of `explain`."""
        return await apart(self.connection, self.explain, options)

    async def aresult(self, **options: Any) -> Result:
        """The async form of `result`."""
        return await apart(self.connection, self.result, options)

    async def acollect(self, **options: Any) -> Any:
        """The async form of `collect`; awaiting the frame itself is the same."""
        return await apart(self.connection, self.collect, options)

    async def acollected(self, **options: Any) -> tuple[Any, Result]:
        """The async form of `collected`."""
        return await apart(self.connection, self.collected, options)

    async def aarrow(self, **options: Any) -> pa.Table:
        """The async form of `arrow`."""
        return await apart(self.connection, self.arrow, options)

    async def adf(self, **options: Any) -> pandas.DataFrame:
        """The async form of `df`."""
        return await apart(self.connection, self.df, options)

    async def apl(self, **options: Any) -> polars.DataFrame:
        """The async form of `pl`."""
        return await apart(self.connection, self.pl, options)

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
