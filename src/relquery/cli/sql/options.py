"""What is given to `relquery sql`: the model and its provider, tables, parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from relquery.backends.base import Backend, LazyBackend
from relquery.backends.load import default_form, is_served, is_shared, load, load_named
from relquery.cli.terminal.console import errors_console
from relquery.cli.terminal.show import shown_warnings
from relquery.config import Order, PromptForm
from relquery.connection import Connection, connect, models_of
from relquery.errors import ConfigError
from relquery.sql.executor.models import Models

GUARD_ROWS, PREVIEW_ROWS = 50, 10


def read_params(given: Sequence[str]) -> dict[str, Any] | None:
    """`n=5` is a number, `name=Ann` a text: what is valid JSON is read as JSON.

    Numbers with a fraction stay decimal, so they keep their digits. None if nothing is given.
    Raises ConfigError.
    """
    values: dict[str, Any] = {}
    for one in given:
        name, equals, text = one.partition("=")
        name = name.strip().removeprefix("$")
        if not equals or not name:
            raise ConfigError(f"--param {one}: expected NAME=VALUE, e.g. --param n=5.")
        if name in values:
            raise ConfigError(f"--param {name} is given twice. Give it once.")
        values[name] = _value(text)
    return values or None


def read_selectivity(given: Sequence[str], *, explains: bool) -> float | dict[str, float] | None:
    """`0.3` for all stages, `filter 1=0.3` for one; None if none is given. Raises ConfigError.

    explains: whether the query is only explained.
    """
    if given and not explains:
        raise ConfigError("--selectivity is for --explain. Add --explain, or leave it out.")
    by_stage: dict[str, float] = {}
    for one in given:
        name, equals, text = one.rpartition("=")
        name = name.strip()
        try:
            share = float(text)
        except ValueError:
            raise ConfigError(
                f"--selectivity {one}: expected a number from 0 to 1, or NAME=NUMBER, e.g. "
                "--selectivity 'filter 1=0.3'."
            ) from None
        if not equals and len(given) == 1:
            return share
        if not name or name in by_stage:
            raise ConfigError(
                f"--selectivity {one}: give one number for all stages, or one for each by its "
                "name, e.g. --selectivity 'filter 1=0.3'."
            )
        by_stage[name] = share
    return by_stage or None


def rows_for(option: str, given: int | None, default: int, *, is_on: bool) -> int:
    """How many rows an option takes. Raises ConfigError for a number without the option.

    is_on: whether the option itself is given.
    """
    if given is not None and not is_on:
        raise ConfigError(f"{option}-rows is for {option}. Add {option}, or leave it out.")
    return default if given is None else given


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_float=_number, parse_constant=_refused)
    except ValueError:
        return text


def _refused(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _number(text: str) -> Decimal | float:
    return float(text) if "e" in text.lower() else Decimal(text)


_PANEL = "A provider or a server"


def _option(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL, **more)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderOptions:
    """Options about a provider or a server."""

    base_url: Annotated[
        str | None, _option("Address of an OpenAI-compatible server, usually ending in /v1.")
    ] = None
    concurrency: Annotated[int | None, _option("Requests under way at once (default 16).")] = None
    timeout: Annotated[
        float | None, _option("Seconds until a request is given up and tried again (default 60).")
    ] = None
    retries: Annotated[int | None, _option("Tries of a request after the first (default 5).")] = (
        None
    )
    deadline: Annotated[
        float | None,
        _option("Seconds for one prompt, with all its tries and waits (default: any)."),
    ] = None
    total_timeout: Annotated[
        float | None,
        _option(
            "Seconds for each stage; a row without an answer by then is an error (default: any)."
        ),
    ] = None
    rpm: Annotated[
        int | None, _option("Requests per minute, at most (default: as the provider says).")
    ] = None
    tpm: Annotated[
        int | None, _option("Tokens per minute, at most (default: as the provider says).")
    ] = None
    budget: Annotated[
        str | None,
        _option(
            "What this run may spend: 5USD, '2000000 tokens' or '500 calls'; with --ledger also "
            "500USD/month, /day or /ledger for all processes together.",
            metavar="AMOUNT",
        ),
    ] = None
    api_key_command: Annotated[
        str | None,
        _option(
            "Command that prints a key or token, run again every five minutes, e.g. 'gcloud auth "
            "print-access-token'.",
            metavar="COMMAND",
        ),
    ] = None
    service_tier: Annotated[
        str | None,
        _option("'flex' for OpenAI's slow answers, at half the price.", metavar="TIER"),
    ] = None
    batch: Annotated[
        bool,
        _option(
            "Submit the calls as a batch at half the price, and say when to come back. Needs "
            "--ledger.",
            "--batch",
        ),
    ] = False
    wait: Annotated[
        bool, _option("With --batch: wait for the answers, which may take a day.", "--wait")
    ] = False

    def of_backend(self, model: str | None, ledger: Path | None) -> dict[str, Any]:
        """What the backend is given. Raises ConfigError for what does not go together."""
        words = {each.name: getattr(self, each.name) for each in fields(ProviderOptions)}
        named = {
            name: value
            for name, value in words.items()
            if value is not None and name not in ("batch", "wait")
        }
        if named and not is_served(model or "demo"):
            given = ", ".join(f"--{name.replace('_', '-')}" for name in named)
            raise ConfigError(
                f"{given}: only for a provider's model, such as openai:NAME, or for the address of "
                f"a server. The model is '{model or 'demo'}'. Leave "
                f"{'it' if len(named) == 1 else 'them'} out, or give another --model."
            )
        found = {_RENAMED.get(name, name): value for name, value in named.items()}
        found |= self._of_batches(model, ledger)
        return found | ({"budget_file": ledger} if ledger and is_shared(self.budget) else {})

    def _of_batches(self, model: str | None, ledger: Path | None) -> dict[str, Any]:
        if self.wait and not self.batch:
            raise ConfigError("--wait is for --batch. Give --batch too, or leave --wait out.")
        if not self.batch:
            return {}
        if not is_served(model or "demo"):
            raise ConfigError(
                "--batch: only for a provider's model: openai:NAME or anthropic:NAME. Leave it "
                "out, or give another --model."
            )
        if ledger is None:
            raise ConfigError(
                "--batch needs --ledger FILE: a batch may take a day, and its answers are found "
                "again by that file."
            )
        return {"batch": True if self.wait else "submit", "batches": ledger}


_RENAMED = {"concurrency": "max_concurrency", "retries": "max_retries"}
"""Options whose name is another in the configuration of a provider."""


@dataclass(frozen=True, slots=True)
class Setup:
    """options: of the backend. tables: files by name. sampling: defaults of all calls.

    model: None if none was given, so that the demo model answers. For the others see `connect`.
    """

    model: str | None
    options: Mapping[str, Any]
    tables: Mapping[str, Path]
    database: str
    order: str
    guard: float | None
    guard_rows: int
    ledger: Path | None
    embedder: str
    index: Path | None
    sampling: Mapping[str, Any]
    form: str | None = None
    redact: bool = False

    def backend(self) -> LazyBackend:
        """The backend, which is loaded when it is first asked."""
        return LazyBackend(partial(load_shown, self.model or "demo", self.options))

    def _form(self) -> PromptForm:
        if self.form is None:  # the backend is not asked, as that would open it
            return default_form(self.model or "demo")
        return self.form  # type: ignore[return-value]  # QueryConfig checks it

    def models(self) -> Models:
        """The models that calls may name."""
        options = dict(self.options)
        form = None if self.form is None else self._form()
        return models_of({}, self.model or "demo", options, self.ledger, form, _load_shown_named)

    def connect(self, backend: LazyBackend) -> Connection:
        """Open the database, with its tables."""
        with shown_warnings():
            connection = connect(
                backend,
                database=self.database,
                order=_order(self.order),
                guard=self.guard,
                guard_rows=self.guard_rows,
                form=self._form(),
                redact=self.redact,
                ledger=":memory:" if self.ledger is None else self.ledger,
                embedder=self.embedder,
                index=self.index,
                clock=backend.clock,
            )
        try:
            for name, path in self.tables.items():
                connection.register(name, path)
        except BaseException:
            connection.close()
            raise
        return replace(connection, models=self.models())


def load_shown(model: str, options: Mapping[str, Any]) -> Backend:
    """Load a model, and say so meanwhile."""
    with errors_console().status(Text(f"loading {model}")):
        return load(model, **options)


def _load_shown_named(name: str, *more: Any) -> Backend:
    with errors_console().status(Text(f"loading {name}")):
        return load_named(name, *more)


def _order(name: str) -> Order:
    return name  # type: ignore[return-value]  # QueryConfig checks it
