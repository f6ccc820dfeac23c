"""LOTUS's types that programs import."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from enum import Enum, auto
from math import inf
from typing import Any, ClassVar

from relquery.config import EMBEDDING
from relquery.errors import RelqueryError
from relquery.frames.lotus.refused import refused_type


def __getattr__(name: str) -> Any:
    return refused_type(name)


class ReasoningStrategy(Enum):
    """The way in which a model is asked to reason: before its answer, for all but DEFAULT and
    FEW_SHOT."""

    DEFAULT = auto()
    COT = auto()
    ZS_COT = auto()
    FEW_SHOT = auto()


class LongContextStrategy(Enum):
    """The treatment of groups that do not fit into a context. relquery cuts them into parts."""

    TRUNCATE = auto()
    CHUNK = auto()


class ProxyModel(Enum):
    """The model that a cascade asks first."""

    HELPER_LM = "helper_lm"
    EMBEDDING_MODEL = "embedding_model"


class SerializationFormat(Enum):
    """The form in which rows are written into a prompt."""

    JSON = "json"
    XML = "xml"
    DEFAULT = "default"


class CascadeArgs:
    """Targets of a filter's cascade. The defaults are LOTUS's.

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


@dataclass
class TotalUsage:
    """Tokens of requests, and what they cost in USD; 0 without a price."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    total_cost: float = 0.0
    cached_prompt_tokens: int = 0
    cache_creation_tokens: int = 0

    def __add__(self, other: TotalUsage) -> TotalUsage:
        return TotalUsage(*map(_sum, astuple(self), astuple(other)))

    def __sub__(self, other: TotalUsage) -> TotalUsage:
        return TotalUsage(*map(_sum, astuple(self), (-count for count in astuple(other))))


def _sum(one: Any, other: Any) -> Any:
    return round(one + other, 12) if isinstance(one, float) else one + other


_Usage = TotalUsage


@dataclass
class LMStats:
    """Counts of what an LM was asked."""

    TotalUsage: ClassVar[type[_Usage]] = _Usage
    physical_usage: _Usage = field(default_factory=_Usage)
    """Of requests that were sent."""
    virtual_usage: _Usage = field(default_factory=_Usage)
    """Also of those that were answered before. Such a request counts as the mean of all that were
    sent, and a verb that is run again as the first time."""
    calls: int = 0
    """Requests that were sent."""
    cache_hits: int = 0
    """Requests that had been answered before."""
    operator_cache_hits: int = 0
    """Verbs that had been run before, with `enable_cache`."""

    def __str__(self) -> str:
        used = self.physical_usage
        return (
            f"{self.calls:,} calls, {used.prompt_tokens:,} prompt tokens, "
            f"{used.completion_tokens:,} output tokens"
        )


@dataclass
class LMOutput:
    """Answers of an LM that is called."""

    outputs: list[str]
    logprobs: None = None


class LotusException(RelqueryError):  # noqa: N818
    """The base of LOTUS's errors."""


class LotusUsageLimitException(LotusException):
    """An LM has used more than its limit. What it has answered is kept."""


@dataclass(frozen=True, slots=True)
class UsageLimit:
    """The most tokens and dollars of a model. It ends what follows the verb that goes beyond it."""

    prompt_tokens_limit: float = inf
    completion_tokens_limit: float = inf
    total_tokens_limit: float = inf
    total_cost_limit: float = inf

    def check(self, used: TotalUsage, which: str) -> None:
        """Raises LotusUsageLimitException for use beyond it."""
        for name in ("prompt_tokens", "completion_tokens", "total_tokens", "total_cost"):
            most, spent = getattr(self, f"{name}_limit"), getattr(used, name)
            if spent > most:
                raise LotusUsageLimitException(
                    f"The LM has used {spent:,} of {name}, and {which}_usage_limit allows "
                    f"{most:,}. Answers are kept. Raise the limit, or call reset_stats()."
                )
