"""Asks the calls of one SELECT over Spark: its distinct inputs, each once, in tasks.

inputs   the distinct inputs of a call, without those answered before, by Spark
placed   each in the partition where it shares the most, planned from a sample of them
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
from relquery.spark.partitions import (
    DRAWN,
    PLACE,
    Partitions,
    PlacedFields,
    Placing,
    sample_of,
    sampled,
)
from relquery.spark.record import Record
from relquery.spark.state import ANSWERED, LOST, SKIPPED, State, state_of
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


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """What is the same for all statements of a connection.

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

    def ask(self, name: str, call: PlannedCall, state: State, wanted: str) -> State:
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
        self, keyed: State, call: PlannedCall, written: list[tuple[str, Form]]
    ) -> DataFrame:
        """The distinct inputs that this query has not answered yet."""
        from pyspark.sql import functions as F

        columns = [f"{text} AS {ours.field(at)}" for at, (text, _) in enumerate(written)]
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
        inputs = inputs.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            total = inputs.count()
            if not total:
                return
            # A run of its own: tasks of this stage alone look for each other's answers.
            count = self._count(total)
            placed = self._placed(asks, inputs, total, count)
            placed = self._with_lines(asks, placed)
            place = self.folder / asks.run
            answers = placed.repartitionById(count, PLACE).drop(PLACE)
            answers = answers.mapInArrow(
                _Task(asks, self._speculates), from_arrow_schema(asks.schema)
            )
            settings = self.settings
            answered = AnswerCount(settings.folder, asks.run)
            with following(settings.spark, settings.progress, name, total, answered):
                answers.write.parquet(to_write(place))
        finally:
            inputs.unpersist()
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
            tuple(one.name for one in call.fields),
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
        slots = self.settings.spark.sparkContext.defaultParallelism
        least = max(1, total // (2 * self.settings.concurrency))
        return max(1, min(4 * slots, least))

    def _placed(self, asks: Asks, inputs: DataFrame, total: int, count: int) -> DataFrame:
        """The inputs with their partitions, in the column PLACE."""
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.types import from_arrow_schema
        from pyspark.sql.types import IntegerType, StructType

        items = _items(asks)
        if count == 1 or not items.columns or asks.config.order == "original":
            return inputs.withColumn(PLACE, F.pmod(F.hash(KEY), F.lit(count)))
        share = min(1.0, 1.2 * sampled(count) / total)
        drawn = inputs if share == 1.0 else inputs.sample(False, share, _SEED)
        found = drawn.mapInArrow(items.drawn, from_arrow_schema(DRAWN)).toArrow()
        partitions = Partitions.plan(sample_of(found, total), count)
        placing = Placing(items, partitions)
        schema = StructType([*inputs.schema.fields]).add(PLACE, IntegerType())
        return inputs.mapInArrow(placing.over, schema)

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
        found = keys.join(lines, OF_LEDGER).groupBy(KEY)
        return placed.join(found.agg(F.collect_list(_LINE).alias(LINES)), KEY, "left")

    def _answers(self, call: PlannedCall) -> DataFrame:
        """The answers to a call so far, by KEY."""
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(schema_of(call.task))
        places = self.given.get(call.index)
        if not places:
            return self.settings.spark.createDataFrame([], schema)
        return self.settings.spark.read.schema(schema).parquet(*places)

    def _joined(self, call: PlannedCall, keyed: State) -> State:
        """The rows with the answers to a call; _NOW says where it was asked now."""
        from pyspark.sql import functions as F

        answer, state = ours.answer(call.index), state_of(call.index)
        found = self._answers(call).select(
            KEY,
            F.col(ours.VALUE).alias(_FOUND),
            F.when(F.col(KNOWN).isNull(), SKIPPED)
            .when(F.col(TROUBLE).isNull(), ANSWERED)
            .otherwise(LOST)
            .alias(_FAILED),
        )
        rows = keyed.frame.join(found, KEY, "left").withColumns(
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
    """What Spark calls in each task. speculates: whether Spark may run a task twice at once."""

    asks: Asks
    speculates: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        again = task.attemptNumber() > 0
        place = Place(task.partitionId(), task.taskAttemptId(), careful=again or self.speculates)
        yield from self.asks.over(batches, place)


def _items(asks: Asks) -> PlacedFields:
    """The fields by which inputs are placed: those of the text first, and no modules."""
    pinned = pinned_in(asks.task.sent)
    fields = [at for at in range(len(asks.names)) if at not in asks.modules or at in pinned]
    return PlacedFields(
        tuple(map(ours.field, fields)),
        tuple(asks.names[at] for at in fields),
        tuple(at in pinned for at in fields),
    )


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
    context, group, over = spark.sparkContext, uuid4().hex, threading.Event()

    def look() -> None:
        told = 0
        while not over.wait(_EVERY):
            done = answered()  # twice, where two attempts of a task have asked
            if progress is not None and told < done < total:
                progress(name, done, total)
                told = done

    context.setJobGroup(group, f"relquery: {name}", interruptOnCancel=True)
    watcher = threading.Thread(target=look, daemon=True)
    if progress is not None:
        progress(name, 0, total)
        watcher.start()
    try:
        yield
    except BaseException:
        context.cancelJobGroup(group)
        raise
    finally:
        over.set()
        if watcher.is_alive():
            watcher.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    if progress is not None:
        progress(name, total, total)
