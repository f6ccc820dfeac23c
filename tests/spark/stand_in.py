"""A server that stands in for a model, for executors of Spark too."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.standin.errors import Refused
from benchmarks.standin.http import Json
from benchmarks.standin.server import Reply, Scripted, question, started
from benchmarks.standin.wires.openai_chat import completion
from tests.sql.conftest import upper_or_length
from tests.sql.fakes import split_prompt

Answer = Callable[[str, dict[str, Any]], str | None]


class StandIn(Scripted):
    """Answers by a function of query and fields; where it returns None, the request fails."""

    def __init__(self, function: Answer) -> None:
        super().__init__(self._answer)
        self.function = function

    @property
    def inputs(self) -> Counter[tuple[str, str]]:
        """How often each was asked."""
        asked = [split_prompt(question(body)) for body in self.asked]
        return Counter((query, json.dumps(fields, sort_keys=True)) for query, fields in asked)

    def _answer(self, body: Json) -> Reply:
        text = self.function(*split_prompt(question(body)))
        if text is None:
            return Refused(400, "out of spice")
        return completion(text, prompt_tokens=len(question(body)) // 4)


@contextmanager
def standing_in(function: Answer = upper_or_length) -> Iterator[StandIn]:
    """Such a server, while the block runs."""
    with started(StandIn(function)) as server:
        yield server
