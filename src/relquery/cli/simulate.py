"""`relquery trace` and `relquery simulate`: workloads of relQueries, and their latencies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from relquery.cli.reorder.names import split_names
from relquery.cli.terminal.exits import ROWS_LOST
from relquery.cli.terminal.files import find_table
from relquery.cli.terminal.interrupt import exits_when_interrupted
from relquery.cli.terminal.options import Json
from relquery.cli.terminal.show import progress, say, to_json
from relquery.cli.terminal.tables import check_output, check_rate, read_text
from relquery.config import POLICIES, PolicyName
from relquery.engine.machines import SERVED, find_machine, with_cache
from relquery.engine.scheduling.policies.catalogue import Settings, make_policy
from relquery.errors import ConfigError, MissingExtraError, unknown
from relquery.traces.simulate import ServedTrace, Spread, Summary, summarize
from relquery.traces.simulate import simulate as run_simulation
from relquery.traces.trace import (
    SAMPLINGS,
    TASKS,
    Row,
    Sampling,
    TracedQuery,
    at_rate,
    load,
    save,
    workload,
)

Trace = Annotated[
    Path, typer.Option("--trace", "-t", help="JSON Lines, as `relquery trace` writes them.")
]
Faster = Annotated[float, typer.Option(help="Speed up the arrivals by this factor.")]
Plot = Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw when each relQuery ran.")]


def read_trace(path: Path, faster: float) -> list[TracedQuery]:
    """The relQueries of a trace, as fast. Raises ConfigError for a trace without requests."""
    queries = list(at_rate(load(path), faster))
    if not any(query.rows for query in queries):
        raise ConfigError(f"The trace {path} has no requests.")
    return queries


def trace(
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]FILE...",
            help="CSV, Parquet, JSON or DuckDB files, or demo tables: demo:movies.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.jsonl", help="Where to write it.")
    ],
    rate: Annotated[
        float, typer.Option("--rate", "-r", help="relQueries per second, on average (Poisson).")
    ] = 1.0,
    count: Annotated[int, typer.Option(min=1, help="How many relQueries.")] = 100,
    rows: Annotated[str, typer.Option(metavar="LEAST,MOST", help="Rows per relQuery.")] = "1,100",
    sampling: Annotated[
        str,
        typer.Option(
            metavar="|".join(SAMPLINGS),
            help="independent: a random sample per relQuery. shared: all take the first rows of "
            "one sample, so they share prompts (as the clients of the RelServe paper do).",
        ),
    ] = "independent",
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns", "-c", metavar="A,B,...", help="Only these, of tables that have them all."
        ),
    ] = None,
    first: Annotated[int | None, typer.Option(min=1, help="Only the first rows of a table.")] = (
        10_000
    ),
    seed: Annotated[int, typer.Option(help="Seed of the random trace.")] = 0,
) -> None:
    """Write a trace: which relQueries arrive when, what each row asks, how long answers are.

    Each relQuery is one of five types, with answers of at most 5, 10, 5, 50 or 100 tokens, over
    random rows of one table.

    [bold]Examples[/bold]

    relquery trace demo:movies demo:products --rate 0.8 --output day.jsonl

    relquery trace beers=beer.parquet -c name,style -c review --rows 10,50 -o beers.jsonl
    """
    check_output(output, [".jsonl"])
    check_rate("--rate", rate)
    kept = [name for given in columns or () for name in split_names(given)] or None
    read = _read_rows(tables, kept, first)
    queries = workload(
        read, rate, count=count, rows=_range(rows), seed=seed, sampling=_sampling(sampling)
    )
    save(queries, output)
    requests = sum(len(query.rows) for query in queries)
    typer.echo(
        f"{len(queries):,} relQueries of {len(TASKS)} types, {requests:,} requests, "
        f"{queries[-1].arrival:.0f} s: {output}",
        err=True,
    )


def _read_rows(
    tables: Sequence[str], columns: list[str] | None, first: int | None
) -> dict[str, list[Row]]:
    """The first rows of each table. Raises ConfigError for one without rows, or two of a name."""
    read: dict[str, list[Row]] = {}
    for given in tables:
        name, file = find_table(given)
        if name in read:
            raise ConfigError(f"Two tables are named '{name}'. Rename one: other={file}.")
        read[name] = read_text(file, columns=columns, rows=first).to_pylist()
        if not read[name]:
            raise ConfigError(f"Table '{name}' has no rows.")
    return read


def _sampling(given: str) -> Sampling:
    for sampling in SAMPLINGS:
        if given == sampling:
            return sampling
    raise ConfigError(unknown("sampling", given, SAMPLINGS))


def _range(given: str) -> tuple[int, int]:
    try:
        least, most = map(int, given.split(","))
    except ValueError:
        raise ConfigError(f"--rows is '{given}'; write LEAST,MOST, e.g. 1,100.") from None
    if not 1 <= least <= most:
        raise ConfigError(f"--rows is '{given}'; LEAST must be at least 1 and not above MOST.")
    return least, most


_HEADINGS = ("mean", "p50", "p99", "max", "hits", "in")
_PARTS = ("waiting", "core", "tail")


def latency_table(summaries: Mapping[str, Summary], what: str, where: str) -> Table:
    """One row per run, with the parts of its latencies below. what: heading; where: the server.

    A hit rate of NaN is unknown.
    """
    first = next(iter(summaries.values()))
    view = Table(
        title=Text(
            f"{first.relqueries:,} relQueries of {first.requests:,} requests on {where}: "
            "seconds of latency",
            style="table.title",
        ),
        show_edge=False,
        pad_edge=False,
    )
    view.add_column(what)
    for heading in _HEADINGS:
        view.add_column(heading, justify="right")
    for name, summary in summaries.items():
        view.add_row(
            Text(name),
            *_row(summary.total),
            "?" if math.isnan(summary.hit_rate) else f"{summary.hit_rate:.0%}",
            f"{summary.seconds:.0f}",
        )
        for part in _PARTS:
            view.add_row(f"  {part}", *_row(getattr(summary, part)), style="dim")
    view.caption = "hits: prompt tokens from the cache. in: seconds until the last answer."
    return view


def _row(spread: Spread) -> Iterator[str]:
    return (f"{value:.2f}" for value in (spread.mean, spread.p50, spread.p99, spread.max))


def check_picture() -> None:
    """Raises MissingExtraError where no picture can be drawn."""
    if find_spec("matplotlib") is None:
        raise MissingExtraError("A picture", "bench")


def draw(runs: Mapping[str, ServedTrace], path: Path) -> None:
    """Write a PNG of when each relQuery ran. See `check_picture`."""
    from relquery.traces.simulate import plot_timeline

    plot_timeline(runs, path)


def simulate(
    trace: Trace,
    policy: Annotated[
        str, typer.Option("--policy", "-p", metavar="A,B,...", help=f"From {', '.join(POLICIES)}.")
    ] = "fcfs,sarathi,static,relserve,shortest",
    cost: Annotated[
        str,
        typer.Option("--cost", "-c", help=f"{', '.join(SERVED)}, or a `relquery calibrate` file."),
    ] = "a100-opt13b",
    faster: Faster = 1.0,
    starvation: Annotated[
        float | None,
        typer.Option(
            help="A relQuery that has waited this many seconds per request goes first. Only for "
            "policies that rank relQueries, like --weight."
        ),
    ] = None,
    aging: Annotated[
        float, typer.Option(help="Seconds of work that one second of waiting offsets.")
    ] = 0.0,
    tail: Annotated[
        float | None,
        typer.Option(help="Longest waits, as a multiple of those under first come, first served."),
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(metavar="TENANT=2", help="A tenant's share (default 1)."),
    ] = None,
    cache_tokens: Annotated[
        int | None, typer.Option(help="KV cache capacity in tokens (default: the machine's).")
    ] = None,
    plot: Plot = None,
    seed: Annotated[int, typer.Option(help="Seed for policies that sample.")] = 0,
    as_json: Json = False,
) -> None:
    """Predict the latencies of relQueries under each policy, without a model.

    The same trace, cost model and seed give the same figures.

    [bold]Examples[/bold]

    relquery trace demo:movies demo:products --rate 0.8 --output day.jsonl

    relquery simulate --trace day.jsonl --policy fcfs,relserve --plot day.png

    relquery calibrate demo --output laptop.json

    relquery simulate --trace day.jsonl --cost laptop.json
    """
    names = [_policy(name.strip()) for name in policy.split(",")]
    served = with_cache(find_machine(cost), cache_tokens)
    check_rate("--faster", faster)
    if plot is not None:
        check_output(plot, [".png"], "--plot")
        check_picture()
    queries = read_trace(trace, faster)
    limits = replace(
        served.limits, starvation=starvation, aging=aging, tail=tail, weights=_weights(weight)
    )
    settings = replace(Settings.of(limits, served.cost), seed=seed)
    runs: dict[str, ServedTrace] = {}
    with exits_when_interrupted(), progress() as advance:
        for name in names:
            runs[name] = run_simulation(queries, make_policy(name, settings), served)
            advance("policies", len(runs), len(names))
    _show(runs, cost, as_json)
    if plot is not None:
        draw(runs, plot)
    refused = summarize(next(iter(runs.values()))).failed
    if refused:
        say(f"{refused:,} requests got no answer: too long for the cache, or empty.")
        raise typer.Exit(ROWS_LOST)


def _show(runs: Mapping[str, ServedTrace], where: str, as_json: bool) -> None:
    summaries = {name: summarize(run) for name, run in runs.items()}
    if as_json:
        typer.echo(to_json({name: asdict(summary) for name, summary in summaries.items()}))
    else:
        Console(soft_wrap=True).print(latency_table(summaries, "policy", where))


def _weights(given: list[str] | None) -> dict[str, float]:
    weights = {}
    for each in given or ():
        tenant, _, share = each.rpartition("=")
        try:
            weights[tenant] = float(share)
        except ValueError:
            raise ConfigError(
                f"--weight is '{each}'; write TENANT=NUMBER, e.g. batch=0.5."
            ) from None
    return weights


def _policy(name: str) -> PolicyName:
    for known in POLICIES:
        if name == known:
            return known
    raise ConfigError(unknown("policy", name, POLICIES))
