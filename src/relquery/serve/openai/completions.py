"""/v1/completions: text that the model goes on with, without a chat's template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from relquery.prompt import MOST_LOGPROBS, Answer, Finish, Prompt, Role, Span
from relquery.serve.body import WHOLE, example
from relquery.serve.document import errors, streamed
from relquery.serve.errors import not_supported
from relquery.serve.openai.choices import (
    CompletionForm,
    PlainLogprobs,
    Told,
    choices_of,
    prompt_logprobs,
)
from relquery.serve.openai.fields import ACCEPTED, Sampled, samplings
from relquery.serve.server import Question, Scope, Server

router = APIRouter(tags=["OpenAI"])
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


@router.post("/v1/completions", responses=errors(404, 422, 504) | streamed("OpenAICompletion"))
async def complete(body: CompletionBody, scope: Scope) -> Response:
    """Go on with texts."""
    return await read_completion(body, scope.server).ask(scope, body)


def read_completion(body: CompletionBody, server: Server) -> Question:
    """What is to be completed. Raises HttpError."""
    adapter = server.adapter(body.model)
    if body.best_of is not None and body.best_of != body.choices:
        raise not_supported("best_of", "Ask for n answers instead.")
    if body.stream and (body.echo or body.prompt_logprobs is not None):
        raise not_supported("stream", "With echo or prompt_logprobs, leave it out.")
    if body.max_tokens == 0 and not body.echo and body.prompt_logprobs is None:
        raise not_supported("max_tokens", "Without echo and prompt_logprobs, give at least 1.")
    limit = MAX_TOKENS if body.max_tokens is None else max(1, body.max_tokens)
    chosen = [
        replace(each, prompt_logprobs=body.asked_of_prompt)
        for each in samplings(body, limit, logprobs=body.logprobs)
    ]
    groups, places = choices_of(prompts_of(body.prompt), chosen, body.choices, adapter)
    return Question(groups, _TextForm(body, server, places), places)


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
    def __init__(self, body: CompletionBody, server: Server, places: Sequence[int]) -> None:
        super().__init__(body, server, places)
        self._asked = body
        self._plain = [PlainLogprobs() for _ in places]

    async def whole(self, answers: list[Answer]) -> dict[str, Any]:
        for at, each in enumerate(answers):  # a token that is refused has no text to echo
            self.finish(at, each)
        if self._asked.max_tokens == 0:  # the engine draws one token at least
            answers = [_without_answer(each) for each in answers]
        prompts = _many(self._asked.prompt) if self._asked.echo else []
        ids = [each for each in prompts if not isinstance(each, str)]
        spell = await self._server.spell(token for each in ids for token in each)
        self._echoed = [
            each if isinstance(each, str) else b"".join(map(spell, each)).decode(errors="replace")
            for each in prompts
        ]
        return await super().whole(answers)

    def choice(self, at: int, answer: Answer) -> dict[str, Any]:
        body, prompt = self._asked, answer.prompt_logprobs or ()
        text, told = answer.text or "", answer.logprobs
        opens = bool(body.echo and told is not None and prompt)
        if body.echo:
            text = self._echoed[at // body.choices] + text
        shown = None
        if told is not None:
            told = (*prompt, *told) if opens else told
            shown = self._plain[at].shown(told, self._spell, opens=opens)
        found: dict[str, Any] = {"text": text, "logprobs": shown}
        if body.prompt_logprobs is not None:
            found["prompt_logprobs"] = prompt_logprobs(prompt, self._spell)
        return found

    def piece(self, at: int, text: str, told: Told | None) -> dict[str, Any]:
        shown = None if told is None else self._plain[at].shown(told, self._spell)
        return {"text": text, "logprobs": shown}

    def last(self, at: int) -> dict[str, Any]:
        return self.piece(at, "", None)


def _without_answer(answer: Answer) -> Answer:
    """What was asked for no token of an answer."""
    if answer.finish in (Finish.ERROR, Finish.CANCELLED):
        return answer
    none = None if answer.logprobs is None else ()
    return replace(answer, text="", finish=Finish.LENGTH, tokens=(), output_tokens=0, logprobs=none)
