"""OpenAI's chat completions, which most other servers have, too; its Responses; and its batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from relquery.backends.wires.answer_text import FEWER, MOST
from relquery.backends.wires.errors import ProviderError, status_error
from relquery.backends.wires.messages import Messages, in_form
from relquery.backends.wires.reply import REASONING, Reply, Usage, text_of
from relquery.backends.wires.response_format import held_to, limit_of
from relquery.backends.wires.wire import BatchResult, Json, Wire
from relquery.prompt import Sampling

_FEWEST = 16
"""Tokens that an answer must be allowed, at least."""
_DROPPABLE = {"temperature", "top_p", "seed", "stop"}
"""Settings of a chat completion that go where a server refuses them."""


@dataclass(frozen=True, slots=True)
class OpenAIWire(Wire):
    """The part that both APIs of OpenAI have in common: lines of batches."""

    def line(self, custom: str, body: Json) -> Json:
        url = f"/v1{self.path}"
        return {"custom_id": custom, "method": "POST", "url": url, "body": body}

    def result(self, line: Json) -> BatchResult:
        custom, response, error = line["custom_id"], line.get("response"), line.get("error")
        if response and response["status_code"] == 200:
            return self._replied(custom, response["body"])
        if response:
            status = int(response["status_code"])
            return BatchResult(custom, None, status_error(status, error or response.get("body")))
        if isinstance(error, dict) and error.get("code") == "batch_expired":
            return BatchResult(custom, None, ProviderError.expired())
        return BatchResult(custom, None, status_error(None, error))


@dataclass(frozen=True, slots=True)
class OpenAIChat(OpenAIWire):
    """OpenAI's chat completions."""

    path: ClassVar[str] = "/chat/completions"
    what: ClassVar[str] = "a chat completion"
    adjusts: ClassVar[frozenset[str]] = frozenset(
        {"frequency_penalty", "presence_penalty", "logit_bias"}
    )

    def body(self, messages: Messages, sampling: Sampling, dropped: frozenset[str]) -> Json:
        messages, schema = held_to(messages, sampling, dropped)
        limit = "max_completion_tokens" if "max_tokens" in dropped else "max_tokens"
        body: Json = {
            "model": self.model,
            "messages": in_form(
                messages,
                alternates="neighbours" in dropped,
                marked=self.caching.kind("text", dropped),
            ),
            "temperature": sampling.temperature,
            limit: limit_of(sampling),
            **self.caching.settings(messages, dropped),
        }
        if sampling.temperature > 0:
            body["top_p"] = sampling.top_p
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        for name in dropped & _DROPPABLE:
            body.pop(name, None)
        if sampling.top_k:
            body["top_k"] = sampling.top_k
        if sampling.adjustments is not None:
            given = sampling.adjustments.given
            if "logit_bias" in given:
                given["logit_bias"] = {str(token): bias for token, bias in given["logit_bias"]}
            body |= given
        if sampling.scored:
            body |= {"logprobs": True, "top_logprobs": FEWER if "top_logprobs" in dropped else MOST}
        if schema is not None:
            named = {"name": "answer", "strict": True, "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        return {**body, **self.more}

    def parse(self, body: Any) -> Reply:
        choice = body["choices"][0]
        message, logprobs = choice["message"], choice.get("logprobs")
        return Reply(
            text_of(message.get("content")),
            choice.get("finish_reason"),
            message.get("refusal"),
            any(message.get(name) for name in REASONING),
            Usage.of(body.get("usage")),
            logprobs.get("content") if isinstance(logprobs, dict) else None,
        )


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
