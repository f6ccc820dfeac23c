"""The chat-completions form: prompts and sampling as a request body, a reply as an answer."""

from __future__ import annotations

import json
from typing import Any

from relquery.errors import RequestError
from relquery.prompt import Answer, Finish, Prompt, Reuse, Sampling, Span, messages

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
    if not isinstance(span.content, str):
        raise RequestError("A provider takes text, and this prompt holds token ids.")
    try:
        span.content.encode()
    except UnicodeEncodeError as error:
        raise RequestError(f"The prompt is no valid Unicode text: {error}.") from error
    return span.content


def to_body(messages: Messages, sampling: Sampling, without: frozenset[str]) -> dict[str, Any]:
    """Arguments of a chat completion. without: names in _DISPENSABLE that the server refuses."""
    messages = _alternating(messages) if "neighbours" in without else messages
    limit = "max_completion_tokens" if "max_tokens" in without else "max_tokens"
    body: dict[str, Any] = {
        "messages": messages,
        "temperature": sampling.temperature,
        limit: max([sampling.max_tokens, *(len(_wrapped(text)) for text in sampling.allowed)]),
    }
    if sampling.temperature > 0 and "top_p" not in without:
        body["top_p"] = sampling.top_p
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.top_k:
        body["extra_body"] = {"top_k": sampling.top_k}
    if sampling.allowed and "response_format" in without:
        body["messages"] = _with_choices(messages, sampling.allowed)
    elif sampling.allowed:
        body["response_format"] = _one_of(sampling.allowed)
    return body


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


def _one_of(allowed: tuple[str, ...]) -> dict[str, Any]:
    """A response format that lets through {"answer": one of these} alone."""
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": list(dict.fromkeys(allowed))}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "strict": True, "schema": schema},
    }


def _with_choices(messages: Messages, allowed: tuple[str, ...]) -> Messages:
    """The choices said in words, in the system message: the same for all rows, so cached once."""
    texts = json.dumps(allowed, ensure_ascii=False)
    rule = f"Answer with exactly one of these texts, without quotes: {texts}"
    if messages and messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{messages[0]['content']}\n{rule}"}, *messages[1:]]
    return [{"role": "system", "content": rule}, *messages]


def to_answer(reply: str, sampling: Sampling, attempts: int) -> Answer:
    """The answer in a chat completion, given as the JSON text that the server sent."""
    try:
        body = json.loads(reply)
        message, reason = body["choices"][0]["message"], body["choices"][0].get("finish_reason")
        text, refusal = message.get("content"), message.get("refusal")
        usage = body.get("usage") or {}
        prompt, output = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    except (ValueError, LookupError, TypeError, AttributeError):
        error = f"The server's reply is no chat completion: {short(reply)}"
        return no_answer(error, attempts)
    finish, problem = _ending(reason, refusal, text, output)
    if problem is None and sampling.allowed:
        label = _label(text, sampling.allowed)
        if label is None:
            finish, problem = Finish.ERROR, f"The answer {short(text)!r} is none of the choices."
        text = label
    elif sampling.allowed:
        text = None
    return Answer(text, finish, problem, prompt, cached, output, attempts)


def _ending(
    reason: object, refusal: object, text: object, output: int
) -> tuple[Finish, str | None]:
    """How an answer ended, and what is wrong with it."""
    match reason:
        case "length":
            return Finish.LENGTH, (
                f"The answer was cut after {output} tokens. "
                "Raise max_tokens, or ask for a shorter answer."
            )
        case "content_filter":
            return Finish.ERROR, "The provider's content filter withheld the answer."
        case _ if refusal:
            return Finish.ERROR, f"The model refused: {short(str(refusal))}"
        case "stop" if isinstance(text, str):
            return Finish.STOP, None
    return Finish.ERROR, f"The server sent no whole answer (it ended by {reason!r})."


def _label(text: str, allowed: tuple[str, ...]) -> str | None:
    """The choice that an answer is, in JSON or as it stands; None if it is none."""
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    said = document.get("answer") if isinstance(document, dict) else None
    for candidate in (text, said):
        if candidate in allowed:
            return str(candidate)
    return {choice.strip(): choice for choice in allowed}.get(text.strip())


def no_answer(error: str, attempts: int) -> Answer:
    """An error in place of an answer."""
    return Answer(None, Finish.ERROR, error, attempts=attempts)


def short(text: str) -> str:
    """The beginning of a long text."""
    return text if len(text) <= 300 else f"{text[:297]}..."
