"""The jobs of workers: statements, their explanations, and queries of other forms.
Results become JSON and Arrow in which no digit of a value is lost."""

from __future__ import annotations

import datetime
import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import isfinite
from time import monotonic
from typing import Any

import pyarrow as pa

from relquery.backends.local.client import EngineClient
from relquery.connection import Connection
from relquery.errors import QueryError
from relquery.ir.nodes import Bag, Node, Seq
from relquery.ir.paths import children_of
from relquery.ir.wire import WireQuery
from relquery.markup.schema import Schema
from relquery.prompt import Prompt
from relquery.report import Report
from relquery.serve.errors import bad_request, to_json
from relquery.serve.sql_workers.tables import Tables, check_reads
from relquery.spans.corpus import passages
from relquery.spans.run import prepare
from relquery.sql.record import Sent
from relquery.sql.result import Result

PART = 256 << 10
"""Bytes of a result that are told at once."""
_PAUSE = 0.1  # seconds between two events of a stage
Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JobContext:
    """The environment of a job."""

    connection: Connection
    """Over the tables, with the tenant's answers."""
    tables: Tables
    tell: Callable[[Any], None]
    """Says something to whoever reads; waits while they are behind."""


def run_sql(
    desk: JobContext,
    query: str,
    params: Any,
    options: Options,
    form: str,
    max_calls: int | None = None,
    rows: int | None = None,
) -> None:
    """Run a statement, and tell its result in parts.

    options: of Connection.sql. form: json, arrow, or stream for lines of JSON with progress.
    max_calls: that it may ask. rows: that are told at most. Raises HttpError for a statement that
    may not be run, and QueryError.
    """
    text = check_reads(query, desk.connection.database, desk.tables.all)
    connection = desk.connection
    # EXPLAIN ANALYZE looks at what goes into its ledger, which must be its own.
    if text.analyzes:
        connection = replace(connection, ledger=None)
    if options.get("record") and isinstance(asked := connection.backend, EngineClient):
        who = asked.tenant, asked.declared, asked.adapter
        connection = replace(connection, backend=_Recorded(asked.host, asked.facts, *who))
    if max_calls is not None:
        _check_calls(connection, query, params, options, max_calls)
    progress = _progress(desk.tell) if form == "stream" else False
    result = connection.sql(query, params, progress=progress, **options)
    if form == "stream":
        for each in lines_of(result, connection, rows):
            desk.tell(as_json(each) + b"\n")
        return
    if form == "arrow":
        shown = result.head(rows)
        about = {"report": plain(shown.report.to_dict()), "errors": errors_of(shown)}
        content = as_arrow(shown.table, **about)
    else:
        content = as_json(whole(lines_of(result, connection, rows)))
    for start in range(0, len(content), PART):
        desk.tell(content[start : start + PART])


def explain_sql(desk: JobContext, query: str, params: Any, options: Options) -> tuple[str, Any]:
    """The text and the rows of an explanation. options: of Connection.explain."""
    check_reads(query, desk.connection.database, desk.tables.all)
    explanation = desk.connection.explain(query, params, **options)
    return str(explanation), plain(explanation.arrow().to_pylist())


def answer_spans(desk: JobContext, query: WireQuery) -> Any:
    """Answers to a span query, which may search the tables and the documents that came with it.
    Raises RequestError if a generation fails."""
    corpora = {}
    for name, content in query.documents.items():
        if not isinstance(content, str):
            raise QueryError(f"The document '{name}' must be text.")
        corpora[name] = passages(content)
    for effect in query.effects:
        desk.connection.run(effect)
    return desk.connection.run(query.node, corpora=corpora)


def prepare_spans(desk: JobContext, query: WireQuery) -> int:
    """Compute the states of what a span query reads in any order; of how many texts."""
    return prepare(Seq(tuple(_bags(query.node))), desk.connection.backend)


def answer_prompt(desk: JobContext, schema: str, prompt: str, options: Options) -> Any:
    """The answer to a prompt over a schema. options: of Connection.prompt. Raises MarkupError."""
    desk.connection.register(Schema.parse(schema))
    return desk.connection.prompt(prompt, **options)


JOBS: Mapping[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (run_sql, explain_sql, answer_spans, prepare_spans, answer_prompt)
}


def _bags(node: Node) -> Iterator[Node]:
    """The outermost parts whose states can be used at any position."""
    todo = [node]
    while todo:
        current = todo.pop()
        if isinstance(current, Bag) and current.independent:
            yield current
        else:
            todo += reversed(children_of(current))


def _check_calls(
    connection: Connection, query: str, params: Any, options: Options, most: int
) -> None:
    known = {k: v for k, v in options.items() if k not in ("on_error", "record")}
    calls = [each.calls for each in connection.explain(query, params, **known).calls]
    total = None if None in calls else sum(each or 0 for each in calls)
    if total is None or total > most:
        many = "an unknown number of" if total is None else f"up to {total:,}"
        raise bad_request(
            f"The statement may make {many} calls of the model; at most {most:,} are allowed. "
            "Read fewer rows, or allow more calls.",
            "max_calls",
            "too_many_calls",
        )


def _progress(
    tell: Callable[[bytes], None], clock: Callable[[], float] = monotonic
) -> Callable[[str, int, int], None]:
    """What tells of progress at most ten times a second."""
    latest: dict[str, float] = {}

    def progress(stage: str, answered: int, total: int) -> None:
        now = clock()
        if answered == total or now - latest.get(stage, -1.0) >= _PAUSE:
            latest[stage] = now
            event = {"type": "progress", "stage": stage, "answered": answered, "total": total}
            tell(as_json(event) + b"\n")

    return progress


class _Recorded(EngineClient):
    """A recorder that does not tell the tokens of single prompts.

    A recording would ask for them some ten times for each prompt, each time between two steps of an
    engine that serves others. It estimates how much text was reused instead.
    """

    def runs(self, prompt: Prompt) -> None:
        return None

    def inspect(self, prompt: Prompt) -> None:
        return None


_AT_ONCE = 1_000  # rows of a line
_MOST_EXACT = 2**53  # larger integers change in programs that read all numbers as floats


def as_arrow(table: pa.Table, **about: Any) -> bytes:
    """A table as an Arrow IPC stream, whose schema has what is said about it, as JSON."""
    said = {f"relquery.{name}": as_json(value) for name, value in about.items()}
    sink = pa.BufferOutputStream()
    named = table.replace_schema_metadata(said)
    with pa.ipc.new_stream(sink, named.schema) as stream:
        stream.write_table(named)
    content: bytes = sink.getvalue().to_pybytes()
    return content


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
    told: dict[str, Any] = {}
    if recording is not None:
        told["recording"] = [
            {
                "stage": name,
                "sent": stage.sent,
                "prompts": [_prompt(index, prompt) for index, prompt in sorted(stage.full.items())],
            }
            for name, stage in recording.stages.items()
        ]
    if told | total:
        yield {"type": "recording"} | told | total
    yield {"type": "errors", "errors": errors_of(result)}


def whole(lines: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """The same as one object."""
    body: dict[str, Any] = {"columns": [], "rows": []}
    for line in lines:
        if line.pop("type") == "rows":
            body["rows"] += line["rows"]
        else:
            body |= line
    return body


def _columns(result: Result, connection: Connection) -> list[dict[str, str]]:
    """Names, and types as DuckDB calls them."""
    empty = result.table.slice(0, 0)
    numbered = empty.rename_columns([f"c{index}" for index in range(empty.num_columns)])
    if not numbered.num_columns:
        return []
    types = connection.database.connection.from_arrow(numbered).types
    pairs = zip(result.columns, map(str, types), strict=True)
    return [{"name": name, "type": kind} for name, kind in pairs]


def errors_of(result: Result) -> list[dict[str, Any]]:
    """The missing values."""
    return [plain(asdict(each) | {"finish": each.finish.value}) for each in result.errors]


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


def as_json(value: Any) -> bytes:
    """A value of DuckDB or Python as JSON."""
    return to_json(value, plain)


def plain(value: Any) -> Any:
    """A value that JSON has.

    Numbers that JSON has not, decimals and integers beyond 2^53 are text, so that no digit is
    lost; dates, times and intervals are text, and bytes are Base64.
    """
    if isinstance(value, Mapping):
        return {_key(key): plain(each) for key, each in value.items()}
    if isinstance(value, pa.MonthDayNano):
        return _interval(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    shown: Any = str(value)
    match value:
        case None | bool() | str():
            shown = value
        case int():
            shown = value if abs(value) <= _MOST_EXACT else shown
        case float():
            shown = value if isfinite(value) else shown
        case datetime.date() | datetime.time():  # a datetime is a date
            shown = value.isoformat()
        case bytes() | bytearray() | memoryview():
            shown = b64encode(bytes(value)).decode()
    return shown


def _interval(value: pa.MonthDayNano) -> str:
    """As DuckDB writes it: 1 year 2 months 3 days 04:05:06.7."""
    years, months = divmod(abs(value.months), 12)
    sign = -1 if value.months < 0 else 1
    counts = {"year": sign * years, "month": sign * months, "day": value.days}
    parts = [f"{n} {name}{'' if abs(n) == 1 else 's'}" for name, n in counts.items() if n]
    if value.nanoseconds or not parts:
        parts.append(_clock(value.nanoseconds))
    return " ".join(parts)


def _clock(nanoseconds: int) -> str:
    seconds, rest = divmod(abs(nanoseconds), 10**9)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{rest:09}".rstrip("0") if rest else ""
    sign = "-" if nanoseconds < 0 else ""
    return f"{sign}{hours:02}:{minutes:02}:{seconds:02}{fraction}"


def _key(key: Any) -> str:
    text = plain(key)
    return text if isinstance(text, str) else json.dumps(text)
