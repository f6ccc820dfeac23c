"""LOTUS's models. An LM is a connection of relquery, and an RM names its embedder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relquery.errors import ConfigError
from relquery.frames.lotus.models.lm import LM
from relquery.retrieval.embedder import Embedder

__all__ = ["LM", "RM", "ColBERTv2RM", "CrossEncoderReranker", "LiteLLMRM", "SentenceTransformersRM"]


@dataclass(frozen=True)
class RM:
    """A model that compares texts. embedder: as `rq.connect` takes it."""

    embedder: str | Embedder


class SentenceTransformersRM(RM):
    """An encoder by its Hugging Face name or folder."""

    def __init__(self, model: str = "intfloat/e5-base-v2", **options: Any) -> None:
        _check_none(options, "SentenceTransformersRM")
        super().__init__(model)


class LiteLLMRM(RM):
    """An embedding model of OpenAI, or of a server with the same API."""

    def __init__(self, model: str = "text-embedding-3-small", **options: Any) -> None:
        _check_none(options, "LiteLLMRM")
        super().__init__(f"openai:{model.removeprefix('openai/')}")


class ColBERTv2RM(RM):
    """Refused."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise ConfigError("ColBERTv2RM is not supported. Use SentenceTransformersRM(model=...).")


@dataclass(frozen=True)
class CrossEncoderReranker:
    """Named in settings; rows are reranked by the language model in its place."""

    model: str = ""


def _check_none(options: dict[str, Any], name: str) -> None:
    sizes = ("max_batch_size", "normalize_embeddings", "device")
    for option in options:
        if option not in sizes:
            raise ConfigError(f"{name} was given {option}, which is not supported. Leave it out.")
