"""`relquery trace`, `simulate` and `calibrate`: workloads of relQueries, their latencies, and what
steps cost on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import typer
from rich.console import Console

from relquery.cli.command import ROWS_LOST, argument, command_of, option, pairs
from relquery.cli.interrupt import exits_when_interrupted
from relquery.cli.tables import check_output, check_rate, find_tables, read_text, split_names
from relquery.cli.terminal import by_rows, progress, say, table, to_json
from relquery.config import POLICIES, PolicyName
from relquery.engine.cost import TRUSTED, Fit
from relquery.engine.machines import SERVED, find_machine, with_cache, write_machine
from relquery.engine.scheduling.policies.catalogue import PolicySettings, make_policy
from relquery.errors import ConfigError, unknown
from relquery.traces.imports import import_trace
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

_PARTS = ("waiting", "core", "tail")


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Write a trace: which relQueries arrive when, what each row asks, how long answers are.

    Each relQuery is one of five types, with answers of at most 5, 10, 5, 50 or 100 tokens, over
    random rows of one table.

    [bold]Examples[/bold]

    relquery trace demo:movies demo:products --rate 0.8 --output day.jsonl

    relquery trace beers=beer.parquet -c name,style -c review --rows 10,50 -o beers.jsonl
    """

    tables: list[str] = argument(
        "CSV, Parquet, JSON or DuckDB files, or demo tables: demo:movies.", metavar="[NAME=]FILE..."
    )
    output: Path = option("Where to write it.", "--output", "-o", default=..., metavar="FILE.jsonl")
    rate: float = option(
        "relQueries per second, on average (Poisson).", "--rate", "-r", default=1.0
    )
    count: int = option("How many relQueries.", min=1, default=100)
    rows: str = option("Rows per relQuery.", metavar="LEAST,MOST", default="1,100")
    sampling: str = option(
        "independent: a random sample per relQuery. shared: all take the first rows of one sample, "
        "so they share prompts (as the clients of the RelServe paper do).",
        metavar="|".join(SAMPLINGS),
        default="independent",
    )
    columns: list[str] | None = option(
        "Only these, of tables that have them all.", "--columns", "-c", metavar="A,B,..."
    )
    first: int | None = option("Only the first rows of a table.", min=1, default=10_000)
    seed: int = option("Seed of the random trace.", default=0)

    def __call__(self) -> None:
        """Run it."""
        check_output(self.output, [".jsonl"])
        check_rate("--rate", self.rate)
        size, read = _range(self.rows), self._read()
        queries = workload(
            read, self.rate, count=self.count, rows=size, seed=self.seed, sampling=self._sampling()
        )
        save(queries, self.output)
        requests = sum(len(query.rows) for query in queries)
        say(
            f"{len(queries):,} relQueries of {len(TASKS)} types, {requests:,} requests, "
            f"{queries[-1].arrival:.0f} s: {self.output}"
        )

    def _read(self) -> dict[str, list[Row]]:
        """The first rows of each table. Raises ConfigError for one without rows."""
        kept = [name for given in self.columns or () for name in split_names(given)] or None
        read: dict[str, list[Row]] = {
            name: read_text(file, columns=kept, rows=self.first).to_pylist()
            for name, file in find_tables(self.tables).items()
        }
        for name, rows in read.items():
            if not rows:
                raise ConfigError(f"Table '{name}' has no rows.")
        return read

    def _sampling(self) -> Sampling:
        for sampling in SAMPLINGS:
            if self.sampling == sampling:
                return sampling
        raise ConfigError(unknown("sampling", self.sampling, SAMPLINGS))


trace = command_of(Trace)


@dataclass(frozen=True, kw_only=True)
class TraceImport:
    """Write a published trace as ours: of Azure, BurstGPT, Mooncake, or in ShareGPT's form.

    The form is told from the file. Each request becomes a relQuery of one row. What prompts share
    is known from Mooncake's blocks and from ShareGPT's texts.

    [bold]Examples[/bold]

    relquery trace import conversation_trace.jsonl --output mooncake.jsonl

    relquery simulate --trace mooncake.jsonl --policy fcfs,shortest --faster 0.1
    """

    file: Path = argument("The published file: CSV, JSON, or JSON Lines.", metavar="FILE")
    output: Path = option("Where to write it.", "--output", "-o", default=..., metavar="FILE.jsonl")
    rate: float = option(
        "Requests per second, on average (Poisson), for a form without times.",
        "--rate",
        "-r",
        default=1.0,
    )
    first: int | None = option("Only the first records.", min=1)
    seed: int = option("Seed of random arrivals.", default=0)

    def __call__(self) -> None:
        """Run it."""
        check_output(self.output, [".jsonl"])
        check_rate("--rate", self.rate)
        queries = import_trace(self.file, rate=self.rate, first=self.first, seed=self.seed)
        save(queries, self.output)
        say(f"{len(queries):,} requests, {queries[-1].arrival:.0f} s: {self.output}")


trace_import = command_of(TraceImport)


def _range(given: str) -> tuple[int, int]:
    try:
        least, most = map(int, given.split(","))
    except ValueError:
        raise ConfigError(f"--rows is '{given}'; write LEAST,MOST, e.g. 1,100.") from None
    if not 1 <= least <= most:
        raise ConfigError(f"--rows is '{given}'; LEAST must be at least 1 and not above MOST.")
    return least, most


@dataclass(frozen=True, kw_only=True)
class Simulate:
    """Predict the latencies of relQueries under each policy, without a model.

    The same trace, cost model and seed give the same figures.

    [bold]Examples[/bold]

    relquery trace demo:movies demo:products --rate 0.8 --output day.jsonl

    relquery simulate --trace day.jsonl --policy fcfs,relserve

    relquery calibrate demo --output laptop.json

    relquery simulate --trace day.jsonl --cost laptop.json
    """

    trace: Path = option(
        "JSON Lines, as `relquery trace` writes them.", "--trace", "-t", default=...
    )
    policy: str = option(
        f"From {', '.join(POLICIES)}.",
        "--policy",
        "-p",
        metavar="A,B,...",
        default="fcfs,sarathi,static,relserve,shortest",
    )
    cost: str = option(
        f"{', '.join(SERVED)}, or a `relquery calibrate` file.",
        "--cost",
        "-c",
        default="a100-opt13b",
    )
    faster: float = option("Speed up the arrivals by this factor.", default=1.0)
    starvation: float | None = option(
        "A relQuery that has waited this many seconds per request goes first. Only for policies "
        "that rank relQueries, like --weight."
    )
    aging: float = option("Seconds of work that one second of waiting offsets.", default=0.0)
    tail: float | None = option(
        "Longest waits, as a multiple of those under first come, first served."
    )
    weight: list[str] | None = option("A tenant's share (default 1).", metavar="TENANT=2")
    cache_tokens: int | None = option("KV cache capacity in tokens (default: the machine's).")
    seed: int = option("Seed for policies that sample.", default=0)
    as_json: bool = option("Print the result as JSON.", "--json", default=False)

    def __call__(self) -> None:
        """Run it."""
        names = [_policy(name.strip()) for name in self.policy.split(",")]
        served = with_cache(find_machine(self.cost), self.cache_tokens)
        check_rate("--faster", self.faster)
        queries = self._queries()
        limits = replace(
            served.limits,
            starvation=self.starvation,
            aging=self.aging,
            tail=self.tail,
            weights=_weights(self.weight),
        )
        settings = replace(PolicySettings.of(limits, served.cost), seed=self.seed)
        runs: dict[str, ServedTrace] = {}
        with exits_when_interrupted(), progress() as advance:
            for name in names:
                runs[name] = run_simulation(queries, make_policy(name, settings), served)
                advance("policies", len(runs), len(names))
        self._show({name: summarize(run) for name, run in runs.items()})
        if refused := summarize(next(iter(runs.values()))).failed:
            say(f"{refused:,} requests got no answer: too long for the cache, or empty.")
            raise typer.Exit(ROWS_LOST)

    def _queries(self) -> list[TracedQuery]:
        """The relQueries of the trace, as fast. Raises ConfigError if there are no requests."""
        queries = list(at_rate(load(self.trace), self.faster))
        if not any(query.rows for query in queries):
            raise ConfigError(f"The trace {self.trace} has no requests.")
        return queries

    def _show(self, summaries: Mapping[str, Summary]) -> None:
        if self.as_json:
            typer.echo(to_json({name: asdict(summary) for name, summary in summaries.items()}))
            return
        first = next(iter(summaries.values()))
        title = (
            f"{first.relqueries:,} relQueries of {first.requests:,} requests on {self.cost}: "
            "seconds of latency"
        )
        columns = by_rows(
            row for policy, summary in summaries.items() for row in _rows(policy, summary)
        )
        console = Console(soft_wrap=True)
        console.print(table(columns, title, None, ("policy",), lines=True))
        console.print("hits: prompt tokens from the cache. in: seconds until the last answer.")


simulate = command_of(Simulate)


def _rows(name: str, summary: Summary) -> list[dict[str, str]]:
    """The latencies under a policy, and their parts below."""
    more = {"hits": f"{summary.hit_rate:.0%}", "in": f"{summary.seconds:.0f}"}
    rows = [{"policy": name, **_cells(summary.total), **more}]
    for part in _PARTS:
        spread = getattr(summary, part)
        rows.append({"policy": f"  {part}", **_cells(spread), "hits": "", "in": ""})
    return rows


def _cells(spread: Spread) -> dict[str, str]:
    return {name: f"{seconds:.2f}" for name, seconds in asdict(spread).items()}


def _weights(given: list[str] | None) -> dict[str, float]:
    try:
        return {name: float(text) for name, text in pairs("--weight", given, "batch=0.5").items()}
    except ValueError as error:
        raise ConfigError(f"--weight: {error}. Write TENANT=NUMBER, e.g. batch=0.5.") from None


def _policy(name: str) -> PolicyName:
    for known in POLICIES:
        if name == known:
            return known
    raise ConfigError(unknown("policy", name, POLICIES))


_WORDS = {
    "prefill_slope": "per prompt token",
    "prefill_intercept": "per step with prompts",
    "decode_slope": "per decoding request",
    "decode_intercept": "per step that decodes",
    "context_slope": "per cached token attended to",
}


@dataclass(frozen=True, kw_only=True)
class Calibrate:
    """Measure batches of many sizes and fit the linear cost model that predicts their seconds.

    R² on batches of other sizes, which the model was not fitted to, shows how well it predicts.
    Keep the machine idle while it runs.

    [bold]Examples[/bold]

    relquery calibrate demo --output laptop.json
    """

    model: str = argument("A model name or folder, as in `relquery sql`.")
    output: Path | None = option("Where to write it.", "--output", "-o", metavar="FILE.json")
    cache_tokens: int | None = option("Capacity of the KV cache in tokens.")
    seed: int = option("Seed of the batches' random tokens.", default=0)
    as_json: bool = option("Print the result as JSON.", "--json", default=False)

    def __call__(self) -> None:
        """Run it."""
        from relquery.backends.local.open import load_backend

        if self.output is not None:
            check_output(self.output, [".json"])
        if self.model.startswith("openai:"):
            raise ConfigError("A provider's steps cannot be measured; calibrate a local model.")
        limits = {} if self.cache_tokens is None else {"cache_tokens": self.cache_tokens}
        backend = load_backend(self.model, **limits)
        with exits_when_interrupted(), progress() as advance:
            fit = backend.calibrate(seed=self.seed, progress=advance)
        if self.output is not None:
            write_machine(self.output, self.model, fit, backend.config)
        if self.as_json:
            typer.echo(to_json({"model": self.model, **asdict(fit)}))
        else:
            self._show(fit)
        _warn(fit)

    def _show(self, fit: Fit) -> None:
        held_out = "" if fit.held_out is None else f"; {fit.held_out:.3f} on batches of other sizes"
        columns = {
            "": list(_WORDS.values()),
            "milliseconds": [f"{1e3 * getattr(fit.cost, name):.4g}" for name in _WORDS],
        }
        console = Console(soft_wrap=True)
        title = f"Seconds of a step of {self.model}"
        console.print(table(columns, title, None, ("",), lines=True))
        note = f"R² {fit.r2:.3f} on the {fit.steps} batches fitted{held_out}"
        console.print(note, highlight=False)


calibrate = command_of(Calibrate)


def _warn(fit: Fit) -> None:
    """Say where times are predicted badly."""
    told = fit.r2 if fit.held_out is None else min(fit.r2, fit.held_out)
    if told < TRUSTED:
        say(
            f"This cost model predicts badly (R² {told:.2f}): something else was running, or the "
            "steps are too short to time. Measure again on an idle machine."
        )
