"""Runs a query on a few of its rows, and foretells what all rows cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from relquery.errors import ConfigError, QueryError
from relquery.html.table import boxed, lines
from relquery.prompt import Sampling
from relquery.sql.binder.statement import Calling, read_statement
from relquery.sql.executor.answered import Asker
from relquery.sql.executor.execute import Paid
from relquery.sql.explain.explanation import SqlExplanation
from relquery.sql.explain.shares import Shares
from relquery.sql.host.database import Database
from relquery.sql.parser.parameters import read_parameters
from relquery.sql.parser.statements import split
from relquery.sql.preview.passing import Passed, passed
from relquery.sql.preview.sampled import Sample, SampledRows
from relquery.sql.query import finished, naming
from relquery.sql.result import Result
from relquery.sql.run import explain, run


@dataclass(frozen=True, slots=True, repr=False)
class Preview:
    """A query on some of its rows.

    result: what the query returns for them. cost: what it would ask for all rows from now on;
    answers of the preview are in the ledger. notes: which rows were taken, and how many of them
    passed.
    """

    result: Result
    cost: SqlExplanation
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        summary = self.result.report.summary
        return "\n".join(
            [repr(self.result), summary, *self.notes, "", f"For all rows: {self.cost}"]
        )

    def _repr_html_(self) -> str:
        """For notebooks."""
        title = boxed(lines([*self.notes, "For all rows:"]))
        return f"{self.result._repr_html_()}{title}{self.cost._repr_html_()}"


def preview_query(
    sql: str, database: Database, asker: Asker, defaults: Sampling, params: object, rows: int
) -> Preview:
    """Run a query on a few rows; see `Connection.preview`.

    Raises ConfigError for `rows`, and QueryError for what is not a single query with calls.
    """
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise ConfigError(f"rows is {rows!r}; it must be a whole number, 1 or more.")
    start, paid, sample = asker.clock(), Paid(), Sample(rows)
    without_guard = replace(asker, config=replace(asker.config, guard=None))
    with database.held():
        texts = split(sql, database)
        if len(texts) > 1:
            raise QueryError(f"preview was given {len(texts)} statements. It runs one query.")
        parameters = read_parameters(params, texts, database)
        with naming(texts[0], database), paid.noted():
            database.prepare(texts[0].query)
            calling = _query(read_statement(texts[0], database.kept, parameters))
            table = run(calling, database, without_guard, defaults, paid, sample.start)
            conditions = list(passed(sample.selects))
            counts = {one.place: one.count for one in conditions}
            shares = Shares(measured=counts, lengths=sample.lengths)
            again = _query(read_statement(texts[0], database.kept, parameters))
            cost = replace(explain(again, database, asker, defaults, shares), is_expected=True)
    result = finished(table, paid, asker.clock() - start)
    return Preview(result, cost, tuple(_notes(sample, conditions, cost)))


def _query(read: object) -> Calling:
    """The statement, if it is a query with calls."""
    if not isinstance(read, Calling):
        raise QueryError("The statement makes no LLM calls, so con.sql runs it at no cost.")
    if read.text.option is not None or read.shell.kind != "QUERY":
        raise QueryError(
            "preview runs a query, and writes nothing. Give the SELECT inside this statement."
        )
    return read


def _notes(sample: Sample, conditions: Sequence[Passed], cost: SqlExplanation) -> Iterator[str]:
    taken = list(map(_taken, sample.selects))
    if len(set(taken)) == 1:
        yield f"Ran on {taken[0]}."
    elif taken:
        yield f"Ran on {', '.join(taken)}: one for each SELECT with calls."
    if any(one.count < one.total for one in sample.selects):
        yield "They were drawn at random; a preview always takes the same ones."
    if largest := max((one.largest for one in sample.selects), default=0):
        yield (
            f"A group's answer is over at most {sample.most} of its rows; the largest has "
            f"{largest:,}."
        )
    yield from dict.fromkeys(one.note for one in conditions)
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
