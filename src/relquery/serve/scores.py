"""/v1/score: how likely each label is as the answer to each prompt. /tokenize and /detokenize, in
vLLM's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import exp, inf
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter
from pydantic import BaseModel, Field

from relquery.engine.requests.labels import Normalization
from relquery.errors import ConfigError
from relquery.prompt import Answer, Prompt, Role, Sampling, Span
from relquery.serve.body import Body, Declared, example
from relquery.serve.errors import bad_request
from relquery.serve.openai.choices import finish_of, usage_of
from relquery.serve.openai.completions import TokenId, raw_prompt
from relquery.serve.openai.fields import ChatMessage, prompt_of
from relquery.serve.server import PromptGroup, Scope

router = APIRouter(tags=["relquery", "vLLM"])
Label = Annotated[str, Field(min_length=1)]
Messages = Annotated[list[ChatMessage], Field(min_length=1)]


class ScoreBody(Body):
    """Prompts, each a user's message, or one chat; and labels to be weighed.

    normalization: see relquery.Engine.score.
    """

    model_config = example({"model": "demo", "prompts": ["Is tea good?"], "labels": ["yes", "no"]})
    model: str
    prompts: Annotated[list[str], Field(min_length=1)] | None = None
    messages: Messages | None = None
    labels: Annotated[list[Label], Field(min_length=1)]
    normalization: Normalization = "joint"
    relquery: Declared | None = None

    @property
    def asked(self) -> list[Prompt]:
        """The prompts. Raises HttpError unless there is one kind of them."""
        if (self.prompts is None) == (self.messages is None):
            raise bad_request("Give either prompts or messages.", "prompts")
        if self.messages is not None:
            return [prompt_of(self.messages)]
        return [(Span(text),) for text in self.prompts or ()]


class ScoreObject(BaseModel):
    """Of one prompt, by label. log_probabilities: null for a label of probability 0."""

    index: int
    best: str
    probabilities: dict[str, float]
    log_probabilities: dict[str, float | None]


class ScoreList(BaseModel):
    """Of all prompts."""

    object: str = "list"
    model: str
    data: list[ScoreObject]
    usage: dict[str, Any]


@router.post("/v1/score")
async def score(body: ScoreBody, scope: Scope) -> ScoreList:
    """Weigh labels as answers, without decoding."""
    model = scope.server.model(body.model)
    prompts = body.asked
    try:
        sampling = Sampling(labels=tuple(body.labels))
    except ConfigError as error:
        raise bad_request(str(error), "labels") from error
    groups = [PromptGroup(prompts, sampling)]
    stream = scope.start(model, groups, body.relquery, scored=body.normalization)
    answers = await stream.answers(scope.receive)
    return ScoreList(
        model=body.model,
        data=[_scored(at, each) for at, each in enumerate(answers)],
        usage=usage_of(replace(each, output_tokens=0) for each in answers),
    )


def _scored(at: int, answer: Answer) -> ScoreObject:
    """Raises HttpError for an answer that could not be served."""
    finish_of(answer)
    assert answer.scores is not None, "it was not scored"
    logs = answer.scores
    return ScoreObject(
        index=at,
        best=max(logs, key=logs.__getitem__),
        probabilities={label: exp(log) for label, log in logs.items()},
        log_probabilities={label: None if log == -inf else log for label, log in logs.items()},
    )


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
    messages: Messages | None = None
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


@router.post("/tokenize")
async def tokenize(body: TokenizeBody, scope: Scope) -> Tokenized:
    """The tokens of a prompt."""
    model = scope.server.model(body.model)
    tokens: list[int] = await model.engine.ask("tokens", body.asked)
    strings = None
    if body.return_token_strs:
        spell = await model.engine.spell(tokens)
        strings = [spell(token).decode(errors="replace") for token in tokens]
    most = model.facts.context
    return Tokenized(tokens=tokens, count=len(tokens), max_model_len=most, token_strs=strings)


@router.post("/detokenize")
async def detokenize(body: DetokenizeBody, scope: Scope) -> Detokenized:
    """The text of tokens."""
    engine = scope.server.model(body.model).engine
    if body.tokens:  # refuses ids that the model does not have
        await engine.ask("tokens", (Span(tuple(body.tokens), Role.NONE),))
    spelt = b"".join(map(await engine.spell(body.tokens), body.tokens))
    return Detokenized(prompt=spelt.decode(errors="replace"))
