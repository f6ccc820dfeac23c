"""Providers, and how requests reach them: an address, headers, and a key that may be renewed."""

from __future__ import annotations

import os
import re
import shlex
import ssl
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit, urlunsplit

import httpx2

from relquery.backends.provider.config import MOST_CONNECTIONS, ProviderConfig
from relquery.errors import ConfigError, ModelError
from relquery.redaction import hide, redacted

_CONNECT_SECONDS = 10.0
_RENEWED_SECONDS = 300.0
"""For which a command's token is used; those of Google and Azure live an hour."""
_COMMAND_SECONDS = 60.0
_VARIABLE = re.compile(r"\{(\w+)\}")
_OF_ACCOUNT = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
"""Headers of OpenAI's that say which account pays, by environment variable."""
_OF_ANTHROPIC = {"anthropic-version": "2023-06-01"}
_OF_ANTHROPICS_TOKENS = {"anthropic-beta": "oauth-2025-04-20"}

Token = Callable[[], str]
"""A token that is valid now; called before each request, in a thread."""


@dataclass(frozen=True, slots=True)
class Provider:
    """A service with an API that is spoken here."""

    name: str
    """Before the colon of a model's name."""
    host: str
    """Its server's, with the port; empty where each customer has an address of their own."""
    key: str
    """Environment variable of the API key; empty for a server that needs none."""
    base_url: str
    """Address of the API, with {VARIABLES} of the environment."""
    example: str
    """A model."""
    key_header: str | None = None
    """Header that fixed keys go in, besides that of a bearer."""
    command: str | None = None
    """What prints a token where no key is given."""
    variable: str | None = None
    """Environment variable of another address."""


OPENAI = Provider(
    "openai", "api.openai.com", "OPENAI_API_KEY", "https://api.openai.com/v1",
    "openai:gpt-5-mini", variable="OPENAI_BASE_URL",
)  # fmt: skip
ANTHROPIC = Provider(
    "anthropic", "api.anthropic.com", "ANTHROPIC_API_KEY", "https://api.anthropic.com",
    "anthropic:claude-sonnet-5", key_header="x-api-key", variable="ANTHROPIC_BASE_URL",
)  # fmt: skip
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


@dataclass(frozen=True, slots=True)
class Access:
    """A server as requests reach it."""

    settings: dict[str, Any]
    """Arguments of httpx2's clients."""
    token: Token | None = None
    """In place of a fixed key."""

    @classmethod
    def of(cls, provider: Provider, config: ProviderConfig) -> Access:
        """The server of a provider, with its key if there is one. Raises ModelError for one that
        is none, and ConfigError."""
        address = _address(provider, config)
        key = _key(provider, config) if has_key(provider, config) else ""
        headers = {"User-Agent": "relquery"} | (_OF_ANTHROPIC if provider is ANTHROPIC else {})
        if provider is OPENAI:
            told = {header: os.environ.get(name) for header, name in _OF_ACCOUNT.items()}
            headers |= {header: value for header, value in told.items() if value}
        if not isinstance(key, str):
            headers |= _OF_ANTHROPICS_TOKENS if provider is ANTHROPIC else {}
        elif key and provider is not ANTHROPIC:
            headers["Authorization"] = f"Bearer {key}"
        if key and isinstance(key, str) and provider.key_header is not None:
            headers[provider.key_header] = key
        connecting = min(config.timeout, _CONNECT_SECONDS)
        settings = {
            "base_url": urlunsplit(address._replace(query="")),
            "params": dict(parse_qsl(address.query)),
            "headers": headers | dict(config.headers or {}),
            "timeout": httpx2.Timeout(config.timeout, connect=connecting),
            "limits": httpx2.Limits(max_connections=MOST_CONNECTIONS),
            "follow_redirects": True,
        }
        return cls(settings, None if isinstance(key, str) else key)

    def client(self) -> httpx2.AsyncClient:
        """Connections to it; to be closed."""
        return httpx2.AsyncClient(verify=_certificates(), **self.settings)

    @property
    def url(self) -> httpx2.URL:
        """The server's address."""
        url = httpx2.URL(self.settings["base_url"])
        return url.copy_with(path=url.path.rstrip("/") + "/")


@cache
def _certificates() -> ssl.SSLContext:
    """Those that servers are checked against: reading them takes as long as many requests."""
    return httpx2.create_ssl_context()


def _address(provider: Provider, config: ProviderConfig) -> SplitResult:
    """The address of the API in parts; the query, such as Azure's version, goes with each request.

    Raises ConfigError where it is none, or the environment lacks what it consists of.
    """
    url = config.base_url or (os.environ.get(provider.variable) if provider.variable else None)
    if not url:
        names = _VARIABLE.findall(provider.base_url)
        if missing := [name for name in dict.fromkeys(names) if not os.environ.get(name)]:
            raise ConfigError(
                f"The address of {provider.name}: models is not known. Set "
                f"{' and '.join(missing)}, or give base_url."
            )
        url = _VARIABLE.sub(lambda found: os.environ[found[1]].rstrip("/"), provider.base_url)
        url = url.replace("//global-aiplatform", "//aiplatform")
    try:
        parsed = httpx2.URL(url)
        parts = urlsplit(url)
    except (httpx2.InvalidURL, ValueError) as error:
        variable = f", {provider.variable}" if provider.variable else ""
        raise ConfigError(f"base_url is '{url}': {error}. Check base_url{variable}.") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(f"base_url is '{url}'; it must start with http:// or https://.")
    return parts


def has_key(provider: Provider, config: ProviderConfig) -> bool:
    """Whether there is a key, or what gives one."""
    given = config.api_key is not None or config.api_key_command or provider.command
    return bool(given or not provider.key or os.environ.get(provider.key))


def check_key(provider: Provider, config: ProviderConfig) -> None:
    """Raises ModelError where there is none: nothing can be asked, though costs can be told."""
    if not has_key(provider, config):
        _key(provider, config)


def _key(provider: Provider, config: ProviderConfig) -> str | Token:
    """A key, or what gives one. Raises ModelError where there is none."""
    given, command = config.api_key, config.api_key_command
    if callable(given):
        token = given
        return lambda: checked(token(), "what api_key() gives")
    if given is None and command is None:
        given = os.environ.get(provider.key) if provider.key else "none"
        command = None if given else provider.command
    if command is not None:
        return _token_of(command)
    try:
        return checked(given, "It")
    except ModelError:
        key = provider.key
        what = "The API key holds characters that no key has" if given else "No API key is set"
        raise ModelError(
            f"{what}. Set the environment variable {key} to your key, e.g. with `export "
            f"{key}=...`; in Python, api_key='...' works too. A server without keys takes any "
            "value."
        ) from None


@cache
def _token_of(command: str) -> CommandToken:
    """What a command prints, for all clients of this process."""
    return CommandToken(command)


@dataclass(slots=True)
class CommandToken:
    """A token that a command prints, renewed every five minutes. Raises ModelError."""

    command: str
    """As in a shell, which is not used: words, with quotes around spaces."""
    clock: Callable[[], float] = time.monotonic
    """Seconds."""
    _token: str = ""
    _at: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def __call__(self) -> str:
        """A token that is at most five minutes old."""
        with self._lock:
            if not self._token or self.clock() - self._at >= _RENEWED_SECONDS:
                self._token, self._at = self._run(), self.clock()
            return self._token

    def _run(self) -> str:
        try:
            done = subprocess.run(
                shlex.split(self.command, posix=os.name != "nt"),
                capture_output=True,
                text=True,
                timeout=_COMMAND_SECONDS,
                check=False,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise ModelError(self._failed(str(error))) from error
        token = done.stdout.strip()
        if done.returncode != 0 or not token:
            why = redacted(done.stderr.strip()[-300:]) or f"exit status {done.returncode}"
            raise ModelError(self._failed(why))
        return checked(token, f"the output of `{self.command}`")

    def _failed(self, why: str) -> str:
        return (
            f"`{self.command}` gives no API key: {why}. Run it in a terminal; it must print a key "
            "or token, and nothing else. It is api_key_command (--api-key-command)."
        )


def checked(key: object, what: str) -> str:
    """A key, which messages hide from now on. Raises ModelError for what no key can be."""
    is_key = isinstance(key, str) and key and key.isascii() and key.isprintable()
    if not is_key or " " in str(key):
        raise ModelError(
            f"{what} is no API key: it is empty or holds characters that no key has. Check it."
        )
    hide(str(key))
    return str(key)
