"""The options of `relquery sql` that say how it connects, and the values of some."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

from rich.text import Text

from relquery.backends.base import Backend, LazyBackend
from relquery.backends.load import default_form, is_served, is_shared, load, load_named
from relquery.cli.command import EngineOptions, option, pairs
from relquery.cli.tables import find_tables
from relquery.cli.terminal import errors_console, shown_warnings
from relquery.config import Order, PromptForm
from relquery.connection import Connection, connect, models_of
from relquery.errors import ConfigError
from relquery.sql.executor.context import Models

DEMO = "demo"
"""The model that answers if none is named."""
_RENAMED = {"concurrency": "max_concurrency", "retries": "max_retries"}
"""Options whose name is another in the configuration of a provider."""


@dataclass(frozen=True, kw_only=True)
class ProviderOptions:
    """Options about a provider or a server."""

    PANEL: ClassVar[str | None] = "A provider or a server"

    base_url: str | None = option("Address of an OpenAI-compatible server, usually ending in /v1.")
    concurrency: int | None = option("Requests under way at once (default 16).")
    timeout: float | None = option(
        "Seconds until a request is given up and tried again (default 60)."
    )
    retries: int | None = option("Tries of a request after the first (default 5).")
    deadline: float | None = option(
        "Seconds for one prompt, with all its tries and waits (default: any)."
    )
    total_timeout: float | None = option(
        "Seconds for each stage; a row without an answer by then is an error (default: any)."
    )
    rpm: int | None = option("Requests per minute, at most (default: as the provider says).")
    tpm: int | None = option("Tokens per minute, at most (default: as the provider says).")
    budget: str | None = option(
        "What this run may spend: 5USD, '2000000 tokens' or '500 calls'; with --ledger also "
        "500USD/month, /day or /ledger for all processes together.",
        metavar="AMOUNT",
    )
    api_key_command: str | None = option(
        "Command that prints a key or token, run again every five minutes, e.g. 'gcloud auth "
        "print-access-token'.",
        metavar="COMMAND",
    )
    service_tier: str | None = option(
        "'flex' for OpenAI's slow answers, at half the price.", metavar="TIER"
    )
    batch: bool = option(
        "Submit the calls as a batch at half the price, and say when to come back. Needs --ledger.",
        "--batch",
        default=False,
    )
    wait: bool = option(
        "With --batch: wait for the answers, which may take a day.", "--wait", default=False
    )

    @property
    def names_models(self) -> bool:
        """Whether calls may name models of providers."""
        return True

    def of_provider(self, model: str, ledger: Path | None) -> dict[str, Any]:
        """What the backend is given. Raises ConfigError for what does not go together."""
        words = {each.name: getattr(self, each.name) for each in fields(ProviderOptions)}
        named = {
            name: value
            for name, value in words.items()
            if value is not None and name not in ("batch", "wait")
        }
        if named and not (is_served(model) or self.names_models):
            given = ", ".join(f"--{name.replace('_', '-')}" for name in named)
            raise ConfigError(
                f"{given}: only for a provider's model, such as openai:NAME, or for the address of "
                f"a server. The model is '{model}'. Leave "
                f"{'it' if len(named) == 1 else 'them'} out, or give another --model, here or in a "
                "call: model := 'openai:NAME'."
            )
        options = {_RENAMED.get(name, name): value for name, value in named.items()}
        options |= self._of_batches(model, ledger)
        return options | ({"budget_file": ledger} if ledger and is_shared(self.budget) else {})

    def _of_batches(self, model: str, ledger: Path | None) -> dict[str, Any]:
        if self.wait and not self.batch:
            raise ConfigError("--wait is for --batch. Give --batch too, or leave --wait out.")
        if not self.batch:
            return {}
        if not is_served(model):
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


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions(EngineOptions, ProviderOptions):
    """Options of a connection: its model, its tables, and how it asks."""

    PANEL: ClassVar[str | None] = None

    model: str | None = option(
        "demo (default), a Hugging Face name or folder, openai:NAME, anthropic:NAME, gemini:NAME, "
        "or random:layers=8,...",
        "--model",
        "-m",
    )
    table: list[str] | None = option(
        "A CSV, Parquet, JSON or DuckDB file, or demo:movies, demo:tickets, demo:products, "
        "demo:films. NAME defaults to the file name.",
        "--table",
        "-t",
        metavar="NAME=FILE",
    )
    database: str = option("A DuckDB file whose tables the query can use.", default=":memory:")
    order: str = option("original, fixed, ggr, tree, or ophr (small tables only).", default="tree")
    guard: float | None = option(
        "Ask some inputs also with their fields as written. If a smaller share of answers than "
        "this stays the same, send all fields as written. 0.95, for example."
    )
    guard_rows: int = option(
        "How many inputs of each call --guard asks twice, at most.", default=50
    )
    redact: bool = option(
        "Send placeholders in place of the personal data that rules find in cells, and put the "
        "data back in the answers.",
        "--redact",
        default=False,
    )
    max_tokens: int | None = option("Maximum answer length in tokens (default 256).")
    temperature: float | None = option("0 (default) is greedy.")
    seed: int | None = option("Makes sampled answers reproducible.")
    prompt_form: str | None = option("How prompts write fields: text (default) or json.")
    no_cache: bool = option("Turn off prefix caching.", "--no-cache", default=False)
    ledger: Path | None = option(
        "File that stores answers as they arrive, so an interrupted query can resume. Only at "
        "temperature 0 or with --seed."
    )
    embedder: str = option(
        "What passages(...), AI_SIMILARITY and the like compare texts with: auto (an encoder that "
        "`relquery models fetch` has installed, else tfidf), tfidf, a folder or Hugging Face name "
        "of an encoder, or openai:NAME.",
        default="auto",
    )
    index: Path | None = option("Folder that keeps the indexes of searched tables for later runs.")

    @property
    def answering(self) -> str:
        """The name of the model that answers."""
        return self.model or DEMO

    @property
    def tables(self) -> dict[str, Path]:
        """Files by name. Raises TableError."""
        return find_tables(self.table or ())

    @property
    def sampling(self) -> dict[str, Any]:
        """Defaults of all calls."""
        return {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
        }

    def of_backend(self) -> dict[str, Any]:
        """Options of the backend. Raises ConfigError."""
        cache = {"prefix_caching": False} if self.no_cache else {}
        of_provider = self.of_provider(self.answering, self.ledger)
        return cache | self.of_engine() | (of_provider if is_served(self.answering) else {})

    def backend(self) -> LazyBackend:
        """The backend, which is loaded when it is first asked."""
        return LazyBackend(partial(load_shown, self.answering, self.of_backend()))

    def models(self) -> Models:
        """The models that calls may name."""
        form = None if self.prompt_form is None else self._form()
        options = self.of_backend() | self.of_provider(self.answering, self.ledger)
        return models_of({}, self.answering, options, self.ledger, form, _load_named)

    def connect(self, backend: LazyBackend, *, stores: bool = True) -> Connection:
        """Open the database, with its tables. stores: whether answers are kept."""
        ledger = (":memory:" if self.ledger is None else self.ledger) if stores else None
        with shown_warnings():
            connection = connect(
                backend,
                database=self.database,
                order=cast(Order, self.order),  # QueryConfig checks it, and the form
                guard=self.guard,
                guard_rows=self.guard_rows,
                form=self._form(),
                redact=self.redact,
                ledger=ledger,
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

    def _form(self) -> PromptForm:
        if self.prompt_form is None:  # the backend is not asked, as that would open it
            return default_form(self.answering)
        return cast(PromptForm, self.prompt_form)


def load_shown(model: str, options: Mapping[str, Any]) -> Backend:
    """Load a model, and say so meanwhile."""
    with errors_console().status(Text(f"loading {model}")):
        return load(model, **options)


def _load_named(name: str, *more: Any) -> Backend:
    with errors_console().status(Text(f"loading {name}")):
        return load_named(name, *more)


def read_params(given: Sequence[str]) -> dict[str, Any] | None:
    """`n=5` is a number, `name=Ann` a text: what is valid JSON is read as JSON.

    Numbers with a fraction stay decimal, so they keep their digits. None if nothing is given.
    Raises ConfigError.
    """
    named = [each.strip().removeprefix("$") for each in given]
    return {
        name.strip(): _value(text) for name, text in pairs("--param", named, "n=5").items()
    } or None


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_float=_number, parse_constant=_refused)
    except ValueError:
        return text


def _refused(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _number(text: str) -> Decimal | float:
    return float(text) if "e" in text.lower() else Decimal(text)


def read_selectivity(given: Sequence[str], *, explains: bool) -> float | dict[str, float] | None:
    """`0.3` for all stages, `filter 1=0.3` for one; None if none is given. Raises ConfigError.

    explains: whether the query is only explained.
    """
    if given and not explains:
        raise ConfigError("--selectivity is for --explain. Add --explain, or leave it out.")
    if len(given) == 1 and "=" not in given[0]:
        return _share(given[0])
    named = pairs("--selectivity", given, "'filter 1=0.3'")
    return {name.strip(): _share(text) for name, text in named.items()} or None


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(
            f"--selectivity {text}: expected a number from 0 to 1, or NAME=NUMBER, e.g. "
            "--selectivity 'filter 1=0.3'."
        ) from None
