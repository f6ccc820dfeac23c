"""`relquery serve`: the engine behind the APIs that clients speak; and `relquery mcp`."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from rich.text import Text

from relquery.cli.command import INTERRUPTED, EngineOptions, command_of, option, pairs
from relquery.cli.tables import find_tables
from relquery.cli.terminal import errors_console, say
from relquery.errors import ConfigError, MissingExtraError
from relquery.serve.settings import AccessSettings, ServeConfig

if TYPE_CHECKING:
    from relquery.serve.server import Server


@dataclass(frozen=True, kw_only=True)
class ServedEngineOptions(EngineOptions):
    """Options of an engine that several clients ask."""

    PANEL: ClassVar[str | None] = "Engine"

    policy: str = option("Which requests go first.", default="shortest")
    starvation: float | None = option(
        "Serve a relQuery first once it has waited this long per request.", metavar="SECONDS"
    )
    aging: float = option("Seconds of work that a second of waiting makes up for.", default=0.0)
    tail: float | None = option(
        "Longest waits, as a multiple of those under first come, first served."
    )
    memory: str | None = option(
        "What weights, steps and the KV cache may take together, e.g. 20GiB.", metavar="SIZE"
    )
    max_num_seqs: int | None = option("Requests that run at once, at most.")
    max_num_batched_tokens: int | None = option("Tokens that a step computes, at most.")
    store: str | None = option(
        "Where states of prompt modules are kept for the next start.", metavar="FOLDER"
    )
    device: str | None = option("cpu, cuda, cuda:1, ...")

    def of_engine(self) -> dict[str, Any]:
        """Those that are given."""
        given = {each.name: getattr(self, each.name) for each in fields(ServedEngineOptions)}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Serve(ServedEngineOptions, AccessSettings):
    """Serve a model over HTTP: the APIs of OpenAI and Anthropic, SQL, span queries and markup.

    [bold]Examples[/bold]

    relquery serve

    relquery serve --model Qwen/Qwen3-8B --port 9000 --table orders=orders.parquet

    relquery keys add alice --file keys.json

    relquery serve --keys keys.json --host 0.0.0.0 --log json
    """

    PANEL: ClassVar[str | None] = None

    model: list[str] | None = option(
        "demo, a Hugging Face name or folder, or random:layers=8,... Given several times, each is "
        "served by an engine of its own, by its NAME.",
        "--model",
        "-m",
        metavar="[NAME=]MODEL",
    )
    names: list[str] | None = option(
        "By which clients call the model (default: --model). May be given several times.",
        "--served-model-name",
    )
    adapter: list[str] | None = option(
        "A LoRA adapter of the model, by a folder or Hugging Face name, and the name by which "
        "clients call it. May be given several times.",
        metavar="NAME=FOLDER",
    )
    table: list[str] | None = option(
        "A table that /v1/sql may read: a CSV, Parquet, JSON or DuckDB file, or demo:movies, "
        "demo:tickets, demo:products.",
        "--table",
        "-t",
        metavar="NAME=FILE",
    )

    def __call__(self) -> None:
        """Run it. Raises ConfigError, and MissingExtraError without the `serve` extra."""
        config = self._config()
        from relquery.serve.run import serve as run

        loading = errors_console().status(Text(f"loading {config.model}"))
        try:
            with ExitStack() as shown:
                shown.enter_context(loading)

                def told(server: Server, port: int) -> None:
                    shown.close()
                    for line in _banner(config, server, port):
                        typer.echo(line)

                ended = run(config, told)
        except KeyboardInterrupt:
            ended = False
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("relquery"):
                raise
            raise MissingExtraError("`relquery serve`", "serve") from error
        if not ended:
            say("Interrupted.")
            raise typer.Exit(INTERRUPTED) from None

    def _config(self) -> ServeConfig:
        (name, first), *others = _models(self.model or ["demo"])
        return ServeConfig(
            first,
            options=self.of_engine(),
            names=(*(self.names or ()), *([name] if name else [])),
            others=dict(others),
            adapters=pairs("--adapter", self.adapter, "reviews=adapters/reviews"),
            tables={name: str(path) for name, path in find_tables(self.table or ()).items()},
            **{each.name: getattr(self, each.name) for each in fields(AccessSettings)},
        )


serve = command_of(Serve)


def _banner(config: ServeConfig, server: Server, port: int) -> Iterator[str]:
    """Where a server serves, and what to try."""
    host, facts = config.host, server.model(None).facts
    address = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(
        host, f"[{host}]" if ":" in host else host
    )
    url, names = f"http://{address}:{port}", ", ".join(server.models)
    key = "" if config.keys is None else '-H "Authorization: Bearer $KEY" '
    asked = {"model": server.models[0], "messages": [{"role": "user", "content": "Hello"}]}
    yield (
        f"Serving {names} at {url} (policy {facts.policy}, context {facts.context:,} tokens, cache "
        f"{facts.cache_tokens:,} tokens)"
    )
    yield f"In a browser: {url}/"
    yield (
        f"Try it: curl {url}/v1/chat/completions {key}-H 'Content-Type: application/json' "
        f"-d {shlex.quote(json.dumps(asked))}"
    )
    yield f"All paths: {url}/openapi.json   Figures: {url}/metrics   Ctrl-C stops it."


def _models(given: Sequence[str]) -> list[tuple[str, str]]:
    """Models with their names, of which only the first may be "". Raises ConfigError."""
    rows: list[tuple[str, str]] = []
    for each in given:
        name, _, model = each.partition("=")
        if not model or ":" in name or "/" in name:  # as in random:layers=8
            name, model = "" if not rows else each, each
        if name in dict(rows):
            raise ConfigError(f"--model {each}: '{name}' is another model. Give another NAME.")
        rows.append((name, model))
    return rows


def mcp(
    url: Annotated[
        str, typer.Argument(help="The address of a server that `relquery serve` has started.")
    ] = "http://127.0.0.1:8000",
    key: Annotated[
        str | None,
        typer.Option(envvar="RELQUERY_KEY", help="A key of `relquery keys`, if it needs one."),
    ] = None,
) -> None:
    """Offer the tools of a server to an agent, in the Model Context Protocol on standard input.

    An agent that speaks HTTP needs no command: the server has the same tools at /mcp.

    [bold]Example[/bold]

      relquery mcp http://127.0.0.1:8000
    """
    try:
        from relquery.serve.mcp import over_stdio
    except ImportError:
        raise MissingExtraError("relquery mcp", "mcp") from None
    asyncio.run(over_stdio(url, {} if key is None else {"Authorization": f"Bearer {key}"}))
