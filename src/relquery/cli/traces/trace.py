"""`relquery trace`: a workload of relQueries over tables, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relquery.cli.reorder.names import split_names
from relquery.cli.terminal.tables import check_output, check_rate, find_table, read_text
from relquery.errors import ConfigError, unknown
from relquery.traces.trace import save
from relquery.traces.workload import SAMPLINGS, TASKS, Row, Sampling, workload


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
    read: dict[str, list[Row]] = {}
    for given in tables:
        name, file = find_table(given)
        if name in read:
            raise ConfigError(f"Two tables are named '{name}'. Rename one: other={file}.")
        read[name] = read_text(file, columns=kept, rows=first).to_pylist()
        if not read[name]:
            raise ConfigError(f"Table '{name}' has no rows.")
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
