"""Prompts as chat messages."""

from __future__ import annotations

import hashlib
from math import isfinite
from typing import Any, Literal, NotRequired, TypedDict

from relquery.errors import RequestError
from relquery.prompt import Prompt, Reuse, Role, Span, messages

Mark = tuple[int, float | None]
"""Where a part of a message ends, in characters, and for how many seconds the provider is to keep
the prefix up to there; None where it only begins a new part."""
Part = tuple[str, float | None]
"""A text of a message, and for how many seconds the prefix up to its end is kept; None for not."""
Kind = Literal["text", "input_text"]
"""How OpenAI's APIs call a text of a message: chat completions, and Responses."""


class WireMessage(TypedDict):
    """marks: in ascending order; providers that keep prefixes by themselves are not told.

    key: the same for all prompts that share a prefix which ends in this message.
    """

    role: str
    content: str
    marks: NotRequired[list[Mark]]
    key: NotRequired[str]


Messages = list[WireMessage]


def to_messages(prompt: Prompt) -> Messages:
    """The messages of a prompt, neighbours of one role apart. Raises RequestError."""
    written: Messages = []
    for role, spans in messages(prompt):
        message: WireMessage = {"role": role.value, "content": "".join(map(_text, spans))}
        end, marks = 0, list[Mark]()
        for span in spans:
            end += len(str(span.content))
            if span.keep and isfinite(span.keep_for):
                marks.append((end, span.keep_for))
            if span.shares:
                message["key"] = _key([*written, {**message, "content": message["content"][:end]}])
        if marks:
            message["marks"] = marks
        written.append(message)
    return written


def in_form(
    messages: Messages, *, alternates: bool, marked: Kind | None = None
) -> list[dict[str, Any]]:
    """Messages as OpenAI's APIs take them. alternates: those of one role in a row as one, a line
    break between them. marked: how texts that end with a mark are called; None for no marks.
    """
    return [
        {"role": message["role"], "content": _content(message, marked)}
        for message in (joined(messages) if alternates else messages)
    ]


def joined(messages: Messages) -> Messages:
    """Neighbours of one role as one message."""
    merged: Messages = []
    for message in messages:
        if not merged or merged[-1]["role"] != message["role"]:
            merged.append(message.copy())
            continue
        before = merged[-1]["content"].removesuffix("\n")
        merged[-1]["content"] = f"{before}\n{message['content']}"
        marks = [(min(end, len(before) + 1), kept) for end, kept in merged[-1].get("marks", ())]
        marks += [(end + len(before) + 1, kept) for end, kept in message.get("marks", ())]
        if marks:
            merged[-1]["marks"] = marks
        if "key" in message:
            merged[-1]["key"] = message["key"]
    return merged


def key_of(messages: Messages) -> str | None:
    """The key of the prefix that a prompt shares with others; None if it shares none."""
    return next((message["key"] for message in messages if "key" in message), None)


def parts_of(message: WireMessage) -> list[Part]:
    """A message's texts, one after the other, none of them blank, as Anthropic refuses those.

    A blank text is joined to the next one, and a mark after it moves before it. One at the end is
    joined to the text before, whose mark holds only if it holds for the end, too.
    """
    text, parts, start = message["content"], list[Part](), 0
    marks = message.get("marks", [])
    for end, seconds in marks:
        if text[start:end].strip():
            parts.append((text[start:end], seconds))
            start = end
        elif parts and parts[-1][1] is None:
            parts[-1] = parts[-1][0], seconds
    rest = text[start:]
    if rest.strip() or not parts:
        parts.append((rest, None))
    elif rest:
        before, seconds = parts[-1]
        parts[-1] = before + rest, seconds if marks[-1][0] == len(text) else None
    return parts


def has_marks(parts: list[Part]) -> bool:
    """Whether a prefix is to be kept at the end of any."""
    return any(seconds is not None for _, seconds in parts)


def with_rule(messages: Messages, rule: str) -> Messages:
    """A rule in the system message: the same for all rows, so cached once."""
    if messages and messages[0]["role"] == "system":
        first = messages[0].copy()
        first["content"] = f"{first['content']}\n{rule}"
        return [first, *messages[1:]]
    return [{"role": "system", "content": rule}, *messages]


def _content(message: WireMessage, marked: Kind | None) -> str | list[dict[str, Any]]:
    """A message's text; in parts where prefixes are to be kept."""
    parts = parts_of(message)
    if marked is None or not has_marks(parts):
        return message["content"]
    said = "output_text" if marked == "input_text" and message["role"] == "assistant" else marked
    kept = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    return [
        {"type": said, "text": text} | ({} if seconds is None else kept) for text, seconds in parts
    ]


def _key(prefix: Messages) -> str:
    said = "".join(f"{each['role']} {len(each['content'])} {each['content']}" for each in prefix)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:32]


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
