"""Asks the calls of one SELECT over Spark: its distinct inputs, each once, in tasks.

inputs   the distinct inputs of a call, without those answered before, by Spark
divided  into ranges of their fields, so that those that share the most are in one partition
answers  asked in tasks (relquery.spark.asks), written as they come to the ledger, and by
         task to a folder of answers, where a lost executor takes nothing away
rows     with their answers, joined by the hash of the input
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa

from relquery.config import QueryConfig
from relquery.errors import RequestError, UnsupportedQueryError
from relquery.ledger import has_one_answer
from relquery.ledger.folder import SUFFIX
from relquery.progress.watch import Advance
from relquery.spark.asks import (
    COUNTS,
    KEY,
    KNOWN,
    LINES,
    OF_LEDGER,
    PHR,
    SOLVING,
    TROUBLE,
    Asks,
    Place,
    schema_of,
)
from relquery.spark.claims import remove_claims
from relquery.spark.partitions import SAMPLE, column_order
from relquery.spark.record import Record
from relquery.spark.session import jobs, parallelism
from relquery.spark.state import ANSWERED, LOST, SKIPPED, SparkState, state_of
from relquery.spark.store import to_read, to_write
from relquery.sql import names as ours
from relquery.sql.executor.reading import failure_message
from relquery.sql.inputs.cells import Form
from relquery.sql.inputs.prompt import pinned_in
from relquery.sql.planner.plan import PlannedCall

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_EVERY = 0.5  # seconds between looks at how far a stage is
_SEED = 0
_ROWS = 5_000  # that are worth a task of their own where nothing is asked
_FOUND, _FAILED, _NOW = (f"{ours.PREFIX}{name}" for name in ("found", "failed", "now"))
_LINE = f"{ours.PREFIX}line"
_HASHES, _LENGTHS = f"{ours.PREFIX}hashes", f"{ours.PREFIX}lengths"
_AROUND = 6  # characters around the name and the text of a field in a prompt


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Settings that all statements of a connection share.

    folder: of the ledger, which all machines see. concurrency: requests that one task has open.
    partitions: how many to make of the inputs of a call; None for four times as many as can run
    at once, as far as there are enough inputs.
    """

    spark: SparkSession
    model: str
    options: tuple[tuple[str, Any], ...]
    config: QueryConfig
    folder: Path
    concurrency: int
    partitions: int | None
    progress: Advance | None = None


@dataclass(slots=True)
class Calls:
    """The calls of one SELECT while it runs.

    record: what they cost and which have no value. folder: of their answers.
    given: the folders of answers by call.
    """

    settings: SparkSettings
    record: Record
    folder: Path
    given: dict[int, list[str]] = field(default_factory=dict)

    def ask(self, name: str, call: PlannedCall, state: SparkState, wanted: str) -> SparkState:
        """Answer a call for the rows that `wanted` gives a KEY.

        wanted: see State.asked. Raises RequestError if the config says so.
        """
        from pyspark.sql import functions as F

        began = self.record.clock()
        written = state.texts(call.fields)
        keyed = replace(state, frame=state.over(wanted)).held()
        inputs = self._inputs(keyed, call, written)
        self._answer(name, call, inputs, [form for _, form in written])
        state = self._joined(call, keyed)
        asked = state.frame.where(_NOW)
        if self.record.rows(name, call, asked, state_of(call.index), began):
            troubled = self._answers(call).where(F.col(TROUBLE).isNotNull())
            self.record.lose(name, call, keyed, troubled, [text for text, _ in written])
        return replace(state, frame=state.frame.drop(_NOW))

    def _inputs(
        self, keyed: SparkState, call: PlannedCall, written: list[tuple[str, Form]]
    ) -> DataFrame:
        """The distinct inputs that this query has not answered yet."""
        from pyspark.sql import functions as F

        columns = [f"{text} AS {ours.field(index)}" for index, (text, _) in enumerate(written)]
        items = ", ".join([KEY, *columns])
        inputs = keyed.over(f"SELECT {items} FROM {ours.ROWS} WHERE {KEY} IS NOT NULL")
        # Partitioned by KEY here, so that dropDuplicates needs no shuffle of its own.
        parts = -(-keyed.frame.where(F.col(KEY).isNotNull()).count() // _ROWS)
        most = int(self.settings.spark.conf.get("spark.sql.shuffle.partitions", "200") or 200)
        inputs = inputs.repartition(max(1, min(parts, most)), KEY).dropDuplicates([KEY])
        if self.given.get(call.index):
            inputs = inputs.join(self._answers(call).select(KEY), KEY, "left_anti")
        return inputs

    def _answer(self, name: str, call: PlannedCall, inputs: DataFrame, forms: list[Form]) -> None:
        from pyspark import StorageLevel
        from pyspark.sql.pandas.types import from_arrow_schema

        asks = self._asks(name, call, forms)
        inputs = rows = inputs.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            total = inputs.count()
            if not total:
                return
            # Spark reads them twice, as it samples the ranges first.
            rows = self._with_lines(asks, inputs).persist(StorageLevel.MEMORY_AND_DISK)
            # A run of its own: tasks of this stage alone look for each other's answers.
            place = self.folder / asks.run
            answers = self._divided(asks, rows, total).mapInArrow(
                _Task(asks, self._speculates), from_arrow_schema(asks.schema)
            )
            settings = self.settings
            answered = AnswerCount(settings.folder, asks.run)
            with following(settings.spark, settings.progress, name, total, answered):
                answers.write.parquet(to_write(place))
        finally:
            rows.unpersist()
            inputs.unpersist()
            remove_claims(self.settings.folder, asks.run)
        self.given.setdefault(call.index, []).append(to_read(place))
        self._count_up(name, call, to_read(place), total)

    @property
    def _speculates(self) -> bool:
        return self.settings.spark.conf.get("spark.speculation", "false") == "true"

    def _asks(self, name: str, call: PlannedCall, forms: list[Form]) -> Asks:
        if call.task.kind in ("group", "match"):
            raise UnsupportedQueryError(
                f"{call.text[:80]} asks about many rows in one request, which relquery does not "
                "do over Spark yet. Write the rows to a file, and ask about them on one machine."
            )
        settings = self.settings
        return Asks(
            name,
            call.task.in_form(settings.config),
            tuple(field.name for field in call.fields),
            tuple(forms),
            call.modules,
            settings.config,
            settings.model,
            settings.options,
            str(settings.folder),
            uuid4().hex,
            settings.concurrency,
        )

    def _count(self, total: int) -> int:
        """How many partitions to make of some inputs."""
        if self.settings.partitions is not None:
            return self.settings.partitions
        slots = parallelism(self.settings.spark)
        least = max(1, total // (2 * self.settings.concurrency))
        return max(1, min(4 * slots, least))

    def _divided(self, asks: Asks, rows: DataFrame, total: int) -> DataFrame:
        """The rows of inputs in partitions: those together that share the most."""
        from pyspark.sql import functions as F

        count = self._count(total)
        pinned, fields = _orderable(asks)
        if count == 1 or not pinned + fields or asks.config.order == "original":
            return rows.repartition(count, KEY)
        hashes = {field: F.xxhash64(ours.field(field)) for field in pinned + fields}
        if len(fields) > 1:
            share = min(1.0, 1.2 * SAMPLE / total)
            drawn = rows if share == 1.0 else rows.sample(False, share, _SEED)
            lengths = [F.coalesce(F.length(ours.field(field)), F.lit(0)) for field in fields]
            divided = drawn.select(
                F.array(*(hashes[field] for field in fields)).alias(_HASHES),
                F.array(*lengths).alias(_LENGTHS),
            ).toArrow()
            items, weights = (
                np.array(divided.column(name).to_pylist(), np.int64).reshape(-1, len(fields))
                for name in (_HASHES, _LENGTHS)
            )
            heavy = weights.mean(axis=0) if len(weights) else weights.sum(axis=0)
            around = [len(asks.names[field]) + _AROUND for field in fields]
            order = column_order(items, [*(heavy + around)], total)
            fields = [fields[field] for field in order]
        # By KEY last, so that inputs that are equal in all of these are divided, too.
        return rows.repartitionByRange(count, *(hashes[field] for field in pinned + fields), KEY)

    def _with_lines(self, asks: Asks, placed: DataFrame) -> DataFrame:
        """The inputs with what the ledger has of them, in the column LINES."""
        from pyspark.sql import functions as F

        settings = self.settings
        none = F.lit(None).cast("array<string>")
        has_files = next(settings.folder.glob(f"*{SUFFIX}"), None) is not None
        if not has_files or not has_one_answer(asks.task.sampling):
            return placed.withColumn(LINES, none)
        lines = settings.spark.read.text(to_read(settings.folder, f"*{SUFFIX}"))
        lines = lines.where(F.is_valid_utf8("value"))  # a damaged one answers nothing
        key = F.get_json_object(F.col("value"), "$[0]")
        lines = lines.select(key.alias(OF_LEDGER), F.col("value").alias(_LINE))
        lines = lines.where(F.col(OF_LEDGER).isNotNull())
        keys = placed.mapInArrow(asks.keys, f"{KEY} binary, {OF_LEDGER} string")
        grouped = keys.join(lines, OF_LEDGER).groupBy(KEY)
        return placed.join(grouped.agg(F.collect_list(_LINE).alias(LINES)), KEY, "left")

    def _answers(self, call: PlannedCall) -> DataFrame:
        """The answers to a call so far, by KEY."""
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(schema_of(call.task))
        places = self.given.get(call.index)
        if not places:
            return self.settings.spark.createDataFrame([], schema)
        return self.settings.spark.read.schema(schema).parquet(*places)

    def _joined(self, call: PlannedCall, keyed: SparkState) -> SparkState:
        """The rows with the answers to a call; _NOW says where it was asked now."""
        from pyspark.sql import functions as F

        answer, state = ours.answer(call.index), state_of(call.index)
        answers = self._answers(call).select(
            KEY,
            F.col(ours.VALUE).alias(_FOUND),
            F.when(F.col(KNOWN).isNull(), SKIPPED)
            .when(F.col(TROUBLE).isNull(), ANSWERED)
            .otherwise(LOST)
            .alias(_FAILED),
        )
        rows = keyed.frame.join(answers, KEY, "left").withColumns(
            {
                answer: F.coalesce(answer, _FOUND),
                state: F.coalesce(state, _FAILED),
                _NOW: F.col(KEY).isNotNull(),
            }
        )
        return replace(keyed, frame=rows.drop(KEY, _FOUND, _FAILED)).written()

    def _count_up(self, name: str, call: PlannedCall, place: str, total: int) -> None:
        """Add what one run of tasks has cost. Raises RequestError if the config says so."""
        from pyspark.sql import functions as F

        answers = self.settings.spark.read.parquet(place)
        sums: list[Column] = [F.coalesce(F.sum(column), F.lit(0)) for column in COUNTS]
        known = F.coalesce(F.sum(F.col(KNOWN).cast("int")), F.lit(0))
        asked = F.when(~F.col(KNOWN), F.col(PHR))
        (row,) = answers.agg(
            F.count(KNOWN),
            known,
            *sums,
            F.coalesce(F.avg(asked), F.lit(0.0)),
            F.coalesce(F.sum(SOLVING), F.lit(0.0)),
        ).collect()
        self.record.cost(name, call, *row)
        if self.settings.config.on_error == "raise":
            first = answers.where(F.col(TROUBLE).isNotNull()).select(TROUBLE).first()
            if first is not None:
                raise RequestError(failure_message(name, {}, first[0]))


@dataclass(frozen=True, slots=True)
class _Task:
    """The function that Spark calls in each task."""

    asks: Asks
    speculates: bool
    """Whether Spark may run a task twice at once."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        again = task.attemptNumber() > 0
        place = Place(task.partitionId(), task.taskAttemptId(), again, self.speculates)
        yield from self.asks.over(batches, place)


def _orderable(asks: Asks) -> tuple[list[int], list[int]]:
    """The fields that every prompt begins with, and the others, whose order is free."""
    pinned = list(pinned_in(asks.task.sent))
    fields = [index for index in range(len(asks.names)) if index not in asks.modules]
    return pinned, [field for field in fields if field not in pinned]


@dataclass(slots=True)
class AnswerCount:
    """Counts the answers that the tasks of a run have stored, by the lines of their files."""

    folder: Path
    run: str
    count: int = 0
    _read: dict[Path, int] = field(default_factory=dict)

    def __call__(self) -> int:
        for path in self.folder.glob(f"{self.run}-*{SUFFIX}"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                more = file.read()
                self._read[path] = file.tell()
            self.count += more.count(b"\n")
        return self.count


@contextmanager
def following(
    spark: SparkSession,
    progress: Advance | None,
    name: str,
    total: int,
    answered: Callable[[], int],
) -> Iterator[None]:
    """A block whose jobs answer `total` inputs of a stage. What ends it early cancels them.

    Answers that no ledger keeps, since they would differ each time, are told of at the end.
    """
    over = threading.Event()

    def look() -> None:
        told = 0
        while not over.wait(_EVERY):
            done = answered()  # twice, where two attempts of a task have asked
            if progress is not None and told < done < total:
                progress(name, done, total)
                told = done

    watcher = threading.Thread(target=look, daemon=True)
    if progress is not None:
        progress(name, 0, total)
        watcher.start()
    try:
        with jobs(spark, name):
            yield
    finally:
        over.set()
        if watcher.is_alive():
            watcher.join()
    if progress is not None:
        progress(name, total, total)
