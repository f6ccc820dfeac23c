"""LLM queries over the tables of a Spark session."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from relquery.backends.load import answering_of, default_form, is_served, load
from relquery.config import DEFAULT_FORM, Nulls, Order, PromptForm, QueryConfig
from relquery.errors import (
    ConfigError,
    PartialResultWarning,
    PromptWarning,
    QueryError,
    UnknownTableError,
    UnsupportedQueryError,
    did_you_mean,
    unknown,
    warn,
)
from relquery.progress.watch import Progress, check_progress, watching
from relquery.prompt import Sampling
from relquery.report import Report
from relquery.spark.calls import SparkSettings
from relquery.spark.record import ERRORS, Record
from relquery.spark.selects import run
from relquery.spark.session import check_session, is_local, tasks_of_executor, use_this_python
from relquery.spark.shadow import Shadow, translated
from relquery.spark.store import Store, remove_left
from relquery.sql import names as ours
from relquery.sql.binder.statement import Calling, Plain, read_statement
from relquery.sql.executor.dry_run import dry_run
from relquery.sql.host.database import Scratch
from relquery.sql.parser.parameters import read_parameters
from relquery.sql.parser.parse import parser
from relquery.sql.parser.statements import split
from relquery.sql.parser.tree import Show
from relquery.sql.planner.statement import StatementPlan, plan
from relquery.sql.query import naming
from relquery.sql.result import missing_values
from relquery.sql.run import named_in, ready
from relquery.sql.settings import read_sampling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CONCURRENCY = 64


def connect(
    spark: SparkSession,
    source: str | None = None,
    /,
    *,
    model: str | None = None,
    ledger: str | Path | None = None,
    order: Order = "tree",
    on_error: Literal["null", "raise"] = "null",
    form: PromptForm | None = None,
    nulls: Nulls = "skip",
    concurrency: int = _CONCURRENCY,
    partitions: int | None = None,
    progress: Progress = None,
    clock: Callable[[], float] = time.perf_counter,
    **options: Any,
) -> SparkConnection:
    """Let queries over the tables of a Spark session call a model.

    source, model: as for relquery.connect, by name: each executor opens it. That is a server's
        address or "openai:NAME" as a rule; every process loads a model of the embedded engine.
    ledger: a folder that all machines see, where answers are stored as they come, so that no
        lost executor and no later query asks them again. None for a temporary one, where Spark
        runs on this machine alone.
    order, on_error, form, nulls: see QueryConfig. form: None for the default of such a model.
    concurrency: requests that an executor has open at once.
    partitions: how many parts to make of the inputs of a call; each is ordered by itself. None
        for four times as many as Spark runs at once.
    progress: as for relquery.connect; a function is called with (stage, inputs answered so far,
        all inputs).
    options: of the model, as for relquery.connect.

    Raises ConfigError, ModelError and MissingExtraError.
    """
    check_session(spark)
    if not isinstance(ledger, str | Path | None):
        raise ConfigError(f"ledger is {ledger!r:.60}; it must be the path of a folder.")
    check_progress(progress)
    use_this_python(spark)
    answering, options = answering_of(source, model, options)
    if not isinstance(answering, str):
        raise ConfigError(f"model is {answering!r:.60}. Give its name: every executor opens it.")
    for name, value in (("concurrency", concurrency), ("partitions", partitions)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ConfigError(f"{name} is {value!r}; it must be an integer of at least 1.")
    config = QueryConfig(order, on_error, form=form or DEFAULT_FORM, nulls=nulls)
    per_task = max(1, concurrency // tasks_of_executor(spark))
    if is_served(answering):
        _check_options(options)
        options = {"max_concurrency": per_task, **_of_driver(answering), **options}
    with closing(load(answering, **options)) as opened:  # what is wrong with it is said here
        opened.check(Sampling())
        if form is None:
            config = replace(config, form=default_form(opened.name))
    folder, is_temporary = _folder(spark, ledger)
    settings = SparkSettings(
        spark,
        answering,
        tuple(sorted(options.items())),
        config,
        folder,
        per_task,
        partitions,
    )
    return SparkConnection(settings, clock, is_temporary, progress)


@dataclass(slots=True, eq=False, repr=False)
class SparkConnection:
    """A Spark session whose queries can call a model. Made by `connect`."""

    settings: SparkSettings
    clock: Callable[[], float]
    is_temporary: bool
    progress: Progress = None
    is_closed: bool = False
    _report: Report | None = None
    _errors: list[DataFrame] = field(default_factory=list)
    _open: list[Store] = field(default_factory=list)
    _views: list[str] = field(default_factory=list)

    def sql(
        self,
        query: str,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        **sampling: Any,
    ) -> DataFrame:
        """Run a query, which may call LLM, AI_FILTER and the like, in DuckDB's SQL.

        Its calls are answered when this returns; the rows are a DataFrame that Spark computes when
        they are read. See `report` and `errors`. params, sampling: as for Connection.sql.

        Raises QueryError, before the first call if the query is wrong, and RequestError if
        on_error is "raise".
        """
        defaults = read_sampling(sampling, SparkConnection.sql)
        if not isinstance(query, str):
            raise QueryError(f"query is {query!r:.60}; it must be a string of SQL.")
        if self.is_closed:
            raise QueryError(
                "The connection is closed. Open a new one with relquery.spark.connect(...)."
            )
        check_session(self.settings.spark)
        _check_parser(self.settings.spark)
        began = self.clock()
        record = Record(self.clock, self.settings.config.order)
        self._report, self._errors = None, []
        with (
            translated(),
            Shadow.open(self.settings.spark, self._views) as shadow,
            shadow.database.held(),
        ):
            (text, *others) = split(query, shadow.database)
            if others:
                raise UnsupportedQueryError(
                    f"The text has {len(others) + 1} statements; over Spark, run one at a time."
                )
            shadow.mirror(text.query)
            parameters = read_parameters(params, [text], shadow.database)
            with _of_spark(self.settings.spark), naming(text, shadow.database):
                read = read_statement(text, shadow.database.kept, parameters)
                if isinstance(read, Calling):
                    frame = self._run(read, shadow, record, defaults)
                elif isinstance(read, Plain):
                    frame = self._plain(read, shadow)
                else:
                    raise UnsupportedQueryError(
                        "Over Spark a view or macro cannot contain calls. Write them in the query."
                    )
        self._report, self._errors = record.report(self.clock() - began), record.errors()
        missing = sum(stage.errors for stage in self._report.stages)
        if missing:
            warn(
                f"{missing_values(missing)} missing and NULL in the result; see con.errors.",
                PartialResultWarning,
            )
        return frame

    def _run(
        self, calling: Calling, shadow: Shadow, record: Record, defaults: Sampling
    ) -> DataFrame:
        database = shadow.database
        if calling.text.option is not None:
            raise UnsupportedQueryError(
                "EXPLAIN is not supported over Spark yet. Explain the query on one machine, over a "
                "sample of the rows: relquery.connect(...).sql('EXPLAIN ...')."
            )
        kind = "DESCRIBE" if calling.tree.find(Show) else calling.shell.kind
        if kind != "QUERY":
            raise UnsupportedQueryError(
                f"Over Spark a statement with LLM calls must be a query, not {kind}. Write the "
                "DataFrame: con.sql('SELECT ...').write.saveAsTable('answers')."
            )
        with ready(calling, database, defaults) as bound, Scratch(database) as scratch:
            written = replace(bound, query=shadow.with_values(bound.query))
            planned = plan(written, database, scratch)
            dry_run(planned, database, scratch)
        for note in bound.notes:
            warn(note, PromptWarning)
        self._check(planned)
        # What Spark does not like is said before anything is asked, once a schema is asked for.
        _ = run(planned, self.settings, shadow, record, Store(None)).schema
        store = Store.under(self.settings.folder)
        self._open.append(store)
        try:
            with watching(self.progress, self.clock) as watch:
                frame = run(planned, replace(self.settings, progress=watch), shadow, record, store)
            store.tidy()
        except BaseException:
            store.remove()
            raise
        return frame

    def _plain(self, read: Plain, shadow: Shadow) -> DataFrame:
        """The rows of a query without calls."""
        if read.text.kind != "SELECT" or read.values:
            raise UnsupportedQueryError(
                "Only queries run here. Give other statements to Spark: spark.sql(...)."
            )
        columns = shadow.database.columns(read.text.query)
        return shadow.run(parser().query(read.text.query)).toDF(*(name for name, _ in columns))

    def _check(self, found: StatementPlan) -> None:
        """Raises ConfigError for what the model cannot do, UnsupportedQueryError for what is not
        done over Spark.
        """
        if found.checks:
            raise UnsupportedQueryError(
                "An outer SELECT reads an answer as a number or another type, which is not "
                "supported over Spark. Cast it in the SELECT that has the call."
            )
        for written, task in named_in(found):
            if task.model not in (None, self.settings.model):
                raise UnsupportedQueryError(
                    f"{written[:80]} names the model '{task.model}'. Over Spark all calls ask that "
                    f"of the connection, '{self.settings.model}'. Leave model out."
                )
            if task.cascade or task.is_by_labels:
                raise UnsupportedQueryError(
                    f"{written[:80]} has a proxy, or pairs := 'labels'. Both draw from all rows, "
                    "and Spark's tasks see a part of them each. Leave them and their targets out, "
                    "or run the query with rq.connect over the rows."
                )
        samplings = list(dict.fromkeys(task.sampling for _, task in named_in(found)))
        if any(sampling.schema is not None or sampling.stop for sampling in samplings):
            with closing(load(self.settings.model, **dict(self.settings.options))) as backend:
                for sampling in samplings:
                    backend.check(sampling)

    @property
    def report(self) -> Report:
        """What the last query has cost, stage by stage. Raises QueryError before the first."""
        if self._report is None:
            raise QueryError("No query has run yet, or the last one failed.")
        return self._report

    @property
    def errors(self) -> DataFrame:
        """The rows of the last query without a value; for the columns see sql.result.RowError."""
        frames = self._errors
        if not frames:
            return self.settings.spark.createDataFrame([], ERRORS)
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole

    def close(self) -> None:
        """Let go of what Spark keeps for the results, which cannot be read any more."""
        self.is_closed = True
        for store in self._open:
            store.remove()
        self._open.clear()
        for name in self._views:
            self.settings.spark.catalog.dropTempView(name)
        self._views.clear()
        if self.is_temporary:
            shutil.rmtree(self.settings.folder, ignore_errors=True)

    def __repr__(self) -> str:
        return f"<relquery connection of Spark to {self.settings.model}>"

    def __enter__(self) -> SparkConnection:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextmanager
def _of_spark(spark: SparkSession) -> Iterator[None]:
    """A block in which an unknown table raises an error that lists those of Spark."""
    try:
        yield
    except UnknownTableError as error:
        names = [table.name for table in spark.catalog.listTables()]
        shown = [name for name in names if not name.startswith(ours.PREFIX)]
        raise QueryError(
            f"Spark has no table {error.table!r}. It has: {', '.join(shown) or 'none'}."
            + did_you_mean(error.table, shown)
        ) from None


def _check_parser(spark: SparkSession) -> None:
    """Raises ConfigError if the session keeps backslashes in string literals as they are."""
    name = "spark.sql.parser.escapedStringLiterals"
    if spark.conf.get(name, "false") == "true":
        raise ConfigError(f"{name} is true, and backslashes would be lost. Set it to false.")


def _check_options(options: Mapping[str, Any]) -> None:
    """Raises ConfigError for an option that a server's model does not take."""
    from relquery.backends.provider.config import ProviderConfig

    # These count for one process, and here are many.
    of_one = {"max_concurrency", "rpm", "tpm", "budget"}
    known = {setting.name for setting in fields(ProviderConfig)} - of_one | {"model"}
    for option in options:
        if option not in known:
            listing = sorted(known | set(signature(connect).parameters) - {"spark", "options"})
            raise ConfigError(unknown("option", option, listing, of="relquery.spark.connect"))


def _of_driver(model: str) -> dict[str, str]:
    """What the driver's environment says of a server; that of executors may say nothing."""
    names = {"api_key": "OPENAI_API_KEY"}
    if model.startswith("openai:"):
        names["base_url"] = "OPENAI_BASE_URL"
    return {name: os.environ[given] for name, given in names.items() if given in os.environ}


def _folder(spark: SparkSession, ledger: str | Path | None) -> tuple[Path, bool]:
    if ledger is None:
        if not is_local(spark):
            raise ConfigError(
                "ledger is None. Give a folder that all machines see, e.g. "
                "ledger='/shared/answers': answers are kept there while they come."
            )
        return Path(tempfile.mkdtemp(prefix="relquery-")), True
    folder = Path(ledger)
    if (store := re.match(r"(\w[\w+.-]+):", str(ledger))) is not None:
        raise ConfigError(
            f"The ledger {str(ledger)!r} is in a store ({store[1]}:), and must be a folder on a "
            "file system that all machines see: mount it, e.g. ledger='/dbfs/answers'."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"The ledger {str(folder)!r} must be a folder ({error}).") from None
    remove_left(folder)
    return folder.absolute(), False
