"""LOTUS's types that programs import. Most are refused where they are used; see `refused`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from math import inf, isinf
from typing import Any

from relquery.frames.lotus.refused import refuse_type


def __getattr__(name: str) -> Any:
    refuse_type(name)


class ReasoningStrategy(Enum):
    """How a model is asked to reason; refused where it is used."""

    DEFAULT = auto()
    COT = auto()
    ZS_COT = auto()
    FEW_SHOT = auto()


class LongContextStrategy(Enum):
    """What is done with groups that do not fit into a context. relquery cuts them into parts."""

    TRUNCATE = auto()
    CHUNK = auto()


class ProxyModel(Enum):
    """What a cascade asks first; refused with the cascade."""

    HELPER_LM = "helper_lm"
    EMBEDDING_MODEL = "embedding_model"


class SerializationFormat(Enum):
    """How LOTUS writes rows into a prompt; all but DEFAULT are refused in settings."""

    JSON = "json"
    XML = "xml"
    DEFAULT = "default"

    def __bool__(self) -> bool:
        return self is not SerializationFormat.DEFAULT


class CascadeArgs:
    """How a cascade is tuned; any arguments. Refused where it is used."""

    def __init__(self, **given: Any) -> None:
        self.given = given


@dataclass(frozen=True, slots=True)
class UsageLimit:
    """The most tokens and dollars of a model; refused where it is used, if it limits anything."""

    prompt_tokens_limit: float = inf
    completion_tokens_limit: float = inf
    total_tokens_limit: float = inf
    total_cost_limit: float = inf

    def __bool__(self) -> bool:
        limits = (
            self.prompt_tokens_limit,
            self.completion_tokens_limit,
            self.total_tokens_limit,
            self.total_cost_limit,
        )
        return not all(map(isinf, limits))
