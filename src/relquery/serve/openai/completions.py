"""/v1/chat/completions; and /v1/completions: text that the model goes on with, without a chat's
template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from relquery.backends.local.asking import Begun, Piece
from relquery.prompt import MOST_LOGPROBS, Answer, Finish, Prompt, Role, Span
from relquery.serve.body import NONE_OF, NOTHING, WHOLE, example
from relquery.serve.errors import bad_request, not_supported
from relquery.serve.openai.choices import (
    CompletionForm,
    PlainLogprobs,
    Told,
    chat_logprobs,
    choices_of,
    finish_of,
    prompt_logprobs,
)
from relquery.serve.openai.fields import (
    ACCEPTED,
    ChatMessage,
    FunctionTool,
    NamedChoice,
    ResponseFormat,
    Sampled,
    ToolOptions,
    form_of,
    prompt_of,
    samplings,
)
from relquery.serve.server import NamedModel, Question, Scope, Server
from relquery.serve.streaming import STREAMED
from relquery.serve.tools import Reply
from relquery.tools import Delta, ToolUse

router = APIRouter(tags=["OpenAI"])


class ChatBody(Sampled, ToolOptions):
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
    max_completion_tokens: Annotated[int, Field(ge=1), WHOLE] | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20), WHOLE] | None = None

    @property
    def told(self) -> int | None:
        """Log-probabilities, see Sampling. Raises HttpError."""
        if self.top_logprobs and not self.logprobs:
            raise bad_request("top_logprobs needs logprobs = true.", "top_logprobs")
        return (self.top_logprobs or 0) if self.logprobs else None


@router.post("/v1/chat/completions", responses=STREAMED)
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
    groups, places = choices_of([prompt], chosen, body.choices)
    return Question(model, groups, _ChatForm(body, model, places, use), places)


class _ChatForm(CompletionForm):
    kind, name, chunk = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(
        self, body: ChatBody, model: NamedModel, places: Sequence[int], use: ToolUse | None
    ) -> None:
        super().__init__(body, model, places)
        form = model.facts.calls
        self._replies = [Reply(use, form, "call_") for _ in range(body.choices)]

    def head(self, kind: str) -> dict[str, Any]:
        return super().head(kind) | {"service_tier": "default"}

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


MAX_TOKENS = 16
"""OpenAI's default."""

TokenId = Annotated[int, Field(ge=0, lt=1 << 31), WHOLE]
Tokens = Annotated[list[TokenId], Field(min_length=1)]
Count = Annotated[int, Field(ge=0, le=MOST_LOGPROBS), WHOLE]
Texts = Annotated[list[str], Field(min_length=1)]


class CompletionBody(Sampled):
    """A request for completions. prompt: text or token ids, or a list of either. echo: whether
    choices begin with it, and `logprobs` with its tokens'. prompt_logprobs: vLLM's field."""

    model_config = example({"model": "demo", "prompt": "Tea is"})
    ACCEPTED: ClassVar[Mapping[str, Any]] = ACCEPTED | {"suffix": (None, "")}
    prompt: str | Tokens | Texts | Annotated[list[Tokens], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=0), WHOLE] | None = None
    best_of: Annotated[int, Field(ge=1), WHOLE] | None = None
    echo: bool | None = None
    logprobs: Count | None = None
    prompt_logprobs: Count | None = None

    @property
    def asked_of_prompt(self) -> int | None:
        """See Sampling.prompt_logprobs."""
        echoed = self.logprobs if self.echo else None
        given = [each for each in (echoed, self.prompt_logprobs) if each is not None]
        return max(given, default=None)


@router.post("/v1/completions", responses=STREAMED)
async def complete(body: CompletionBody, scope: Scope) -> Response:
    """Go on with texts."""
    return await read_completion(body, scope.server).ask(scope, body)


def read_completion(body: CompletionBody, server: Server) -> Question:
    """What is to be completed. Raises HttpError."""
    model = server.model(body.model)
    if body.best_of is not None and body.best_of != body.choices:
        raise not_supported("best_of", "Ask for n answers instead.")
    if body.max_tokens == 0 and not body.echo and body.prompt_logprobs is None:
        raise not_supported("max_tokens", "Without echo and prompt_logprobs, give at least 1.")
    limit = MAX_TOKENS if body.max_tokens is None else max(1, body.max_tokens)
    chosen = [
        replace(each, prompt_logprobs=body.asked_of_prompt)
        for each in samplings(body, limit, logprobs=body.logprobs)
    ]
    groups, places = choices_of(prompts_of(body.prompt), chosen, body.choices)
    return Question(model, groups, _TextForm(body, model, places), places)


def prompts_of(given: str | list[int] | list[str] | list[list[int]]) -> list[Prompt]:
    """Texts and token ids as prompts that the model reads as they are."""
    return [raw_prompt(each) for each in _many(given)]


def _many(given: Any) -> list[Any]:
    return [given] if isinstance(given, str) or isinstance(given[0], int) else given


def raw_prompt(given: str | list[int]) -> Prompt:
    """A text whose special tokens are read as such, or token ids."""
    is_text = isinstance(given, str)
    return (Span(given if isinstance(given, str) else tuple(given), Role.NONE, raw=is_text),)


class _TextForm(CompletionForm):
    def __init__(self, body: CompletionBody, model: NamedModel, places: Sequence[int]) -> None:
        super().__init__(body, model, places)
        self._asked, self._echoed = body, list[str]()
        self._plain = [PlainLogprobs() for _ in places]
        self._begun: set[int] = set()

    async def learn(self, some: Sequence[Piece | Answer]) -> None:
        await super().learn(some)
        for each in some:
            if isinstance(each, Answer):
                finish_of(each)  # a token that is refused has no text to echo
        if not self._asked.echo or self._echoed:
            return
        prompts = _many(self._asked.prompt)
        ids = [each for each in prompts if not isinstance(each, str)]
        spell = await self._engine.spell(token for each in ids for token in each)
        self._echoed = [
            each if isinstance(each, str) else b"".join(map(spell, each)).decode(errors="replace")
            for each in prompts
        ]

    def taken(self, answer: Answer) -> Answer:
        """The engine draws one token at least."""
        if self._asked.max_tokens != 0 or answer.finish in (Finish.ERROR, Finish.CANCELLED):
            return answer
        none = None if answer.logprobs is None else ()
        empty = replace(answer, text="", finish=Finish.LENGTH, tokens=(), output_tokens=0)
        return replace(empty, logprobs=none)

    def choice(self, at: int, answer: Answer) -> dict[str, Any]:
        return self._part(at, answer.text or "", answer.logprobs, answer)

    def piece(self, at: int, piece: Piece) -> dict[str, Any]:
        text, told = ("", ()) if self._asked.max_tokens == 0 else (piece.text, piece.logprobs)
        return self._part(at, text, None if piece.logprobs is None else told, piece.begun)

    def last(self, at: int, answer: Answer) -> dict[str, Any]:
        return self._part(at, "", None, None if at in self._begun else answer)

    def _part(
        self, at: int, text: str, told: Told | None, begun: Answer | Begun | None
    ) -> dict[str, Any]:
        """A part of a choice. begun: of the first one, what is known of the prompt."""
        body, opens = self._asked, False
        prompt = (begun and begun.prompt_logprobs) or ()
        if begun is not None:
            self._begun.add(at)
            if body.echo:
                text = self._echoed[at // body.choices] + text
                opens = bool(prompt) and body.logprobs is not None
        if opens:
            told = (*prompt, *(told or ()))
        shown = None if told is None else self._plain[at].shown(told, self._spell, opens=opens)
        found: dict[str, Any] = {"text": text, "logprobs": shown}
        if begun is not None and body.prompt_logprobs is not None:
            found["prompt_logprobs"] = prompt_logprobs(prompt, self._spell)
        return found
