"""Completions as events: what chat and plain ones have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relquery.prompt import Answer
from relquery.serve.answering import EventStream
from relquery.serve.errors import HttpError, openai_body
from relquery.serve.flow import Flow, Part
from relquery.serve.wire.openai.sampling import StreamOptions
from relquery.serve.wire.openai.usage import usage_of


class Events:
    """The events of one request.

    head: the fields that all of them have. places: see Question. n: choices of each prompt.
    choice: a part of a choice as JSON; its index, then the part.
    """

    def __init__(
        self,
        head: Mapping[str, Any],
        options: StreamOptions | None,
        places: Sequence[int],
        n: int,
        choice: Callable[[int, Part], str],
    ) -> None:
        self._opening = json.dumps(head, separators=(",", ":"))[:-1]
        self._with_usage = bool(options and options.include_usage)
        self._places, self._n, self._choice = places, n, choice
        self._answers: dict[int, Answer] = {}

    def stream(self, flow: Flow, first: Sequence[str] = (), **more: Any) -> EventStream:
        """A flow as these events. first: choices of the events before all others."""

        def begin(parts: list[Part]) -> bytes:
            del parts
            return "".join(map(self._event, first)).encode()

        return EventStream(flow, self._shown, first=begin, last=self._last, failed=failure, **more)

    def _shown(self, parts: list[Part]) -> bytes:
        return "".join(map(self._one, parts)).encode()

    def _one(self, part: Part) -> str:
        place = self._places[part.at]
        if part.answer is not None:
            self._answers[place] = part.answer
        return self._event(self._choice(place, part))

    def _event(self, choice: str, usage: str = "") -> str:
        more = f',"usage":{usage or "null"}' if self._with_usage else ""
        return f'data: {self._opening},"choices":[{choice}]{more}}}\n\n'

    def _last(self) -> bytes:
        usage = ""
        if self._with_usage:
            answers = [self._answers[place] for place in sorted(self._answers)]
            usage = self._event("", json.dumps(usage_of(answers, self._n)))
        return f"{usage}data: [DONE]\n\n".encode()


def failure(error: HttpError) -> bytes:
    """An error in the midst of a stream."""
    return f"data: {json.dumps(openai_body(error))}\n\n".encode()
