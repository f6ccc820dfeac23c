"""A model on a server: where it is, and what was learnt of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event
from typing import Any
from uuid import uuid4

import openai

from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.form.caching import NOTHING, CacheSettings
from relquery.backends.provider.wires.anthropic import AnthropicMessages
from relquery.backends.provider.wires.chat import Chat
from relquery.backends.provider.wires.facts import Api, Facts, facts_of
from relquery.backends.provider.wires.providers import (
    ANTHROPIC,
    OPENAI,
    Provider,
    anthropic_client,
    openai_client,
)
from relquery.backends.provider.wires.responses import Responses
from relquery.backends.provider.wires.wire import Wire
from relquery.errors import ConfigError
from relquery.prompt import Sampling

_NEVER: dict[Api, frozenset[str]] = {
    "chat": frozenset(),
    "responses": frozenset({"seed", "stop", "top_k"}),
    "messages": frozenset({"seed", "scored"}),
}
"""What an API has no parameter for."""


@dataclass(frozen=True, slots=True)
class Server:
    """A model on a server. Raises ModelError without a key, MissingExtraError, ConfigError.

    model: the name that the server knows. learnt: settings that it was found to do without.
    taken: settings of requests that it took. useful: samplings with which some answer was of use.
    told_labels: by sampling, how many answers were labels that the prompt alone told, and how many
    were not. told: once the API was asked of the model. at: its address without what all addresses
    have.
    """

    model: str
    config: ProviderConfig
    provider: Provider = OPENAI
    learnt: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    useful: set[Sampling] = field(default_factory=set)
    told_labels: dict[Sampling, tuple[int, int]] = field(default_factory=dict)
    told: Event = field(default_factory=Event)
    at: str = field(init=False)

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
        make = anthropic_client if self.provider is ANTHROPIC else openai_client
        url = make(self.provider, self.config).base_url
        at = url.netloc.decode() + url.path.rstrip("/").removesuffix("/v1")
        object.__setattr__(self, "at", at)
        if self.facts is not None:
            self.learnt.update(self.facts.without)
        self.learnt.update(_NEVER[self.api])

    @property
    def facts(self) -> Facts | None:
        """What is known of the model; None for another server than the provider's own, too."""
        return self.named if self._is_providers_own else None

    @property
    def named(self) -> Facts | None:
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
        """What sends requests, of which there will be so many; to be closed."""
        timeout = self.config.timeout
        if self.api == "messages":
            client = anthropic_client(self.provider, self.config)
            return AnthropicMessages(client, self.model, timeout)
        opened = openai_client(self.provider, self.config)
        caching = CacheSettings.of(self.name) if self.provider is OPENAI else NOTHING
        if self.api == "responses":
            return Responses(opened, self.model, timeout, caching)
        return Chat(opened, self.model, timeout, self.announced(rows), caching)

    async def ask(self, wire: Wire) -> None:
        """Ask the API, once, what a model takes of which nothing is known."""
        if self.facts is None and not self.told.is_set():
            self.told.set()
            self.learnt.update(await wire.does_without())

    def client(self) -> openai.AsyncOpenAI:
        """OpenAI's SDK with its own retries, for what is not a prompt; to be closed."""
        return openai_client(self.provider, self.config, self.config.max_retries)

    def check(self, sampling: Sampling) -> None:
        """Raises ConfigError for what the API cannot be asked."""
        never = _NEVER[self.api]
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
        host, _, path = self.at.partition("/")
        return host == self.provider.host and (not path or self.provider.base_url is not None)
