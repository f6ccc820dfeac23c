"""One line of a provider's result file: the id of its request, and the answer or the error."""

from __future__ import annotations

import json
from typing import NamedTuple

from relquery.backends.wires.anthropic import AnthropicMessages
from relquery.backends.wires.openai_chat import OpenAIChat
from relquery.backends.wires.wire import GARBLED, Json, Wire

_READERS = {"result": AnthropicMessages(""), "response": OpenAIChat(""), "error": OpenAIChat("")}
"""What reads a line, by a field that it has."""


class RowReply(NamedTuple):
    """custom_id: as in the line. text: the answer; None if there is only an error."""

    custom_id: object
    text: str | None
    error: str | None


class Request(NamedTuple):
    """A line of a file that was sent to the provider, not of one that came back."""

    custom_id: object


def read_reply(line: bytes) -> RowReply | Request | str:
    """A line of OpenAI's or Anthropic's results; a text says what is wrong with other lines.

    A request of a batch is told from lines that are neither.
    """
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return "not JSON"
    if not isinstance(said, dict) or "custom_id" not in said:
        return "no custom_id"
    reader = next((wire for name, wire in _READERS.items() if name in said), None)
    if reader is not None:
        return _read(said, reader)
    if "params" in said or "body" in said:
        return Request(said["custom_id"])
    return "not a result of a batch, as it has neither 'result' nor 'response'"


def _read(line: Json, wire: Wire) -> RowReply:
    try:
        result = wire.result(line)
    except GARBLED:
        return RowReply(line["custom_id"], None, "The line is not a result of a batch.")
    if result.reply is None:
        return RowReply(result.custom, None, None if result.error is None else result.error.words)
    text, _, problem = result.reply.ending()
    return RowReply(result.custom, None if problem else text, problem)
