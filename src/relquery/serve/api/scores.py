"""/v1/score: how likely each label is as the answer to each prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, inf
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from relquery.backends.scoring import corrected
from relquery.engine.requests.labels import Normalization
from relquery.errors import ConfigError
from relquery.prompt import Answer, Prompt, Sampling, Span
from relquery.serve.body import Body, Declared, example
from relquery.serve.document import errors
from relquery.serve.errors import bad_request
from relquery.serve.openai.choices import finish_of, usage_of
from relquery.serve.openai.fields import ChatMessage, prompt_of
from relquery.serve.server import Asked, Scope

router = APIRouter(tags=["relquery"])

Label = Annotated[str, Field(min_length=1)]


class ScoreBody(Body):
    """Prompts, each a user's message, or one chat; and labels to be weighed.

    normalization, temperature: see relquery.Engine.score.
    """

    model_config = example({"model": "demo", "prompts": ["Is tea good?"], "labels": ["yes", "no"]})
    model: str
    prompts: Annotated[list[str], Field(min_length=1)] | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1)] | None = None
    labels: Annotated[list[Label], Field(min_length=1)]
    normalization: Normalization = "joint"
    temperature: Annotated[float, Field(gt=0, lt=inf)] = 1.0
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


@router.post("/v1/score", responses=errors(404, 422, 504))
async def score(body: ScoreBody, scope: Scope) -> ScoreList:
    """Weigh labels as answers, without decoding."""
    model = scope.server.model(body.model)
    prompts = body.asked
    try:
        sampling = Sampling(labels=tuple(body.labels))
    except ConfigError as error:
        raise bad_request(str(error), "labels") from error
    asked = Asked(prompts, sampling, model)
    stream = scope.start([asked], body.relquery, scored=body.normalization)
    answers = await stream.answers(scope.receive)
    return ScoreList(
        model=body.model,
        data=_scored(answers, body.temperature),
        usage=usage_of(replace(each, output_tokens=0) for each in answers),
    )


def _scored(answers: Sequence[Answer], temperature: float) -> list[ScoreObject]:
    found = []
    for at, answer in enumerate(answers):
        finish_of(answer)
        assert answer.scores is not None, "it was not scored"
        logs = corrected(answer.scores, None, temperature)
        found.append(
            ScoreObject(
                index=at,
                best=max(logs, key=logs.__getitem__),
                probabilities={label: exp(log) for label, log in logs.items()},
                log_probabilities={
                    label: None if log == -inf else log for label, log in logs.items()
                },
            )
        )
    return found
