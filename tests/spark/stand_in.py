"""A server that stands in for a model, for executors of Spark too."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.backends.provider.chat_server import (
    CHAT,
    Body,
    ChatServer,
    Reply,
    completion,
    failure,
    question,
    started,
)
from tests.sql.conftest import upper_or_length
from tests.sql.fakes import split_prompt

Fields = dict[str, Any]


class StandIn(ChatServer):
    """Answers by a function of the query and the fields. inputs: how often each was asked.

    Where the function returns None, the request fails.
    """

    def __init__(self, function: Callable[[str, Fields], str | None] = upper_or_length) -> None:
        super().__init__(self._answer, CHAT)
        self.function = function
        self.lock = threading.Lock()
        self.inputs: Counter[tuple[str, str]] = Counter()

    def _answer(self, body: Body) -> Reply:
        query, fields = split_prompt(question(body))
        with self.lock:
            self.inputs[query, json.dumps(fields, sort_keys=True)] += 1
        text = self.function(query, fields)
        if text is None:
            return failure(400, "out of spice")
        return completion(text, prompt_tokens=len(question(body)) // 4)


@contextmanager
def standing_in(
    function: Callable[[str, Fields], str | None] = upper_or_length,
) -> Iterator[StandIn]:
    """Such a server, while the block runs."""
    with started(StandIn(function)) as server:
        yield server
