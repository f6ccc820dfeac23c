"""A model on a server: where it is, what is known of it, and what was learnt of it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal
from uuid import uuid4

from relquery.backends.provider.client import ProviderClient
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.providers import ANTHROPIC, OPENAI, Access, Provider, check_key
from relquery.backends.wires.anthropic import AnthropicMessages
from relquery.backends.wires.openai import OpenAIChat, OpenAIResponses
from relquery.backends.wires.wire import CacheSettings, Wire
from relquery.errors import ConfigError
from relquery.prompt import Sampling

Api = Literal["chat", "responses", "messages"]

WIRES: dict[Api, type[Wire]] = {
    "chat": OpenAIChat,
    "responses": OpenAIResponses,
    "messages": AnthropicMessages,
}


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """An entry of facts.toml about some models; its fields are explained there."""

    provider: str
    models: str
    api: Api
    without: frozenset[str]


@cache
def facts_of(provider: str, model: str) -> ModelFacts | None:
    """What is known of a model before the first request; None if nothing."""
    known = (each for each in _known() if each.provider == provider)
    return next((each for each in known if re.fullmatch(each.models, model)), None)


@cache
def _known() -> Sequence[ModelFacts]:
    text = files(__package__).joinpath("facts.toml").read_text(encoding="utf-8")
    return tuple(
        ModelFacts(each["provider"], each["models"], each["api"], frozenset(each["without"]))
        for each in tomllib.loads(text)["model"]
    )


@dataclass(frozen=True, slots=True)
class ProviderServer:
    """A model on a server. Raises ModelError for a key that is none, and ConfigError."""

    model: str
    """The name that the server knows."""
    config: ProviderConfig
    provider: Provider = OPENAI
    dropped: set[str] = field(default_factory=set)
    """Settings that requests do without, by the names that they have in chat completions."""
    useful: set[Sampling] = field(default_factory=set)
    """Samplings with which some answer was of use."""
    told_labels: dict[Sampling, tuple[int, int]] = field(default_factory=dict)
    """By sampling, how many answers were labels that the prompt alone told, and how many not."""
    access: Access = field(init=False)
    at: str = field(init=False)
    """Its address without what all addresses have."""

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigError(
                f"The model's name is empty. Write {self.provider.name}:NAME, e.g. "
                f"{self.provider.example}."
            )
        if self.provider is ANTHROPIC and self.config.api is not None:
            raise ConfigError(
                f"api is {self.config.api!r}, which Anthropic does not have. Leave it out."
            )
        object.__setattr__(self, "access", Access.of(self.provider, self.config))
        url = self.access.url
        address = url.netloc.decode() + url.path.rstrip("/").removesuffix("/v1")
        object.__setattr__(self, "at", address)
        if self.facts is not None:
            self.dropped.update(self.facts.without)
        self.dropped.update(WIRES[self.api].never)

    @property
    def facts(self) -> ModelFacts | None:
        """What is known of the model; None for another server than the provider's own, too."""
        return self.named if self._is_providers_own else None

    @property
    def named(self) -> ModelFacts | None:
        """What is known of the provider's model of this name, wherever this one is."""
        return facts_of(self.provider.name, self.model)

    @property
    def api(self) -> Api:
        """How it is spoken to."""
        if self.provider is ANTHROPIC:
            return "messages"
        return self.config.api or ("chat" if self.facts is None else self.facts.api)

    @property
    def name(self) -> str:
        """`PROVIDER:MODEL`, and `@SERVER` unless it is the provider's own."""
        return f"{self.provider.name}:{self.model}" + (
            "" if self._is_providers_own else f"@{self.at}"
        )

    def known_as(self) -> tuple[str, ...]:
        """Names in a ledger: the one to store under, then those of older answers."""
        plain, full = f"{self.provider.name}:{self.model}", self.name
        if self.config.by_server or plain == full:
            return (full,)
        return plain, full

    def announced(self, rows: int) -> dict[str, Any]:
        """What the body of each of so many requests says, if the server is told of relQueries."""
        match self.config.relqueries:
            case "vllm":
                return {"vllm_xargs": {"relquery": uuid4().hex, "relquery_rows": rows}}
            case "relquery":
                return {"relquery": {"id": uuid4().hex, "rows": rows}}
        return {}

    def wire(self, rows: int = 0) -> Wire:
        """What writes requests, of which there will be so many, and reads replies."""
        caching = CacheSettings.of(self.name) if self.provider is OPENAI else CacheSettings()
        more = self.announced(rows) if self.api == "chat" else {}
        return WIRES[self.api](self.model, caching, more)

    def client(self, rows: int = 0) -> ProviderClient:
        """What sends requests, of which there will be so many; to be closed."""
        config, wire = self.config, self.wire(rows)
        at_once = max(1, min(rows, config.max_concurrency))
        return ProviderClient(self.access, wire, config.timeout, config.max_retries, at_once)

    def check(self, sampling: Sampling) -> None:
        """Raises ConfigError for what the API cannot be asked, ModelError without a key."""
        check_key(self.provider, self.config)
        sampling.check_common()
        never = WIRES[self.api].never
        given = () if sampling.adjustments is None else sampling.adjustments.given
        if names := [name for name in given if name not in WIRES[self.api].adjusts]:
            raise ConfigError(
                f"{', '.join(names)} cannot be sent to this API. Leave it out, or use the embedded "
                "engine."
            )
        api = {"responses": "The Responses API", "messages": "Anthropic"}.get(self.api, "")
        if sampling.temperature > 0 and sampling.seed is not None and "seed" in never:
            raise ConfigError(
                f"seed is {sampling.seed}; {api} has no seed. Leave it out, or use temperature 0."
            )
        if sampling.top_k and "top_k" in never:
            raise ConfigError(f"top_k is {sampling.top_k}; {api} has no top_k. Leave it out.")
        if sampling.scored and "scored" in never:
            raise ConfigError(
                f"Labels are to be weighed, but {api} gives no token probabilities. Use a model of "
                "another provider, or the embedded engine."
            )

    @property
    def _is_providers_own(self) -> bool:
        return self.at.partition("/")[0] == self.provider.host
