"""`relquery serve`: the engine behind the APIs that clients speak."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relquery.cli.serve.banner import Banner
from relquery.cli.terminal.console import errors_console
from relquery.cli.terminal.exits import INTERRUPTED
from relquery.cli.terminal.files import find_tables
from relquery.cli.terminal.options import ENGINE_PANEL as _ENGINE
from relquery.cli.terminal.options import CacheTokens, Cost, Dtype, KvCacheDtype, Quantize
from relquery.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from relquery.serve.settings import ServeConfig

MIB = 1 << 20
_ACCESS = "Access"
_LIMITS = "Limits"
_OPERATION = "Operation"


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="[NAME=]MODEL",
            help="demo, a Hugging Face name or folder, or random:layers=8,... Given several times, "
            "each is served by an engine of its own, by its NAME.",
        ),
    ] = None,
    served_model_name: Annotated[
        list[str] | None,
        typer.Option(
            help="By which clients call the model (default: --model). May be given several times."
        ),
    ] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FOLDER",
            help="A LoRA adapter of the model, by a folder or Hugging Face name, and the name by "
            "which clients call it. May be given several times.",
        ),
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            help="An encoder for /v1/embeddings and /v1/rerank: auto for one that is installed, or "
            "a folder or Hugging Face name."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 for any free one.")] = 8000,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            "-t",
            metavar="NAME=FILE",
            help="A table that /v1/sql may read: a CSV, Parquet, JSON or DuckDB file, or "
            "demo:movies, demo:tickets, demo:products.",
        ),
    ] = None,
    schemas: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Prompt schemas (*.xml) that are registered for all."),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where uploaded files and batches are kept. By default they are lost at the end.",
        ),
    ] = None,
    policy: Annotated[
        str, typer.Option(help="Which requests go first.", rich_help_panel=_ENGINE)
    ] = "shortest",
    starvation: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Serve a relQuery first once it has waited this long per request.",
            rich_help_panel=_ENGINE,
        ),
    ] = None,
    aging: Annotated[
        float,
        typer.Option(
            help="Seconds of work that a second of waiting makes up for.", rich_help_panel=_ENGINE
        ),
    ] = 0.0,
    tail: Annotated[
        float | None,
        typer.Option(
            help="Longest waits, as a multiple of those under first come, first served.",
            rich_help_panel=_ENGINE,
        ),
    ] = None,
    cache_tokens: CacheTokens = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="What weights, steps and the KV cache may take together, e.g. 20GiB.",
            rich_help_panel=_ENGINE,
        ),
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        typer.Option(help="Requests that run at once, at most.", rich_help_panel=_ENGINE),
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(help="Tokens that a step computes, at most.", rich_help_panel=_ENGINE),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where states of prompt modules are kept for the next start.",
            rich_help_panel=_ENGINE,
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1, ...", rich_help_panel=_ENGINE)
    ] = None,
    dtype: Dtype = None,
    quantize: Quantize = None,
    kv_cache_dtype: KvCacheDtype = None,
    cost: Cost = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Serve only who has one of these keys (`relquery keys add`).",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    open_: Annotated[
        bool,
        typer.Option(
            "--open",
            help="Serve whoever reaches this machine, without keys.",
            rich_help_panel=_ACCESS,
        ),
    ] = False,
    share_cache: Annotated[
        bool,
        typer.Option(
            "--share-cache",
            help="Tenants read states of one another's prompts. It is faster; response times "
            "then tell whether another tenant has sent the same text.",
            rich_help_panel=_ACCESS,
        ),
    ] = False,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="A web page that may call the server from browsers, e.g. https://example.com. "
            "May be given several times.",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    max_waiting: Annotated[
        int,
        typer.Option(
            help="Prompts that may be open at once; more are answered 429.",
            rich_help_panel=_LIMITS,
        ),
    ] = 20_000,
    max_body: Annotated[
        int, typer.Option(help="Bytes of a request, at most.", rich_help_panel=_LIMITS)
    ] = 64 * MIB,
    max_rows: Annotated[
        int,
        typer.Option(help="Prompts of one request or batch, at most.", rich_help_panel=_LIMITS),
    ] = 100_000,
    sql_memory: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="What the tables and one statement of /v1/sql may take, e.g. 2GB.",
            rich_help_panel=_LIMITS,
        ),
    ] = "2GB",
    sql_seconds: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="How long a statement or the order of a table may take.",
            rich_help_panel=_LIMITS,
        ),
    ] = 600.0,
    grace: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="How long running requests may take after Ctrl-C or SIGTERM.",
            rich_help_panel=_OPERATION,
        ),
    ] = 30.0,
    log: Annotated[
        str, typer.Option(help="Form of the log: text or json.", rich_help_panel=_OPERATION)
    ] = "text",
    log_level: Annotated[
        str,
        typer.Option(
            help="debug, info (a line per request), warning or error.",
            rich_help_panel=_OPERATION,
        ),
    ] = "info",
    otlp: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="OTEL_EXPORTER_OTLP_ENDPOINT",
            help="An OpenTelemetry collector that gets a trace of each request, e.g. "
            "http://localhost:4318.",
            rich_help_panel=_OPERATION,
        ),
    ] = None,
) -> None:
    """Serve a model over HTTP: the APIs of OpenAI and Anthropic, SQL, trees and prompt markup.

    [bold]Examples[/bold]

    relquery serve

    relquery serve --model Qwen/Qwen3-8B --port 9000 --table orders=orders.parquet

    relquery keys add alice --file keys.json

    relquery serve --keys keys.json --host 0.0.0.0 --log json
    """
    (name, first), *others = _models(model or ["demo"])
    config = _config(
        model=first,
        options=_given(
            policy=policy,
            starvation=starvation,
            aging=aging,
            tail=tail,
            cache_tokens=cache_tokens,
            memory=memory,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            store=None if store is None else str(store),
            device=device,
            dtype=dtype,
            quantize=quantize,
            kv_cache_dtype=kv_cache_dtype,
            cost=cost,
        ),
        names=(*(served_model_name or ()), *([name] if name else [])),
        others=dict(others),
        adapters=_adapters(adapter or ()),
        embedder=embedder,
        host=host,
        port=port,
        tables={name: str(path) for name, path in find_tables(table or ()).items()},
        schemas=schemas,
        state=state,
        keys=keys,
        open=open_,
        share_cache=share_cache,
        origins=tuple(origin or ()),
        max_waiting=max_waiting,
        max_body=max_body,
        max_rows=max_rows,
        sql_memory=sql_memory,
        sql_seconds=sql_seconds,
        grace=grace,
        log=log,
        log_level=log_level,
        otlp=otlp or None,
    )
    _run(config)


def _run(config: ServeConfig) -> None:
    """Raises MissingExtraError without the `serve` extra."""
    from relquery.serve.run import serve as run

    try:
        with Banner(config) as banner:
            ended = run(config, banner.told)
    except KeyboardInterrupt:
        ended = False
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("relquery"):
            raise
        raise MissingExtraError("`relquery serve`", "serve") from error
    if not ended:
        errors_console().print("Interrupted.")
        raise typer.Exit(INTERRUPTED) from None


def _config(**settings: Any) -> ServeConfig:
    """Raises ConfigError."""
    from relquery.serve.settings import ServeConfig

    return ServeConfig(**settings)


def _models(given: Sequence[str]) -> list[tuple[str, str]]:
    """Models with their names, of which only the first may be "". Raises ConfigError."""
    found: list[tuple[str, str]] = []
    for each in given:
        name, _, model = each.partition("=")
        if not model or ":" in name or "/" in name:  # as in random:layers=8
            name, model = "" if not found else each, each
        if name in dict(found):
            raise ConfigError(f"--model {each}: '{name}' is another model. Give another NAME.")
        found.append((name, model))
    return found


def _adapters(given: Sequence[str]) -> dict[str, str]:
    """Adapters by name. Raises ConfigError."""
    found: dict[str, str] = {}
    for each in given:
        name, _, where = each.partition("=")
        if not (name and where) or name in found:
            raise ConfigError(
                f"--adapter is {each!r}; it must be NAME=FOLDER, each NAME once, e.g. --adapter "
                "reviews=adapters/reviews."
            )
        found[name] = where
    return found


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
