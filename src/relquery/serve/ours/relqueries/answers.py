"""The answers of a relQuery on their way out: in the order of the rows, or as they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from relquery.prompt import Answer, Finish
from relquery.serve.flow import Flow, Part
from relquery.serve.ours.lines import line
from relquery.serve.ours.relqueries.ordering import Ordered
from relquery.unicode import valid

_FINISHES = {Finish.STOP: "stop", Finish.DECIDED: "stop", Finish.LENGTH: "length"}
_COLUMNS = pa.schema(
    {
        "row": pa.int64(),
        "answer": pa.string(),
        "error": pa.string(),
        "finish_reason": pa.string(),
        "prompt_tokens": pa.int64(),
        "cached_tokens": pa.int64(),
        "completion_tokens": pa.int64(),
    }
)


class Answering:
    """Collects answers. as_: "rows" holds each back until those of the rows before it are there."""

    def __init__(self, ordered: Ordered, as_: str) -> None:
        self._ordered, self._in_order = ordered, as_ == "rows"
        self._asked: list[Answer] = []
        self._waiting: dict[int, dict[str, Any]] = {}
        self._next = 0

    def take(self, parts: Iterable[Part]) -> Iterator[dict[str, Any]]:
        """The answers to rows that can be given now."""
        for part in parts:
            if part.answer is not None:
                self._asked.append(part.answer)
                yield from self._given(part.at, part.answer)

    def lines(self, parts: list[Part]) -> bytes:
        """The same as lines of JSON."""
        return b"".join(line({"type": "answer"} | each) for each in self.take(parts))

    def report(self, flow: Flow) -> dict[str, Any]:
        """What the answers cost. Prompts are counted once for all rows that share them."""
        prompts = sum(each.prompt_tokens for each in self._asked)
        cached = sum(each.cached_tokens for each in self._asked)
        order = self._ordered.report
        latency = flow.latency
        return {
            "rows": sum(map(len, self._ordered.sharing)),
            "calls": len(self._asked),
            "errors": sum(each.error is not None for each in self._asked),
            "prompt_tokens": prompts,
            "cached_tokens": cached,
            "output_tokens": sum(each.output_tokens for each in self._asked),
            "hit_rate": cached / prompts if prompts else 0.0,
            "order": None if order is None else order.method,
            "phr": 0.0 if order is None else order.phr,
            "solver_seconds": 0.0 if order is None else order.seconds,
            "seconds": None if latency is None else latency.total,
        }

    def _given(self, at: int, answer: Answer) -> Iterator[dict[str, Any]]:
        for row in self._ordered.sharing[at]:
            shown = _shown(row, answer)
            if not self._in_order:
                yield shown
            else:
                self._waiting[row] = shown
        while self._in_order and self._next in self._waiting:
            yield self._waiting.pop(self._next)
            self._next += 1


def _shown(row: int, answer: Answer) -> dict[str, Any]:
    return {
        "row": row,
        "answer": answer.text,
        "error": answer.error,
        "finish_reason": _FINISHES.get(answer.finish, "error"),
        "usage": {
            "prompt_tokens": answer.prompt_tokens,
            "cached_tokens": answer.cached_tokens,
            "completion_tokens": answer.output_tokens,
        },
    }


def as_arrow(answers: list[dict[str, Any]], report: bytes) -> bytes:
    """The answers as an Arrow IPC stream, whose schema has the report."""
    flat = [{**each, **each["usage"]} for each in answers]
    for each in flat:  # half a character is not text in Arrow
        for name in ("answer", "error"):
            if each[name] is not None:
                each[name] = valid(each[name])
    table = pa.Table.from_pylist(flat, _COLUMNS.with_metadata({"relquery.report": report}))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content
