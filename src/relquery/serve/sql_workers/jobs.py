"""What workers do: run a statement, tell what it would ask, or answer a span query."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from relquery.backends.base import Backend, Insight, LazyBackend
from relquery.connection import Connection
from relquery.errors import QueryError
from relquery.ir.spnl.read import WireQuery
from relquery.prompt import Prompt, Sampling
from relquery.serve.errors import HttpError
from relquery.serve.sql_workers.reading import check_reads
from relquery.serve.sql_workers.results import Answered
from relquery.serve.sql_workers.worker import Desk
from relquery.serve.values import plain, to_json
from relquery.spans.corpus import passages
from relquery.spans.result import SpanResult

PART = 256 << 10
"""Bytes of a result that are told at once."""
_PAUSE = 0.1  # seconds between two events of a stage


@dataclass(frozen=True, slots=True)
class Explain:
    """Gives the text and the rows of an explanation. params, options: of Connection.explain."""

    query: str
    params: Any
    options: Mapping[str, Any]

    def __call__(self, desk: Desk) -> tuple[str, list[dict[str, Any]]]:
        """Raises HttpError for a statement that may not be run."""
        check_reads(self.query, desk.connection.database, desk.tables.all)
        found = desk.connection.explain(self.query, self.params, **self.options)
        return str(found), plain(found.arrow().to_pylist())


@dataclass(frozen=True, slots=True)
class Execute:
    """Answers a span query, which may search the tables and the documents that came with it."""

    query: WireQuery

    def __call__(self, desk: Desk) -> SpanResult:
        """Raises QueryError, and RequestError if a generation fails."""
        corpora = {}
        for name, content in self.query.documents.items():
            if not isinstance(content, str):
                raise QueryError(f"The document '{name}' must be text.")
            corpora[name] = passages(content)
        for effect in self.query.effects:
            desk.connection.run(effect)
        return desk.connection.run(self.query.node, corpora=corpora)


@dataclass(frozen=True, slots=True)
class Statement:
    """Runs a statement, and tells its result in parts; of a stream lines of JSON, with progress.
    params, options: of Connection.sql.
    """

    query: str
    params: Any
    options: Mapping[str, Any]
    form: Literal["json", "arrow", "stream"]
    max_calls: int | None = None
    """Calls that it may ask at most."""
    rows: int | None = None
    """Rows that are told at most."""

    def __call__(self, desk: Desk) -> None:
        """Raises HttpError for a statement that may not be run."""
        text = check_reads(self.query, desk.connection.database, desk.tables.all)
        connection = desk.connection
        # EXPLAIN ANALYZE looks at what goes into its ledger, which must be its own.
        if text.analyzes:
            connection = replace(connection, ledger=None)
        if self.options.get("record"):
            connection = replace(connection, backend=_Recorded(connection.backend))
        if self.max_calls is not None:
            self._check_calls(connection, self.max_calls)
        answered = self._answered(connection, desk)
        if self.form == "stream":
            for each in answered.lines():
                desk.tell(_line(each))
            return
        content = answered.arrow() if self.form == "arrow" else answered.whole()
        for start in range(0, len(content), PART):
            desk.tell(content[start : start + PART])

    def _answered(self, connection: Connection, desk: Desk) -> Answered:
        progress = _Progress(desk.tell) if self.form == "stream" else False
        result = connection.sql(self.query, self.params, progress=progress, **self.options)
        return Answered.of(result, connection, self.rows)

    def _check_calls(self, connection: Connection, most: int) -> None:
        options = {k: v for k, v in self.options.items() if k not in ("on_error", "record")}
        explained = connection.explain(self.query, self.params, **options)
        calls = [each.calls for each in explained.calls]
        known = [each for each in calls if each is not None]
        if len(known) < len(calls) or sum(known) > most:
            many = f"up to {sum(known):,}" if len(known) == len(calls) else "an unknown number of"
            raise HttpError(
                400,
                f"The statement may make {many} calls of the model; at most {most:,} are allowed. "
                "Read fewer rows, or allow more calls.",
                "too_many_calls",
                "max_calls",
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


class _Recorded(LazyBackend):
    """Does not tell the tokens of single prompts.

    A recording would ask for them some ten times for each prompt, each time between two steps of an
    engine that serves others. It estimates how much text was reused instead.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(lambda: backend)

    @property
    def insight(self) -> Insight:
        return _Counts(super().insight)


class _Counts(Insight):
    """What is told of many prompts at once."""

    def __init__(self, whole: Insight) -> None:
        self._whole = whole

    def one_pass(self, sampling: Sampling) -> bool | None:
        return self._whole.one_pass(sampling)

    def prompt_tokens(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[int] | None:
        return self._whole.prompt_tokens(prompts, sampling)

    def predict(
        self, prompt_tokens: Sequence[int], sampling: Sampling, cached: int = 0
    ) -> float | None:
        return self._whole.predict(prompt_tokens, sampling, cached)
