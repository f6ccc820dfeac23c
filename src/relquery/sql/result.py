"""The result of a query: its rows, the errors of single rows, and what it cost, added up while it
runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

import pyarrow as pa

from relquery.errors import (
    ConfigError,
    LateQueryError,
    MissingExtraError,
    OrderWarning,
    PartialResultWarning,
    QueryError,
    warn,
)
from relquery.prompt import Finish
from relquery.report import Report, StageReport
from relquery.sql.exchange.arrow import distinct_names
from relquery.sql.exchange.python import (
    for_csv,
    for_parquet,
    for_polars,
    to_plain,
    to_rows,
    to_series,
)
from relquery.sql.page import page
from relquery.sql.record import Recording
from relquery.sql.render import (
    Reasons,
    aligned,
    printable,
    result_html,
    result_table,
    rounded,
    terminal_width,
    view_of,
)
from relquery.unicode import valid

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

OUTER = "outer query"
"""The stage name of row errors found by an outer SELECT, around the one with the call."""

_SHOWN_ROWS = 10
_HERE = {
    **dict.fromkeys(("to_df", "fetchdf", "fetch_df"), "result.df()"),
    **dict.fromkeys(
        ("to_arrow_table", "fetch_arrow_table", "fetch_record_batch"), "result.arrow()"
    ),
    **dict.fromkeys(("description", "names"), "result.columns"),
    **dict.fromkeys(("types", "dtypes"), "result.arrow().schema.types"),
    **dict.fromkeys(
        ("aggregate", "distinct", "filter", "join", "limit", "order", "project", "query", "union"),
        "con.sql('SELECT ... FROM result'), where `result` is the variable",
    ),
    "create": "con.sql('CREATE TABLE t AS FROM result'), where `result` is the variable",
    "fetchnumpy": "result.df().to_numpy()",
    "shape": "len(result) and len(result.columns)",
    "to_csv": "result.write_csv(path)",
    "to_parquet": "result.write_parquet(path)",
}
"""What stands in place of methods of DuckDB's relations."""


@dataclass(frozen=True, slots=True)
class RowError:
    """A missing LLM value."""

    stage: str
    """The stage that asked, as in the report."""
    row: int
    """The row's number, from 0, in the input of the SELECT's first stage: the rows that its FROM
    gives and that pass all conditions of its WHERE without LLM calls. Later stages keep this
    number. It is not a row of the result."""
    inputs: Mapping[str, str | None]
    """The row's fields by name. If an outer SELECT reads the answer, the stage is "outer query",
    the row is a row of the outer SELECT's input, and there are no inputs."""
    error: str
    """Why there is no value."""
    text: str | None
    """What the model answered, if anything."""
    finish: Finish
    attempts: int
    """How often it was asked."""
    statement: int | None = None
    """The number of the statement, from 1, if the query has several."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Result:
    """The rows of a query."""

    table: pa.Table
    errors: tuple[RowError, ...]
    """One entry per row and call without a value."""
    report: Report
    reasons: Reasons = field(default_factory=dict)
    """Why a cell is NULL for an error, by (row, column) of this result, from 0. Only where each row
    of the result is a row of the table, not for groups or DISTINCT."""
    query: str = ""
    """The query's text."""
    recording: Recording | None = None
    """What was sent, if `Connection.sql` was told to record it."""
    unread: list[Iterator[tuple[Any, ...]]] = field(default_factory=list, init=False)
    """Rows that `fetchone` and `fetchmany` have not given yet."""

    @property
    def columns(self) -> list[str]:
        """Names as DuckDB gives them; a name may repeat."""
        return list(self.table.column_names)

    def arrow(self) -> pa.Table:
        """As an Arrow table."""
        return self.table

    def df(self) -> pd.DataFrame:
        """As a pandas DataFrame."""
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingExtraError("Result.df()", "pandas") from error
        # By position, as names may repeat.
        data = {index: to_series(*pair) for index, pair in enumerate(self._columns())}
        frame = pd.DataFrame(data)
        frame.columns = pd.Index(self.columns)
        return frame

    @overload
    def pl(self, *, lazy: Literal[False] = False) -> pl.DataFrame: ...

    @overload
    def pl(self, *, lazy: Literal[True]) -> pl.LazyFrame: ...

    def pl(self, *, lazy: bool = False) -> pl.DataFrame | pl.LazyFrame:
        """As a polars DataFrame, or as a LazyFrame; repeated names get a suffix, as polars requires
        unique names.
        """
        try:
            import polars as pl
        except ImportError as error:
            raise MissingExtraError("Result.pl()", "polars") from error
        frame = pl.from_arrow(for_polars(self.table, distinct_names(self.columns)))
        assert isinstance(frame, pl.DataFrame)
        return frame.lazy() if lazy else frame

    def fetchall(self) -> list[tuple[Any, ...]]:
        """As Python tuples, with values as DuckDB's client gives them."""
        return to_rows(self.table)

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, as in `fetchall`; None after the last."""
        return next(self._next_rows(), None)

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """The next rows, as in `fetchall`."""
        return list(islice(self._next_rows(), size))

    def _next_rows(self) -> Iterator[tuple[Any, ...]]:
        if not self.unread:
            self.unread.append(iter(self))
        return self.unread[0]

    def plain(self, rows: int | None = None) -> list[tuple[Any, ...]]:
        """The first rows, or all, with values for tables and JSON.

        Other than in `fetchall`, intervals keep their months, UUIDs are text, and tuples dicts.
        """
        columns = self.head(rows)._columns()
        return list(zip(*(to_plain(*pair) for pair in columns), strict=True))

    def write_html(self, path: str | Path) -> None:
        """Write a page about the run: the query, its stages, the first rows, and, if `sql` was
        given record=True, what was reused of each prompt. One file, which needs nothing else.

        Raises ConfigError if the file cannot be written.
        """
        shown = self.plain(_SHOWN_ROWS)
        view = result_table(self.columns, self.table.schema.types, shown, self.reasons)
        text = page(self.query, view, self._size_in_words(), self.report, self.recording)
        try:
            Path(path).write_text(valid(text), encoding="utf-8")
        except OSError as error:
            if not (folder := Path(path).parent).is_dir():
                reason = f"the folder {folder} does not exist. Create it first."
            else:
                reason = f"{error.strerror}. Give another file name."
            raise ConfigError(f"The page {path} cannot be written: {reason}") from error

    def _columns(self) -> Iterator[tuple[pa.ChunkedArray, pa.Field]]:
        return zip(self.table.columns, self.table.schema, strict=True)

    def show(self, max_rows: int = _SHOWN_ROWS) -> None:
        """Print the first rows."""
        print(self._shown(max_rows))

    def write_csv(self, path: str | Path, *, sep: str = ",", header: bool = True) -> None:
        """Write all rows to a CSV file. header: with a line of names."""
        import pyarrow.csv as pa_csv

        options = pa_csv.WriteOptions(include_header=header, delimiter=sep)
        pa_csv.write_csv(for_csv(self.table, distinct_names(self.columns)), path, options)

    def write_parquet(self, path: str | Path) -> None:
        """Write all rows to a Parquet file."""
        import pyarrow.parquet as pq

        pq.write_table(for_parquet(self.table, distinct_names(self.columns)), path)

    def head(self, rows: int | None = 5) -> Result:
        """The first rows, or all, with the errors and report of the whole result."""
        return replace(self, table=self.table.slice(0, rows))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getattr__(self, name: str) -> NoReturn:
        remedy = f" Write {_HERE[name]}." if name in _HERE else ""
        raise AttributeError(f"A result has no {name!r}.{remedy}", name=name, obj=self)

    def __repr__(self) -> str:
        return self._shown(_SHOWN_ROWS)

    def _shown(self, rows: int) -> str:
        if (view := view_of(self.table, "text")) is not None:
            return view
        shown = self.plain(rows)
        cells = [
            ["NULL" if value is None else printable(str(rounded(value))) for value in row]
            for row in (self.columns, *shown)
        ]
        lines = aligned(cells, terminal_width())
        return "\n".join([*lines, f"[{self._size_in_words(rows)}]", *self.report.notes])

    def _repr_html_(self) -> str:
        """For notebooks."""
        if (html := view_of(self.table, "html")) is not None:
            return html
        shown = self.plain(_SHOWN_ROWS)
        view = result_table(self.columns, self.table.schema.types, shown, self.reasons)
        costs = [self.report.summary, *self.report.notes]
        return result_html(view, self._size_in_words(), self.errors, costs)

    def _size_in_words(self, shown: int = _SHOWN_ROWS) -> str:
        missing = f", {missing_values(len(self.errors))} missing" if self.errors else ""
        more = "" if len(self) <= shown else f", first {shown} shown"
        rows_in_words = "1 row" if len(self) == 1 else f"{len(self)} rows"
        return f"{rows_in_words}{more}{missing}"


def missing_values(count: int) -> str:
    """`1 LLM value is`, `2 LLM values are`."""
    return "1 LLM value is" if count == 1 else f"{count} LLM values are"


@dataclass(slots=True)
class CostAccumulator:
    """The cost of a query's statements so far."""

    stages: dict[str, StageReport] = field(default_factory=dict)
    """Stages by name, in the order in which they begin."""
    errors: list[RowError] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    """How many stages there were of each kind."""
    kept: bool = True
    """Whether the ledger has all answers."""
    reasons: Reasons = field(default_factory=dict)
    """Why cells of the last result are empty."""

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Turn a QueryError into a LateQueryError if calls have already been made."""
        try:
            yield
        except QueryError as error:
            calls = sum(stage.calls for stage in self.stages.values())
            if not calls:
                raise
            raise LateQueryError(str(error), calls, kept=self.kept) from error

    def report(self, seconds: float) -> Report:
        """What the stages have cost, and how many of their answers are not valid values."""
        failed = Counter((error.statement, error.stage) for error in self.errors)
        stages = tuple(
            replace(stage, errors=failed[stage.statement, stage.name])
            for stage in self.stages.values()
        )
        return Report(stages, seconds)


def finished(table: pa.Table, paid: CostAccumulator, seconds: float) -> Result:
    """The result of a query that has run. Issues the warnings about it."""
    result = Result(table, tuple(paid.errors), paid.report(seconds), paid.reasons)
    if errors := result.errors:
        which = "In" if len(errors) == 1 else "The first, in"
        warn(
            f"{missing_values(len(errors))} missing and NULL in the result; see result.errors. "
            f"{which} {errors[0].stage}: {errors[0].error}",
            PartialResultWarning,
        )
    for stage in result.report.stages:
        if stage.is_pinned and stage.agreement is not None and stage.compared:
            changed = round((1 - stage.agreement) * stage.compared)
            warn(
                f"{stage.name}: {changed} of {stage.compared} answers changed with the order of "
                "the fields, so all fields were sent as written. Prompts then share less. A larger "
                "model, labels or a clearer prompt may help.",
                OrderWarning,
            )
    return result
