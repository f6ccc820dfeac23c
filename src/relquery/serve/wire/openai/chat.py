"""/v1/chat/completions"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from relquery.prompt import Answer, TokenLogprob
from relquery.serve.answering import EventStream
from relquery.serve.body import NONE_OF, NOTHING, WHOLE, example
from relquery.serve.documented import errors, streamed
from relquery.serve.errors import HttpError
from relquery.serve.flow import Flow, Part
from relquery.serve.server import Server
from relquery.serve.wire.openai.choices import Question, answered, choices_of
from relquery.serve.wire.openai.events import Events
from relquery.serve.wire.openai.logprobs import for_chat, told_by, told_of
from relquery.serve.wire.openai.messages import ChatMessage, prompt_of
from relquery.serve.wire.openai.sampling import (
    ACCEPTED,
    ResponseFormat,
    Sampled,
    samplings,
    schema_of,
)
from relquery.serve.wire.openai.types import ChatCompletion
from relquery.serve.wire.openai.usage import finish_of, usage_of

router = APIRouter(tags=["OpenAI"])


class ChatBody(Sampled):
    """A request for a chat completion."""

    model_config = example(
        {"model": "demo", "messages": [{"role": "user", "content": "Is tea good?"}]}
    )
    ACCEPTED: ClassVar[Mapping[str, Any]] = ACCEPTED | {
        "tools": NONE_OF,
        "tool_choice": (None, "none", "auto"),
        "parallel_tool_calls": (None, True, False),
        "functions": NONE_OF,
        "function_call": (None, "none", "auto"),
        "modalities": (None, ["text"]),
        "audio": NOTHING,
        "prediction": NOTHING,
        "web_search_options": NOTHING,
        # The spnl package always sends it. Nothing here reasons, so no value changes an answer.
        "reasoning_effort": (None, "none", "minimal", "low", "medium", "high", "xhigh", "max"),
        "verbosity": (None, "medium"),
    }
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1), WHOLE] | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20), WHOLE] | None = None


@router.post("/v1/chat/completions", responses=errors(404, 422, 504) | streamed(ChatCompletion))
async def complete_chat(body: ChatBody, request: Request) -> Response:
    """Answer a chat."""
    return await answered(read_chat(body, request.state.server), body, request)


def read_chat(body: ChatBody, server: Server) -> Question:
    """What a chat asks for. Raises HttpError."""
    adapter = server.check_model(body.model)
    limit = body.max_completion_tokens or body.max_tokens or server.facts.context
    told = _logprobs(body)
    chosen = samplings(body, limit, schema_of(body.response_format, "response_format"), told)
    groups, places = choices_of([prompt_of(body.messages)], chosen, body.choices, adapter)
    return Question(groups, places, _Form(body, server, places))


def _logprobs(body: ChatBody) -> int | None:
    if body.logprobs:
        return body.top_logprobs or 0
    if body.top_logprobs:
        raise HttpError(
            400, "top_logprobs needs logprobs = true.", "invalid_request", "top_logprobs"
        )
    return None


class _Form:
    """One completion in OpenAI's form. See Form."""

    def __init__(self, body: ChatBody, server: Server, places: Sequence[int]) -> None:
        self._body, self._spelling, self._places = body, server.spelling, places
        self._id, self._created = f"chatcmpl-{secrets.token_hex(12)}", int(time.time())

    async def whole(self, answers: list[Answer]) -> dict[str, Any]:
        await self._spelling.learn_told(told_of(answers))
        return self._head("chat.completion") | {
            "choices": [self._choice(at, answer) for at, answer in enumerate(answers)],
            "usage": usage_of(answers, self._body.choices),
        }

    def stream(self, flow: Flow) -> EventStream:
        head = self._head("chat.completion.chunk")
        body, n = self._body, self._body.choices
        events = Events(head, body.stream_options, self._places, n, self._part)
        first = [
            f'{{"index":{at},"delta":{{"role":"assistant","content":""}},'
            '"logprobs":null,"finish_reason":null}'
            for at in range(n)
        ]
        return events.stream(flow, first, prepare=self._learn if body.logprobs else None)

    def _choice(self, at: int, answer: Answer) -> dict[str, Any]:
        return {
            "index": at,
            "message": {"role": "assistant", "content": answer.text or "", "refusal": None},
            "logprobs": self._told(answer.logprobs),
            "finish_reason": finish_of(answer),
        }

    async def _learn(self, parts: list[Part]) -> None:
        await self._spelling.learn_told(told_by(parts))

    def _part(self, at: int, part: Part) -> str:
        if part.piece is not None:
            told = json.dumps(self._told(part.piece.logprobs))
            return (
                f'{{"index":{at},"delta":{{"content":{json.dumps(part.piece.text)}}},'
                f'"logprobs":{told},"finish_reason":null}}'
            )
        assert part.answer is not None
        reason = finish_of(part.answer)
        return f'{{"index":{at},"delta":{{}},"logprobs":null,"finish_reason":"{reason}"}}'

    def _told(self, told: Sequence[TokenLogprob] | None) -> dict[str, Any] | None:
        return None if told is None else for_chat(told, self._spelling)

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._body.model,
            "system_fingerprint": None,
            "service_tier": "default",
        }
