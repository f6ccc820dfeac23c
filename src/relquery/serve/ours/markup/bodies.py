"""Bodies of /v1/schemas and /v1/prompts and what is answered."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from relquery.serve.body import Body, example
from relquery.serve.ours.sampled import Sampled

Markup = Annotated[str, Field(min_length=1, max_length=1_000_000)]


class SchemaBody(Body):
    """A schema in markup. prepare: compute the states of its modules now."""

    model_config = example(
        {"markup": '<schema name="drinks"><module name="tea">Tea is hot.</module></schema>'}
    )
    markup: Markup
    prepare: bool = False


class PromptBody(Sampled):
    """A prompt in markup. independent: whether its modules are used; false sends plain text."""

    model_config = example({"prompt": '<prompt schema="drinks"><tea/>Is it hot?</prompt>'})
    prompt: Markup
    independent: bool = True


class SchemaShown(BaseModel):
    """A schema. modules: their paths. shared: whether it is everybody's."""

    name: str
    object: Literal["schema"]
    shared: bool
    modules: list[str]
    markup: str | None = None


class SchemaList(BaseModel):
    """The schemas that prompts may name."""

    object: Literal["list"]
    data: list[SchemaShown]


class Deleted(BaseModel):
    """A schema that was deleted."""

    name: str
    object: Literal["schema"]
    deleted: Literal[True]


class UsedShown(BaseModel):
    """A part of a prompt, and how many of its tokens were cached; see PromptResult."""

    name: str
    tokens: int
    cached: int
    sources: list[str]


class PromptAnswer(BaseModel):
    """The answer to a prompt."""

    answer: str
    finish_reason: str
    used: list[UsedShown]
    usage: dict[str, Any]
