"""What workers do: run a statement, tell what it would ask, or answer a span query."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from relquery.backends.service.client import EngineClient
from relquery.connection import Connection
from relquery.errors import QueryError
from relquery.ir.spnl.read import WireQuery
from relquery.prompt import Prompt
from relquery.serve.errors import bad_request
from relquery.serve.sql_workers.reading import check_reads
from relquery.serve.sql_workers.results import Answered
from relquery.serve.sql_workers.tables import Desk
from relquery.serve.sql_workers.work import Execute, Explain, Job, Statement
from relquery.serve.values import plain, to_json
from relquery.spans.corpus import passages
from relquery.spans.result import SpanResult

PART = 256 << 10
"""Bytes of a result that are told at once."""
_PAUSE = 0.1  # seconds between two events of a stage


def done(job: Job, desk: Desk) -> Any:
    """What a job gives.

    Raises HttpError for a statement that may not be run, QueryError, and RequestError if a
    generation fails.
    """
    match job:
        case Execute(query):
            return _execute(query, desk)
        case Explain(query, params, options):
            check_reads(query, desk.connection.database, desk.tables.all)
            found = desk.connection.explain(query, params, **options)
            return str(found), plain(found.arrow().to_pylist())
        case Statement():
            return _run(job, desk)


def _execute(query: WireQuery, desk: Desk) -> SpanResult:
    corpora = {}
    for name, content in query.documents.items():
        if not isinstance(content, str):
            raise QueryError(f"The document '{name}' must be text.")
        corpora[name] = passages(content)
    for effect in query.effects:
        desk.connection.run(effect)
    return desk.connection.run(query.node, corpora=corpora)


def _run(job: Statement, desk: Desk) -> None:
    """Run a statement, and tell its result."""
    text = check_reads(job.query, desk.connection.database, desk.tables.all)
    connection = desk.connection
    # EXPLAIN ANALYZE looks at what goes into its ledger, which must be its own.
    if text.analyzes:
        connection = replace(connection, ledger=None)
    if job.options.get("record") and isinstance(asked := connection.backend, EngineClient):
        who = asked.tenant, asked.declared, asked.adapter
        connection = replace(connection, backend=_Recorded(asked.serving, asked.facts, *who))
    if job.max_calls is not None:
        _check_calls(job, connection, job.max_calls)
    progress = _Progress(desk.tell) if job.form == "stream" else False
    result = connection.sql(job.query, job.params, progress=progress, **job.options)
    answered = Answered.of(result, connection, job.rows)
    if job.form == "stream":
        for each in answered.lines():
            desk.tell(_line(each))
        return
    content = answered.arrow() if job.form == "arrow" else answered.whole()
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
