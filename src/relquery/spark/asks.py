"""The work of a task: orders the inputs of its partition, asks them, and gives the answers."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

import numpy as np
import pyarrow as pa

from relquery.arrays import Bools, Int64s
from relquery.backends.base import Backend
from relquery.backends.load import load
from relquery.config import QueryConfig
from relquery.ledger import Keys
from relquery.ledger.folder import FolderLedger
from relquery.ledger.keys import kept_text
from relquery.prompt import Answer, Finish
from relquery.reordering.schedule import Schedule
from relquery.spark.claims import AttemptClaims
from relquery.sql import names as ours
from relquery.sql.binder.call import Task
from relquery.sql.caching import ordered
from relquery.sql.executor.context import ExecutionContext
from relquery.sql.executor.dispatch import CallDispatch, ask_again
from relquery.sql.executor.reading import read_answer
from relquery.sql.host.database import Database
from relquery.sql.inputs.cells import Cells, Form
from relquery.sql.inputs.inputs import Inputs, Question
from relquery.sql.inputs.redaction import completed, hidden
from relquery.unicode import valid


@dataclass(frozen=True, slots=True)
class Local:
    """A query over the rows of a batch, which it reads as `ours.ROWS`. Each batch is on its own.

    zone: the time zone in which times with a zone are written. schema: of what it gives.
    """

    sql: str
    schema: pa.Schema
    zone: str

    def over(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What it gives for each batch. Raises QueryError."""
        database = _database(self.zone)
        for batch in batches:
            database.register(ours.ROWS, pa.Table.from_batches([batch]))
            try:
                table = database.fetch(self.sql)
            finally:
                database.unregister(ours.ROWS)
            yield from table.cast(self.schema).to_batches()


@lru_cache(maxsize=1)
def _database(zone: str) -> Database:
    """A database with what readings of answers need. One thread: its machine runs many tasks."""
    database = Database.open()
    database.execute("SET threads = 1")
    database.execute(f"SET TimeZone = '{zone}'")
    return database


def plain(kind: pa.DataType) -> pa.DataType:
    """A type as Spark has it: texts instead of codes, and times in microseconds."""
    is_a = pa.types
    simple = kind
    if is_a.is_dictionary(kind):
        simple = plain(kind.value_type)
    elif is_a.is_large_string(kind) or is_a.is_string_view(kind):
        simple = pa.string()
    elif is_a.is_list(kind) or is_a.is_large_list(kind):
        simple = pa.list_(plain(kind.value_type))
    elif is_a.is_struct(kind):
        simple = pa.struct([(field.name, plain(field.type)) for field in kind])
    elif is_a.is_map(kind):
        simple = pa.map_(plain(kind.key_type), plain(kind.item_type))
    elif is_a.is_timestamp(kind):
        simple = pa.timestamp("us", kind.tz)
    elif is_a.is_unsigned_integer(kind):
        simple = pa.decimal128(20, 0) if kind.bit_width == 64 else pa.int64()
    return simple


KEY = f"{ours.PREFIX}key"
"""The column that names an input of a call: a hash of its fields. NULL where nothing is asked."""
LINES = f"{ours.PREFIX}lines"
"""What the ledger had of an input before the stage: lines of its files."""
OF_LEDGER = f"{ours.PREFIX}of_ledger"
"""A key under which the ledger may have an answer to an input, as it writes it."""
TROUBLE, TEXT, FINISH, KNOWN, PHR, SOLVING = (
    f"{ours.PREFIX}{name}" for name in ("trouble", "said", "finish", "known", "phr", "solving")
)
_COUNTED = ("attempts", "prompt_tokens", "cached_tokens", "output_tokens")
COUNTS = tuple(f"{ours.PREFIX}{name}" for name in _COUNTED)
_SLICE, _CLAIMED = 16, 4
"""Requests of a slice, by those that are open at once: where an attempt is alone, and where it
claims each slice, of which another one can ask nothing."""
_LOOK, _PATIENCE = 0.2, 30.0
"""Seconds between looks for the answers of another attempt, and after which none is expected."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place where a task runs."""

    partition: int
    attempt: int
    is_second: bool = False
    """Whether an attempt before it may have got answers."""
    has_rivals: bool = False
    """Whether another attempt may run at the same time."""


@dataclass(frozen=True, slots=True)
class Asks:
    """One stage, as it is sent to the tasks that ask it.

    name: of the stage. names, forms: of the fields. folder: of the ledger. run: names this stage
    among all that ever write there. concurrency: requests that one task has open.
    """

    name: str
    task: Task
    names: tuple[str, ...]
    forms: tuple[Form, ...]
    modules: tuple[int, ...]
    config: QueryConfig
    model: str
    options: tuple[tuple[str, Any], ...]
    folder: str
    run: str
    concurrency: int

    @property
    def schema(self) -> pa.Schema:
        """See `schema_of`."""
        return schema_of(self.task)

    def over(self, batches: Iterator[pa.RecordBatch], place: Place) -> Iterator[pa.RecordBatch]:
        """Ask the inputs of a partition, all with different keys; they are in memory together.

        With on_error "raise", nothing more is asked after the first answer without a value.
        """
        given = [batch for batch in batches if batch.num_rows]
        if not given:
            return
        table = pa.Table.from_batches(given)
        task, folder = f"{self.run}-{place.partition:06d}", Path(self.folder)
        with closing(FolderLedger(folder, task, str(place.attempt))) as ledger:
            if LINES in table.column_names:
                for lines in table.column(LINES).drop_null().to_pylist():
                    ledger.know(lines)
            is_second = place.is_second or ledger.has_attempts
            with closing(AttemptClaims(folder, task, place.attempt)) as claims:
                asking = _Asking.of(self, table, ledger, claims if place.has_rivals else None)
                asking.ask(in_slices=place.has_rivals or is_second)
        yield from asking.answers().to_batches()

    def keys(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """(KEY, OF_LEDGER) of inputs: the keys under which a ledger may have their answers."""
        for batch in batches:
            if not batch.num_rows:
                continue
            table = pa.Table.from_batches([batch])
            inputs = Inputs.of(self._question(table))
            name = _backend(self.model, self.options).known_as()[0]
            keys = Keys.of(name, inputs.prompts_as_written(), self.task.sampling, (name,))
            parts = [
                (key, of_ledger.hex())
                for key, place in zip(
                    batch.column(KEY).to_pylist(), inputs.of_row.tolist(), strict=True
                )
                for of_ledger in (keys.of_prompt(place) if place >= 0 else ())
            ]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([key for key, _ in parts], pa.binary()),
                    pa.array([of_ledger for _, of_ledger in parts], pa.string()),
                ],
                [KEY, OF_LEDGER],
            )

    def _question(self, table: pa.Table) -> Question:
        """The call for the inputs of a table."""
        cells = hidden(self._cells(table), self.task)
        return Question(self.name, self.task, table.num_rows, cells, self.modules)

    def _cells(self, table: pa.Table) -> Cells:
        """The fields of the inputs of a table, with all of their data."""
        texts = table.select([ours.field(index) for index in range(len(self.names))])
        every = np.arange(table.num_rows)
        return Cells(self.names, self.forms, every, lambda rows: texts.take(pa.array(rows)))


def schema_of(task: Task) -> pa.Schema:
    """What tasks give for the inputs of a call: one row for each."""
    return pa.schema(
        [
            (KEY, pa.binary()),
            (ours.VALUE, plain(task.transport)),
            (TROUBLE, pa.string()),
            (TEXT, pa.string()),
            (FINISH, pa.string()),
            (KNOWN, pa.bool_()),
            *((name, pa.int32()) for name in COUNTS),
            (PHR, pa.float64()),
            (SOLVING, pa.float64()),
        ]
    )


@dataclass(slots=True)
class _Asking:
    """The inputs of one partition while they are asked."""

    asks: Asks
    cells: Cells
    """Of the inputs, with all of their data."""
    keys: pa.ChunkedArray
    sending: CallDispatch
    lent: AbstractSet[bytes]
    """Keys that the ledger had before."""
    claims: AttemptClaims | None
    """None where no other attempt runs."""
    given: dict[int, Answer] = field(default_factory=dict)
    phr: float = 0.0
    solving: float = 0.0

    @classmethod
    def of(
        cls, asks: Asks, table: pa.Table, ledger: FolderLedger, claims: AttemptClaims | None
    ) -> _Asking:
        backend = _backend(asks.model, asks.options)
        context = ExecutionContext(backend, asks.config, ledger, None, perf_counter)
        sending = CallDispatch.of(asks._question(table), context)
        if sending.lookup.keys is None:  # no answer is kept that the other one could read
            claims = None
        return cls(asks, asks._cells(table), table.column(KEY), sending, ledger.lent, claims)

    def ask(self, in_slices: bool) -> None:
        """Ask what has no answer, in the order that shares the most.

        in_slices: look for answers of other attempts before each slice.
        """
        inputs = self.sending.inputs
        most = self.asks.concurrency * (_SLICE if self.claims is None else _CLAIMED)
        shelf = self.sending.lookup
        self.given.update(shelf.known)
        missing = shelf.lacks(shelf.inputs)
        sent = ordered(inputs, missing, self.asks.config.order, self.sending.context.backend)
        rows, schedule = sent.rows, sent.schedule
        if schedule is not None:
            self.phr, self.solving = float(schedule.report.phr), schedule.report.seconds
        size = most if in_slices else max(1, len(rows))
        left: list[int] = []
        with suppress(_EnoughError):
            for begin in range(0, len(rows), size):
                part = np.arange(begin, min(begin + size, len(rows)))
                mine = self._claimed(rows[part])
                left += rows[part][~mine].tolist()
                # After the claims: what an attempt that has ended had claimed is answered now.
                known = self._found() if begin or self.claims is not None else []
                self._send(rows, part[mine & ~np.isin(rows[part], known)], schedule)
            self._ask_left(rows, left, schedule)
            if self.asks.task.retry:
                self._ask_again()

    def _send(self, rows: Int64s, part: Int64s, schedule: Schedule | None) -> None:
        if len(part):
            some = None if schedule is None else schedule.part(part)
            self.sending.send(rows[part], some, self.sending.lookup, self._put)

    def _claimed(self, inputs: Int64s) -> Bools:
        """(inputs,), whether this attempt is to ask them."""
        if self.claims is None:
            return np.ones(len(inputs), np.bool_)
        keys = [self._key(place) for place in inputs.tolist()]
        mine = self.claims.take(keys)
        return np.array([key in mine for key in keys], np.bool_)

    def _ask_left(self, rows: Int64s, left: list[int], schedule: Schedule | None) -> None:
        """Wait for what another attempt asks; ask it if it gives that up, or gets no answers."""
        heard, known = monotonic(), 0
        while left:
            assert self.claims is not None
            free = self.claims.free(map(self._key, left))
            # After the claims: an attempt that ends has stored its answers before.
            left = sorted(set(left).difference(self._found()))
            if len(self.given) > known:
                heard, known = monotonic(), len(self.given)
            is_late = monotonic() - heard > _PATIENCE
            now = [place for place in left if is_late or self._key(place) in free]
            left = [place for place in left if place not in now]
            self._send(rows, np.flatnonzero(np.isin(rows, now)), schedule)
            if left and not now:
                sleep(_LOOK)

    def _key(self, at: int) -> bytes:
        """Of an input, in the ledger."""
        assert self.sending.lookup.keys is not None
        return self.sending.lookup.keys.of_prompt(at)[0]

    def _found(self) -> list[int]:
        """Inputs that have an answer now, those of other attempts included."""
        ledger, keys = self.sending.lookup.ledger, self.sending.lookup.keys
        if ledger is not None and keys is not None:
            for place, answer in ledger.find(keys).items():
                self.given.setdefault(place, answer)
        return list(self.given)

    def _put(self, at: int, answer: Answer) -> None:
        self.given[at] = answer
        if self.claims is not None and kept_text(answer) is None:
            self.claims.give_back(self._key(at))
        if self.asks.config.on_error == "raise" and read_answer(answer, self.asks.task)[1]:
            raise _EnoughError

    def _ask_again(self) -> None:
        """Ask once more where an answer is not a valid value."""
        places = sorted(self.given)
        prompts = self.sending.inputs.prompts_as_written()
        again = ask_again(
            [prompts[place] for place in places],
            [self.given[place] for place in places],
            self.asks.task,
            self.sending.context,
        )
        self.given.update((places[place], answer) for place, answer in again.items())

    def _was_known(self, at: int) -> bool:
        """Whether the ledger had an answer before the stage began."""
        keys = self.sending.lookup.keys
        return keys is not None and not self.lent.isdisjoint(keys.of_prompt(at))

    def answers(self) -> pa.Table:
        """A row for each input; for inputs that nobody asked there is none. KNOWN is NULL for those
        that must not be asked, as all of their fields are NULL."""
        of_row = self.sending.inputs.of_row.tolist()
        given = [
            (row, self.given[place]) for row, place in enumerate(of_row) if place in self.given
        ]
        cells = self.cells.part(np.array([row for row, _ in given], np.int64))
        sent, every = [answer for _, answer in given], np.arange(len(given))
        whole, at_row = completed(sent, every, cells, self.asks.task)
        given = [
            (row, whole[place]) for (row, _), place in zip(given, at_row.tolist(), strict=True)
        ]
        read = [read_answer(answer, self.asks.task) for _, answer in given]
        places = [of_row[row] for row, _ in given]
        answers = [
            # An attempt that was lost has asked it, for this stage.
            replace(answer, attempts=1)
            if not answer.attempts and not self._was_known(place)
            else answer
            for place, (_, answer) in zip(places, given, strict=True)
        ]
        columns = [
            self.keys.take(pa.array([row for row, _ in given], pa.int64())),
            [value for value, _ in read],
            [trouble for _, trouble in read],
            [None if each.text is None else valid(each.text) for each in answers],
            [each.finish.value for each in answers],
            [self._was_known(place) for place in places],
            *([getattr(each, name) for each in answers] for name in _COUNTED),
            [self.phr] * len(answers),
            [self.solving / max(1, len(answers))] * len(answers),
        ]
        schema = self.asks.schema
        skipped = [row for row, place in enumerate(of_row) if place < 0]
        arrays = [
            column.combine_chunks().cast(kind)
            if isinstance(column, pa.ChunkedArray)
            else pa.array(column, kind)
            for column, kind in zip(columns, schema.types, strict=True)
        ]
        nothing = {
            KEY: self.keys.take(pa.array(skipped, pa.int64())),
            FINISH: [Finish.STOP.value] * len(skipped),
            **dict.fromkeys((*COUNTS, PHR, SOLVING), [0] * len(skipped)),
        }
        none = [None] * len(skipped)
        unasked = pa.table({name: nothing.get(name, none) for name in schema.names})
        return pa.concat_tables([pa.table(arrays, schema=schema), unasked.cast(schema)])


class _EnoughError(Exception):
    """An answer has no value, and one that has none is enough."""


@lru_cache(maxsize=2)
def _backend(model: str, options: tuple[tuple[str, Any], ...]) -> Backend:
    """What answers. A process opens it once for all of its tasks."""
    return load(model, **dict(options))
