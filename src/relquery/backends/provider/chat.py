"""The chat-completions form: prompts and sampling as a request body."""

from __future__ import annotations

import json
from typing import Any

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
    if sampling.labels and "response_format" in without:
        body["messages"] = _with_labels(messages, sampling.labels)
    elif sampling.labels:
        body["response_format"] = _one_of(sampling.labels)
    return body


def limit_of(sampling: Sampling) -> int:
    """Tokens that an answer may have: a choice in its form has fewer than characters."""
    return max([sampling.max_tokens, *(len(_wrapped(text)) for text in sampling.labels)])


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


def _one_of(labels: tuple[str, ...]) -> dict[str, Any]:
    """A response format that lets through {"answer": one of these} alone."""
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": list(dict.fromkeys(labels))}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "strict": True, "schema": schema},
    }


def _with_labels(messages: Messages, labels: tuple[str, ...]) -> Messages:
    """The labels said in words, in the system message: the same for all rows, so cached once."""
    texts = json.dumps(labels, ensure_ascii=False)
    rule = f"Answer with exactly one of these texts, without quotes: {texts}"
    if messages and messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{messages[0]['content']}\n{rule}"}, *messages[1:]]
    return [{"role": "system", "content": rule}, *messages]
