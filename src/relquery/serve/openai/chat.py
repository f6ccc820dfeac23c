"""/v1/chat/completions"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from relquery.prompt import Answer
from relquery.serve.body import NONE_OF, NOTHING, WHOLE, example
from relquery.serve.document import errors, streamed
from relquery.serve.errors import HttpError
from relquery.serve.openai.choices import CompletionForm, Told, chat_logprobs, choices_of
from relquery.serve.openai.fields import (
    ACCEPTED,
    ChatMessage,
    ResponseFormat,
    Sampled,
    prompt_of,
    samplings,
    schema_of,
)
from relquery.serve.server import Question, Scope, Server

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

    @property
    def told(self) -> int | None:
        """Log-probabilities, see Sampling. Raises HttpError."""
        if self.top_logprobs and not self.logprobs:
            raise HttpError(
                400, "top_logprobs needs logprobs = true.", "invalid_request", "top_logprobs"
            )
        return (self.top_logprobs or 0) if self.logprobs else None


@router.post(
    "/v1/chat/completions", responses=errors(404, 422, 504) | streamed("OpenAIChatCompletion")
)
async def complete_chat(body: ChatBody, scope: Scope) -> Response:
    """Answer a chat."""
    return await read_chat(body, scope.server).ask(scope, body)


def read_chat(body: ChatBody, server: Server) -> Question:
    """What a chat asks for. Raises HttpError."""
    adapter = server.adapter(body.model)
    limit = body.max_completion_tokens or body.max_tokens or server.facts.context
    schema = schema_of(body.response_format, "response_format")
    chosen = samplings(body, limit, schema, body.told)
    groups, places = choices_of([prompt_of(body.messages)], chosen, body.choices, adapter)
    return Question(groups, _ChatForm(body, server, places), places)


class _ChatForm(CompletionForm):
    kind, name, chunk = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def head(self, kind: str) -> dict[str, Any]:
        return super().head(kind) | {"service_tier": "default"}

    def choice(self, at: int, answer: Answer) -> dict[str, Any]:
        message = {"role": "assistant", "content": answer.text or "", "refusal": None}
        return {"message": message, "logprobs": self._told(answer.logprobs)}

    def first(self) -> dict[str, Any]:
        return {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def piece(self, at: int, text: str, told: Told | None) -> dict[str, Any]:
        return {"delta": {"content": text} if text or told else {}, "logprobs": self._told(told)}

    def _told(self, told: Told | None) -> dict[str, Any] | None:
        return None if told is None else chat_logprobs(told, self._spell)
