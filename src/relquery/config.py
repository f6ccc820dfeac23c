"""One frozen config per layer, validated when built. Derived sizes live where they are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal, get_args

from relquery.errors import ConfigError, unknown

Order = Literal["original", "fixed", "ggr", "ophr", "tree"]
ORDERS: tuple[Order, ...] = get_args(Order)
PromptForm = Literal["json", "text"]
FORMS: tuple[PromptForm, ...] = get_args(PromptForm)
DEFAULT_FORM: PromptForm = "text"
"""The form of prompts where none is asked for: right at least as often as JSON in `scripts/bench
accuracy`, and the shortest."""
Nulls = Literal["skip", "ask"]
NULLS: tuple[Nulls, ...] = get_args(Nulls)
PolicyName = Literal[
    "fcfs",
    "sarathi",
    "static",
    "relserve",
    "shortest",
    "srjf",
]
POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Limits of the embedded engine."""

    max_num_batched_tokens: int = 2048
    """The most tokens that one step computes, prefill and decode together."""
    max_num_seqs: int = 256
    """The most requests that run at once."""
    max_input: int | None = None
    """The longest prompt, in tokens, that one step computes if the step gives the whole answer.
    Such a prompt may exceed max_num_batched_tokens and the cache (paper 004). None to keep to those
    limits."""
    slice_tokens: int = 2048
    """How many tokens of a step pass through the network at a time between two attentions: less
    memory, and the same results."""
    block_size: int = 4
    """Tokens per block, the unit of prefix hits and of allocation."""
    cache_tokens: int = 65_536
    """Capacity of the KV cache in tokens, rounded down to whole blocks."""
    prefix_caching: bool = True
    """Whether prompt tokens come from blocks that earlier requests computed."""
    share_prefixes: bool = True
    """Whether tenants read the states that other tenants' prompts computed, except those of
    independent spans. If False, a tenant only reads its own, and those of spans that are registered
    for all, so no response time reveals what other tenants sent."""
    segment_sharing: bool = True
    """Whether a context shared by several requests of a step is read once instead of once each."""
    policy: PolicyName = "sarathi"
    """The choice of the requests that a step takes, one of POLICIES."""
    starvation: float | None = None
    """A relQuery with waiting requests goes first once it has waited this many seconds per request
    since its arrival, begun or not; None for never. Like the next three, only for policies that
    order by priority."""
    aging: float = 0.0
    """Seconds of work that a second of waiting makes up for. Work is the remaining work of a
    relQuery; with static its tokens, each counted as a prompt token; with srjf the work of a
    request."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Shares of the engine that tenants get when they compete; the default is 1."""
    tail: float | None = None
    """How long relQueries may wait, as a multiple of the longest waits that first come, first
    served would make; None for any time. The smaller, the later are short ones. Not for srjf."""

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ConfigError(unknown("policy", self.policy, POLICIES))
        for name in ("starvation", "aging", "tail"):
            value = getattr(self, name)
            allowed = value is None and name != "aging"
            if not allowed and not (_is_number(value) and 0 <= value < inf):
                raise ConfigError(
                    f"{name} is {value!r}; it must be a finite number that is not negative."
                )
        self._check_tenants()
        for name in _COUNTS:
            value = getattr(self, name)
            if value is None and name == "max_input":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                other = ", or 'auto'" if name == "max_input" else ""
                raise ConfigError(f"{name} is {value!r}; it must be at least 1{other}.")
            if value > MOST_COUNTED:
                raise ConfigError(f"{name} is {value:,}; it must be at most {MOST_COUNTED:,}.")
        if self.cache_tokens < self.block_size:
            raise ConfigError(
                f"cache_tokens is {self.cache_tokens}, less than one block of {self.block_size}."
            )

    def _check_tenants(self) -> None:
        if not isinstance(self.share_prefixes, bool):
            raise ConfigError(
                f"share_prefixes is {self.share_prefixes!r}; it must be True or False."
            )
        if not isinstance(self.weights, Mapping):
            raise ConfigError(f"weights is {self.weights!r}; it must map tenants to numbers.")
        for tenant, weight in self.weights.items():
            if not (_is_number(weight) and 0 < weight < inf):
                raise ConfigError(
                    f"The weight of tenant '{tenant}' is {weight!r}; it must be above 0."
                )


OF_CONNECT = (
    "model", "database", "order", "on_error", "guard", "guard_rows", "form", "nulls", "redact",
    "ledger", "embedder", "index", "progress", "clock", "models", "cascade",
)  # fmt: skip
"""Keywords of `relquery.connect`, which gives its other ones to the backend."""

MOST_COUNTED = 2**40  # tokens or requests: more than any machine holds
_COUNTS = (
    "max_num_batched_tokens",
    "max_num_seqs",
    "max_input",
    "slice_tokens",
    "block_size",
    "cache_tokens",
)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Targets:
    """Targets that a result must meet, each a share of rows, 0 to 1. Either accuracy, or the
    others.

    Raises ConfigError.
    """

    precision: float | None = None
    """Of the rows that are returned, those that the oracle would return."""
    recall: float | None = None
    """Of the rows that the oracle would return, those that are returned."""
    accuracy: float | None = None
    """Rows whose answer is the oracle's."""
    confidence: float = 0.95
    """The probability that all of them are met, at least."""

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in ("precision", "recall", "accuracy")}
        for name, value in {**given, "confidence": self.confidence}.items():
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
                raise ConfigError(
                    f"{name} is {value!r}; it must be a number between 0 and 1, such as 0.95."
                )
        if all(value is None for value in given.values()):
            raise ConfigError(
                "No target is set. Give precision=, recall= or both; or accuracy= alone."
            )
        if self.accuracy is not None and (self.precision, self.recall) != (None, None):
            raise ConfigError(
                "accuracy= stands alone: omit precision= and recall=, which say which errors count."
            )

    @property
    def failure(self) -> float:
        """The failure probability of each bound: one of a target alone, half of it of two."""
        both = self.precision is not None and self.recall is not None
        return (1 - self.confidence) / (2 if both else 1)


@dataclass(frozen=True, slots=True)
class CascadeConfig:
    """A proxy that answers the clear rows of a call, and what the result must meet."""

    proxy: str
    """The name of a model, EMBEDDING or PAIR_LABELS."""
    targets: Targets

    @property
    def asks_model(self) -> bool:
        """Whether the proxy is a model that is asked the same question."""
        return self.proxy not in (EMBEDDING, PAIR_LABELS)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> CascadeConfig:
        """From `proxy` and the fields of Targets. Raises ConfigError."""
        for name in given:
            if name not in CASCADE:
                raise ConfigError(unknown("setting", name, CASCADE, of="a cascade"))
        proxy = given.get("proxy")
        if not isinstance(proxy, str) or not proxy:
            raise ConfigError(
                f"proxy is {proxy!r}; it must name a model, or be '{EMBEDDING}', which trains a "
                "head on embeddings."
            )
        return cls(proxy, Targets(**{name: given[name] for name in CASCADE[1:] if name in given}))

    def among(self, count: int) -> CascadeConfig:
        """One of several whose promises hold together: each has its part of the failure
        probability, by the union bound."""
        confidence = 1 - (1 - self.targets.confidence) / max(1, count)
        return replace(self, targets=replace(self.targets, confidence=confidence))


EMBEDDING = "embedding"
"""The proxy that is trained on embeddings within a query."""
PAIR_LABELS = "a label of each text"
"""The proxy of a question about two texts which follows from a label of each."""
CASCADE = ("proxy", "precision", "recall", "accuracy", "confidence")
"""The settings of a cascade."""


@dataclass(frozen=True, slots=True)
class QueryConfig:
    """Settings of SQL queries with LLM calls."""

    order: Order = "tree"
    """The reordering method (see relquery.reordering)."""
    on_error: Literal["null", "raise"] = "null"
    """What a row's error does to the query: "null" leaves NULL in the row, lists it in
    `result.errors` and warns; "raise" stops the query."""
    guard: float | None = None
    """The least share of answers that must stay the same when fields are sent as written (paper
    000, section 6.4), above 0 and at most 1; below it, all are sent as written. None for no
    comparison."""
    guard_rows: int = 50
    """For how many distinct inputs of a call answers are compared, at most."""
    form: PromptForm = DEFAULT_FORM
    """How fields are written in prompts: "text", which for a single field is the question, its
    labels and the value alone; or "json", as paper 000 has it."""
    nulls: Nulls = "skip"
    """What a call with NULL in all of its fields does: "skip" gives NULL and asks nothing; "ask"
    asks the model about them."""
    redact: tuple[str, ...] = ()
    """The kinds of personal data that placeholders replace before cells are sent."""
    cascade: Mapping[str, Any] | None = field(default=None, hash=False)
    """The settings of CascadeConfig for calls that set none; None to ask about all rows."""

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ConfigError(unknown("order", self.order, ORDERS))
        if self.cascade is not None:
            CascadeConfig.of(self.cascade)
        if self.form not in FORMS:
            raise ConfigError(unknown("form", self.form, FORMS))
        if self.nulls not in NULLS:
            raise ConfigError(unknown("nulls", self.nulls, NULLS))
        if self.on_error not in ("null", "raise"):
            raise ConfigError(unknown("on_error", self.on_error, ["null", "raise"]))
        if self.guard is not None and not (_is_number(self.guard) and 0 < self.guard <= 1):
            raise ConfigError(
                f"guard is {self.guard!r}; it must be above 0 and at most 1: the least share of "
                "answers that do not change with the order of fields."
            )
        rows = self.guard_rows
        if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
            raise ConfigError(f"guard_rows is {rows!r}; it must be a whole number of at least 1.")
