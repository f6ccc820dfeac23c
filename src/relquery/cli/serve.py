"""`relquery serve`: the engine behind the APIs that clients speak; and `relquery mcp`."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from rich.text import Text

from relquery.cli.command import EngineOptions, command_of, option, pairs
from relquery.cli.exits import INTERRUPTED
from relquery.cli.tables import find_tables
from relquery.cli.terminal import errors_console, say
from relquery.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from relquery.serve.server import Server
    from relquery.serve.settings import ServeConfig

_MIB = 1 << 20


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
class AccessOptions:
    """Options about who is served, how much, and how a server is run."""

    PANEL: ClassVar[str | None] = "Access and limits"

    keys: Path | None = option(
        "Serve only who has one of these keys (`relquery keys add`).", metavar="FILE"
    )
    open: bool = option(
        "Serve whoever reaches this machine, without keys.", "--open", default=False
    )
    share_cache: bool = option(
        "Tenants read states of one another's prompts. It is faster; response times then tell "
        "whether another tenant has sent the same text.",
        "--share-cache",
        default=False,
    )
    origins: list[str] | None = option(
        "A web page that may call the server from browsers, e.g. https://example.com. May be given "
        "several times.",
        "--origin",
        metavar="URL",
    )
    max_waiting: int = option(
        "Prompts that may be open at once; more are answered 429.", default=20_000
    )
    max_body: int = option("Bytes of a request, at most.", default=64 * _MIB)
    max_rows: int = option("Prompts of one request or batch, at most.", default=100_000)
    sql_memory: str = option(
        "What the tables and one statement of /v1/sql may take, e.g. 2GB.",
        metavar="SIZE",
        default="2GB",
    )
    sql_seconds: float = option("How long a statement may run.", metavar="SECONDS", default=600.0)
    grace: float = option(
        "How long running requests may take after Ctrl-C or SIGTERM.",
        metavar="SECONDS",
        default=30.0,
    )
    log: str = option("Form of the log: text or json.", default="text")
    log_level: str = option("debug, info (a line per request), warning or error.", default="info")
    otlp: str | None = option(
        "An OpenTelemetry collector that gets a trace of each request, e.g. http://localhost:4318.",
        metavar="URL",
        envvar="OTEL_EXPORTER_OTLP_ENDPOINT",
    )


@dataclass(frozen=True, kw_only=True)
class Serve(ServedEngineOptions, AccessOptions):
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
    embedder: str | None = option(
        "An encoder for /v1/embeddings and /v1/rerank: auto for one that is installed, or a folder "
        "or Hugging Face name."
    )
    host: str = option("Where to listen.", default="127.0.0.1")
    port: int = option("0 for any free one.", default=8000)
    table: list[str] | None = option(
        "A table that /v1/sql may read: a CSV, Parquet, JSON or DuckDB file, or demo:movies, "
        "demo:tickets, demo:products.",
        "--table",
        "-t",
        metavar="NAME=FILE",
    )
    state: Path | None = option(
        "Where uploaded files and batches are kept. By default they are lost at the end.",
        metavar="FOLDER",
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
        from relquery.serve.settings import ServeConfig

        same = {"host", "port", "embedder", "state"}
        same |= {each.name for each in fields(AccessOptions)} - {"origins", "otlp"}
        (name, first), *others = _models(self.model or ["demo"])
        return ServeConfig(
            model=first,
            options=self.of_engine(),
            names=(*(self.names or ()), *([name] if name else [])),
            others=dict(others),
            adapters=pairs("--adapter", self.adapter, "reviews=adapters/reviews"),
            tables={name: str(path) for name, path in find_tables(self.table or ()).items()},
            origins=tuple(self.origins or ()),
            otlp=self.otlp or None,
            **{each: getattr(self, each) for each in same},
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
