"""/v1/messages and /v1/messages/count_tokens"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from relquery.backends.local.asking import Begun
from relquery.prompt import Answer, Finish
from relquery.serve.anthropic.requests import Counted, MessageBody, prompt_of, sampling_of
from relquery.serve.document import answers, errors, streamed
from relquery.serve.errors import HttpError, Json, anthropic_body, unanswered
from relquery.serve.server import Asked, Question, Scope, Server
from relquery.serve.streaming import AnswerStream, event

router = APIRouter(tags=["Anthropic"])
ERRORS = errors(404, 422, 504, form="AnthropicError")


@router.post("/v1/messages", responses=ERRORS | streamed("AnthropicMessage"))
async def create_message(body: MessageBody, scope: Scope, request: Request) -> Response:
    """Answer messages."""
    question = read_message(body, scope.server, request.state.request_id)
    return await question.ask(scope, body)


def read_message(body: MessageBody, server: Server, request: str = "") -> Question:
    """What messages ask for. request: its id. Raises HttpError."""
    adapter = server.adapter(body.model)
    prompt, ttls = prompt_of(body.system, body.messages, body.cache_control)
    asked = Asked([prompt], sampling_of(body), adapter)
    return Question([asked], _MessageForm(body, ttls, request))


@router.post("/v1/messages/count_tokens", responses=ERRORS | answers("TokenCount"))
async def count_tokens(body: Counted, scope: Scope) -> Response:
    """The tokens of messages as the model reads them, however many they are."""
    scope.server.adapter(body.model)
    prompt, _ = prompt_of(body.system, body.messages, body.cache_control)
    return Json({"input_tokens": await scope.server.ask("length", prompt)})


class _MessageForm:
    """One message in Anthropic's form, see Form. ttls: of the prompt's breakpoints. request: its
    id."""

    def __init__(self, body: MessageBody, ttls: Sequence[str], request: str) -> None:
        self._body, self._ttls, self._request = body, ttls, request

    async def whole(self, answers: list[Answer]) -> dict[str, Any]:
        (answer,) = answers
        reason, stopped_by = finish_of(answer, self._body.max_tokens)
        content = [{"type": "text", "text": answer.text or "", "citations": None}]
        if self._body.max_tokens == 0:  # one token was drawn in the step that ended the prompt
            reason, stopped_by, content = "max_tokens", None, []
        return self._message(content, self._usage(answer), reason, stopped_by)

    async def events(self, stream: AnswerStream) -> AsyncIterator[bytes]:
        begun, ended = b"", None
        while parts := await stream.some():
            texts = [part.piece.text for part in parts if part.piece is not None]
            for part in parts:
                if part.answer is not None:
                    ended = part.answer
                    finish_of(ended, self._body.max_tokens)  # raises for one without an answer
            chunk = b"" if begun else self._begun(parts[0].piece.begun if parts[0].piece else ended)
            begun = begun or chunk
            if any(texts):
                delta = {"type": "text_delta", "text": "".join(texts)}
                chunk += _event("content_block_delta", index=0, delta=delta)
            yield chunk
        assert ended is not None
        reason, stopped_by = finish_of(ended, self._body.max_tokens)
        last = {"stop_reason": reason, "stop_sequence": stopped_by}
        yield _event("content_block_stop", index=0)
        yield _event("message_delta", delta=last, usage=self._usage(ended))
        yield _event("message_stop")

    def failed(self, error: HttpError) -> bytes:
        return event(anthropic_body(error, self._request), "error")

    def _begun(self, begun: Begun | Answer | None) -> bytes:
        """What comes before the text: the tokens of the prompt, which the first part tells."""
        assert begun is not None
        start = self._message([], usage_of(begun, self._ttls, 0))
        block = {"type": "text", "text": "", "citations": None}
        return _event("message_start", message=start) + _event(
            "content_block_start", index=0, content_block=block
        )

    def _usage(self, answer: Answer) -> dict[str, Any]:
        drawn = answer.output_tokens if self._body.max_tokens else 0
        return usage_of(answer, self._ttls, drawn)

    def _message(
        self,
        content: list[dict[str, Any]],
        usage: dict[str, Any],
        reason: str | None = None,
        stopped_by: str | None = None,
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
    return event({"type": kind, **fields}, kind)


def usage_of(answer: Answer | Begun, ttls: Sequence[str], output_tokens: int) -> dict[str, Any]:
    """Tokens of a prompt and its answer. ttls: of the prompt's breakpoints.

    Tokens up to the last breakpoint count as read from the cache or as created in it, and those
    after it as plain input. A prompt without breakpoints is plain input; the engine may still have
    reused states for it.
    """
    kept = list(zip(answer.kept, ttls, strict=False))
    end = kept[-1][0] if kept else 0
    read = min(answer.cached_tokens, end)
    hours = max((tokens for tokens, ttl in kept if ttl == "1h"), default=0)
    for_an_hour = max(0, hours - read)
    return {
        "input_tokens": answer.prompt_tokens - end,
        "cache_creation_input_tokens": end - read,
        "cache_read_input_tokens": read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": end - read - for_an_hour,
            "ephemeral_1h_input_tokens": for_an_hour,
        },
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }


def finish_of(answer: Answer, max_tokens: int) -> tuple[str, str | None]:
    """The stop_reason and the stop_sequence of an answer. max_tokens: what it was allowed.

    Raises HttpError for one that could not be served.
    """
    match answer.finish:
        case Finish.LENGTH:
            is_cut = answer.output_tokens < max_tokens
            return "model_context_window_exceeded" if is_cut else "max_tokens", None
        case Finish.STOP | Finish.DECIDED:
            is_cut = answer.stopped_by is not None
            return "stop_sequence" if is_cut else "end_turn", answer.stopped_by
        case Finish.CANCELLED:
            raise HttpError(504, answer.error or "The request was cancelled.", "cancelled")
    raise unanswered(answer.error)
