"""A response as events, each with its number in the sequence."""

from __future__ import annotations

import json
from itertools import count
from typing import Any, Protocol

from relquery.prompt import Answer
from relquery.serve.answering import EventStream
from relquery.serve.errors import HttpError
from relquery.serve.flow import Flow, Part


class Shown(Protocol):
    """A response as an object, see ResponseForm. item: the id of its message."""

    item: str

    def begun(self) -> dict[str, Any]: ...
    def ended(self, answer: Answer) -> dict[str, Any]: ...
    def failed(self, error: HttpError) -> dict[str, Any]: ...
    def message(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]: ...


class ResponseEvents:
    """The events of one response."""

    def __init__(self, form: Shown) -> None:
        self._form, self._numbers = form, count()

    def stream(self, flow: Flow) -> EventStream:
        """A flow as these events."""
        return EventStream(flow, self._shown, first=self._first, failed=self._failed)

    def _first(self, parts: list[Part]) -> bytes:
        del parts
        begun, place = self._form.begun(), {"output_index": 0}
        return b"".join(
            [
                self._event("response.created", response=begun),
                self._event("response.in_progress", response=begun),
                self._event(
                    "response.output_item.added",
                    item=self._form.message("in_progress", []),
                    **place,
                ),
                self._of_part("response.content_part.added", part=part_of("")),
            ]
        )

    def _shown(self, parts: list[Part]) -> bytes:
        return b"".join(map(self._one, parts))

    def _one(self, part: Part) -> bytes:
        if part.piece is not None:
            return self._of_part("response.output_text.delta", delta=part.piece.text, logprobs=[])
        assert part.answer is not None
        return self._end(part.answer)

    def _end(self, answer: Answer) -> bytes:
        ended, text = self._form.ended(answer), answer.text or ""
        (item,) = ended["output"]
        return b"".join(
            [
                self._of_part("response.output_text.done", text=text, logprobs=[]),
                self._of_part("response.content_part.done", part=part_of(text)),
                self._event("response.output_item.done", item=item, output_index=0),
                self._event(f"response.{ended['status']}", response=ended),
            ]
        )

    def _failed(self, error: HttpError) -> bytes:
        return self._event("response.failed", response=self._form.failed(error))

    def _of_part(self, kind: str, **more: Any) -> bytes:
        place = {"item_id": self._form.item, "output_index": 0, "content_index": 0}
        return self._event(kind, **place, **more)

    def _event(self, kind: str, **more: Any) -> bytes:
        data = {"type": kind, "sequence_number": next(self._numbers)} | more
        return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def part_of(text: str) -> dict[str, Any]:
    """Text as a part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
