"""`relquery ledger` and `relquery batches`: what is in a ledger; exports and prunes it."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import typer
from rich.console import Console, RenderableType

from relquery.cli.terminal.console import errors_console
from relquery.cli.terminal.show import figures, say, to_json
from relquery.cli.terminal.tables import check_rows, export, is_same
from relquery.errors import ConfigError
from relquery.ledger.records import COLUMNS, Filter, Group, Records, opened
from relquery.ledger.records import prune as prune_ledger
from relquery.ledger.runs import Run
from relquery.sql.render import printable
from relquery.unicode import valid

if TYPE_CHECKING:
    from relquery.backends.provider.batches.backend import Shown as ShownBatch

_AGO = re.compile(r"(\d+)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


Since = Annotated[
    str | None,
    typer.Option(help="Only from this time on: 2026-11-20, 2026-11-20T18:00 (UTC), or 7d ago."),
]
Before = Annotated[str | None, typer.Option(help="Only what came before this time, or has none.")]


def read_times(since: str | None, before: str | None) -> tuple[float | None, float | None]:
    """Those of --since and --before. Raises ConfigError."""
    now = time.time()
    return read_time("--since", since, now), read_time("--before", before, now)


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
        found = datetime.fromisoformat(given)
    except ValueError:
        raise ConfigError(
            f"{option} {given}: expected a date, a time or so long ago, e.g. 2026-11-20, "
            "2026-11-20T18:00 or 7d."
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def shown_time(seconds: float | None) -> str:
    """In UTC, to the second; empty for none."""
    return "" if seconds is None else f"{instant(seconds):%Y-%m-%d %H:%M:%S}"


def instant(seconds: float) -> datetime:
    """A time in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


_HEADINGS = (
    "run",
    "begun",
    "state",
    "model",
    "answers",
    "failed",
    "attempts",
    "prompt tokens",
    "cached",
    "output",
    "USD",
    "last answer",
)
_LEFT = ("begun", "state", "model", "last answer")
_TYPES = {
    "prompt_tokens": pa.int64(),
    "cached_tokens": pa.int64(),
    "written_tokens": pa.int64(),
    "output_tokens": pa.int64(),
    "attempts": pa.int64(),
    "usd": pa.float64(),
    "at": pa.timestamp("us", "UTC"),
    "seconds": pa.float64(),
    "run": pa.int64(),
}


def as_table(path: str, groups: Sequence[Group], runs: Sequence[Run], width: int) -> RenderableType:
    """A row for each run and model, runs without an answer too. width: of the terminal."""
    known: dict[int | None, Run] = {run.number: run for run in runs}
    with_answers = {group.run for group in groups}
    rows: list[tuple[Run | None, Group | None]] = []
    rows += [(known.get(group.run), group) for group in groups]
    rows += [(run, None) for run in runs if run.number not in with_answers]
    rows.sort(key=lambda row: row[0].number if row[0] else 0)
    cells = [[*_of_run(run), *_of_group(group)] for run, group in rows]
    columns = {name: [row[at] for row in cells] for at, name in enumerate(_HEADINGS)}
    answers, failed = sum(one.answers for one in groups), sum(one.failed for one in groups)
    usd = [one.usd for one in groups if one.usd is not None]
    paid = f", {sum(usd):.4f} USD" if usd else ""
    total = f"{path}: {_many(answers, 'answer')}, {_many(failed, 'failed call')}{paid}"
    return figures(columns, printable(total), width, _LEFT, lines=True)


def _of_run(run: Run | None) -> list[str]:
    return (
        ["", "", ""] if run is None else [str(run.number), shown_time(run.begun), run.state.value]
    )


def _of_group(group: Group | None) -> list[str]:
    if group is None:
        return [""] * (len(_HEADINGS) - 3)
    return [
        printable(group.model or "unknown"),
        f"{group.answers:,}",
        f"{group.failed:,}",
        _count(group.attempts),
        f"{group.prompt_tokens:,}",
        _count(group.cached_tokens),
        f"{group.output_tokens:,}",
        "" if group.usd is None else f"{group.usd:.4f}",
        shown_time(group.last),
    ]


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def as_json(path: str, groups: Sequence[Group], runs: Sequence[Run]) -> dict[str, Any]:
    """The same, with the statements of runs. Times are ISO texts in UTC."""
    return {
        "ledger": path,
        "runs": [
            {
                "run": run.number,
                "begun": _iso(run.begun),
                "ended": _iso(run.ended),
                "state": run.state.value,
                "query": run.query,
                "options": dict(run.options),
            }
            for run in runs
        ],
        "models": [
            asdict(group) | {"first": _iso(group.first), "last": _iso(group.last)}
            for group in groups
        ],
    }


def as_rows(entries: Sequence[Sequence[Any]]) -> pa.Table:
    """Answers and failures as rows; see COLUMNS. What is not known is null."""
    names = COLUMNS.split(", ")
    columns = dict(zip(names, zip(*entries, strict=True), strict=True)) if entries else {}
    arrays = {}
    for name in names:
        values = columns.get(name, ())
        if name == "at":
            values = tuple(None if one is None else instant(one) for one in values)
        elif name not in _TYPES:
            values = tuple(one and valid(one) for one in values)
        arrays[name] = pa.array(values, _TYPES.get(name, pa.string()))
    return pa.table(arrays)


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else instant(seconds).isoformat()


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
    from relquery.backends.provider.batches.backend import forget_batch, shown_batches

    if not path.is_file():
        raise ConfigError(f"The ledger {path} does not exist. Give the file given to --ledger.")
    if forget is not None:
        count = forget_batch(path, forget)
        typer.echo(f"The batch {forget} is forgotten. It had {count:,} requests.")
        return
    found = shown_batches(path, base_url, cancel=cancel)
    if not found:
        say(f"{path} has no batches.")
        return
    console = Console()
    console.print(_batches_table(str(path), found, console.width))
    for server in dict.fromkeys(each.not_asked for each in found if each.not_asked):
        say(f"{server} was not asked. Give its address: relquery batches {path} --base-url URL")
    if cancel:
        count = sum(each.is_cancelled for each in found)
        say("1 batch was cancelled." if count == 1 else f"{count:,} batches were cancelled.")


def _batches_table(path: str, found: Sequence[ShownBatch], width: int) -> RenderableType:
    """A row for each; where the terminal is too narrow for all in full, a line for each value."""
    columns = {
        "begun": [datetime.fromtimestamp(one.begun).strftime("%Y-%m-%d %H:%M") for one in found],
        "model": [printable(one.model) for one in found],
        "requests": [f"{one.size:,}" for one in found],
        "done": ["" if one.done is None else f"{one.done:,}" for one in found],
        "state": [one.state for one in found],
        "id": [printable(one.remote or "") for one in found],
    }
    return figures(columns, printable(path), width, ("begun", "model", "state", "id"), width)


class Shown(Enum):
    """How it is printed."""

    TABLE = "table"
    JSON = "json"


def ledger(
    path: Annotated[
        Path, typer.Argument(metavar="LEDGER", help="A file, or a folder as Spark uses it.")
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="Only this model, e.g. openai:gpt-5.4-mini or 'demo*', at any server.",
        ),
    ] = None,
    since: Since = None,
    before: Before = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only failures of calls that have no answer.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write them to a .parquet, .csv or .json file."),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete them. Asks first; needs one of the filters.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
    form: Annotated[
        Shown, typer.Option("--format", "-f", help="How the overview is printed.")
    ] = Shown.TABLE,
) -> None:
    """Show the runs and models of a ledger: answers, failures, tokens, USD and times.

    [bold]Example[/bold]

    relquery ledger run.db

    relquery ledger run.db --failed --output failed.csv

    relquery ledger run.db --before 90d --prune
    """
    wanted = Filter(model, *read_times(since, before), failed)
    if output is not None:
        check_output(output, path)
    if prune:
        _check_prune(path, wanted)
    with opened(path) as records:
        records.check_model(wanted)
        groups = records.groups(wanted)
        if not prune or output is not None:
            _print(path, records, groups, wanted, form)
        if output is not None:
            export(as_rows(records.entries(wanted)), output)
    if prune:
        _prune(path, wanted, groups, asks=not yes)


def _print(path: Path, records: Records, groups: list[Group], wanted: Filter, form: Shown) -> None:
    named = {group.run for group in groups}
    runs = [run for run in records.runs() if wanted.is_all or run.number in named]
    if form is Shown.JSON:
        typer.echo(to_json(as_json(str(path), groups, runs)))
    else:
        console = Console()
        console.print(as_table(str(path), groups, runs, console.width))


def _prune(path: Path, wanted: Filter, groups: list[Group], *, asks: bool) -> None:
    answers, failures = (
        sum(one.answers for one in groups),
        sum(one.failed if wanted.failed else one.failures for one in groups),
    )
    if not answers and not failures:
        errors_console().print("Nothing to delete.")
        return
    what = f"{answers:,} answers and {failures:,} failures"
    if asks:
        typer.confirm(f"Delete {what} from {path}? Answers are asked again when needed", abort=True)
    done = prune_ledger(path, wanted)
    said = f"Deleted {done.answers:,} answers and {done.failures:,} failures from {path}."
    say(said)


def check_output(output: Path, path: Path) -> None:
    """Whether rows can be written there. path: of the ledger. Raises ConfigError."""
    if is_same(output, path):
        raise ConfigError(f"--output {output} would overwrite the ledger. Give another file name.")
    check_rows(output)


def _check_prune(path: Path, wanted: Filter) -> None:
    if wanted.is_all:
        raise ConfigError(
            "--prune without a filter would delete everything. Give --model, --since, --before or "
            f"--failed, or delete {path}."
        )
    if path.is_dir():
        raise ConfigError(
            f"{path} is a folder; its files have neither models nor times to prune by. Delete "
            "the files that are no longer wanted."
        )
