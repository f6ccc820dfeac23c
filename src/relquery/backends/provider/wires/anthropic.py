"""Anthropic's Messages."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from relquery.backends.provider.form.format import limit_of, rule_of, says_in_words, schema_of
from relquery.backends.provider.form.messages import Message, Messages, parts_of, with_rule
from relquery.backends.provider.form.reply import Said, Usage, count
from relquery.backends.provider.wires.wire import SdkWire
from relquery.prompt import Sampling

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.types import ModelCapabilities

_LOG = logging.getLogger(__name__)
_TOLD_SECONDS = 5.0
"""For which a model's description is waited for."""
_SHORT_SECONDS = 300.0
"""That a prefix is kept if nothing else is said."""


@dataclass(slots=True)
class AnthropicMessages(SdkWire):
    """See Wire."""

    what: ClassVar[str] = "a message"
    client: AsyncAnthropic

    def body(
        self, messages: Messages, sampling: Sampling, without: frozenset[str]
    ) -> dict[str, Any]:
        """See Wire."""
        schema = schema_of(sampling)
        in_words = schema is not None and says_in_words(sampling, without)
        if in_words:
            messages = with_rule(messages, rule_of(sampling))
        rules = [each for each in messages if each["role"] == "system"]
        body: dict[str, Any] = {
            "messages": [
                {"role": each["role"], "content": _content(each)}
                for each in messages
                if each["role"] != "system"
            ],
            "max_tokens": limit_of(sampling),
        }
        if len(rules) == 1:
            body["system"] = _content(rules[0])
        elif rules:
            body["system"] = "\n".join(each["content"] for each in rules)
        if sampling.stop and "stop" not in without:
            body["stop_sequences"] = list(sampling.stop)
        if schema is not None and not in_words:
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        # Older models alone take these, so the SDK has no arguments for them.
        drawn: dict[str, Any] = {"temperature": sampling.temperature}
        if sampling.temperature > 0 and sampling.top_p < 1:
            drawn["top_p"] = sampling.top_p
        if sampling.top_k:
            drawn["top_k"] = sampling.top_k
        if drawn := {name: value for name, value in drawn.items() if name not in without}:
            body["extra_body"] = drawn
        return body

    async def _post(self, body: dict[str, Any]) -> tuple[str, Mapping[str, str]]:
        create = self.client.messages.with_raw_response.create
        reply = await create(model=self.model, **body)
        return await reply.text(), reply.headers

    async def does_without(self) -> set[str]:
        """See Wire."""
        try:
            told = self.client.with_options(timeout=_TOLD_SECONDS, max_retries=0)
            return _unsupported((await told.models.retrieve(self.model)).capabilities)
        except Exception as error:  # the first requests will tell
            _LOG.info("%s tells nothing of %s: %r", self.url, self.model, error)
            return set()

    def read(self, text: str) -> Said | None:
        """See Wire."""
        try:
            body = json.loads(text)
            parts = body["content"]
            reason = body["stop_reason"]
            texts = [part["text"] for part in parts if part["type"] == "text"]
            return Said(
                "".join(texts) if texts or parts else "",
                reason,
                _refusal(body) if reason == "refusal" else None,
                any(part["type"] in ("thinking", "redacted_thinking") for part in parts),
                _usage(body.get("usage")),
            )
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None


def _unsupported(capabilities: ModelCapabilities | None) -> set[str]:
    """Settings, by the names that they have in chat completions."""
    if capabilities is None or capabilities.structured_outputs.supported:
        return set()
    return {"response_format"}


def _content(message: Message) -> str | list[dict[str, Any]]:
    """A message's text; in blocks where prefixes are to be kept."""
    parts = parts_of(message)
    if parts[0][1] is None:
        return message["content"]
    return [{"type": "text", "text": text} | _kept(seconds) for text, seconds in parts]


def _kept(seconds: float | None) -> dict[str, Any]:
    if seconds is None:
        return {}
    hour = {"ttl": "1h"} if seconds > _SHORT_SECONDS else {}
    return {"cache_control": {"type": "ephemeral"} | hour}


def _refusal(body: dict[str, Any]) -> str:
    details = body.get("stop_details")
    said = details.get("explanation") if isinstance(details, dict) else None
    return str(said or "it gives no reason.")


def _usage(said: object) -> Usage:
    """Anthropic counts what was read from the cache, and what was written, apart from the rest."""
    usage = said if isinstance(said, dict) else {}
    cached = usage.get("cache_read_input_tokens")
    written = usage.get("cache_creation_input_tokens")
    prompt = count(usage.get("input_tokens")) + count(cached) + count(written)
    found = Usage.counting(prompt, cached, usage.get("output_tokens"), written)
    by_age = usage.get("cache_creation")
    hour = by_age.get("ephemeral_1h_input_tokens") if isinstance(by_age, dict) else None
    return replace(found, written_1h=min(count(hour), found.written))
