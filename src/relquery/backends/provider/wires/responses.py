"""OpenAI's Responses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import openai

from relquery.backends.provider.form.caching import NOTHING, CacheSettings
from relquery.backends.provider.form.format import limit_of, rule_of, says_in_words, schema_of
from relquery.backends.provider.form.messages import Messages, in_form, with_rule
from relquery.backends.provider.form.reply import Said, Usage
from relquery.backends.provider.form.weighing import FEWER, MOST
from relquery.backends.provider.wires.wire import SdkWire
from relquery.prompt import Sampling

_FEWEST = 16
"""Tokens that an answer must be allowed, at least."""


@dataclass(slots=True)
class Responses(SdkWire):
    """See Wire. Nothing is stored at the provider. caching: see CacheSettings."""

    what: ClassVar[str] = "a response"
    client: openai.AsyncOpenAI
    caching: CacheSettings = NOTHING

    def body(
        self, messages: Messages, sampling: Sampling, without: frozenset[str]
    ) -> dict[str, Any]:
        """See Wire."""
        alternates, marked = "neighbours" in without, self.caching.kind("input_text", without)
        sent = in_form(messages, alternates=alternates, marked=marked)
        body: dict[str, Any] = {
            "input": sent,
            "max_output_tokens": max(_FEWEST, limit_of(sampling)),
            "store": False,
            **self.caching.settings(messages, without),
        }
        if "temperature" not in without:
            body["temperature"] = sampling.temperature
        if sampling.temperature > 0 and "top_p" not in without:
            body["top_p"] = sampling.top_p
        if sampling.scored:
            body["top_logprobs"] = FEWER if "top_logprobs" in without else MOST
            body["include"] = ["message.output_text.logprobs"]
        if (schema := schema_of(sampling)) is None:
            return body
        if says_in_words(sampling, without):
            ruled = with_rule(messages, rule_of(sampling))
            body["input"] = in_form(ruled, alternates=alternates, marked=marked)
        else:
            form = {"type": "json_schema", "name": "answer", "strict": True, "schema": schema}
            body["text"] = {"format": form}
        return body

    async def _post(self, body: dict[str, Any]) -> tuple[str, Mapping[str, str]]:
        create = self.client.responses.with_raw_response.create
        reply = await create(model=self.model, **body)
        return reply.http_response.text, reply.headers

    def read(self, text: str) -> Said | None:
        """See Wire."""
        try:
            body = json.loads(text)
            items = body["output"]
            parts = [
                part
                for item in items
                if item["type"] == "message"
                for part in item.get("content") or ()
            ]
            texts = [part for part in parts if part["type"] == "output_text"]
            refusals = [part["refusal"] for part in parts if part["type"] == "refusal"]
            return Said(
                "".join(part["text"] for part in texts) if texts else None,
                _reason(body),
                refusals[0] if refusals else None,
                any(item["type"] == "reasoning" for item in items),
                Usage.named(body.get("usage"), "input", "output"),
                texts[0].get("logprobs") if texts else None,
            )
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None


def _reason(body: dict[str, Any]) -> object:
    """Why it ended, as a chat completion would say."""
    if (status := body.get("status")) == "completed":
        return "stop"
    if status == "incomplete":
        return (body.get("incomplete_details") or {}).get("reason") or "length"
    return "error"
