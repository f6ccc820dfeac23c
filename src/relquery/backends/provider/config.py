"""Settings of the calls to a provider."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Literal

from relquery.backends.provider.spending import Amount
from relquery.errors import ConfigError
from relquery.redaction import hide

_HEADER = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_SECRET = 15  # characters of a header that may be a key: longer ones are hidden in messages
MOST_CONNECTIONS = 1000
"""Of one client; more requests would wait for one until the timeout."""


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """Settings of the calls to a provider."""

    base_url: str | None = None
    """The server, usually ending in /v1; None: the provider's own, or what OPENAI_BASE_URL or
    ANTHROPIC_BASE_URL says of it."""
    api_key: str | Callable[[], str] | None = field(default=None, repr=False)
    """A key, or a function that gives a token valid now and is called before each request. None:
    the provider's environment variable, e.g. OPENAI_API_KEY."""
    max_concurrency: int = 16
    """Requests of one query stage that are under way at once."""
    timeout: float = 60.0
    """Seconds until a request without an answer is given up and tried again."""
    max_retries: int = 5
    """Tries after the first, when the connection fails, what comes is no reply, or the server
    answers 408, 409 or 5xx; after the seconds that the server names, else after a random wait of up
    to 0.5, 1, 2, 4, 8, 16, 16, ... seconds. A refusal by a limit (429) is no try."""
    relqueries: Literal["vllm", "relquery"] | None = None
    """How the server is told which requests are one relQuery: "vllm" in the field that vLLM's
    plug-in reads, "relquery" in that of `relquery serve`; None for not at all."""
    api: Literal["chat", "responses"] | None = None
    """"chat" or "responses" of OpenAI; None: the one that suits the model."""
    deadline: float | None = None
    """Seconds for one prompt, with all its tries and waits; None for any time."""
    total_timeout: float | None = None
    """Seconds for all prompts of one query stage; None for any time. Prompts that have no answer by
    then are errors."""
    rpm: int | None = None
    """Requests per minute, at most; None: what the server tells."""
    tpm: int | None = None
    """Tokens per minute, at most; None: what the server tells."""
    budget: str | Amount | None = None
    """What may be spent by this backend: "5USD", "2000000 tokens" or "500 calls"; None for
    anything. No call is sent that could exceed it. "500USD/month", "/day" and "/ledger" count what
    all processes spend that give such a budget and the same `budget_file`."""
    by_server: bool = False
    """Whether a ledger keeps the answers of this server apart from those that other servers give
    for the same model name."""
    allow_empty: bool = False
    """Whether an answer without text is one; else it is an error."""
    batch: bool | Literal["submit"] = False
    """Whether prompts are submitted as batches, which the provider answers within a day at half the
    price. True waits for the answers; "submit" raises PendingError until they are there."""
    batches: str | Path | None = None
    """The file in which submitted batches are written down, so that they are found again; `connect`
    gives the ledger."""
    budget_file: str | Path | None = None
    """The file in which a budget of a day, a month or a ledger is counted; `connect` gives the
    ledger."""
    api_key_command: str | None = None
    """A command that prints a token, run again every five minutes. Without a shell."""
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    """Headers sent with each request, by name."""
    service_tier: Literal["flex"] | None = None
    """"flex" for OpenAI's slow answers at half the price; None: the account's own."""

    def __post_init__(self) -> None:
        for name in ("base_url", "api_key", "api_key_command"):
            given = getattr(self, name)
            if not (isinstance(given, str | None) or (name == "api_key" and callable(given))):
                raise ConfigError(f"{name} is of type {type(given).__name__}; it must be a string.")
        self._check_headers()
        for name, (is_right, expected) in _RULES.items():
            if not is_right(given := getattr(self, name)):
                raise ConfigError(f"{name} is {given!r}; it must be {expected}.")
        for setting, other in (("api_key", "api_key_command"), ("service_tier", "batch")):
            if getattr(self, setting) is not None and getattr(self, other) not in (None, False):
                raise ConfigError(f"{setting} and {other} are both given. Give one of them.")
        if self.batch and self.batches is None:
            raise ConfigError(
                "batch is given without a ledger. A batch may take a day; give a file to find its "
                "answers again: ledger='run.db', or --ledger run.db on the command line."
            )
        if self.budget is not None:
            amount = Amount.of(self.budget)
            object.__setattr__(self, "budget", amount)
            if amount.per is not None and self.budget_file is None:
                raise ConfigError(
                    f"budget is {amount}, which is counted in a ledger, and there is none. Give "
                    "one: ledger='run.db', or --ledger run.db on the command line."
                )

    def _check_headers(self) -> None:
        if self.headers is None:
            return
        given = self.headers.items() if isinstance(self.headers, Mapping) else [(None, None)]
        for name, value in given:
            if not (isinstance(name, str) and isinstance(value, str) and _HEADER.fullmatch(name)):
                raise ConfigError("headers must be a dict of texts, such as {'x-team': 'data'}.")
            if not value.isascii() or not value.isprintable():
                raise ConfigError(
                    f"The header {name!r} holds characters that no header has. Remove them."
                )
            if len(value) > _SECRET:
                hide(value)


def _is_count(least: int, most: float = inf) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _is_any(*values: object) -> Callable[[Any], bool]:
    return lambda value: any(value is allowed or value == allowed for allowed in values)


def _or_none(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or is_right(value)


_FLAG = (lambda value: isinstance(value, bool)), "True or False"
_LIMIT = _or_none(_is_count(1)), "an integer of at least 1"
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "max_concurrency": (_is_count(1, MOST_CONNECTIONS), f"an integer from 1 to {MOST_CONNECTIONS}"),
    "max_retries": (_is_count(0), "an integer of at least 0"),
    "timeout": (_is_seconds, "above 0 seconds"),
    "deadline": (_or_none(_is_seconds), "above 0 seconds"),
    "total_timeout": (_or_none(_is_seconds), "above 0 seconds"),
    "relqueries": (_is_any("vllm", "relquery", None), "'vllm', 'relquery' or None"),
    "api": (_is_any("chat", "responses", None), "'chat', 'responses' or None"),
    "service_tier": (_is_any("flex", None), "'flex' or None"),
    "by_server": _FLAG,
    "allow_empty": _FLAG,
    "batch": (_is_any(True, False, "submit"), "True, False or 'submit'"),
    "rpm": _LIMIT,
    "tpm": _LIMIT,
}
"""What settings must be, in words for messages."""
