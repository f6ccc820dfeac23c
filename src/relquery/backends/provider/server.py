"""A server of the OpenAI chat-completions form: where it is, and what was learnt of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

import openai

from relquery.errors import ConfigError, ModelError

_DEFAULT_HOST = "api.openai.com"
_CONNECT_SECONDS = 10.0
_MOST_CONNECTIONS = 1000  # of the SDK's pool; more would wait for a connection until the timeout


@dataclass(frozen=True, slots=True)
class OpenAIConfig:
    """How a provider is called.

    base_url: the server, usually ending in /v1; None: OPENAI_BASE_URL, else OpenAI.
    api_key: None: OPENAI_API_KEY.
    max_concurrency: requests of one query stage that are under way at once.
    timeout: seconds until a request without an answer is given up and tried again.
    max_retries: tries after the first, when the connection fails or the server answers 408, 409,
        429 or 5xx; after the seconds that the server names, else after 0.5, 1, 2, 4, 8, 8, ...
    relqueries: how the server is told which requests are one relQuery: "vllm" in the field that
        vLLM's plug-in reads, "relquery" in that of `relquery serve`; None for not at all.
    """

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    max_concurrency: int = 16
    timeout: float = 60.0
    max_retries: int = 5
    relqueries: Literal["vllm", "relquery"] | None = None

    def __post_init__(self) -> None:
        for name in ("base_url", "api_key"):
            given = getattr(self, name)
            if not isinstance(given, str | None):
                raise ConfigError(f"{name} is of type {type(given).__name__}; it must be a string.")
        if not (_is_int(self.max_concurrency) and 1 <= self.max_concurrency <= _MOST_CONNECTIONS):
            raise ConfigError(
                f"max_concurrency is {self.max_concurrency!r}; "
                f"it must be an integer from 1 to {_MOST_CONNECTIONS}."
            )
        if not (isinstance(self.timeout, int | float) and self.timeout > 0):
            raise ConfigError(f"timeout is {self.timeout!r}; it must be above 0 seconds.")
        if not (_is_int(self.max_retries) and self.max_retries >= 0):
            raise ConfigError(
                f"max_retries is {self.max_retries!r}; it must be an integer of at least 0."
            )
        if self.relqueries not in ("vllm", "relquery", None):
            raise ConfigError(
                f"relqueries is {self.relqueries!r}; it must be 'vllm', 'relquery' or None."
            )


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Server:
    """A model on a server. Raises ModelError without a key, ConfigError.

    model: the name that the server knows. learnt: settings that it was found to do without.
    """

    model: str
    config: OpenAIConfig
    learnt: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigError("The model's name is empty. Write openai:NAME, e.g. openai:gpt-4o.")
        self.client()

    @property
    def name(self) -> str:
        """`openai:MODEL`, and `@SERVER` unless it is OpenAI."""
        url = self.client().base_url
        at = url.netloc.decode() + url.path.rstrip("/").removesuffix("/v1")
        return f"openai:{self.model}" + ("" if at == _DEFAULT_HOST else f"@{at}")

    def announced(self, rows: int) -> dict[str, Any]:
        """What the body of each of so many requests says, if the server is told of relQueries."""
        match self.config.relqueries:
            case "vllm":
                return {"vllm_xargs": {"relquery": uuid4().hex, "relquery_rows": rows}}
            case "relquery":
                return {"relquery": {"id": uuid4().hex, "rows": rows}}
        return {}

    def client(self) -> openai.AsyncOpenAI:
        """What talks to the server; to be closed."""
        timeout = self.config.timeout
        try:
            client = openai.AsyncOpenAI(
                base_url=self.config.base_url,
                api_key=self.config.api_key,
                timeout=openai.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS)),
                max_retries=self.config.max_retries,
            )
        except openai.OpenAIError as error:
            raise _no_key("No API key is set") from error
        except Exception as error:
            raise ConfigError(
                f"Cannot create a client: {error}. Check base_url, OPENAI_BASE_URL and HTTP_PROXY."
            ) from error
        url, key = client.base_url, client.api_key
        if url.scheme not in ("http", "https") or not url.host:
            raise ConfigError(f"base_url is '{url}'; it must start with http:// or https://.")
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise _no_key("The API key is empty or holds characters that no key has")
        return client


def _no_key(what: str) -> ModelError:
    return ModelError(
        f"{what}. Set the environment variable OPENAI_API_KEY to your key, e.g. with "
        "`export OPENAI_API_KEY=...`; in Python, api_key='...' works too. A server without keys "
        "takes any value."
    )
