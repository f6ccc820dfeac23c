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


@dataclass(frozen=True, slots=True)
class Reply:
    """What is sent back."""

    body: dict[str, Any]
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


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

    def reply(self, body: Mapping[str, Any]) -> Reply:
        """To a request."""
        self.counts.requests += 1
        found = self._reply(body)
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

    def _reply(self, body: Mapping[str, Any]) -> Reply:
        if self.trouble is Trouble.REASONING and (refused := _refused(body)):
            return refused
        prompt = bare(_said(body))
        kind, question = self._asked(prompt)
        texts = self._texts.found(prompt)
        if not texts:
            return completion("There is no text in the prompt.")
        if kind == "groups":
            return completion(model.summary(texts))
        text = max(texts, key=len)
        for name in _COLUMN.findall(question):
            if not any(value in prompt for value in self._fields[text, name]):
                return completion(f"There is no {name} in the prompt.")
        if trouble := self._trouble(kind, text):
            return trouble
        return completion(_written(kind, question, text, body))

    def _asked(self, prompt: str) -> tuple[str, str]:
        if self.kind == "filter" and bare(MAP) in prompt:
            return "map", MAP
        return self.kind, self._question

    def _trouble(self, kind: str, text: str) -> Reply | None:
        match self.trouble:
            case Trouble.CALLS:
                self._tried[kind, text] += 1
                chance = model.number("call", kind, text, str(self._tried[kind, text])) % 20
                if chance == 0:
                    return error(500, "The server had an error.", "server_error")
                if chance == 1:
                    wait = (("Retry-After", str(RETRY_AFTER)),)
                    return error(429, "Too many requests.", "rate_limit_exceeded", headers=wait)
            case Trouble.ROWS if (ending := ends_badly(text)) is not None:
                return ending
        return None


def ends_badly(text: str) -> Reply | None:
    """What is sent for a text that has no answer under Trouble.ROWS; None if it has one."""
    match model.number("row", bare(text)) % 100:
        case 0:
            said = "The response was filtered due to the prompt triggering content management."
            return error(400, said, "content_policy_violation", "prompt")
        case 1:
            return completion(None, refusal="I cannot help with this text.")
        case 2:
            return completion("It is told in the", "length")
    return None


def completion(text: str | None, finish: str = "stop", **message: Any) -> Reply:
    """A chat completion."""
    said = {"role": "assistant", "content": text, **message}
    choice = {"index": 0, "message": said, "finish_reason": finish, "logprobs": None}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "stand-in"}
    return Reply({**head, "choices": [choice], "usage": usage})


def error(
    status: int,
    message: str,
    code: str,
    param: str | None = None,
    headers: tuple[tuple[str, str], ...] = (),
) -> Reply:
    """An error as OpenAI words it."""
    kind = "invalid_request_error" if status == 400 else code
    said = {"message": message, "type": kind, "param": param, "code": code}
    return Reply({"error": said}, status, headers)


def _refused(body: Mapping[str, Any]) -> Reply | None:
    if body.get("max_tokens") is not None:
        said = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead."
        )
        return error(400, said, "unsupported_parameter", "max_tokens")
    temperature = body.get("temperature")
    if temperature is not None and temperature != 1:
        said = (
            f"Unsupported value: 'temperature' does not support {temperature} with this model. "
            "Only the default (1) value is supported."
        )
        return error(400, said, "unsupported_value", "temperature")
    return None


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
