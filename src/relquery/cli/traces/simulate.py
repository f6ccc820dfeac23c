"""`relquery simulate`: a trace of relQueries under several policies, on a virtual clock."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from relquery.cli.terminal.exits import INTERRUPTED, ROWS_LOST
from relquery.cli.terminal.interrupt import interruptible
from relquery.cli.terminal.show import progress, to_json
from relquery.cli.terminal.tables import check_output, check_rate
from relquery.cli.traces.latencies import check_picture, draw, latency_table
from relquery.config import POLICIES, PolicyName
from relquery.engine.machines import SERVED, find_machine, with_cache
from relquery.engine.scheduling.policies.catalogue import Settings, make_policy
from relquery.errors import ConfigError, unknown
from relquery.traces.simulate import Run
from relquery.traces.simulate import simulate as run_simulation
from relquery.traces.summary import summarize
from relquery.traces.trace import load
from relquery.traces.workload import at_rate


def simulate(
    trace: Annotated[
        Path, typer.Option("--trace", "-t", help="JSON Lines, as `relquery trace` writes them.")
    ],
    policy: Annotated[
        str, typer.Option("--policy", "-p", metavar="A,B,...", help=f"From {', '.join(POLICIES)}.")
    ] = "fcfs,sarathi,static,relserve,shortest",
    cost: Annotated[
        str,
        typer.Option("--cost", "-c", help=f"{', '.join(SERVED)}, or a `relquery calibrate` file."),
    ] = "a100-opt13b",
    faster: Annotated[float, typer.Option(help="Speed up the arrivals by this factor.")] = 1.0,
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
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw when each relQuery ran.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for policies that sample.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
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
    queries = list(at_rate(load(trace), faster))
    if not any(query.rows for query in queries):
        raise ConfigError(f"The trace {trace} has no requests.")
    limits = replace(
        served.limits, starvation=starvation, aging=aging, tail=tail, weights=_weights(weight)
    )
    settings = replace(Settings.of(limits, served.cost, served.job_time), seed=seed)
    runs: dict[str, Run] = {}
    try:
        with interruptible(), progress() as advance:
            for name in names:
                runs[name] = run_simulation(queries, make_policy(name, settings), served)
                advance("policies", len(runs), len(names))
    except KeyboardInterrupt:
        typer.echo("Interrupted.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    summaries = {name: summarize(run) for name, run in runs.items()}
    if as_json:
        typer.echo(to_json({name: asdict(summary) for name, summary in summaries.items()}))
    else:
        Console(soft_wrap=True).print(latency_table(summaries, "policy", cost))
    if plot is not None:
        draw(runs, plot)
    refused = next(iter(summaries.values())).failed
    if refused:
        typer.echo(
            f"{refused:,} requests got no answer: too long for the cache, or empty.", err=True
        )
        raise typer.Exit(ROWS_LOST)


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
