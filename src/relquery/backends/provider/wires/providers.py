"""Providers: where they are, which variable holds their key, and what talks to them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import openai

from relquery.backends.provider.config import ProviderConfig
from relquery.errors import ConfigError, MissingExtraError, ModelError
from relquery.redaction import hide

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

_CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Provider:
    """name: before the colon of a model's name. host: of its server.

    key: the environment variable of the API key. base_url: None for the SDK's own. example: a
    model.
    """

    name: str
    host: str
    key: str
    base_url: str | None
    example: str


OPENAI = Provider("openai", "api.openai.com", "OPENAI_API_KEY", None, "openai:gpt-5-mini")
ANTHROPIC = Provider(
    "anthropic", "api.anthropic.com", "ANTHROPIC_API_KEY", None,
    "anthropic:claude-sonnet-5",
)  # fmt: skip
GEMINI = Provider(
    "gemini", "generativelanguage.googleapis.com", "GEMINI_API_KEY",
    "https://generativelanguage.googleapis.com/v1beta/openai/", "gemini:gemini-3.8-flash",
)  # fmt: skip
PROVIDERS = {each.name: each for each in (OPENAI, ANTHROPIC, GEMINI)}


def openai_client(
    provider: Provider, config: ProviderConfig, max_retries: int = 0
) -> openai.AsyncOpenAI:
    """OpenAI's SDK for a server of its form; to be closed. Raises ModelError and ConfigError."""
    # OpenAI's variables are its SDK's own business, and for no other provider.
    own = provider is OPENAI
    key = config.api_key if own else config.api_key or os.environ.get(provider.key, "")
    try:
        client = openai.AsyncOpenAI(
            base_url=config.base_url or provider.base_url,
            api_key=key,
            timeout=openai.Timeout(config.timeout, connect=_connecting(config)),
            max_retries=max_retries,
        )
    except openai.OpenAIError as error:
        raise _no_key("No API key is set", provider) from error
    except Exception as error:
        raise _no_client(error) from error
    _check(
        str(client.base_url.scheme), client.base_url.host, client.base_url, client.api_key, provider
    )
    return client


def anthropic_client(
    provider: Provider, config: ProviderConfig, max_retries: int = 0
) -> AsyncAnthropic:
    """Anthropic's SDK; to be closed. Raises MissingExtraError, ModelError and ConfigError."""
    try:
        import anthropic
    except ImportError:
        raise MissingExtraError("Models of Anthropic", "anthropic") from None
    key = config.api_key or os.environ.get(provider.key)
    if not key:
        raise _no_key("No API key is set", provider)
    try:
        client = anthropic.AsyncAnthropic(
            base_url=config.base_url,
            api_key=key,
            timeout=anthropic.Timeout(config.timeout, connect=_connecting(config)),
            max_retries=max_retries,
        )
    except Exception as error:
        raise _no_client(error) from error
    _check(str(client.base_url.scheme), client.base_url.host, client.base_url, key, provider)
    return client


def _connecting(config: ProviderConfig) -> float:
    return min(config.timeout, _CONNECT_SECONDS)


def _check(scheme: str, host: str, url: object, key: str | None, provider: Provider) -> None:
    if scheme not in ("http", "https") or not host:
        raise ConfigError(f"base_url is '{url}'; it must start with http:// or https://.")
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise _no_key("The API key is empty or holds characters that no key has", provider)
    hide(key)


def _no_client(error: Exception) -> ConfigError:
    return ConfigError(
        f"Cannot create a client: {error}. Check base_url, OPENAI_BASE_URL and HTTP_PROXY."
    )


def _no_key(what: str, provider: Provider) -> ModelError:
    return ModelError(
        f"{what}. Set the environment variable {provider.key} to your key, e.g. with "
        f"`export {provider.key}=...`; in Python, api_key='...' works too. A server without keys "
        "takes any value."
    )
