"""`relquery ledger` and `relquery batches`: what is in a ledger; exports and prunes it."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import typer
from rich.console import Console, RenderableType

from relquery.cli.command import OutputFormat, argument, command_of, option
from relquery.cli.tables import check_rows, export, is_same
from relquery.cli.terminal import say, table, to_json
from relquery.errors import ConfigError
from relquery.ledger.records import COLUMNS, Group, RecordFilter, opened, prune
from relquery.ledger.runs import Run
from relquery.sql.render import printable
from relquery.unicode import valid

if TYPE_CHECKING:
    from relquery.backends.provider.batch_backend import Shown as ShownBatch

_AGO = re.compile(r"(\d+)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_WORDS = ("begun", "state", "model", "last answer", "id")
_TYPES = {
    "prompt_tokens": pa.int64(),
    "cached_tokens": pa.int64(),
    "written_tokens": pa.int64(),
    "output_tokens": pa.int64(),
    "attempts": pa.int64(),
    "usd": pa.float64(),
    "at": pa.timestamp("us", "UTC"),
    "run": pa.int64(),
}
"""Of the columns of an export that are not texts."""


@dataclass(frozen=True, kw_only=True)
class LedgerOptions:
    """Show the runs and models of a ledger: answers, failures, tokens, USD and times.

    [bold]Example[/bold]

    relquery ledger run.db

    relquery ledger run.db --failed --output failed.csv

    relquery ledger run.db --before 90d --prune
    """

    path: Path = argument("A file, or a folder as Spark uses it.", metavar="LEDGER")
    model: str | None = option(
        "Only this model, e.g. openai:gpt-5.4-mini or 'demo*', at any server.", "--model", "-m"
    )
    since: str | None = option(
        "Only from this time on: 2026-11-20, 2026-11-20T18:00 (UTC), or 7d ago."
    )
    before: str | None = option("Only what came before this time, or has none.")
    failed: bool = option("Only failures of calls that have no answer.", "--failed", default=False)
    output: Path | None = option("Write them to a .parquet, .csv or .json file.", "--output", "-o")
    prune: bool = option(
        "Delete them. Asks first; needs one of the filters.", "--prune", default=False
    )
    yes: bool = option("Delete without asking.", "--yes", "-y", default=False)
    form: OutputFormat = option(
        "How the overview is printed.", "--format", "-f", default=OutputFormat.TABLE
    )

    def __call__(self) -> None:
        """Run it."""
        now = time.time()
        times = read_time("--since", self.since, now), read_time("--before", self.before, now)
        wanted = RecordFilter(self.model, *times, self.failed)
        self._check(wanted)
        with opened(self.path) as records:
            records.check_model(wanted)
            groups = records.groups(wanted)
            if not self.prune or self.output is not None:
                named = {group.run for group in groups}
                runs = [run for run in records.runs() if wanted.is_all or run.number in named]
                self._print(groups, runs)
            if self.output is not None:
                export(as_rows(records.entries(wanted)), self.output)
        if self.prune:
            self._prune(wanted, groups)

    def _check(self, wanted: RecordFilter) -> None:
        """Raises ConfigError for what would delete too much, or overwrite the ledger."""
        if self.output is not None and is_same(self.output, self.path):
            raise ConfigError(
                f"--output {self.output} would overwrite the ledger. Give another file name."
            )
        if self.output is not None:
            check_rows(self.output)
        if self.prune and wanted.is_all:
            raise ConfigError(
                "--prune without a filter would delete everything. Give --model, --since, --before "
                f"or --failed, or delete {self.path}."
            )
        if self.prune and self.path.is_dir():
            raise ConfigError(
                f"{self.path} is a folder; its files have neither models nor times to prune by. "
                "Delete the files that are no longer wanted."
            )

    def _print(self, groups: Sequence[Group], runs: Sequence[Run]) -> None:
        if self.form is OutputFormat.TABLE:
            console = Console()
            console.print(_overview(str(self.path), groups, runs, console.width))
            return
        shown = {"ledger": str(self.path), "runs": list(map(_run, runs))}
        times = ({"first": _iso(group.first), "last": _iso(group.last)} for group in groups)
        models = [asdict(group) | each for group, each in zip(groups, times, strict=True)]
        typer.echo(to_json(shown | {"models": models}))

    def _prune(self, wanted: RecordFilter, groups: Sequence[Group]) -> None:
        answers = sum(group.answers for group in groups)
        failures = sum(group.failed if wanted.failed else group.failures for group in groups)
        if not answers and not failures:
            say("Nothing to delete.")
            return
        if not self.yes:
            what = f"{answers:,} answers and {failures:,} failures from {self.path}"
            typer.confirm(f"Delete {what}? Answers are asked again when needed", abort=True)
        done = prune(self.path, wanted)
        say(f"Deleted {done.answers:,} answers and {done.failures:,} failures from {self.path}.")


ledger = command_of(LedgerOptions)


def read_time(option: str, given: str | None, now: float) -> float | None:
    """Seconds since 1970 of an ISO date or time (UTC, unless it says otherwise), or of so long
    ago: 30m, 12h, 7d. Raises ConfigError.
    """
    if given is None:
        return None
    if (ago := _AGO.fullmatch(given.strip())) is not None:
        with suppress(OverflowError):
            return max(0.0, now - timedelta(**{_UNITS[ago[2]]: int(ago[1])}).total_seconds())
        return 0.0  # longer ago than any time
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise ConfigError(
            f"{option} {given}: expected a date, a time or so long ago, e.g. 2026-11-20, "
            "2026-11-20T18:00 or 7d."
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _time(seconds: float | None) -> str:
    """In UTC, to the second; empty for none."""
    return "" if seconds is None else f"{_instant(seconds):%Y-%m-%d %H:%M:%S}"


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else _instant(seconds).isoformat()


def _overview(
    path: str, groups: Sequence[Group], runs: Sequence[Run], width: int
) -> RenderableType:
    """A row for each run and model, runs without an answer too. width: of the terminal."""
    known: dict[int | None, Run] = {run.number: run for run in runs}
    with_answers = {group.run for group in groups}
    rows: list[tuple[Run | None, Group | None]] = []
    rows += [(known.get(group.run), group) for group in groups]
    rows += [(run, None) for run in runs if run.number not in with_answers]
    rows.sort(key=lambda row: row[0].number if row[0] else 0)
    cells = [_of_run(run) | _of_group(group) for run, group in rows]
    columns = {name: [row[name] for row in cells] for name in _of_run(None) | _of_group(None)}
    answers, failed = sum(group.answers for group in groups), sum(group.failed for group in groups)
    usd = [group.usd for group in groups if group.usd is not None]
    paid = f", {sum(usd):.4f} USD" if usd else ""
    total = f"{path}: {_many(answers, 'answer')}, {_many(failed, 'failed call')}{paid}"
    return table(columns, printable(total), width, _WORDS, lines=True)


def _of_run(run: Run | None) -> dict[str, str]:
    return {
        "run": "" if run is None else str(run.number),
        "begun": "" if run is None else _time(run.begun),
        "state": "" if run is None else run.state.value,
    }


def _of_group(group: Group | None) -> dict[str, str]:
    names = ("model", "answers", "failed", "attempts", "prompt tokens", "cached", "output", "USD")
    if group is None:
        return dict.fromkeys((*names, "last answer"), "")
    counts = (
        group.answers, group.failed, group.attempts, group.prompt_tokens, group.cached_tokens,
        group.output_tokens,
    )  # fmt: skip
    shown = ("" if count is None else f"{count:,}" for count in counts)
    usd = "" if group.usd is None else f"{group.usd:.4f}"
    cells = dict(zip(names, (printable(group.model or "unknown"), *shown, usd), strict=True))
    return cells | {"last answer": _time(group.last)}


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _run(run: Run) -> dict[str, Any]:
    return {
        "run": run.number,
        "begun": _iso(run.begun),
        "ended": _iso(run.ended),
        "state": run.state.value,
        "query": run.query,
        "options": dict(run.options),
    }


def as_rows(entries: Sequence[Sequence[Any]]) -> pa.Table:
    """Answers and failures as rows; see COLUMNS. What is not known is null."""
    names = COLUMNS.split(", ")
    columns = dict(zip(names, zip(*entries, strict=True), strict=True)) if entries else {}
    arrays = {}
    for name in names:
        values = columns.get(name, ())
        if name == "at":
            values = tuple(None if value is None else _instant(value) for value in values)
        elif name not in _TYPES:
            values = tuple(value and valid(value) for value in values)
        arrays[name] = pa.array(values, _TYPES.get(name, pa.string()))
    return pa.table(arrays)


def batches(
    path: Annotated[Path, typer.Argument(metavar="LEDGER", help="The file given to --ledger.")],
    cancel: Annotated[
        bool,
        typer.Option(
            "--cancel", help="End those that run. What is answered by then is kept, and billed."
        ),
    ] = False,
    forget: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Forget a batch, so that its requests are submitted again, and paid again.",
        ),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="Address of the server, if it is not the provider's own.")
    ] = None,
) -> None:
    """Show the batches of a ledger, cancel them, or forget one that the provider has lost.

    [bold]Example[/bold]

    relquery batches run.db

    relquery batches run.db --cancel
    """
    # Imported here: the providers' packages take half a second.
    from relquery.backends.provider.batch_backend import forget_batch, shown_batches

    if not path.is_file():
        raise ConfigError(f"The ledger {path} does not exist. Give the file given to --ledger.")
    if forget is not None:
        count = forget_batch(path, forget)
        typer.echo(f"The batch {forget} is forgotten. It had {count:,} requests.")
        return
    shown = shown_batches(path, base_url, cancel=cancel)
    if not shown:
        say(f"{path} has no batches.")
        return
    console = Console()
    columns, width = _of_batches(shown), console.width
    console.print(table(columns, printable(str(path)), width, _WORDS, readable=width))
    for server in dict.fromkeys(each.not_asked for each in shown if each.not_asked):
        say(f"{server} was not asked. Give its address: relquery batches {path} --base-url URL")
    if cancel:
        count = sum(each.is_cancelled for each in shown)
        say("1 batch was cancelled." if count == 1 else f"{count:,} batches were cancelled.")


def _of_batches(found: Sequence[ShownBatch]) -> dict[str, list[str]]:
    return {
        "begun": [
            datetime.fromtimestamp(batch.begun).strftime("%Y-%m-%d %H:%M") for batch in found
        ],
        "model": [printable(batch.model) for batch in found],
        "requests": [f"{batch.size:,}" for batch in found],
        "done": ["" if batch.done is None else f"{batch.done:,}" for batch in found],
        "state": [batch.state for batch in found],
        "id": [printable(batch.remote or "") for batch in found],
    }
