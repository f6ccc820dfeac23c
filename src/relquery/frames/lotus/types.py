"""LOTUS's types that programs import. Most are refused where they are used; see `refused`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from math import inf, isinf
from typing import Any

from relquery.config import EMBEDDING
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
    """What a cascade asks first."""

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
    """What a filter's cascade must meet. The defaults are LOTUS's.

    sampling_percentage and others of LOTUS's arguments have no effect: how rows are drawn is
    relquery's business.
    """

    def __init__(
        self,
        recall_target: float = 0.8,
        precision_target: float = 0.8,
        sampling_percentage: float = 0.1,
        failure_probability: float = 0.2,
        proxy_model: ProxyModel = ProxyModel.HELPER_LM,
        **_: Any,
    ) -> None:
        del sampling_percentage
        self.recall_target, self.precision_target = recall_target, precision_target
        self.failure_probability, self.proxy_model = failure_probability, proxy_model

    def options(self) -> dict[str, Any]:
        """As options of a frame's filter."""
        is_head = self.proxy_model is ProxyModel.EMBEDDING_MODEL
        return {
            "proxy": EMBEDDING if is_head else ProxyModel.HELPER_LM.value,
            "precision": self.precision_target,
            "recall": self.recall_target,
            "confidence": 1 - self.failure_probability,
        }


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
