"""/v1/messages and /v1/messages/count_tokens"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from relquery.prompt import Answer
from relquery.serve.answering import EventStream, whole
from relquery.serve.asked import Caller
from relquery.serve.documented import AnthropicError, errors, streamed
from relquery.serve.errors import Ascii, HttpError, anthropic_body
from relquery.serve.flow import Flow, Part
from relquery.serve.server import Asked
from relquery.serve.wire.anthropic.bodies import Counted, MessageBody, sampling_of
from relquery.serve.wire.anthropic.documented import Message, TokenCount
from relquery.serve.wire.anthropic.prompts import prompt_of
from relquery.serve.wire.anthropic.usage import finish_of, usage_of

router = APIRouter(tags=["Anthropic"])
ERRORS = errors(404, 422, 504, model=AnthropicError)


@router.post("/v1/messages", responses=ERRORS | streamed(Message))
async def create_message(body: MessageBody, request: Request) -> Response:
    """Answer messages."""
    caller = Caller(request)
    adapter = caller.adapter(body.model)
    prompt, ttls = prompt_of(body.system, body.messages, body.cache_control)
    asked = Asked([prompt], sampling_of(body), adapter)
    flow = caller.start([asked], streamed=bool(body.stream), declared=body.relquery)
    form = _Form(body, ttls, request.state.request_id)
    if body.stream:
        return form.stream(flow)
    (answer,) = await whole(request, flow)
    return Ascii(form.whole(answer))


@router.post("/v1/messages/count_tokens", response_model=TokenCount, responses=ERRORS)
async def count_tokens(body: Counted, request: Request) -> Response:
    """The tokens of messages as the model reads them, however many they are."""
    caller = Caller(request)
    caller.server.check_model(body.model)
    prompt, _ = prompt_of(body.system, body.messages, body.cache_control)
    return Ascii({"input_tokens": await caller.server.ask("length", prompt)})


class _Form:
    """One message in Anthropic's form. ttls: of the prompt's breakpoints. request: its id."""

    def __init__(self, body: MessageBody, ttls: Sequence[str], request: str) -> None:
        self._body, self._ttls, self._request = body, ttls, request
        self._answer: Answer | None = None

    def whole(self, answer: Answer) -> dict[str, Any]:
        """The body of an answer that is sent at once."""
        reason, stopped_by = finish_of(answer, self._body.max_tokens)
        content = [{"type": "text", "text": answer.text or "", "citations": None}]
        if self._body.max_tokens == 0:  # one token was drawn in the step that ended the prompt
            reason, stopped_by, content = "max_tokens", None, []
        return self._message(content, reason, stopped_by, self._usage(answer))

    def stream(self, flow: Flow) -> EventStream:
        """The answer as events."""
        return EventStream(
            flow, self._events, first=self._first, last=self._last, failed=self._failed
        )

    def _first(self, parts: list[Part]) -> bytes:
        """What comes before the text: the tokens of the prompt, which the first part tells."""
        piece, answer = parts[0].piece, parts[0].answer
        begun = answer if piece is None else piece.begun
        assert begun is not None
        start = self._message([], None, None, usage_of(begun, self._ttls, 0))
        block = {"type": "text", "text": "", "citations": None}
        return _event("message_start", message=start) + _event(
            "content_block_start", index=0, content_block=block
        )

    def _events(self, parts: list[Part]) -> bytes:
        texts = [part.piece.text for part in parts if part.piece is not None]
        for part in parts:
            if part.answer is not None:
                finish_of(part.answer, self._body.max_tokens)  # raises for one without an answer
                self._answer = part.answer
        if not any(texts):
            return b""
        delta = {"type": "text_delta", "text": "".join(texts)}
        return _event("content_block_delta", index=0, delta=delta)

    def _last(self) -> bytes:
        assert self._answer is not None
        reason, stopped_by = finish_of(self._answer, self._body.max_tokens)
        delta = {"stop_reason": reason, "stop_sequence": stopped_by}
        return (
            _event("content_block_stop", index=0)
            + _event("message_delta", delta=delta, usage=self._usage(self._answer))
            + _event("message_stop")
        )

    def _failed(self, error: HttpError) -> bytes:
        body = anthropic_body(error, self._request)
        del body["type"]
        return _event("error", **body)

    def _usage(self, answer: Answer) -> dict[str, Any]:
        drawn = answer.output_tokens if self._body.max_tokens else 0
        return usage_of(answer, self._ttls, drawn)

    def _message(
        self,
        content: list[dict[str, Any]],
        reason: str | None,
        stopped_by: str | None,
        usage: dict[str, Any],
    ) -> dict[str, Any]:
        return {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": self._body.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": stopped_by,
            "usage": usage,
        }


def _event(kind: str, **fields: Any) -> bytes:
    data = json.dumps({"type": kind, **fields}, separators=(",", ":"))
    return f"event: {kind}\ndata: {data}\n\n".encode()
