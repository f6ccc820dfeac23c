"""A provider of the OpenAI form, without its transport: requests in, replies out, all counted."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from benchmarks.peers.programs.questions import MAP
from benchmarks.peers.standin import model
from benchmarks.peers.standin.texts import Texts, bare
from benchmarks.providers.standin.errors import Refused
from benchmarks.providers.standin.forms import chat
from benchmarks.providers.standin.http import Response

Row = Mapping[str, str]
RETRY_AFTER = 1
"""Seconds that a client is told to wait when there were too many requests."""
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
    """What was asked. prompts: the text of each request that was answered, as it is billed.

    repeated: requests for which the same one had been answered.
    """

    requests: int = 0
    failed: int = 0
    repeated: int = 0
    prompts: list[str] = field(default_factory=list)


class Provider:
    """kind: what is asked; a filter is followed by a map. question: its text.

    rows: those of the table. column: the one that answers depend on.
    """

    def __init__(
        self, kind: str, question: str, rows: Sequence[Row], column: str, trouble: Trouble
    ) -> None:
        self.kind, self._question, self.trouble = kind, question, trouble
        self._texts = Texts(row[column] for row in rows)
        self._fields: dict[tuple[str, str], set[str]] = defaultdict(set)
        for row in rows:
            for name, value in row.items():
                self._fields[bare(row[column]), name].add(bare(value))
        self.counts = Counts()
        self._answered: Counter[str] = Counter()
        self._tried: Counter[tuple[str, str]] = Counter()

    def reply(self, body: Mapping[str, Any]) -> Response:
        """To a request."""
        self.counts.requests += 1
        try:
            found = self._reply(body)
        except Refused as refused:
            found = refused.reply("openai")
        if found.status == 200:
            billed = _billed(body)
            self.counts.repeated += billed in self._answered
            self._answered[billed] += 1
            self.counts.prompts.append(billed)
        else:
            self.counts.failed += 1
        return found

    def restart(self) -> Counts:
        """The counts so far; those that follow begin at 0."""
        before, self.counts = self.counts, Counts()
        return before

    def _reply(self, body: Mapping[str, Any]) -> Response:
        if self.trouble is Trouble.REASONING:
            chat.refuse(body.get("temperature"), body.get("top_p"), body.get("max_tokens"))
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
        self._fail(kind, text)
        if self.trouble is Trouble.ROWS and (ending := ends_badly(text)) is not None:
            return ending
        return _completion(_written(kind, question, text, body))

    def _asked(self, prompt: str) -> tuple[str, str]:
        if self.kind == "filter" and bare(MAP) in prompt:
            return "map", MAP
        return self.kind, self._question

    def _fail(self, kind: str, text: str) -> None:
        """Raises Refused if this call is one that fails."""
        if self.trouble is not Trouble.CALLS:
            return
        self._tried[kind, text] += 1
        chance = model.number("call", kind, text, str(self._tried[kind, text])) % 20
        if chance == 0:
            raise Refused(500, "The server had an error.", "server_error")
        if chance == 1:
            wait = {"Retry-After": str(RETRY_AFTER)}
            raise Refused(429, "Too many requests.", "rate_limit_exceeded", headers=wait)


def ends_badly(text: str) -> Response | None:
    """What is sent for a text that has no answer under Trouble.ROWS; None if it has one."""
    match model.number("row", bare(text)) % 100:
        case 0:
            said = "The response was filtered due to the prompt triggering content management."
            return Refused(400, said, "content_policy_violation", "prompt").reply("openai")
        case 1:
            return _completion(None, refusal="I cannot help with this text.")
        case 2:
            return _completion("It is told in the", "length")
    return None


def _completion(text: str | None, finish: str = "stop", **message: Any) -> Response:
    return Response(chat.completion(text, finish, chat.counted(100, 10), **message))


def _said(body: Mapping[str, Any]) -> str:
    """The text of all messages."""
    parts = []
    for message in body["messages"]:
        content = message["content"]
        if isinstance(content, str):
            parts.append(content)
        else:
            parts += [part["text"] for part in content if part["type"] == "text"]
    return "\n".join(parts)


def _schema(body: Mapping[str, Any]) -> dict[str, Any] | None:
    asked = body.get("response_format") or {}
    if asked.get("type") != "json_schema":
        return None
    schema: dict[str, Any] = asked["json_schema"]["schema"]
    return schema


def _billed(body: Mapping[str, Any]) -> str:
    """The text that counts as the prompt: messages, and the schema of the answer."""
    schema = _schema(body)
    return _said(body) + ("" if schema is None else "\n" + json.dumps(schema))


def _written(kind: str, question: str, text: str, body: Mapping[str, Any]) -> str:
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


def _verdict(passes: bool, schema: Mapping[str, Any] | None, prompt: str) -> str | bool:
    """Yes or no, as a schema or the prompt asks for it."""
    if schema is not None and '"boolean"' in json.dumps(schema):
        return passes
    if schema is None and "trueorfalse" in bare(prompt):
        return f"Answer: {passes}"
    return "Yes" if passes else "No"
