"""How a provider is called."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from relquery.backends.provider.amounts import Amount
from relquery.errors import ConfigError
from relquery.redaction import hide

_HEADER = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_SECRET = 15  # characters of a header that may be a key: longer ones are hidden in messages
_MOST_CONNECTIONS = 1000  # of the SDK's pool; more would wait for a connection until the timeout


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """How a provider is called.

    base_url: the server, usually ending in /v1; None: the provider's own, or what
        OPENAI_BASE_URL says of OpenAI's.
    api_key: a key, or a function that gives a token valid now and is called before each request.
        None: the provider's environment variable, e.g. OPENAI_API_KEY.
    api_key_command: a command that prints a token, run again every five minutes. Without a shell.
    headers: sent with each request, by name.
    service_tier: "flex" for OpenAI's slow answers at half the price; None: the account's own.
    api: "chat" or "responses" of OpenAI; None: the one that suits the model.
    max_concurrency: requests of one query stage that are under way at once.
    timeout: seconds until a request without an answer is given up and tried again.
    max_retries: tries after the first, when the connection fails, what comes is no reply, or the
        server answers 408, 409 or 5xx; after the seconds that the server names, else after a random
        wait of up to 0.5, 1, 2, 4, 8, 16, 16, ... seconds. A refusal by a limit (429) is no try.
    deadline: seconds for one prompt, with all its tries and waits; None for any time.
    total_timeout: seconds for all prompts of one query stage; None for any time. Prompts that have
        no answer by then are errors.
    rpm, tpm: requests and tokens per minute, at most; None: what the server tells.
    budget: what may be spent by this backend: "5USD", "2000000 tokens" or "500 calls"; None for
        anything. No call is sent that could exceed it. "500USD/month", "/day" and "/ledger" count
        what all processes spend that give such a budget and the same `budget_file`.
    budget_file: the file in which such a budget is counted; `connect` gives the ledger.
    relqueries: how the server is told which requests are one relQuery: "vllm" in the field that
        vLLM's plug-in reads, "relquery" in that of `relquery serve`; None for not at all.
    batch: whether prompts are submitted as batches, which the provider answers within a day at half
        the price. True waits for the answers; "submit" raises PendingError until they are there.
    batches: the file in which submitted batches are written down, so that they are found again;
        `connect` gives the ledger.
    allow_empty: whether an answer without text is one; else it is an error.
    by_server: whether a ledger keeps the answers of this server apart from those that other
        servers give for the same model name.
    """

    base_url: str | None = None
    api_key: str | Callable[[], str] | None = field(default=None, repr=False)
    max_concurrency: int = 16
    timeout: float = 60.0
    max_retries: int = 5
    relqueries: Literal["vllm", "relquery"] | None = None
    api: Literal["chat", "responses"] | None = None
    deadline: float | None = None
    total_timeout: float | None = None
    rpm: int | None = None
    tpm: int | None = None
    budget: str | Amount | None = None
    by_server: bool = False
    allow_empty: bool = False
    batch: bool | Literal["submit"] = False
    batches: str | Path | None = None
    budget_file: str | Path | None = None
    api_key_command: str | None = None
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    service_tier: Literal["flex"] | None = None

    def __post_init__(self) -> None:
        for name in ("base_url", "api_key", "api_key_command"):
            given = getattr(self, name)
            if not (isinstance(given, str | None) or (name == "api_key" and callable(given))):
                raise ConfigError(f"{name} is of type {type(given).__name__}; it must be a string.")
        if self.api_key is not None and self.api_key_command is not None:
            raise ConfigError("api_key and api_key_command are both given. Give one of them.")
        self._check_headers()
        if not (_is_int(self.max_concurrency) and 1 <= self.max_concurrency <= _MOST_CONNECTIONS):
            raise ConfigError(
                f"max_concurrency is {self.max_concurrency!r}; "
                f"it must be an integer from 1 to {_MOST_CONNECTIONS}."
            )
        if not (_is_int(self.max_retries) and self.max_retries >= 0):
            raise ConfigError(
                f"max_retries is {self.max_retries!r}; it must be an integer of at least 0."
            )
        self._check_seconds()
        self._check_choices()
        for name in ("rpm", "tpm"):
            limit = getattr(self, name)
            if limit is not None and not (_is_int(limit) and limit >= 1):
                raise ConfigError(f"{name} is {limit!r}; it must be an integer of at least 1.")
        if self.budget is not None:
            amount = Amount.of(self.budget)
            object.__setattr__(self, "budget", amount)
            if amount.per is not None and self.budget_file is None:
                raise ConfigError(
                    f"budget is {amount}, which is counted in a ledger, and there is none. Give "
                    "one: ledger='run.db', or --ledger run.db on the command line."
                )

    def _check_seconds(self) -> None:
        for name in ("timeout", "deadline", "total_timeout"):
            seconds = getattr(self, name)
            if name != "timeout" and seconds is None:
                continue
            if not _is_number(seconds) or not seconds > 0:
                raise ConfigError(f"{name} is {seconds!r}; it must be above 0 seconds.")

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

    def _check_choices(self) -> None:
        if self.relqueries not in ("vllm", "relquery", None):
            raise ConfigError(
                f"relqueries is {self.relqueries!r}; it must be 'vllm', 'relquery' or None."
            )
        if self.api not in ("chat", "responses", None):
            raise ConfigError(f"api is {self.api!r}; it must be 'chat', 'responses' or None.")
        if self.service_tier not in ("flex", None):
            raise ConfigError(f"service_tier is {self.service_tier!r}; it must be 'flex' or None.")
        if self.service_tier is not None and self.batch:
            raise ConfigError("service_tier and batch are both given. Give one of them.")
        for name in ("by_server", "allow_empty"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be True or False.")
        if self.batch not in (True, False, "submit"):
            raise ConfigError(f"batch is {self.batch!r}; it must be True, False or 'submit'.")
        if self.batch and self.batches is None:
            raise ConfigError(
                "batch is given without a ledger. A batch may take a day; give a file to find its "
                "answers again: ledger='run.db', or --ledger run.db on the command line."
            )


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
