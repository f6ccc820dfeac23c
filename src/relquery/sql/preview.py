"""Previews: a query on a few of its rows, and an estimate of what all rows cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.errors import ConfigError, QueryError
from relquery.html import boxed, lines
from relquery.prompt import Sampling
from relquery.report import wilson_interval
from relquery.sql import names as ours
from relquery.sql.binder.statement import Calling, read_statement
from relquery.sql.executor.choices import SEED
from relquery.sql.executor.context import ExecutionContext
from relquery.sql.executor.rows import Rows
from relquery.sql.explain.explanation import SqlExplanation
from relquery.sql.explain.rows import Count, Place, Selectivities
from relquery.sql.host.database import Database, Scratch
from relquery.sql.parser import build
from relquery.sql.parser.parameters import read_parameters
from relquery.sql.parser.parse import parser
from relquery.sql.parser.statements import split
from relquery.sql.planner.checks import answers_in
from relquery.sql.planner.plan import SelectPlan
from relquery.sql.query import naming
from relquery.sql.result import CostAccumulator, Result, finished
from relquery.sql.run import explain, run


@dataclass(slots=True)
class SampledRows(Rows):
    """Some base rows of a plan, in their order."""

    total: int = 0
    """The number of base rows in all."""
    largest: int = 0
    """The size of the largest group of which only some items are used; 0 if no group was cut."""
    judged: dict[int, Count] = field(default_factory=dict)
    """How many rows each filter has passed, by its place."""

    defers_filter = False  # what passes a filter is counted

    def passing(self, at: int, rows: Int64s) -> Int64s:
        """The rows for which a filter is true, which are counted."""
        passed, before = Rows.passing(self, at, rows), self.judged.get(at, Count(0, 0))
        self.judged[at] = Count(before.rows + len(rows), before.passed + len(passed))
        return passed

    def cut_groups(self, most: int) -> None:
        """Leave at most so many items of each group that a call is about, the first ones."""
        calls = list(self.plan.calls)
        for index, call in enumerate(calls):
            if call.task.kind == "group":
                (field,) = call.fields
                sizes = f"SELECT coalesce(max(len({field.sql})), 0) FROM {ours.ROWS}"
                size = int(self.database.fetch(self.sql(sizes)).column(0)[0].as_py())
                some = build.function("list_slice", field.value, *map(build.number, (1, most)))
                if size > most:
                    self.largest = max(self.largest, size)
                    calls[index] = replace(call, fields=(replace(field, value=some),))
        self.plan = replace(self.plan, calls=tuple(calls))


@dataclass(slots=True)
class Sample:
    """A sample of at most `most` rows of each SELECT of a statement."""

    most: int
    selects: list[SampledRows] = field(default_factory=list)

    def start(self, plan: SelectPlan, database: Database, scratch: Scratch) -> Rows:
        """The rows that a SELECT starts with."""
        query = parser().sql(plan.context.around(plan.base))
        base = f"SELECT row_number() OVER () - 1 AS {ours.PLACE}, * FROM ({query}) AS {ours.BASE}"
        counted = f"SELECT count(*) FROM ({base})"
        total = database.fetch(counted).column(0)[0].as_py()
        chosen = scratch.view(pa.table({ours.PLACE: drawn(total, self.most)}), "drawn")
        some = (
            f"SELECT row_number() OVER (ORDER BY {ours.PLACE}) - 1 AS {ours.ROW}, "
            f"* EXCLUDE ({ours.PLACE}) FROM ({base}) SEMI JOIN {chosen} USING ({ours.PLACE})"
        )
        table, count = scratch.rows(some)
        rows = SampledRows(plan, database, scratch, table, count, np.arange(count), total=total)
        rows.cut_groups(self.most)
        self.selects.append(rows)
        return rows

    @property
    def lengths(self) -> Mapping[str, float]:
        """The mean number of tokens in each stage's answers, including those from the ledger."""
        by_stage: dict[str, list[int]] = {}
        for values in (values for rows in self.selects for values in rows.values.values()):
            for stage, answer in zip(values.stages, values.answers, strict=True):
                if answer is not None and answer.text is not None:
                    by_stage.setdefault(stage, []).append(answer.output_tokens)
        return {stage: sum(tokens) / len(tokens) for stage, tokens in by_stage.items()}


def drawn(total: int, most: int) -> Int64s:
    """At most `most` of the numbers below `total`, ascending; always the same ones."""
    if total <= most:
        return np.arange(total)
    return np.sort(np.random.default_rng(SEED).choice(total, most, replace=False))


def _passed(selects: Sequence[SampledRows]) -> Iterator[tuple[Place, Count, str]]:
    """The filters that were applied to rows, how many passed, and that in words.

    If no row passed, half a row counts as passed, because a few rows do not show that none will.
    """
    for number, rows in enumerate(selects):
        for place, (judged, passed) in sorted(rows.judged.items()):
            if not judged:
                continue
            answers = rows.of_call(max(answers_in(rows.plan.filters[place].predicate)))
            stage = next((name for name in answers.stages if name is not None), "a condition")
            low, high = wilson_interval(passed / judged, judged)
            count = Count(judged, passed) if passed else Count(2 * judged, 1)
            taken = "" if passed else ", counted as half a row"
            told = (
                f"{stage}: {passed} of {judged} rows passed{taken} (95% interval for all rows: "
                f"{low:.0%} to {high:.0%})"
            )
            yield (number, place), count, told


@dataclass(frozen=True, slots=True, repr=False)
class Preview:
    """A query on some of its rows."""

    result: Result
    """What the query returns for them."""
    cost: SqlExplanation
    """What it would ask for all rows from now on; answers of the preview are in the ledger."""
    notes: tuple[str, ...]
    """Which rows were taken, and how many of them passed."""

    def __repr__(self) -> str:
        result = [repr(self.result), self.result.report.summary]
        return "\n".join([*result, *self.notes, "", f"For all rows: {self.cost}"])

    def _repr_html_(self) -> str:
        """For notebooks."""
        title = boxed(lines([*self.notes, "For all rows:"]))
        return f"{self.result._repr_html_()}{title}{self.cost._repr_html_()}"


def preview_query(
    sql: str,
    database: Database,
    context: ExecutionContext,
    defaults: Sampling,
    params: object,
    rows: int,
) -> Preview:
    """Run a query on a few rows; see `Connection.preview`.

    Raises ConfigError for `rows`, and QueryError for what is not a single query with calls.
    """
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise ConfigError(f"rows is {rows!r}; it must be a whole number, 1 or more.")
    start, paid, sample = context.clock(), CostAccumulator(), Sample(rows)
    without_guard = replace(context, config=replace(context.config, guard=None))
    with database.held():
        texts = split(sql, database)
        if len(texts) > 1:
            raise QueryError(f"preview was given {len(texts)} statements. It runs one query.")
        parameters = read_parameters(params, texts, database)
        with naming(texts[0], database), paid.noted():
            database.prepare(texts[0].query)
            calling = _query(read_statement(texts[0], database.kept, parameters))
            table = run(calling, database, without_guard, defaults, paid, sample.start)
            passed = list(_passed(sample.selects))
            counts = {place: count for place, count, _ in passed}
            shares = Selectivities(measured=counts, lengths=sample.lengths)
            again = _query(read_statement(texts[0], database.kept, parameters))
            cost = replace(explain(again, database, context, defaults, shares), is_expected=True)
    result = finished(table, paid, context.clock() - start)
    return Preview(result, cost, tuple(_notes(sample, [told for *_, told in passed], cost)))


def _query(read: object) -> Calling:
    """The statement, if it is a query with calls."""
    if not isinstance(read, Calling):
        raise QueryError("The statement makes no LLM calls, so con.sql runs it at no cost.")
    if read.text.option is not None or read.shell.kind != "QUERY":
        raise QueryError(
            "preview runs a query, and writes nothing. Give the SELECT inside this statement."
        )
    return read


def _notes(sample: Sample, passed: Sequence[str], cost: SqlExplanation) -> Iterator[str]:
    taken = list(map(_taken, sample.selects))
    if len(set(taken)) == 1:
        yield f"Ran on {taken[0]}."
    elif taken:
        yield f"Ran on {', '.join(taken)}: one for each SELECT with calls."
    if any(select.count < select.total for select in sample.selects):
        yield "They were drawn at random; a preview always takes the same ones."
    if largest := max((select.largest for select in sample.selects), default=0):
        yield (
            f"A group's answer is over at most {sample.most} of its rows; the largest has "
            f"{largest:,}."
        )
    yield from dict.fromkeys(passed)
    unknown = [call.stage for call in cost.calls if call.stage not in sample.lengths]
    if unknown:
        yield (
            f"No answer of {', '.join(unknown)} was seen, so its cost is for answers as long as "
            "they may be."
        )


def _taken(rows: SampledRows) -> str:
    what = "group" if any(call.task.kind == "group" for call in rows.plan.calls) else "row"
    whats = what if rows.total == 1 else f"{what}s"
    of = "all" if rows.count == rows.total else f"{rows.count:,} of"
    return f"{of} {rows.total:,} {whats}"
