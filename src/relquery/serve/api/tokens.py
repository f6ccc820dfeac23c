"""/tokenize and /detokenize, in vLLM's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter
from pydantic import BaseModel, Field

from relquery.prompt import Prompt, Role, Span
from relquery.serve.body import WHOLE, Body, example
from relquery.serve.document import errors
from relquery.serve.errors import bad_request
from relquery.serve.openai.completions import raw_prompt
from relquery.serve.openai.fields import ChatMessage, prompt_of
from relquery.serve.server import Scope

router = APIRouter(tags=["vLLM"])
TokenId = Annotated[int, Field(ge=0, lt=1 << 31), WHOLE]


class TokenizeBody(Body):
    """A text as /v1/completions reads it, or a chat as /v1/chat/completions does."""

    model_config = example({"prompt": "Is tea good?"})
    ACCEPTED: ClassVar[Mapping[str, Any]] = {
        "add_special_tokens": (None, True),
        "add_generation_prompt": (None, True),
        "continue_final_message": (None, False),
    }
    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1)] | None = None
    return_token_strs: bool | None = None

    @property
    def asked(self) -> Prompt:
        """The prompt. Raises HttpError unless there is one."""
        if (self.prompt is None) == (self.messages is None):
            raise bad_request("Give either prompt or messages.", "prompt")
        if self.messages is not None:
            return prompt_of(self.messages)
        return raw_prompt(self.prompt or "")


class Tokenized(BaseModel):
    """max_model_len: tokens of a prompt and its answer together."""

    tokens: list[int]
    count: int
    max_model_len: int
    token_strs: list[str] | None = None


class DetokenizeBody(Body):
    """Token ids."""

    model_config = example({"tokens": [40, 41, 42]})
    model: str | None = None
    tokens: list[TokenId]


class Detokenized(BaseModel):
    """Their text, with the names of special tokens."""

    prompt: str


@router.post("/tokenize", responses=errors(404))
async def tokenize(body: TokenizeBody, scope: Scope) -> Tokenized:
    """The tokens of a prompt."""
    model = scope.server.model(body.model)
    tokens: list[int] = await model.engine.ask("tokens", body.asked)
    strings = None
    if body.return_token_strs:
        spell = await model.engine.spell(tokens)
        strings = [spell(token).decode(errors="replace") for token in tokens]
    return Tokenized(
        tokens=tokens,
        count=len(tokens),
        max_model_len=model.facts.context,
        token_strs=strings,
    )


@router.post("/detokenize", responses=errors(404))
async def detokenize(body: DetokenizeBody, scope: Scope) -> Detokenized:
    """The text of tokens."""
    engine = scope.server.model(body.model).engine
    if body.tokens:  # refuses ids that the model does not have
        await engine.ask("tokens", (Span(tuple(body.tokens), Role.NONE),))
    spelt = b"".join(map(await engine.spell(body.tokens), body.tokens))
    return Detokenized(prompt=spelt.decode(errors="replace"))
