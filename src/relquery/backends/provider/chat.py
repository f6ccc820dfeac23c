"""The chat-completions form: prompts and sampling as a request body."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from relquery.backends.provider.weighing import FEWER, MOST
from relquery.backends.schemas.closed import closed
from relquery.errors import RequestError
from relquery.prompt import Prompt, Reuse, Role, Sampling, Span, messages

Messages = list[dict[str, str]]


def to_messages(prompt: Prompt) -> Messages:
    """The messages of a prompt, neighbours of one role apart. Raises RequestError."""
    return [
        {"role": role.value, "content": "".join(map(_text, spans))}
        for role, spans in messages(prompt)
    ]


def _text(span: Span) -> str:
    if span.reuse is Reuse.INDEPENDENT or span.position is not None:
        raise RequestError(
            "A provider cannot serve independent spans or positions. Run the query with "
            "independent=False, which sends them as ordinary text, or use the embedded engine."
        )
    if span.open:
        raise RequestError(
            "A provider cannot continue a message. Leave the last message of the assistant out, or "
            "use the embedded engine."
        )
    if span.role is Role.NONE:
        raise RequestError("A provider puts each text into a message; give the span a role.")
    if not isinstance(span.content, str):
        raise RequestError("A provider only accepts text, but this prompt contains token ids.")
    try:
        span.content.encode()
    except UnicodeEncodeError as error:
        raise RequestError(f"The prompt is not valid Unicode text: {error}.") from error
    return span.content


def to_body(messages: Messages, sampling: Sampling, without: frozenset[str]) -> dict[str, Any]:
    """Arguments of a chat completion. without: settings that the server refuses."""
    messages = _alternating(messages) if "neighbours" in without else messages
    limit = "max_completion_tokens" if "max_tokens" in without else "max_tokens"
    body: dict[str, Any] = {
        "messages": messages,
        "temperature": sampling.temperature,
        limit: limit_of(sampling),
    }
    if sampling.temperature > 0:
        body["top_p"] = sampling.top_p
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    for name in without & {"temperature", "top_p", "seed", "stop"}:
        body.pop(name, None)
    if sampling.top_k:
        body["extra_body"] = {"top_k": sampling.top_k}
    if sampling.scored:
        body |= {"logprobs": True, "top_logprobs": FEWER if "top_logprobs" in without else MOST}
    if (asked := _format(sampling)) is None:
        return body
    if says_in_words(sampling, without):
        body["messages"] = _with_rule(messages, _rule(sampling))
    else:
        body["response_format"] = asked
    return body


def limit_of(sampling: Sampling) -> int:
    """Tokens that an answer may have: a choice in its form has fewer than characters."""
    around = len(_wrapped("")) if is_wrapped(sampling) else 0
    most = sampling.max_tokens + around
    return max([most, *(len(_wrapped(text)) for text in sampling.labels)])


def says_in_words(sampling: Sampling, without: Collection[str]) -> bool:
    """Whether what the answer must be is asked in words: the server refuses to be told, or the
    answer's first token is to be that of a label."""
    return sampling.scored or "response_format" in without or setting_of(sampling) in without


def setting_of(sampling: Sampling) -> str:
    """The setting that a server refuses if it cannot follow what the answer must be.

    One that refuses a schema may follow others, and labels.
    """
    return "response_format" if sampling.schema is None else f"schema {sampling.schema}"


def is_wrapped(sampling: Sampling) -> bool:
    """Whether a schema is sent as that of the only key of an object: servers take objects alone."""
    return sampling.schema is not None and closed(sampling.schema).get("type") != "object"


def _alternating(messages: Messages) -> Messages:
    """Messages of one role in a row as one, a line break between them."""
    found: Messages = []
    for message in messages:
        if not found or found[-1]["role"] != message["role"]:
            found.append(dict(message))
            continue
        before = found[-1]["content"]
        found[-1]["content"] = before.removesuffix("\n") + "\n" + message["content"]
    return found


def _wrapped(text: str) -> str:
    return json.dumps({"answer": text})


def _format(sampling: Sampling) -> dict[str, Any] | None:
    """The response format that lets through the right answers alone; None if all are right."""
    if sampling.labels:
        labels = list(dict.fromkeys(sampling.labels))
        return _strict(_only_answer({"type": "string", "enum": labels}))
    if sampling.schema is None:
        return None
    schema = closed(sampling.schema)
    if not is_wrapped(sampling):
        return _strict(schema)
    shared = {name: schema.pop(name) for name in ("$defs", "definitions") if name in schema}
    return _strict(_only_answer(schema) | shared)


def _only_answer(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"answer": schema},
        "required": ["answer"],
        "additionalProperties": False,
    }


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "strict": True, "schema": schema},
    }


def _rule(sampling: Sampling) -> str:
    """What the answer must be, in words."""
    if sampling.schema is None:
        texts = json.dumps(sampling.labels, ensure_ascii=False)
        return f"Answer with exactly one of these texts, without quotes: {texts}"
    schema = json.dumps(closed(sampling.schema), ensure_ascii=False)
    return f"Answer with nothing but JSON that is valid under this JSON Schema: {schema}"


def _with_rule(messages: Messages, rule: str) -> Messages:
    """A rule in the system message: the same for all rows, so cached once."""
    if messages and messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{messages[0]['content']}\n{rule}"}, *messages[1:]]
    return [{"role": "system", "content": rule}, *messages]
