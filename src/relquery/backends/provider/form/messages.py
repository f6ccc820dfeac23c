"""Prompts as chat messages."""

from __future__ import annotations

from relquery.errors import RequestError
from relquery.prompt import Prompt, Reuse, Role, Span, messages

Messages = list[dict[str, str]]


def to_messages(prompt: Prompt) -> Messages:
    """The messages of a prompt, neighbours of one role apart. Raises RequestError."""
    return [
        {"role": role.value, "content": "".join(map(_text, spans))}
        for role, spans in messages(prompt)
    ]


def alternating(messages: Messages) -> Messages:
    """Messages of one role in a row as one, a line break between them."""
    found: Messages = []
    for message in messages:
        if not found or found[-1]["role"] != message["role"]:
            found.append(dict(message))
            continue
        before = found[-1]["content"]
        found[-1]["content"] = before.removesuffix("\n") + "\n" + message["content"]
    return found


def with_rule(messages: Messages, rule: str) -> Messages:
    """A rule in the system message: the same for all rows, so cached once."""
    if messages and messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{messages[0]['content']}\n{rule}"}, *messages[1:]]
    return [{"role": "system", "content": rule}, *messages]


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
