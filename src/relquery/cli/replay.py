"""`relquery replay`: send a trace of relQueries to a server in real time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from relquery.cli.simulate import Faster, Plot, Trace, draw, latency_table, read_trace
from relquery.cli.terminal.exits import INTERRUPTED, ROWS_LOST
from relquery.cli.terminal.options import Json
from relquery.cli.terminal.show import progress, say, to_json
from relquery.cli.terminal.tables import check_output, check_rate
from relquery.engine.executor import RealClock
from relquery.errors import ConfigError
from relquery.prompt import Answer, Span
from relquery.traces.replay import Replay, TimedAnswer
from relquery.traces.simulate import summarize
from relquery.traces.trace import TracedQuery

if TYPE_CHECKING:
    from relquery.backends.provider.streaming import StreamingClient

_LATE = 0.05
_NO_KEY = "none"  # for servers that ask for none; the SDK wants a word


def replay(
    trace: Trace,
    server: Annotated[
        str, typer.Option("--server", "-s", help="Server address, usually ending in /v1.")
    ],
    model: Annotated[str, typer.Option("--model", "-m", help="The model name on the server.")],
    api_key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The environment variable with the API key."),
    ] = None,
    faster: Faster = 1.0,
    concurrency: Annotated[
        int,
        typer.Option(min=1, max=1000, help="Maximum concurrent requests; more wait in the client."),
    ] = 1000,
    timeout: Annotated[
        float, typer.Option(help="Seconds without a reply after which a request fails.")
    ] = 600.0,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="ANSWERS.jsonl", help="Write every answer."),
    ] = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Measure the latencies of relQueries on an OpenAI-compatible chat-completions server.

    All prompts of a relQuery are sent when it arrives, greedy and streamed, without retries.

    [bold]Examples[/bold]

    relquery trace demo:movies demo:products --rate 0.8 --output day.jsonl

    relquery replay --trace day.jsonl --server http://localhost:8000/v1 --model NAME

    relquery replay -t day.jsonl -s https://api.openai.com/v1 -m NAME --api-key-env OPENAI_API_KEY
    """
    if not model:
        raise ConfigError("--model is empty. Give the model name used on the server.")
    check_rate("--faster", faster)
    for option, file, ending in (("--output", output, ".jsonl"), ("--plot", plot, ".png")):
        if file is not None:
            check_output(file, [ending], option)
    queries = read_trace(trace, faster)
    streaming = _streaming(model, server, _key(api_key_env), timeout)
    replayed, is_interrupted = _send(queries, streaming, concurrency)
    if output is not None:
        _write(replayed, output)
    if replayed.outcomes:
        _show(replayed, streaming, as_json)
        if plot is not None:
            draw({model: replayed.ended}, plot)
    failures = _failures(replayed)
    _warn(replayed, failures)
    if is_interrupted:
        typer.echo("Interrupted.", err=True)
        raise typer.Exit(INTERRUPTED)
    if failures:
        raise typer.Exit(ROWS_LOST)


def _key(variable: str | None) -> str:
    if variable is None:
        return _NO_KEY
    key = os.environ.get(variable)
    if not key:
        raise ConfigError(
            f"--api-key-env is {variable}, which is not set. Run: export {variable}=KEY"
        )
    return key


def _streaming(model: str, server: str, key: str, timeout: float) -> StreamingClient:
    # Imported for this command alone: the provider's package takes half a second to import.
    from relquery.backends.provider.config import ProviderConfig
    from relquery.backends.provider.server import Server
    from relquery.backends.provider.streaming import StreamingClient

    config = ProviderConfig(server, key, timeout=timeout, max_retries=0)
    return StreamingClient(Server(model, config))


def _send(
    queries: Sequence[TracedQuery], streaming: StreamingClient, concurrency: int
) -> tuple[Replay, bool]:
    """What has ended, and whether Ctrl-C ended the replay."""

    async def ask(query: TracedQuery, prompt: str, heard: Callable[[], None]) -> Answer:
        return await streaming.ask((Span(prompt),), query.output_limit, query.tenant, heard)

    with progress() as advance:
        replayed = Replay(
            queries, ask, RealClock(), concurrency, lambda *counts: advance("requests", *counts)
        )

        async def work() -> None:
            async with streaming:
                await replayed.run()

        try:
            asyncio.run(work())
        except KeyboardInterrupt:
            return replayed, True
        return replayed, False


def _show(replayed: Replay, streaming: StreamingClient, as_json: bool) -> None:
    model, summary = streaming.server.model, summarize(replayed.ended)
    if not streaming.tells_cached:
        summary = replace(summary, hit_rate=nan)
    if not streaming.tells_tokens:
        summary = replace(summary, tokens_per_second=nan)
    if as_json:
        client = {"failed": len(_failures(replayed)), "lag": replayed.lag, "held": replayed.held}
        typer.echo(to_json({model: {**asdict(summary), **client}}))
        return
    view = latency_table({model: summary}, "model", str(streaming.server.config.base_url))
    view.caption = (
        f"{view.caption}\nwaiting lasts until the first token arrives: a client cannot see when a "
        "prompt is started."
    )
    Console(soft_wrap=True).print(view)


def _failures(replayed: Replay) -> list[str]:
    return [
        f"{query.table}, {query.kind}, row {row}: {one.answer.error}"
        for query, asked in zip(replayed.queries, replayed.asked, strict=True)
        for row, one in enumerate(asked)
        if one is not None and one.answer.error is not None
    ]


def _warn(replayed: Replay, failures: Sequence[str]) -> None:
    """Warnings about what distorts the figures."""
    notes = []
    if failures:
        ended = sum(one is not None for asked in replayed.asked for one in asked)
        notes.append(f"{len(failures):,} of {ended:,} requests failed; the first: {failures[0]}")
    if replayed.held:
        notes.append(
            f"{replayed.held:,} requests waited for --concurrency {replayed.concurrency}: part of "
            "their waiting was in the client. Raise it."
        )
    if replayed.lag > _LATE:
        notes.append(
            f"Requests were sent up to {replayed.lag:.2f} s late: this client is too slow, which "
            "distorts the figures. Free up its CPU, or lower --faster."
        )
    for note in notes:
        say(note, "red")


def _write(replayed: Replay, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number, asked in enumerate(replayed.asked):
            for row, one in enumerate(asked):
                if one is not None:
                    file.write(to_json(_line(number, row, one)) + "\n")


def _line(number: int, row: int, one: TimedAnswer) -> dict[str, object]:
    return {
        "relquery": number,
        "row": row,
        "answer": one.answer.text,
        "error": one.answer.error,
        "sent": one.sent,
        "heard": one.heard,
        "ended": one.ended,
        "prompt_tokens": one.answer.prompt_tokens,
        "cached_tokens": one.answer.cached_tokens,
        "output_tokens": one.answer.output_tokens,
    }
