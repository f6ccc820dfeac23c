"""/v1/completions: text that the model goes on with, without a chat's template."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from relquery.prompt import Answer, Prompt, Role, Span, TokenLogprob
from relquery.serve.answering import EventStream
from relquery.serve.body import OFF, WHOLE, example
from relquery.serve.documented import errors, streamed
from relquery.serve.errors import not_supported
from relquery.serve.flow import Flow, Part
from relquery.serve.server import Server
from relquery.serve.wire.openai.choices import Question, answered, choices_of
from relquery.serve.wire.openai.events import Events
from relquery.serve.wire.openai.logprobs import PlainLogprobs, told_by, told_of
from relquery.serve.wire.openai.sampling import ACCEPTED, Sampled, samplings
from relquery.serve.wire.openai.types import Completion
from relquery.serve.wire.openai.usage import finish_of, usage_of

router = APIRouter(tags=["OpenAI"])
MAX_TOKENS = 16
"""OpenAI's default."""

TokenId = Annotated[int, Field(ge=0, lt=1 << 31), WHOLE]
Tokens = Annotated[list[TokenId], Field(min_length=1)]
Texts = Annotated[list[str], Field(min_length=1)]


class CompletionBody(Sampled):
    """A request for completions. prompt: text or token ids, or a list of either."""

    model_config = example({"model": "demo", "prompt": "Tea is"})
    ACCEPTED: ClassVar[Mapping[str, Any]] = ACCEPTED | {"echo": OFF, "suffix": (None, "")}
    prompt: str | Tokens | Texts | Annotated[list[Tokens], Field(min_length=1)]
    best_of: Annotated[int, Field(ge=1), WHOLE] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20), WHOLE] | None = None


@router.post("/v1/completions", responses=errors(404, 422, 504) | streamed(Completion))
async def complete(body: CompletionBody, request: Request) -> Response:
    """Go on with texts."""
    return await answered(read_completion(body, request.state.server), body, request)


def read_completion(body: CompletionBody, server: Server) -> Question:
    """What is to be completed. Raises HttpError."""
    adapter = server.check_model(body.model)
    if body.best_of is not None and body.best_of != body.choices:
        raise not_supported("best_of", "Ask for n answers instead.")
    chosen = samplings(body, body.max_tokens or MAX_TOKENS, None, body.logprobs)
    groups, places = choices_of(prompts_of(body.prompt), chosen, body.choices, adapter)
    return Question(groups, places, _Form(body, server, places))


def prompts_of(given: str | list[int] | list[str] | list[list[int]]) -> list[Prompt]:
    """Texts and token ids as prompts that the model reads as they are."""
    many: Sequence[Any] = given
    if isinstance(given, str) or isinstance(given[0], int):
        many = [given]
    return [(Span(each if isinstance(each, str) else tuple(each), Role.NONE),) for each in many]


class _Form:
    """One request's completions in OpenAI's form. See Form."""

    def __init__(self, body: CompletionBody, server: Server, places: Sequence[int]) -> None:
        self._body, self._spelling, self._places = body, server.spelling, places
        self._told = [PlainLogprobs(server.spelling) for _ in places]
        self._head = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": body.model,
            "system_fingerprint": None,
        }

    async def whole(self, answers: list[Answer]) -> dict[str, Any]:
        await self._spelling.learn_told(told_of(answers))
        choices = [
            self._choice(at, answer.text or "", answer.logprobs, finish_of(answer))
            for at, answer in enumerate(answers)
        ]
        return self._head | {"choices": choices, "usage": usage_of(answers, self._body.choices)}

    def stream(self, flow: Flow) -> EventStream:
        body = self._body
        events = Events(self._head, body.stream_options, self._places, body.choices, self._part)
        return events.stream(flow, prepare=None if body.logprobs is None else self._learn)

    async def _learn(self, parts: list[Part]) -> None:
        await self._spelling.learn_told(told_by(parts))

    def _part(self, at: int, part: Part) -> str:
        if part.piece is not None:
            return json.dumps(self._choice(at, part.piece.text, part.piece.logprobs, None))
        assert part.answer is not None
        return json.dumps(self._choice(at, "", None, finish_of(part.answer)))

    def _choice(
        self, at: int, text: str, told: Sequence[TokenLogprob] | None, finish: str | None
    ) -> dict[str, Any]:
        return {
            "index": at,
            "text": text,
            "logprobs": None if told is None else self._told[at].shown(told),
            "finish_reason": finish,
        }
