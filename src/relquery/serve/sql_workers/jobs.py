"""What workers do: run a statement, tell what it would ask, or answer a query of another form."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from relquery.backends.local.client import EngineClient
from relquery.connection import Connection
from relquery.errors import QueryError
from relquery.ir.nodes import Bag, Node, Seq
from relquery.ir.paths import children_of
from relquery.ir.wire import WireQuery, read_value
from relquery.ir.wire_fields import decode
from relquery.markup.schema import Schema
from relquery.prompt import Prompt
from relquery.report import Report
from relquery.serve.errors import bad_request
from relquery.serve.sql_workers.tables import Tables, check_reads
from relquery.serve.sql_workers.work import (
    Explain,
    Job,
    MarkupPrompt,
    ReadQuery,
    SpanQuery,
    Statement,
)
from relquery.serve.values import plain, to_arrow, to_json
from relquery.spans.corpus import passages
from relquery.spans.run import prepare
from relquery.sql.record import Recording, Sent
from relquery.sql.result import Result

PART = 256 << 10
"""Bytes of a result that are told at once."""
_AT_ONCE = 1_000  # rows of a line
_PAUSE = 0.1  # seconds between two events of a stage


@dataclass(frozen=True, slots=True)
class Desk:
    """What a job has."""

    connection: Connection
    """Over the tables, with the tenant's answers."""
    tables: Tables
    tell: Callable[[Any], None]
    """Says something to whoever reads; waits while they are behind."""


def done(job: Job, desk: Desk) -> Any:
    """What a job gives.

    Raises HttpError for a statement that may not be run, QueryError and MarkupError, and
    RequestError if a generation fails.
    """
    match job:
        case ReadQuery(body):
            return _read(body)
        case SpanQuery(query, True):
            return prepare(Seq(tuple(_bags(query.node))), desk.connection.backend)
        case SpanQuery():
            return _answer(job, desk.connection)
        case MarkupPrompt(schema, prompt, options):
            desk.connection.register(Schema.parse(schema))
            return desk.connection.prompt(prompt, **options)
        case Explain(query, params, options):
            check_reads(query, desk.connection.database, desk.tables.all)
            found = desk.connection.explain(query, params, **options)
            return str(found), plain(found.arrow().to_pylist())
        case Statement():
            return _run(job, desk)


def _read(body: bytes) -> tuple[WireQuery, bool]:
    try:
        value = decode(body.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise QueryError(f"Byte {error.start} of the query is not UTF-8.") from None
    return read_value(value, None), isinstance(value, dict) and list(value) == ["map"]


def _bags(node: Node) -> Iterator[Node]:
    """The outermost parts whose states can be used at any position."""
    todo = [node]
    while todo:
        current = todo.pop()
        if isinstance(current, Bag) and current.independent:
            yield current
        else:
            todo += reversed(children_of(current))


def _answer(job: SpanQuery, connection: Connection) -> Any:
    corpora = {}
    for name, content in job.query.documents.items():
        if not isinstance(content, str):
            raise QueryError(f"The document '{name}' must be text.")
        corpora[name] = passages(content)
    for effect in job.query.effects:
        connection.run(effect)
    return connection.run(job.query.node, corpora=corpora)


def _run(job: Statement, desk: Desk) -> None:
    """Run a statement, and tell its result."""
    text = check_reads(job.query, desk.connection.database, desk.tables.all)
    connection = desk.connection
    # EXPLAIN ANALYZE looks at what goes into its ledger, which must be its own.
    if text.analyzes:
        connection = replace(connection, ledger=None)
    if job.options.get("record") and isinstance(asked := connection.backend, EngineClient):
        who = asked.tenant, asked.declared, asked.adapter
        connection = replace(connection, backend=_Recorded(asked.host, asked.facts, *who))
    if job.max_calls is not None:
        _check_calls(job, connection, job.max_calls)
    progress = _Progress(desk.tell) if job.form == "stream" else False
    result = connection.sql(job.query, job.params, progress=progress, **job.options)
    if job.form == "stream":
        for each in lines_of(result, connection, job.rows):
            desk.tell(_line(each))
        return
    if job.form == "arrow":
        shown = result.head(job.rows)
        about = {"report": plain(shown.report.to_dict()), "errors": _errors(shown)}
        content = to_arrow(shown.table, **about)
    else:
        content = to_json(whole(lines_of(result, connection, job.rows)))
    for start in range(0, len(content), PART):
        desk.tell(content[start : start + PART])


def _check_calls(job: Statement, connection: Connection, most: int) -> None:
    options = {k: v for k, v in job.options.items() if k not in ("on_error", "record")}
    explained = connection.explain(job.query, job.params, **options)
    calls = [each.calls for each in explained.calls]
    known = [each for each in calls if each is not None]
    if len(known) < len(calls) or sum(known) > most:
        many = f"up to {sum(known):,}" if len(known) == len(calls) else "an unknown number of"
        raise bad_request(
            f"The statement may make {many} calls of the model; at most {most:,} are allowed. "
            "Read fewer rows, or allow more calls.",
            "max_calls",
            "too_many_calls",
        )


def lines_of(
    result: Result, connection: Connection, rows: int | None = None
) -> Iterator[dict[str, Any]]:
    """A result as objects for JSON, each of which says its type. rows: that are told at most."""
    total = {} if rows is None else {"total_rows": len(result)}
    result = result.head(rows)
    yield {"type": "columns", "columns": _columns(result, connection)}
    for start in range(0, result.table.num_rows, _AT_ONCE):
        part = Result(result.table.slice(start, _AT_ONCE), (), Report())
        yield {"type": "rows", "rows": [list(map(plain, row)) for row in part.plain()]}
    yield {"type": "report", "report": plain(result.report.to_dict())}
    recording = result.recording
    told = {} if recording is None else {"recording": list(_stages(recording))}
    if told | total:
        yield {"type": "recording"} | told | total
    yield {"type": "errors", "errors": _errors(result)}


def whole(lines: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """The same as one object."""
    found: dict[str, Any] = {"columns": [], "rows": []}
    for line in lines:
        if line.pop("type") == "rows":
            found["rows"] += line["rows"]
        else:
            found |= line
    return found


def _columns(result: Result, connection: Connection) -> list[dict[str, str]]:
    """Names, and types as DuckDB calls them."""
    empty = result.table.slice(0, 0)
    numbered = empty.rename_columns([f"c{at}" for at in range(empty.num_columns)])
    if not numbered.num_columns:
        return []
    types = connection.database.connection.from_arrow(numbered).types
    pairs = zip(result.columns, map(str, types), strict=True)
    return [{"name": name, "type": kind} for name, kind in pairs]


def _errors(result: Result) -> list[dict[str, Any]]:
    """The missing values."""
    return [plain(asdict(each) | {"finish": each.finish.value}) for each in result.errors]


def _stages(recording: Recording) -> Iterator[dict[str, Any]]:
    """What was sent."""
    for name, stage in recording.stages.items():
        prompts = [_prompt(at, one) for at, one in sorted(stage.full.items())]
        yield {"stage": name, "sent": stage.sent, "prompts": prompts}


def _prompt(at: int, sent: Sent) -> dict[str, Any]:
    """A prompt with its tokens: reused, computed, and decoded for the answer.

    reused_characters: how much of the text the reused tokens are, about.
    """
    answer = sent.answer
    return {
        "index": at,
        "text": sent.text,
        "answer": answer.text,
        "error": answer.error,
        "reused": answer.cached_tokens,
        "computed": max(0, answer.prompt_tokens - answer.cached_tokens),
        "decoded": answer.output_tokens,
        "reused_characters": sent.reused,
    }


def _line(value: Mapping[str, Any]) -> bytes:
    return to_json(value) + b"\n"


class _Progress:
    """Tells of progress at most ten times a second."""

    def __init__(
        self, tell: Callable[[bytes], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tell, self._clock = tell, clock
        self._last: dict[str, float] = {}

    def __call__(self, stage: str, answered: int, total: int) -> None:
        now = self._clock()
        if answered == total or now - self._last.get(stage, -1.0) >= _PAUSE:
            self._last[stage] = now
            event = {"type": "progress", "stage": stage, "answered": answered, "total": total}
            self._tell(_line(event))


class _Recorded(EngineClient):
    """Does not tell the tokens of single prompts.

    A recording would ask for them some ten times for each prompt, each time between two steps of an
    engine that serves others. It estimates how much text was reused instead.
    """

    def runs(self, prompt: Prompt) -> None:
        return None

    def inspect(self, prompt: Prompt) -> None:
        return None
