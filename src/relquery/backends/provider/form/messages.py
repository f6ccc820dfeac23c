"""Prompts as chat messages."""

from __future__ import annotations

from math import isfinite
from typing import Any, NotRequired, TypedDict

from relquery.errors import RequestError
from relquery.prompt import Prompt, Reuse, Role, Span, messages

Mark = tuple[int, float]
"""Where a prefix ends that the provider is to keep, in characters of a message, and the seconds."""


KEEP = {"prompt_cache_breakpoint": {"mode": "explicit"}}
"""Marks the end of a prefix, for OpenAI."""
KEEP_MARKED = {"prompt_cache_options": {"mode": "explicit"}}
"""Tells OpenAI to keep no other prefix: such models otherwise write whole prompts, and bill it."""


class Message(TypedDict):
    """marks: in ascending order; providers that keep prefixes by themselves are not told."""

    role: str
    content: str
    marks: NotRequired[list[Mark]]


Messages = list[Message]


def to_messages(prompt: Prompt) -> Messages:
    """The messages of a prompt, neighbours of one role apart. Raises RequestError."""
    found: Messages = []
    for role, spans in messages(prompt):
        message: Message = {"role": role.value, "content": "".join(map(_text, spans))}
        end, marks = 0, list[Mark]()
        for span in spans:
            end += len(str(span.content))
            if span.keep and isfinite(span.keep_for):
                marks.append((end, span.keep_for))
        if marks:
            message["marks"] = marks
        found.append(message)
    return found


def in_form(messages: Messages, *, alternates: bool) -> list[dict[str, Any]]:
    """Messages as OpenAI's APIs take them. alternates: those of one role in a row as one, a line
    break between them.
    """
    found: list[dict[str, Any]] = []
    for message in messages:
        if not alternates or not found or found[-1]["role"] != message["role"]:
            found.append({"role": message["role"], "content": message["content"]})
            continue
        before = found[-1]["content"]
        found[-1]["content"] = before.removesuffix("\n") + "\n" + message["content"]
    return found


def in_parts(messages: Messages, kind: str) -> list[dict[str, Any]]:
    """The same for models of OpenAI that keep prefixes where they are told to. kind: of a part."""
    return [{"role": each["role"], "content": _parts(each, kind)} for each in messages]


def _parts(message: Message, kind: str) -> str | list[dict[str, Any]]:
    text, parts, start = message["content"], list[dict[str, Any]](), 0
    for end, _ in message.get("marks", ()):
        if text[start:end]:
            parts.append({"type": kind, "text": text[start:end], **KEEP})
            start = end
    if not parts:
        return text
    return [*parts, {"type": kind, "text": text[start:]}] if start < len(text) else parts


def with_rule(messages: Messages, rule: str) -> Messages:
    """A rule in the system message: the same for all rows, so cached once."""
    if messages and messages[0]["role"] == "system":
        first = messages[0].copy()
        first["content"] = f"{first['content']}\n{rule}"
        return [first, *messages[1:]]
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
