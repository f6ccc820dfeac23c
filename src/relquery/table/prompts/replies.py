"""One line of a provider's result file: the id of its request, and the answer or the error."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

_WHOLE = ("stop", "end_turn", "stop_sequence")
_CUT = ("length", "max_tokens", "model_context_window_exceeded")
_FILTERED = ("content_filter", "refusal")
_ENDED = {
    "expired": "The request expired before it was answered.",
    "canceled": "The batch was canceled before the request was answered.",
}
_MOST = 300  # characters of a provider's message that are shown


class Reply(NamedTuple):
    """custom_id: as in the line. text: the answer; None if there is only an error."""

    custom_id: object
    text: str | None
    error: str | None


class Request(NamedTuple):
    """A line of a file that was sent to the provider, not of one that came back."""

    custom_id: object


def read_reply(line: bytes) -> Reply | Request | str:
    """A line of OpenAI's or Anthropic's results; a text says what is wrong with other lines.

    A request of a batch is told from lines that are neither.
    """
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return "not JSON"
    if not isinstance(said, dict) or "custom_id" not in said:
        return "no custom_id"
    if isinstance(result := said.get("result"), dict):
        text, error = _of_anthropic(result)
    elif "response" in said or "error" in said:
        text, error = _of_openai(said)
    elif "params" in said or "body" in said:
        return Request(said["custom_id"])
    else:
        return "not a result of a batch, as it has neither 'result' nor 'response'"
    return Reply(said["custom_id"], text, error)


Said = tuple[str | None, str | None]  # text, error: one of them


def _of_anthropic(result: dict[str, Any]) -> Said:
    kind = result.get("type")
    if kind == "succeeded":
        message = result.get("message")
        if not isinstance(message, dict) or not isinstance(content := message.get("content"), list):
            return None, "The result has no message."
        return _answer(_text_of(content), message.get("stop_reason"))
    if kind == "errored":
        return None, f"The request failed: {_words(result.get('error'))}"
    return None, _ENDED.get(str(kind), f"The result is of an unknown type: {kind!r}.")


def _of_openai(said: dict[str, Any]) -> Said:
    response = said.get("response")
    if not isinstance(response, dict):
        error = said.get("error")
        if isinstance(error, dict) and error.get("code") == "batch_expired":
            return None, _ENDED["expired"]
        return None, f"The request failed: {_words(error)}"
    status, body = response.get("status_code"), response.get("body")
    if status != 200 or not isinstance(body, dict):
        return None, f"The server answered {status}: {_words(body)}"
    try:
        choice = body["choices"][0]
        content, refusal = choice["message"].get("content"), choice["message"].get("refusal")
    except (LookupError, TypeError, AttributeError):
        return None, "The result has no message."
    if refusal:
        return None, f"The model refused: {_short(str(refusal))}"
    text = _text_of(content) if isinstance(content, list) else content
    return _answer(text, choice.get("finish_reason"))


def _text_of(content: list[Any]) -> str | None:
    """The text blocks of a message, joined; None if there are none."""
    texts = [block.get("text") for block in content if isinstance(block, dict)]
    known = [text for text in texts if isinstance(text, str)]
    return "".join(known) if known else None


def _answer(text: object, reason: object) -> Said:
    """Only an answer that is complete is a value."""
    if reason in _CUT:
        return None, "The answer was cut off. Raise max_tokens, or ask for a shorter answer."
    if reason in _FILTERED:
        return None, "The model refused, or a content filter blocked the answer."
    if reason in _WHOLE and not text:
        return None, "The answer has no text."
    if reason not in _WHOLE or not isinstance(text, str):
        return None, f"The answer is incomplete (finish: {reason!r})."
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return None, f"The answer is not valid Unicode: {error}."
    return text, None


def _words(error: object) -> str:
    """A provider's message, however deep it is nested."""
    while isinstance(error, dict):
        inner = error.get("error")
        if not inner:
            error = error.get("message") or error.get("type") or error.get("code")
        else:
            error = inner
    return _short(str(error)) if error else "no reason given."


def _short(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."
