"""/v1/completions: text that the model goes on with, without a chat's template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from relquery.prompt import Answer, Prompt, Role, Span
from relquery.serve.body import OFF, WHOLE, example
from relquery.serve.document import errors, streamed
from relquery.serve.errors import not_supported
from relquery.serve.openai.choices import CompletionForm, PlainLogprobs, Told, choices_of
from relquery.serve.openai.fields import ACCEPTED, Sampled, samplings
from relquery.serve.server import Question, Scope, Server

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


@router.post("/v1/completions", responses=errors(404, 422, 504) | streamed("OpenAICompletion"))
async def complete(body: CompletionBody, scope: Scope) -> Response:
    """Go on with texts."""
    return await read_completion(body, scope.server).ask(scope, body)


def read_completion(body: CompletionBody, server: Server) -> Question:
    """What is to be completed. Raises HttpError."""
    adapter = server.adapter(body.model)
    if body.best_of is not None and body.best_of != body.choices:
        raise not_supported("best_of", "Ask for n answers instead.")
    chosen = samplings(body, body.max_tokens or MAX_TOKENS, logprobs=body.logprobs)
    groups, places = choices_of(prompts_of(body.prompt), chosen, body.choices, adapter)
    return Question(groups, _TextForm(body, server, places), places)


def prompts_of(given: str | list[int] | list[str] | list[list[int]]) -> list[Prompt]:
    """Texts and token ids as prompts that the model reads as they are."""
    many: Sequence[Any] = given
    if isinstance(given, str) or isinstance(given[0], int):
        many = [given]
    return [raw_prompt(each) for each in many]


def raw_prompt(given: str | list[int]) -> Prompt:
    """A text whose special tokens are read as such, or token ids."""
    is_text = isinstance(given, str)
    return (Span(given if isinstance(given, str) else tuple(given), Role.NONE, raw=is_text),)


class _TextForm(CompletionForm):
    def __init__(self, body: CompletionBody, server: Server, places: Sequence[int]) -> None:
        super().__init__(body, server, places)
        self._plain = [PlainLogprobs() for _ in places]

    def choice(self, at: int, answer: Answer) -> dict[str, Any]:
        return self.piece(at, answer.text or "", answer.logprobs)

    def piece(self, at: int, text: str, told: Told | None) -> dict[str, Any]:
        shown = None if told is None else self._plain[at].shown(told, self._spell)
        return {"text": text, "logprobs": shown}

    def last(self, at: int) -> dict[str, Any]:
        return self.piece(at, "", None)
