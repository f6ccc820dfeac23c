"""OpenAI's Responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from relquery.backends.wires.answer_text import FEWER, MOST
from relquery.backends.wires.messages import Messages, in_form
from relquery.backends.wires.openai_chat import OpenAIWire
from relquery.backends.wires.reply import Reply, Usage
from relquery.backends.wires.response_format import held_to, limit_of
from relquery.backends.wires.wire import Json
from relquery.prompt import Sampling

_FEWEST = 16
"""Tokens that an answer must be allowed, at least."""


@dataclass(frozen=True, slots=True)
class OpenAIResponses(OpenAIWire):
    """OpenAI's Responses API. Nothing is stored at the provider."""

    path: ClassVar[str] = "/responses"
    what: ClassVar[str] = "a response"
    never: ClassVar[frozenset[str]] = frozenset({"seed", "stop", "top_k"})

    def body(self, messages: Messages, sampling: Sampling, dropped: frozenset[str]) -> Json:
        messages, schema = held_to(messages, sampling, dropped)
        body: Json = {
            "model": self.model,
            "input": in_form(
                messages,
                alternates="neighbours" in dropped,
                marked=self.caching.kind("input_text", dropped),
            ),
            "max_output_tokens": max(_FEWEST, limit_of(sampling)),
            "store": False,
            **self.caching.settings(messages, dropped),
        }
        if "temperature" not in dropped:
            body["temperature"] = sampling.temperature
        if sampling.temperature > 0 and "top_p" not in dropped:
            body["top_p"] = sampling.top_p
        if sampling.scored:
            body["top_logprobs"] = FEWER if "top_logprobs" in dropped else MOST
            body["include"] = ["message.output_text.logprobs"]
        if schema is not None:
            form = {"type": "json_schema", "name": "answer", "strict": True, "schema": schema}
            body["text"] = {"format": form}
        return {**body, **self.more}

    def parse(self, body: Any) -> Reply:
        items = body["output"]
        messages = [item for item in items if item["type"] == "message"]
        parts = [part for item in messages for part in item.get("content") or ()]
        texts = [part for part in parts if part["type"] == "output_text"]
        refusals = [part["refusal"] for part in parts if part["type"] == "refusal"]
        return Reply(
            "".join(part["text"] for part in texts) if texts else None,
            _reason(body),
            refusals[0] if refusals else None,
            any(item["type"] == "reasoning" for item in items),
            Usage.named(body.get("usage"), "input", "output"),
            texts[0].get("logprobs") if texts else None,
        )


def _reason(body: Json) -> object:
    """Why it ended, as a chat completion would say."""
    if (status := body.get("status")) == "completed":
        return "stop"
    if status == "incomplete":
        return (body.get("incomplete_details") or {}).get("reason") or "length"
    return "error"
