"""A stand-in of OpenAI's form that answers questions about rows, and counts what it is asked."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from benchmarks.peers import model
from benchmarks.peers.model import Texts, bare
from benchmarks.peers.programs.questions import MAP
from benchmarks.standin.errors import Refused
from benchmarks.standin.http import Json
from benchmarks.standin.server import Reply, Scripted
from benchmarks.standin.wires import openai_chat

Row = Mapping[str, str]
DELAY = 0.05
"""Seconds that a call takes."""
RETRY_AFTER = 1
"""Seconds that a client is told to wait when there were too many requests."""
_QUIET = 0.5
_COLUMN = re.compile(r"\{(\w+)\}")


class Trouble(Enum):
    """What is wrong with the provider.

    CALLS: one call in ten fails and is answered when it is tried again: as often 500 as 429 with
    Retry-After. ROWS: three rows in a hundred have no answer: a third is refused by a filter of
    contents (400), one by the model, one is cut off. REASONING: `max_tokens` and a temperature
    other than 1 are refused, as reasoning models do.
    """

    NONE = "none"
    CALLS = "calls"
    ROWS = "rows"
    REASONING = "reasoning"


@dataclass(slots=True)
class Counts:
    """What was asked."""

    requests: int = 0
    failed: int = 0
    repeated: int = 0
    """Requests for which the same one had been answered."""
    prompts: list[str] = field(default_factory=list)
    """The text of each request that was answered, as it is billed."""


class TableProvider(Scripted):
    """kind: what is asked; a filter is followed by a map. question: its text.

    rows: those of the table. column: the one that answers depend on. path: of the API, before /v1.
    """

    def __init__(
        self,
        kind: str,
        question: str,
        rows: Sequence[Row],
        column: str,
        trouble: Trouble,
        path: str = "",
    ) -> None:
        super().__init__(self._answer_late, f"{path}/v1/chat/completions")
        self.kind, self._question, self.trouble = kind, question, trouble
        self._texts = Texts(row[column] for row in rows)
        self._fields: dict[tuple[str, str], set[str]] = defaultdict(set)
        for row in rows:
            for name, value in row.items():
                self._fields[bare(row[column]), name].add(bare(value))
        self.counts = Counts()
        self._answered: Counter[str] = Counter()
        self._tried: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def restart(self) -> Counts:
        """The counts so far; those that follow begin at 0."""
        before, self.counts = self.counts, Counts()
        return before

    def settle(self) -> None:
        """Wait until no request comes for half a second: those of a killed client are read late."""
        before = -1
        while before < self.counts.requests:
            before = self.counts.requests
            time.sleep(_QUIET)

    def _answer_late(self, body: Json) -> Reply:
        with self._lock:
            reply = self.answer_to(body)
        time.sleep(DELAY)
        return reply

    def answer_to(self, body: Json) -> Reply:
        """The reply to a request, which is counted."""
        self.counts.requests += 1
        try:
            reply = self._reply(body)
        except Refused as refused:
            self.counts.failed += 1
            return refused
        schema = _schema(body)
        billed = _said(body) + (f"\n{json.dumps(schema)}" if schema else "")
        self.counts.repeated += billed in self._answered
        self._answered[billed] += 1
        self.counts.prompts.append(billed)
        return reply

    def _reply(self, body: Json) -> Json:
        if self.trouble is Trouble.REASONING:
            openai_chat.refuse(body.get("temperature"), body.get("top_p"), body.get("max_tokens"))
        prompt = bare(_said(body))
        kind, question = self._asked(prompt)
        texts = self._texts.found(prompt)
        if not texts:
            return _completion("There is no text in the prompt.")
        if kind == "groups":
            return _completion(model.summary(texts))
        text = max(texts, key=len)
        for name in _COLUMN.findall(question):
            if not any(value in prompt for value in self._fields[text, name]):
                return _completion(f"There is no {name} in the prompt.")
        if self.trouble is Trouble.CALLS:
            self._fail(kind, text)
        ending = ends_badly(text) if self.trouble is Trouble.ROWS else None
        if isinstance(ending, Refused):
            raise ending
        return ending or _completion(_written(kind, question, text, body))

    def _asked(self, prompt: str) -> tuple[str, str]:
        if self.kind == "filter" and bare(MAP) in prompt:
            return "map", MAP
        return self.kind, self._question

    def _fail(self, kind: str, text: str) -> None:
        """Raises Refused if this call is one that fails."""
        self._tried[kind, text] += 1
        chance = model.number("call", kind, text, str(self._tried[kind, text])) % 20
        if chance == 0:
            raise Refused(500, "The server had an error.", "server_error")
        if chance == 1:
            wait = str(RETRY_AFTER)
            raise Refused(429, "Too many requests.", "rate_limit_exceeded", Retry_After=wait)


def ends_badly(text: str) -> Json | Refused | None:
    """What is sent for a text that has no answer under Trouble.ROWS; None if it has one."""
    match model.number("row", bare(text)) % 100:
        case 0:
            said = "The response was filtered due to the prompt triggering content management."
            return Refused(400, said, "content_policy_violation", "prompt")
        case 1:
            return _completion(None, refusal="I cannot help with this text.")
        case 2:
            return _completion("It is told in the", "length")
    return None


def _completion(text: str | None, finish: str = "stop", **message: Any) -> Json:
    return openai_chat.completion(text, finish, 100, 0, 10, **message)


def _said(body: Json) -> str:
    """The text of all messages."""
    contents = [message["content"] for message in body["messages"]]
    parts = [[{"text": each}] if isinstance(each, str) else each for each in contents]
    return "\n".join(part["text"] for each in parts for part in each if "text" in part)


def _schema(body: Json) -> Json | None:
    asked = body.get("response_format") or {}
    if asked.get("type") != "json_schema":
        return None
    schema: Json = asked["json_schema"]["schema"]
    return schema


def _written(kind: str, question: str, text: str, body: Json) -> str:
    """An answer in the form that the request asks for."""
    schema = _schema(body)
    match kind:
        case "filter":
            said = _verdict(model.recommends(text), schema, _said(body))
        case "classify":
            said = model.mood(text)
        case "extract":
            return json.dumps(model.extracted(text))
        case _:
            return model.sentence(question, text)
    return str(said) if schema is None else json.dumps(dict.fromkeys(schema["properties"], said))


def _verdict(passes: bool, schema: Json | None, prompt: str) -> str | bool:
    """Yes or no, as a schema or the prompt asks for it."""
    if schema is not None and '"boolean"' in json.dumps(schema):
        return passes
    if schema is None and "trueorfalse" in bare(prompt):
        return f"Answer: {passes}"
    return "Yes" if passes else "No"
