"""/v1/chat/completions"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from relquery.backends.local.asking import Piece
from relquery.prompt import Answer
from relquery.serve.body import NONE_OF, NOTHING, WHOLE, example
from relquery.serve.document import errors, streamed
from relquery.serve.errors import bad_request
from relquery.serve.openai.choices import (
    CompletionForm,
    Told,
    chat_logprobs,
    choices_of,
    finish_of,
)
from relquery.serve.openai.fields import (
    ACCEPTED,
    ChatMessage,
    FunctionTool,
    NamedChoice,
    ResponseFormat,
    Sampled,
    form_of,
    prompt_of,
    samplings,
)
from relquery.serve.server import NamedModel, Question, Scope, Server
from relquery.serve.tools import Reply, function_of, use_of
from relquery.tools import Delta, Function, ToolUse

router = APIRouter(tags=["OpenAI"])


class ChatBody(Sampled):
    """A request for a chat completion."""

    model_config = example(
        {"model": "demo", "messages": [{"role": "user", "content": "Is tea good?"}]}
    )
    ACCEPTED: ClassVar[Mapping[str, Any]] = ACCEPTED | {
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
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: Annotated[int, Field(ge=1), WHOLE] | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20), WHOLE] | None = None

    @property
    def functions(self) -> list[Function]:
        """That may be called. Raises HttpError."""
        return [
            function_of(each.function.name, each.function.description, each.function.parameters)
            for each in self.tools or ()
        ]

    @property
    def tool_use(self) -> ToolUse | None:
        """Which of them the answer may call. Raises HttpError."""
        given = self.tool_choice
        choice = given.function.name if isinstance(given, NamedChoice) else given or "auto"
        return use_of(self.functions, choice, parallel=self.parallel_tool_calls is not False)

    @property
    def told(self) -> int | None:
        """Log-probabilities, see Sampling. Raises HttpError."""
        if self.top_logprobs and not self.logprobs:
            raise bad_request("top_logprobs needs logprobs = true.", "top_logprobs")
        return (self.top_logprobs or 0) if self.logprobs else None


@router.post(
    "/v1/chat/completions", responses=errors(404, 422, 504) | streamed("OpenAIChatCompletion")
)
async def complete_chat(body: ChatBody, scope: Scope) -> Response:
    """Answer a chat."""
    return await read_chat(body, scope.server).ask(scope, body)


def read_chat(body: ChatBody, server: Server) -> Question:
    """What a chat asks for. Raises HttpError."""
    model = server.model(body.model)
    limit = body.max_completion_tokens or body.max_tokens or model.facts.context
    use = body.tool_use
    chosen = samplings(body, limit, form_of(body.response_format, use), body.told)
    prompt = prompt_of(body.messages, body.functions)
    groups, places = choices_of([prompt], chosen, body.choices, model)
    return Question(groups, _ChatForm(body, model, places, use), places)


class _ChatForm(CompletionForm):
    kind, name, chunk = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def head(self, kind: str) -> dict[str, Any]:
        return super().head(kind) | {"service_tier": "default"}

    def __init__(
        self, body: ChatBody, model: NamedModel, places: Sequence[int], use: ToolUse | None
    ) -> None:
        super().__init__(body, model, places)
        form = model.facts.calls
        self._replies = [Reply(use, form, "call_") for _ in range(body.choices)]

    def choice(self, at: int, answer: Answer) -> dict[str, Any]:
        reply = self._replies[at].whole(answer)
        message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": None}
        if reply.calls:
            message["content"] = reply.text or None
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": _called(call.name, call.arguments)}
                for call in reply.calls
            ]
        return {"message": message, "logprobs": self._told(answer.logprobs)}

    def finish(self, at: int, answer: Answer) -> str:
        return "tool_calls" if self._replies[at].calls_end(answer) else finish_of(answer)

    def first(self) -> dict[str, Any]:
        return {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def piece(self, at: int, piece: Piece) -> dict[str, Any] | None:
        delta = self._delta(at, self._replies[at].take(piece.text))
        if piece.logprobs:
            delta.setdefault("content", "")
        return {"delta": delta, "logprobs": self._told(piece.logprobs)} if delta else None

    def last(self, at: int, answer: Answer) -> dict[str, Any]:
        return {"delta": self._delta(at, self._replies[at].end()), "logprobs": None}

    def _delta(self, at: int, deltas: Sequence[Delta]) -> dict[str, Any]:
        """What is new in an answer; parts of one call are one."""
        text = "".join(each.text for each in deltas)
        calls: dict[int, dict[str, Any]] = {}
        for each in deltas:
            if each.call is None:
                continue
            if each.name:
                known = {"id": self._replies[at].calls[each.call].id, "type": "function"}
                calls[each.call] = {"index": each.call, **known, "function": _called(each.name)}
                continue
            call = calls.setdefault(each.call, {"index": each.call, "function": {"arguments": ""}})
            call["function"]["arguments"] += each.arguments
        found: dict[str, Any] = {"content": text} if text else {}
        return found | ({"tool_calls": list(calls.values())} if calls else {})

    def _told(self, told: Told | None) -> dict[str, Any] | None:
        return None if told is None else chat_logprobs(told, self._spell)


def _called(name: str, arguments: str = "") -> dict[str, str]:
    return {"name": name, "arguments": arguments}
