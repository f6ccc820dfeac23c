"""Options of `relquery sql` about a provider or a server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from relquery.backends.load import is_served
from relquery.errors import ConfigError

_PANEL = "A provider or a server"


def _option(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL, **more)


BaseUrl = Annotated[
    str | None, _option("Address of an OpenAI-compatible server, usually ending in /v1.")
]
Concurrency = Annotated[int | None, _option("Requests under way at once (default 16).")]
Timeout = Annotated[
    float | None, _option("Seconds until a request is given up and tried again (default 60).")
]
Retries = Annotated[int | None, _option("Tries of a request after the first (default 5).")]
Deadline = Annotated[
    float | None, _option("Seconds for one prompt, with all its tries and waits (default: any).")
]
TotalTimeout = Annotated[
    float | None,
    _option("Seconds for each stage; a row without an answer by then is an error (default: any)."),
]
Rpm = Annotated[
    int | None, _option("Requests per minute, at most (default: as the provider says).")
]
Tpm = Annotated[int | None, _option("Tokens per minute, at most (default: as the provider says).")]
Budget = Annotated[
    str | None,
    _option(
        "What this run may spend: 5USD, '2000000 tokens' or '500 calls'; with --ledger also "
        "500USD/month, /day or /ledger for all processes together.",
        metavar="AMOUNT",
    ),
]
KeyCommand = Annotated[
    str | None,
    _option(
        "Command that prints a key or token, run again every five minutes, e.g. 'gcloud auth "
        "print-access-token'.",
        metavar="COMMAND",
    ),
]
ServiceTier = Annotated[
    str | None,
    _option("'flex' for OpenAI's slow answers, at half the price.", metavar="TIER"),
]
Batch = Annotated[
    bool,
    _option(
        "Submit the calls as a batch at half the price, and say when to come back. Needs --ledger.",
        "--batch",
    ),
]
Wait = Annotated[
    bool, _option("With --batch: wait for the answers, which may take a day.", "--wait")
]

_FIELDS = {
    "--base-url": "base_url",
    "--concurrency": "max_concurrency",
    "--timeout": "timeout",
    "--retries": "max_retries",
    "--deadline": "deadline",
    "--total-timeout": "total_timeout",
    "--rpm": "rpm",
    "--tpm": "tpm",
    "--budget": "budget",
    "--api-key-command": "api_key_command",
    "--service-tier": "service_tier",
}


def provider_options(model: str | None, given: Mapping[str, object]) -> dict[str, Any]:
    """Options of the backend. given: by their names on the command line; None for not given.

    Raises ConfigError for a model that no provider or server answers for.
    """
    named = {name: value for name, value in given.items() if value is not None}
    if named and not is_served(model or "demo"):
        raise ConfigError(
            f"{', '.join(named)}: only for a provider's model, such as openai:NAME, or for the "
            f"address of a server. The model is '{model or 'demo'}'. Leave {_them(named)} out, or "
            "give another --model."
        )
    return {_FIELDS[name]: value for name, value in named.items()}


def batch_options(
    model: str | None, ledger: Path | None, *, batch: bool, wait: bool
) -> dict[str, Any]:
    """The same of batches. Raises ConfigError for what does not go together."""
    if wait and not batch:
        raise ConfigError("--wait is for --batch. Give --batch too, or leave --wait out.")
    if not batch:
        return {}
    if not is_served(model or "demo"):
        raise ConfigError(
            "--batch: only for a provider's model: openai:NAME or anthropic:NAME. Leave it out, or "
            "give another --model."
        )
    if ledger is None:
        raise ConfigError(
            "--batch needs --ledger FILE: a batch may take a day, and its answers are found again "
            "by that file."
        )
    return {"batch": True if wait else "submit", "batches": ledger}


def _them(named: Mapping[str, object]) -> str:
    return "it" if len(named) == 1 else "them"
