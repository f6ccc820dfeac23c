"""What answers look like, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel


class PromptTokensDetails(BaseModel):
    """cached_tokens: whose states came from the cache."""

    cached_tokens: int


class Usage(BaseModel):
    """Counted tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class Message(BaseModel):
    """What the model says."""

    role: Literal["assistant"]
    content: str
    refusal: None


class Choice(BaseModel):
    """What all choices have."""

    index: int
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length"]


class ChatChoice(Choice):
    """One answer to a chat."""

    message: Message


class TextChoice(Choice):
    """One completion."""

    text: str


class Choices(BaseModel):
    """What all answers with choices have."""

    id: str
    created: int
    model: str
    usage: Usage


class ChatCompletion(Choices):
    """The answers to a chat."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class Completion(Choices):
    """The completions of texts."""

    object: Literal["text_completion"]
    choices: list[TextChoice]


class ResponseUsage(BaseModel):
    """Counted tokens of a response."""

    input_tokens: int
    input_tokens_details: PromptTokensDetails
    output_tokens: int
    output_tokens_details: dict[str, int]
    total_tokens: int


class ResponseObject(BaseModel):
    """A response; see OpenAI's reference for all of its fields."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete"]
    model: str
    output: list[dict[str, Any]]
    usage: ResponseUsage


class ModelObject(BaseModel):
    """A model. max_model_len: tokens of a prompt and its answer together, as in vLLM."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "relquery"
    max_model_len: int


class ModelList(BaseModel):
    """All models."""

    object: Literal["list"] = "list"
    data: list[ModelObject]
