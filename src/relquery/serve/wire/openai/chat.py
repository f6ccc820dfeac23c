"""/v1/chat/completions"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import JSONResponse, Response

from relquery.prompt import Answer
from relquery.serve.answering import EventStream, whole
from relquery.serve.asked import Caller
from relquery.serve.body import ANY, NONE_OF, NOTHING, Inner
from relquery.serve.documented import errors
from relquery.serve.errors import HttpError, openai_body
from relquery.serve.flow import Flow, Part
from relquery.serve.wire.openai.messages import ChatMessage, prompt_of
from relquery.serve.wire.openai.sampling import (
    ACCEPTED,
    ResponseFormat,
    Sampled,
    samplings,
    schema_of,
)
from relquery.serve.wire.openai.usage import finish_of, usage_of

router = APIRouter(tags=["OpenAI"])


class StreamOptions(Inner):
    """include_usage: a last event with the tokens of all choices."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatBody(Sampled):
    """A request for a chat completion."""

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
        "reasoning_effort": ANY,  # the spnl package always sends it; nothing here reasons
        "verbosity": (None, "medium"),
    }
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


@router.post("/v1/chat/completions", responses=errors(400, 404, 413, 429, 503))
async def complete_chat(body: ChatBody, request: Request) -> Response:
    """Answer a chat."""
    caller = Caller(request)
    caller.server.check_model(body.model)
    limit = body.max_completion_tokens or body.max_tokens or caller.server.facts.context
    prompt = prompt_of(body.messages)
    chosen = samplings(body, limit, schema_of(body.response_format))
    copies = body.n // len(chosen)
    groups = [([prompt] * copies, sampling) for sampling in chosen]
    flow = caller.start(groups, streamed=bool(body.stream), declared=body.relquery)
    form = _Form(body)
    if body.stream:
        return form.stream(flow)
    answers = await whole(request, flow)
    return JSONResponse(form.whole(answers))


class _Form:
    """One completion in OpenAI's form."""

    def __init__(self, body: ChatBody) -> None:
        self._body = body
        self._id, self._created = f"chatcmpl-{secrets.token_hex(12)}", int(time.time())
        self._answers: dict[int, Answer] = {}
        options = body.stream_options
        self._with_usage = bool(options and options.include_usage)
        head = self._head("chat.completion.chunk")
        self._opening = json.dumps(head, separators=(",", ":"))[:-1]

    def whole(self, answers: list[Answer]) -> dict[str, Any]:
        """The body of an answer that is sent at once."""
        choices = [
            {
                "index": at,
                "message": {
                    "role": "assistant",
                    "content": answer.text or "",
                    "refusal": None,
                },
                "logprobs": None,
                "finish_reason": finish_of(answer),
            }
            for at, answer in enumerate(answers)
        ]
        return self._head("chat.completion") | {
            "choices": choices,
            "usage": usage_of(answers, self._body.n),
        }

    def stream(self, flow: Flow) -> EventStream:
        """The answer as events."""
        first = "".join(
            self._event(
                f'{{"index":{at},"delta":{{"role":"assistant","content":""}},'
                '"logprobs":null,"finish_reason":null}'
            )
            for at in range(self._body.n)
        )
        return EventStream(
            flow, self._events, first=first.encode(), last=self._last, failed=_failed
        )

    def _events(self, parts: list[Part]) -> bytes:
        return "".join(map(self._shown, parts)).encode()

    def _shown(self, part: Part) -> str:
        if part.piece is not None:
            return self._event(
                f'{{"index":{part.at},"delta":{{"content":{json.dumps(part.piece.text)}}},'
                '"logprobs":null,"finish_reason":null}'
            )
        assert part.answer is not None
        self._answers[part.at] = part.answer
        reason = finish_of(part.answer)
        return self._event(
            f'{{"index":{part.at},"delta":{{}},"logprobs":null,"finish_reason":"{reason}"}}'
        )

    def _event(self, choice: str, usage: str = "") -> str:
        more = f',"usage":{usage or "null"}' if self._with_usage else ""
        return f'data: {self._opening},"choices":[{choice}]{more}}}\n\n'

    def _last(self) -> bytes:
        usage = ""
        if self._with_usage:
            answers = [self._answers[at] for at in sorted(self._answers)]
            usage = self._event("", json.dumps(usage_of(answers, self._body.n)))
        return f"{usage}data: [DONE]\n\n".encode()

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._body.model,
            "system_fingerprint": None,
            "service_tier": "default",
        }


def _failed(error: HttpError) -> bytes:
    return f"data: {json.dumps(openai_body(error))}\n\n".encode()
