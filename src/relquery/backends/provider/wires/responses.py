"""OpenAI's Responses."""

from __future__ import annotations

import json
from dataclasses import dataclass
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
from relquery.backends.provider.form.reply import Said, Usage
from relquery.backends.provider.form.trouble import trouble_of
from relquery.backends.provider.form.weighing import FEWER, MOST
from relquery.backends.provider.wires.wire import Sent, headers_of
from relquery.prompt import Sampling

_FEWEST = 16
"""Tokens that an answer must be allowed, at least."""


@dataclass(slots=True)
class Responses:
    """See Wire. Nothing is stored at the provider. keeps: see `chat_body`."""

    client: openai.AsyncOpenAI
    model: str
    timeout: float
    keeps: bool = False
    what: str = "a response"

    @property
    def url(self) -> str:
        """See Wire."""
        return str(self.client.base_url)

    def body(
        self, messages: Messages, sampling: Sampling, without: frozenset[str]
    ) -> dict[str, Any]:
        """See Wire."""
        schema = schema_of(sampling)
        in_words = schema is not None and says_in_words(sampling, without)
        if in_words:
            messages = with_rule(messages, rule_of(sampling))
        keeps = self.keeps and not without & {"prompt_cache_options", "neighbours"}
        body: dict[str, Any] = {
            "input": in_parts(messages, "input_text")
            if keeps
            else in_form(messages, alternates="neighbours" in without),
            "max_output_tokens": max(_FEWEST, limit_of(sampling)),
            "store": False,
        }
        if keeps:
            body["extra_body"] = dict(KEEP_MARKED)
        if "temperature" not in without:
            body["temperature"] = sampling.temperature
        if sampling.temperature > 0 and "top_p" not in without:
            body["top_p"] = sampling.top_p
        if sampling.scored:
            body["top_logprobs"] = FEWER if "top_logprobs" in without else MOST
            body["include"] = ["message.output_text.logprobs"]
        if schema is not None and not in_words:
            form = {"type": "json_schema", "name": "answer", "strict": True, "schema": schema}
            body["text"] = {"format": form}
        return body

    async def send(self, body: dict[str, Any]) -> Sent:
        """See Wire."""
        try:
            reply = await self.client.responses.with_raw_response.create(model=self.model, **body)
            return Sent(reply.http_response.text, headers_of(reply.headers))
        except Exception as error:
            raise trouble_of(error, self.timeout) from error

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
                _usage(body.get("usage")),
                texts[0].get("logprobs") if texts else None,
            )
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None

    async def close(self) -> None:
        """See Wire."""
        await self.client.close()


def _reason(body: dict[str, Any]) -> object:
    """Why it ended, as a chat completion would say."""
    if (status := body.get("status")) == "completed":
        return "stop"
    if status == "incomplete":
        return (body.get("incomplete_details") or {}).get("reason") or "length"
    return "error"


def _usage(said: object) -> Usage:
    usage = said if isinstance(said, dict) else {}
    details = usage.get("input_tokens_details")
    told = details if isinstance(details, dict) else {}
    return Usage.counting(
        usage.get("input_tokens"),
        told.get("cached_tokens"),
        usage.get("output_tokens"),
        told.get("cache_write_tokens"),
    )
