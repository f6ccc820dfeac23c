"""Chat completions of OpenAI, which most other servers have, too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import openai

from relquery.backends.provider.form.format import limit_of, rule_of, says_in_words, schema_of
from relquery.backends.provider.form.messages import (
    KEEP_MARKED,
    Messages,
    in_form,
    in_parts,
    with_rule,
)
from relquery.backends.provider.form.reply import REASONING, Said, Usage, text_of
from relquery.backends.provider.form.trouble import trouble_of
from relquery.backends.provider.form.weighing import FEWER, MOST
from relquery.backends.provider.wires.wire import Sent, headers_of
from relquery.prompt import Sampling


def chat_body(
    messages: Messages, sampling: Sampling, without: frozenset[str], *, keeps: bool = False
) -> dict[str, Any]:
    """Arguments of a chat completion. without: settings that the server refuses.

    keeps: whether the model keeps prefixes where it is told to, and is told.
    """
    in_words = says_in_words(sampling, without)
    schema = schema_of(sampling)
    if schema is not None and in_words:
        messages = with_rule(messages, rule_of(sampling))
    keeps = keeps and not without & {"prompt_cache_options", "neighbours"}
    limit = "max_completion_tokens" if "max_tokens" in without else "max_tokens"
    body: dict[str, Any] = {
        "messages": in_parts(messages, "text")
        if keeps
        else in_form(messages, alternates="neighbours" in without),
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
    more: dict[str, Any] = dict(KEEP_MARKED) if keeps else {}
    if sampling.top_k:
        more["top_k"] = sampling.top_k
    if more:
        body["extra_body"] = more
    if sampling.scored:
        body |= {"logprobs": True, "top_logprobs": FEWER if "top_logprobs" in without else MOST}
    if schema is not None and not in_words:
        named = {"name": "answer", "strict": True, "schema": schema}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    return body


@dataclass(slots=True)
class Chat:
    """See Wire. more: what the body of each request says besides. keeps: see `chat_body`."""

    client: openai.AsyncOpenAI
    model: str
    timeout: float
    more: Mapping[str, Any] = field(default_factory=dict)
    keeps: bool = False
    what: str = "a chat completion"

    @property
    def url(self) -> str:
        """See Wire."""
        return str(self.client.base_url)

    def body(
        self, messages: Messages, sampling: Sampling, without: frozenset[str]
    ) -> dict[str, Any]:
        """See Wire."""
        body = chat_body(messages, sampling, without, keeps=self.keeps)
        if self.more:
            body["extra_body"] = {**body.get("extra_body", {}), **self.more}
        return body

    async def send(self, body: dict[str, Any]) -> Sent:
        """See Wire."""
        try:
            reply = await self.client.chat.completions.with_raw_response.create(
                model=self.model, **body
            )
            return Sent(reply.http_response.text, headers_of(reply.headers))
        except Exception as error:
            raise trouble_of(error, self.timeout) from error

    def read(self, text: str) -> Said | None:
        """See Wire."""
        return read_chat(text)

    async def close(self) -> None:
        """See Wire."""
        await self.client.close()


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
