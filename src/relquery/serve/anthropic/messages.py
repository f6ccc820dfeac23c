"""/v1/messages and /v1/messages/count_tokens"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from relquery.backends.local.asking import Begun, Piece
from relquery.prompt import Answer, Finish, Prompt
from relquery.serve.anthropic.requests import Counted, MessageBody, sampling_of
from relquery.serve.batches.store import Files
from relquery.serve.errors import HttpError, Json, anthropic_body, unanswered
from relquery.serve.server import PromptGroup, RequestScope, Scope
from relquery.serve.streaming import STREAMED, ParsedAnswer, ResponseForm, event
from relquery.tools import Delta, ToolCall

router = APIRouter(tags=["Anthropic"])


@router.post("/v1/messages", responses=STREAMED)
async def create_message(body: MessageBody, scope: Scope, request: Request) -> Response:
    """Answer messages."""
    model, (prompt, ttls) = scope.server.model(body.model), await _prompt(body, scope)
    group = PromptGroup([prompt], sampling_of(body))
    reply = ParsedAnswer(body.tool_use, model.facts.calls, "toolu_")
    form = _MessageForm(body, ttls, request.state.request_id, reply)
    return await scope.answer(body, model, [group], form)


@router.post("/v1/messages/count_tokens")
async def count_tokens(body: Counted, scope: Scope) -> Response:
    """The tokens of messages as the model reads them, however many they are."""
    model, (prompt, _) = scope.server.model(body.model), await _prompt(body, scope)
    return Json({"input_tokens": await model.engine.ask("length", prompt)})


async def _prompt(body: Counted, scope: RequestScope) -> tuple[Prompt, list[str]]:
    """See prompt_of; files are read. Raises HttpError."""
    if body.files:
        await asyncio.to_thread(body.read_files, scope.server.kept(Files), scope.tenant)
    return body.prompt


class _MessageForm(ResponseForm):
    """One message in Anthropic's form. ttls: of the prompt's breakpoints. request: its
    id. reply: reads the answer."""

    def __init__(
        self, body: MessageBody, ttls: Sequence[str], request: str, reply: ParsedAnswer
    ) -> None:
        self._body, self._ttls, self._request, self._reply = body, ttls, request, reply
        self._blocks = list[dict[str, Any]]()
        """Those that have begun; of a call the arguments stand in the reply until it has ended."""

    def whole(self, answers: list[Answer]) -> dict[str, Any]:
        (answer,) = answers
        finish_of(answer, self._body.max_tokens)  # raises for one without an answer
        list(self._heard(self._reply.whole(answer)))
        if self._body.max_tokens == 0:  # one token was drawn in the step that ended the prompt
            return self._message([], self._usage(answer), "max_tokens")
        return self._message(list(self._content()), self._usage(answer), *self._finish(answer))

    def _content(self) -> Iterator[dict[str, Any]]:
        """The blocks of a whole answer; of a call that was cut there is nothing whole."""
        calls = iter(self._reply.calls)
        for block in self._blocks or [_text()]:
            if block["type"] == "text":
                yield block
                continue
            with suppress(ValueError):
                yield block | {"input": json.loads(next(calls).arguments)}

    def begin(self, begun: Begun | Answer | None) -> bytes:
        """The tokens of the prompt, which the first part tells."""
        if isinstance(begun, Answer):
            self._finish(begun)  # raises for one without an answer
        assert begun is not None
        return _event("message_start", message=self._message([], usage_of(begun, self._ttls, 0)))

    def piece(self, at: int, piece: Piece) -> bytes:
        return b"".join(self._heard(self._reply.take(piece.text)))

    def last(self, at: int, answer: Answer) -> bytes:
        reason, stopped_by = self._finish(answer)
        events = b"".join(self._heard(self._reply.end()))
        if not self._blocks:
            events += self._start(_text())
        delta = {"stop_reason": reason, "stop_sequence": stopped_by}
        events += _event("content_block_stop", index=len(self._blocks) - 1)
        return events + (
            _event("message_delta", delta=delta, usage=self._usage(answer)) + _event("message_stop")
        )

    def _heard(self, deltas: Sequence[Delta]) -> Iterator[bytes]:
        """The events of what is new; text that comes at once is one."""
        for is_text, some in groupby(deltas, lambda each: each.call is None):
            if is_text:
                if not self._blocks or self._blocks[-1]["type"] != "text":
                    yield self._start(_text())
                text = "".join(each.text for each in some)
                self._blocks[-1]["text"] += text
                yield self._delta({"type": "text_delta", "text": text})
                continue
            for each in some:
                if each.name:
                    assert each.call is not None
                    yield self._start(_called(self._reply.calls[each.call]))
                if each.arguments:
                    yield self._delta({"type": "input_json_delta", "partial_json": each.arguments})

    def _start(self, block: dict[str, Any]) -> bytes:
        index = len(self._blocks)
        stop = _event("content_block_stop", index=index - 1) if index else b""
        self._blocks.append(block)
        return stop + _event("content_block_start", index=index, content_block=block)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=len(self._blocks) - 1, delta=delta)

    def _finish(self, answer: Answer) -> tuple[str, str | None]:
        """See finish_of; calls end an answer, too."""
        if self._reply.calls_end(answer):
            return "tool_use", None
        return finish_of(answer, self._body.max_tokens)

    def failed(self, error: HttpError) -> bytes:
        return event(anthropic_body(error, self._request), "error")

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


def _text() -> dict[str, Any]:
    return {"type": "text", "text": "", "citations": None}


def _called(call: ToolCall) -> dict[str, Any]:
    """A call that begins, as a block."""
    about = {"id": call.id, "name": call.name, "input": {}}
    return {"type": "tool_use", **about, "caller": {"type": "direct"}}


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
    raise unanswered(answer)
