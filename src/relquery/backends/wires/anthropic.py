"""Anthropic's Messages, and lines of its Message Batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from relquery.backends.wires.errors import ProviderError, status_error
from relquery.backends.wires.messages import Messages, WireMessage, has_marks, parts_of
from relquery.backends.wires.reply import Reply, Usage, count
from relquery.backends.wires.response_format import held_to, limit_of
from relquery.backends.wires.wire import BatchResult, Json, Wire
from relquery.prompt import Sampling

_SHORT_SECONDS = 300.0
"""That a prefix is kept if nothing else is said."""
_STATUS = {
    "invalid_request_error": 400, "authentication_error": 401, "permission_error": 403,
    "not_found_error": 404, "request_too_large": 413, "rate_limit_error": 429, "api_error": 500,
    "timeout_error": 504, "overloaded_error": 529,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AnthropicMessages(Wire):
    """Anthropic's Messages API."""

    path: ClassVar[str] = "/v1/messages"
    what: ClassVar[str] = "a message"
    never: ClassVar[frozenset[str]] = frozenset({"seed", "scored"})

    def body(self, messages: Messages, sampling: Sampling, dropped: frozenset[str]) -> Json:
        messages, schema = held_to(messages, sampling, dropped)
        rules = [each for each in messages if each["role"] == "system"]
        body: Json = {"model": self.model, "max_tokens": limit_of(sampling)}
        if len(rules) == 1:
            body["system"] = _content(rules[0])
        elif rules:
            body["system"] = "\n".join(each["content"] for each in rules)
        body["messages"] = [
            {"role": each["role"], "content": _content(each)}
            for each in messages
            if each["role"] != "system"
        ]
        if sampling.stop and "stop" not in dropped:
            body["stop_sequences"] = list(sampling.stop)
        if schema is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        # Older models alone take these.
        drawn: Json = {"temperature": sampling.temperature}
        if sampling.temperature > 0 and sampling.top_p < 1:
            drawn["top_p"] = sampling.top_p
        if sampling.top_k:
            drawn["top_k"] = sampling.top_k
        body |= {name: value for name, value in drawn.items() if name not in dropped}
        return {**body, **self.more}

    def parse(self, body: Any) -> Reply:
        parts, reason = body["content"], body["stop_reason"]
        texts = [part["text"] for part in parts if part["type"] == "text"]
        return Reply(
            "".join(texts) if texts or parts else "",
            reason,
            _refusal(body) if reason == "refusal" else None,
            any(part["type"] in ("thinking", "redacted_thinking") for part in parts),
            _usage(body.get("usage")),
        )

    def line(self, custom: str, body: Json) -> Json:
        return {"custom_id": custom, "params": body}

    def result(self, line: Json) -> BatchResult:
        custom, result = line["custom_id"], line["result"]
        how = result["type"]
        if how == "succeeded":
            return self._replied(custom, result["message"])
        if how == "expired":
            return BatchResult(custom, None, ProviderError.expired())
        if how == "canceled":
            words = "The batch was canceled before the request was answered."
            return BatchResult(custom, None, ProviderError("odd", words))
        if how != "errored":
            words = f"The result is of an unknown type: {how!r}."
            return BatchResult(custom, None, ProviderError("odd", words))
        error = result["error"]
        kind = (error.get("error") or error).get("type")
        return BatchResult(custom, None, status_error(_STATUS.get(str(kind), 400), error))


def _content(message: WireMessage) -> str | list[Json]:
    """A message's text; in blocks where prefixes are to be kept."""
    parts = parts_of(message)
    if not has_marks(parts):
        return message["content"]
    return [{"type": "text", "text": text} | _kept(seconds) for text, seconds in parts]


def _kept(seconds: float | None) -> Json:
    if seconds is None:
        return {}
    hour = {"ttl": "1h"} if seconds > _SHORT_SECONDS else {}
    return {"cache_control": {"type": "ephemeral"} | hour}


def _refusal(body: Json) -> str:
    details = body.get("stop_details")
    said = details.get("explanation") if isinstance(details, dict) else None
    return str(said or "it gives no reason.")


def _usage(said: object) -> Usage:
    """Anthropic counts what was read from the cache, and what was written, apart from the rest."""
    usage = said if isinstance(said, dict) else {}
    cached = usage.get("cache_read_input_tokens")
    written = usage.get("cache_creation_input_tokens")
    prompt = count(usage.get("input_tokens")) + count(cached) + count(written)
    counted = Usage.counting(prompt, cached, usage.get("output_tokens"), written)
    by_age = usage.get("cache_creation")
    hour = by_age.get("ephemeral_1h_input_tokens") if isinstance(by_age, dict) else None
    return replace(counted, written_1h=min(count(hour), counted.written))
