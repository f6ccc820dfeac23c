"""Providers: where they are, which variable holds their key, and what talks to them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import openai

from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.keys import CommandToken, Token, checked, in_thread, renewed
from relquery.errors import ConfigError, MissingExtraError, ModelError

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

_CONNECT_SECONDS = 10.0
_VARIABLE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Provider:
    """A service with an API that is spoken here."""

    name: str
    """Before the colon of a model's name."""
    host: str
    """Its server's, with the port; empty where each customer has an address of their own."""
    key: str
    """Environment variable of the API key; empty for a server that needs none."""
    base_url: str | None
    """Address of the API, with {VARIABLES} of the environment; None for the SDK's own."""
    example: str
    """A model."""
    key_header: str | None = None
    """Header that fixed keys go in, besides that of a bearer."""
    command: str | None = None
    """What prints a token where no key is given."""


OPENAI = Provider("openai", "api.openai.com", "OPENAI_API_KEY", None, "openai:gpt-5-mini")
ANTHROPIC = Provider(
    "anthropic", "api.anthropic.com", "ANTHROPIC_API_KEY", None, "anthropic:claude-sonnet-5"
)
GEMINI = Provider(
    "gemini", "generativelanguage.googleapis.com", "GEMINI_API_KEY",
    "https://generativelanguage.googleapis.com/v1beta/openai/", "gemini:gemini-3.8-flash",
)  # fmt: skip
AZURE = Provider(
    "azure", "", "AZURE_OPENAI_API_KEY",
    "{AZURE_OPENAI_ENDPOINT}/openai/v1/", "azure:DEPLOYMENT", key_header="api-key",
)  # fmt: skip
VERTEX = Provider(
    "vertex", "", "VERTEX_ACCESS_TOKEN",
    "https://{GOOGLE_CLOUD_LOCATION}-aiplatform.googleapis.com/v1/projects/"
    "{GOOGLE_CLOUD_PROJECT}/locations/{GOOGLE_CLOUD_LOCATION}/endpoints/openapi",
    "vertex:google/gemini-2.5-pro", command="gcloud auth print-access-token",
)  # fmt: skip
BEDROCK = Provider(
    "bedrock", "", "AWS_BEARER_TOKEN_BEDROCK",
    "https://bedrock-runtime.{AWS_REGION}.amazonaws.com/openai/v1", "bedrock:us.openai.gpt-6-luna",
)  # fmt: skip


def _same_form(name: str, base_url: str, key: str, example: str) -> Provider:
    """A server of OpenAI's form, at one address."""
    return Provider(name, urlsplit(base_url).netloc, key, base_url, f"{name}:{example}")


PROVIDERS = {
    each.name: each
    for each in (
        OPENAI,
        ANTHROPIC,
        GEMINI,
        AZURE,
        VERTEX,
        BEDROCK,
        _same_form(
            "groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "llama-3.3-70b-versatile"
        ),
        _same_form(
            "together", "https://api.together.xyz/v1", "TOGETHER_API_KEY", "zai-org/GLM-5.3"
        ),
        _same_form(
            "openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "openai/gpt-5-mini"
        ),
        _same_form("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", "deepseek-flash"),
        _same_form("xai", "https://api.x.ai/v1", "XAI_API_KEY", "grok-4.7"),
        _same_form("ollama", "http://localhost:11434/v1", "", "llama3.2"),
        _same_form("lmstudio", "http://localhost:1234/v1", "", "qwen3-8b"),
        _same_form("llamacpp", "http://localhost:8080/v1", "", "default"),
    )
}


def openai_client(
    provider: Provider, config: ProviderConfig, max_retries: int = 0
) -> openai.AsyncOpenAI:
    """OpenAI's SDK for a server of its form; to be closed. Raises ModelError and ConfigError."""
    url, query = _address(provider, config)
    key, headers = key_of(provider, config), dict(config.headers or {})
    if provider.key_header and isinstance(key, str):
        headers = {provider.key_header: key} | headers
    given: Any = key
    if callable(key):
        token = key

        async def given() -> str:
            return await in_thread(token)

    try:
        client = openai.AsyncOpenAI(
            base_url=url,
            api_key=given,
            timeout=openai.Timeout(config.timeout, connect=_connecting(config)),
            max_retries=max_retries,
            default_headers=headers,
            default_query=query,
        )
    except openai.OpenAIError as error:
        raise _no_key("No API key is set", provider) from error
    except Exception as error:
        raise _no_client(error) from error
    _check_address(str(client.base_url.scheme), client.base_url.host, client.base_url)
    if not callable(key):
        _check_key(client.api_key, provider)
    return client


def anthropic_client(
    provider: Provider, config: ProviderConfig, max_retries: int = 0
) -> AsyncAnthropic:
    """Anthropic's SDK; to be closed. Raises MissingExtraError, ModelError and ConfigError."""
    try:
        import anthropic
        from anthropic.lib.credentials import AccessToken
    except ImportError:
        raise MissingExtraError("Models of Anthropic", "anthropic") from None
    key = key_of(provider, config)
    if not key:
        raise _no_key("No API key is set", provider)
    given: dict[str, Any] = {"api_key": key}
    if callable(key):
        token = key

        async def fresh(*, force_refresh: bool = False) -> AccessToken:
            del force_refresh
            return AccessToken(await in_thread(token), 0)  # 0: asked for before each request

        given = {"credentials": fresh}
    try:
        client = anthropic.AsyncAnthropic(
            base_url=config.base_url,
            timeout=anthropic.Timeout(config.timeout, connect=_connecting(config)),
            max_retries=max_retries,
            default_headers=dict(config.headers or {}),
            **given,
        )
    except Exception as error:
        raise _no_client(error) from error
    _check_address(str(client.base_url.scheme), client.base_url.host, client.base_url)
    if isinstance(key, str):
        _check_key(key, provider)
    return client


def has_key(provider: Provider, config: ProviderConfig) -> bool:
    """Whether there is a key, or what gives one."""
    given = config.api_key is not None or config.api_key_command or provider.command
    return bool(given or not provider.key or os.environ.get(provider.key))


def check_key(provider: Provider, config: ProviderConfig) -> None:
    """Raises ModelError where there is none: nothing can be asked, though costs can be told."""
    if not has_key(provider, config):
        raise _no_key("No API key is set", provider)


def key_of(provider: Provider, config: ProviderConfig) -> str | Token | None:
    """A key, or what gives one; None where OpenAI's SDK is to look for its own."""
    if config.api_key is not None:
        return renewed(config.api_key) if callable(config.api_key) else config.api_key
    if config.api_key_command is not None:
        return _token_of(config.api_key_command)
    if provider is OPENAI:  # its variables are its SDK's own business
        return None
    found = os.environ.get(provider.key, "") if provider.key else "none"
    return found if found or provider.command is None else _token_of(provider.command)


@cache
def _token_of(command: str) -> CommandToken:
    """What a command prints, for all clients of this process."""
    return CommandToken(command)


def _address(
    provider: Provider, config: ProviderConfig
) -> tuple[str | None, dict[str, object] | None]:
    """The address of the API, and what is added to each: Azure's api-version, for example.

    Raises ConfigError where the environment lacks what it consists of.
    """
    url = config.base_url
    if url is None and provider.base_url is not None:
        names = _VARIABLE.findall(provider.base_url)
        if missing := [name for name in dict.fromkeys(names) if not os.environ.get(name)]:
            raise ConfigError(
                f"The address of {provider.name}: models is not known. Set "
                f"{' and '.join(missing)}, or give base_url."
            )
        url = _VARIABLE.sub(lambda found: os.environ[found[1]].rstrip("/"), provider.base_url)
        url = url.replace("//global-aiplatform", "//aiplatform")
    if url is None or "?" not in url:
        return url, None
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query="")), dict(parse_qsl(parts.query))


def _connecting(config: ProviderConfig) -> float:
    return min(config.timeout, _CONNECT_SECONDS)


def _check_address(scheme: str, host: str, url: object) -> None:
    if scheme not in ("http", "https") or not host:
        raise ConfigError(f"base_url is '{url}'; it must start with http:// or https://.")


def _check_key(key: str | None, provider: Provider) -> None:
    try:
        checked(key, "It")
    except ModelError:
        what = "The API key is empty or holds characters that no key has"
        raise _no_key(what, provider) from None


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
