"""Chat completions of OpenAI, which most other servers have, too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import openai

from relquery.backends.provider.form.caching import NOTHING, CacheSettings
from relquery.backends.provider.form.format import limit_of, rule_of, says_in_words, schema_of
from relquery.backends.provider.form.messages import Messages, in_form, with_rule
from relquery.backends.provider.form.reply import REASONING, Said, Usage, text_of
from relquery.backends.provider.form.weighing import FEWER, MOST
from relquery.backends.provider.wires.wire import SdkWire
from relquery.prompt import Sampling


def chat_body(
    messages: Messages,
    sampling: Sampling,
    without: frozenset[str],
    caching: CacheSettings = NOTHING,
) -> dict[str, Any]:
    """Arguments of a chat completion. without: settings that the server refuses."""
    alternates, marked = "neighbours" in without, caching.kind("text", without)
    sent = in_form(messages, alternates=alternates, marked=marked)
    limit = "max_completion_tokens" if "max_tokens" in without else "max_tokens"
    body: dict[str, Any] = {
        "messages": sent,
        "temperature": sampling.temperature,
        limit: limit_of(sampling),
        **caching.settings(messages, without),
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
    if (schema := schema_of(sampling)) is None:
        return body
    if says_in_words(sampling, without):
        ruled = with_rule(messages, rule_of(sampling))
        body["messages"] = in_form(ruled, alternates=alternates, marked=marked)
    else:
        named = {"name": "answer", "strict": True, "schema": schema}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    return body


@dataclass(slots=True)
class Chat(SdkWire):
    """See Wire. more: what the body of each request says besides. caching: see CacheSettings."""

    what: ClassVar[str] = "a chat completion"
    client: openai.AsyncOpenAI
    more: Mapping[str, Any] = field(default_factory=dict)
    caching: CacheSettings = NOTHING

    def body(
        self, messages: Messages, sampling: Sampling, without: frozenset[str]
    ) -> dict[str, Any]:
        """See Wire."""
        body = chat_body(messages, sampling, without, self.caching)
        if self.more:
            body["extra_body"] = {**body.get("extra_body", {}), **self.more}
        return body

    async def _post(self, body: dict[str, Any]) -> tuple[str, Mapping[str, str]]:
        create = self.client.chat.completions.with_raw_response.create
        reply = await create(model=self.model, **body)
        return reply.http_response.text, reply.headers

    def read(self, text: str) -> Said | None:
        """See Wire."""
        return read_chat(text)


def read_chat(text: str) -> Said | None:
    """What a chat completion says; None if it is not one."""
    try:
        body = json.loads(text)
        choice = body["choices"][0]
        message = choice["message"]
        logprobs = choice.get("logprobs")
        return Said(
            text_of(message.get("content")),
            choice.get("finish_reason"),
            message.get("refusal"),
            any(message.get(name) for name in REASONING),
            Usage.of(body.get("usage")),
            logprobs.get("content") if isinstance(logprobs, dict) else None,
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
