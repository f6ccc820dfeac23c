"""/v1/chat/completions; and /v1/completions: text that the model goes on with, without a chat's
template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from relquery.backends.local.asking import Begun, Piece
from relquery.prompt import MOST_LOGPROBS, Answer, Finish, Prompt, Role, Sampling, Span
from relquery.serve.bodies import WHOLE, Inner, Natural, Positive
from relquery.serve.errors import bad_request, not_supported
from relquery.serve.openai import fields
from relquery.serve.openai.choices import (
    CompletionForm,
    PlainLogprobs,
    Told,
    chat_logprobs,
    finish_of,
    prompt_logprobs,
)
from relquery.serve.server import NamedModel, Scope
from relquery.serve.streaming import STREAMED, ParsedAnswer
from relquery.tools import Delta, ToolUse

router = APIRouter(tags=["OpenAI"])


class ChatTool(Inner):
    """A function that the model may call."""

    type: Literal["function"] = "function"
    function: fields.DescribedFunction


class ChatToolChoice(Inner):
    """The function that is called."""

    type: Literal["function"]
    function: fields.NamedFunction


class ChatBody(fields.SamplingFields, fields.CallsTools):
    """A request for a chat completion."""

    ACCEPTED: ClassVar = fields.ACCEPTED | {
        "function_call": ("none", "auto"),
        "modalities": (["text"],),
        # The spnl package always sends it. Nothing here reasons, so no value changes an answer.
        "reasoning_effort": ("none", "minimal", "low", "medium", "high", "xhigh", "max"),
        "verbosity": ("medium",),
    }
    messages: Annotated[list[fields.ChatMessage], Field(min_length=1)]
    tools: list[ChatTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ChatToolChoice | None = None
    max_completion_tokens: Positive | None = None
    response_format: (
        Annotated[fields.JsonSchemaFormat | fields.OtherFormat, Field(discriminator="type")] | None
    ) = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20), WHOLE] | None = None


@router.post("/v1/chat/completions", responses=STREAMED)
async def complete_chat(body: ChatBody, scope: Scope) -> Response:
    """Answer a chat."""
    if body.top_logprobs and not body.logprobs:
        raise bad_request("top_logprobs needs logprobs = true.", "top_logprobs")
    told = (body.top_logprobs or 0) if body.logprobs else None
    model, use = scope.server.model(body.model), body.tool_use
    limit = body.max_completion_tokens or body.max_tokens or model.facts.context
    chosen = fields.samplings(body, limit, fields.format_of(body.response_format), told, use)
    form = _ChatForm(body, model, [fields.prompt_of(body.messages, body.functions)], chosen, use)
    return await scope.answer(body, model, form.groups, form, form.places)


class _ChatForm(CompletionForm):
    kind, name, chunk = "chatcmpl", "chat.completion", "chat.completion.chunk"
    about: ClassVar = {"service_tier": "default"}

    def __init__(
        self,
        body: ChatBody,
        model: NamedModel,
        prompts: Sequence[Prompt],
        samplings: Sequence[Sampling],
        use: ToolUse | None,
    ) -> None:
        super().__init__(body, model, prompts, samplings)
        self._replies = [ParsedAnswer(use, model.facts.calls, "call_") for _ in range(body.choices)]

    def choice(self, at: int, answer: Answer) -> dict[str, Any]:
        reply = self._replies[at]
        reply.whole(answer)
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

    def begin(self, begun: object) -> bytes:
        first = {"delta": {"role": "assistant", "content": ""}, "logprobs": None}
        return b"".join(self.event(index, first) for index in range(len(self._replies)))

    def piece(self, at: int, piece: Piece) -> bytes:
        delta = self._delta(at, self._replies[at].take(piece.text))
        if piece.logprobs:
            delta.setdefault("content", "")
        told = {"delta": delta, "logprobs": self._told(piece.logprobs)}
        return self.event(at, told) if delta else b""

    def last(self, at: int, answer: Answer) -> bytes:
        told = {"delta": self._delta(at, self._replies[at].end()), "logprobs": None}
        return self.event(at, told, answer)

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
        delta: dict[str, Any] = {"content": text} if text else {}
        return delta | ({"tool_calls": list(calls.values())} if calls else {})

    def _told(self, told: Told | None) -> dict[str, Any] | None:
        return None if told is None else chat_logprobs(told, self._spell)


def _called(name: str, arguments: str = "") -> dict[str, str]:
    return {"name": name, "arguments": arguments}


MAX_TOKENS = 16
"""OpenAI's default."""

TokenId = Annotated[int, Field(ge=0, lt=1 << 31), WHOLE]
Tokens = Annotated[list[TokenId], Field(min_length=1)]
Count = Annotated[int, Field(ge=0, le=MOST_LOGPROBS), WHOLE]
Texts = Annotated[list[str], Field(min_length=1)]


class CompletionBody(fields.SamplingFields):
    """A request for completions. prompt: text or token ids, or a list of either. echo: whether
    choices begin with it, and `logprobs` with its tokens'. prompt_logprobs: vLLM's field."""

    ACCEPTED: ClassVar = fields.ACCEPTED
    prompt: str | Tokens | Texts | Annotated[list[Tokens], Field(min_length=1)]
    max_tokens: Natural | None = None
    best_of: Positive | None = None
    echo: bool | None = None
    logprobs: Count | None = None
    prompt_logprobs: Count | None = None

    @property
    def prompts(self) -> list[Any]:
        """Texts, and lists of token ids."""
        given: Any = self.prompt
        return [given] if isinstance(given, str) or isinstance(given[0], int) else given


@router.post("/v1/completions", responses=STREAMED)
async def complete(body: CompletionBody, scope: Scope) -> Response:
    """Go on with texts."""
    model = scope.server.model(body.model)
    if body.best_of is not None and body.best_of != body.choices:
        raise not_supported("best_of", "Ask for n answers instead.")
    if body.max_tokens == 0 and not body.echo and body.prompt_logprobs is None:
        raise not_supported("max_tokens", "Without echo and prompt_logprobs, give at least 1.")
    limit = MAX_TOKENS if body.max_tokens is None else max(1, body.max_tokens)
    of_prompt = [body.prompt_logprobs, body.logprobs if body.echo else None]
    most = max((each for each in of_prompt if each is not None), default=None)
    chosen = [
        replace(each, prompt_logprobs=most)
        for each in fields.samplings(body, limit, logprobs=body.logprobs)
    ]
    form = _TextForm(body, model, list(map(raw_prompt, body.prompts)), chosen)
    return await scope.answer(body, model, form.groups, form, form.places)


def raw_prompt(given: str | list[int]) -> Prompt:
    """A text whose special tokens are read as such, or token ids."""
    is_text = isinstance(given, str)
    return (Span(given if isinstance(given, str) else tuple(given), Role.NONE, raw=is_text),)


class _TextForm(CompletionForm):
    def __init__(self, body: CompletionBody, *given: Any) -> None:
        super().__init__(body, *given)
        self._body, self._echoed = body, list[str]()
        self._plain = [PlainLogprobs() for _ in self.places]
        self._begun: set[int] = set()

    async def learn(self, some: Sequence[Piece | Answer]) -> None:
        await super().learn(some)
        for each in some:
            if isinstance(each, Answer):
                finish_of(each)  # a token that is refused has no text to echo
        if not self._body.echo or self._echoed:
            return
        prompts = self._body.prompts
        ids = [each for each in prompts if not isinstance(each, str)]
        spell = await self._engine.spell(token for each in ids for token in each)
        self._echoed = [
            each if isinstance(each, str) else b"".join(map(spell, each)).decode(errors="replace")
            for each in prompts
        ]

    def _taken(self, answer: Answer) -> Answer:
        """What of an answer was asked for: the engine draws one token at least."""
        if self._body.max_tokens != 0:
            return answer
        none = None if answer.logprobs is None else ()
        about: dict[str, Any] = {"finish": Finish.LENGTH, "output_tokens": 0, "logprobs": none}
        return replace(answer, text="", tokens=(), **about)

    def whole(self, answers: list[Answer]) -> dict[str, Any]:
        return super().whole(list(map(self._taken, answers)))

    def choice(self, at: int, answer: Answer) -> dict[str, Any]:
        return self._part(at, answer.text or "", answer.logprobs, answer)

    def piece(self, at: int, piece: Piece) -> bytes:
        text, told = ("", ()) if self._body.max_tokens == 0 else (piece.text, piece.logprobs)
        shown = None if piece.logprobs is None else told
        return self.event(at, self._part(at, text, shown, piece.begun))

    def last(self, at: int, answer: Answer) -> bytes:
        begun = None if at in self._begun else answer
        return self.event(at, self._part(at, "", None, begun), self._taken(answer))

    def _part(
        self, at: int, text: str, told: Told | None, begun: Answer | Begun | None
    ) -> dict[str, Any]:
        """A part of a choice. begun: of the first one, what is known of the prompt."""
        body, opens = self._body, False
        prompt = (begun and begun.prompt_logprobs) or ()
        if begun is not None:
            self._begun.add(at)
            if body.echo:
                text = self._echoed[at // body.choices] + text
                opens = bool(prompt) and body.logprobs is not None
        if opens:
            told = (*prompt, *(told or ()))
        shown = None if told is None else self._plain[at].shown(told, self._spell, opens=opens)
        choice: dict[str, Any] = {"text": text, "logprobs": shown}
        if begun is not None and body.prompt_logprobs is not None:
            choice["prompt_logprobs"] = prompt_logprobs(prompt, self._spell)
        return choice
