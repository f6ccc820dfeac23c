"""`relquery doctor`: what a provider's cache missed and why, and what is installed here."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.console import Console, RenderableType
from rich.console import Group as Together
from rich.text import Text

from relquery import native
from relquery.backends.local.open import compare_with_stock
from relquery.cli.ledger import Before, Shown, Since, check_output, instant, read_times
from relquery.cli.terminal.show import figures, to_json
from relquery.cli.terminal.tables import export
from relquery.errors import ModelError
from relquery.ledger.diagnosis import Cause, Finding
from relquery.ledger.records import Filter
from relquery.ledger.summary import CacheUse, examine
from relquery.sql.render import printable


def doctor(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[LEDGER]", help="The file given to --ledger."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="Of a ledger only this model; without one, a model of this machine to check.",
        ),
    ] = None,
    since: Since = None,
    before: Before = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write what is found of each answer to .parquet, .csv or .json."
        ),
    ] = None,
    form: Annotated[
        Shown, typer.Option("--format", "-f", help="How the findings are printed.")
    ] = Shown.TABLE,
) -> None:
    """Say which tokens a provider's cache was to serve and did not, what that cost, and why.

    Without a ledger, say what is installed here, and what the processor can do; with a model, also
    how far its logits are from those of transformers, where that is installed.

    [bold]Example[/bold]

    relquery doctor

    relquery doctor -m Qwen/Qwen3-0.6B

    relquery doctor run.db

    relquery doctor run.db --since 7d --output misses.csv
    """
    if path is None:
        for name, found in installation().items():
            typer.echo(f"{name:<13} {found}")
        if model is not None:
            check_model(model)
        return
    if output is not None:
        check_output(output, path)
    wanted = Filter(model, *read_times(since, before))
    findings, groups = examine(path, wanted)
    if form is Shown.JSON:
        typer.echo(to_json(as_json(str(path), groups)))
    else:
        console = Console()
        console.print(as_view(str(path), groups, console.width))
    if output is not None:
        export(as_rows(findings), output)


_LEFT = ("model", "cause")
_ROWS: Mapping[str, pa.DataType] = {
    "key": pa.string(),
    "run": pa.int64(),
    "model": pa.string(),
    "prefix": pa.string(),
    "prompt_tokens": pa.int64(),
    "expected_tokens": pa.int64(),
    "cached_tokens": pa.int64(),
    "missed_tokens": pa.int64(),
    "usd": pa.float64(),
    "cause": pa.string(),
    "sent": pa.timestamp("us", "UTC"),
    "at": pa.timestamp("us", "UTC"),
}


def as_view(path: str, groups: Sequence[CacheUse], width: int) -> RenderableType:
    """A row for each run and model, then one for each cause, then what the causes mean."""
    shown: list[RenderableType] = [
        figures(
            _of_groups(groups), printable(f"{path}: {_summary(groups)}"), width, _LEFT, lines=True
        )
    ]
    found = list(dict.fromkeys(cause for group in groups for cause in group.causes))
    if found:
        shown += [Text(), figures(_of_causes(groups), "misses by cause", width, _LEFT, lines=True)]
    for cause in sorted(found, key=list(Cause).index):
        said = Text(f"{cause.title}: ", style="bold")
        shown += [Text(), said.append(f"{cause.meaning} {cause.remedy}", style="not bold")]
    unplanned = sum(group.unplanned for group in groups)
    if unplanned:
        shown += [Text(), Text(f"{_answers(unplanned)} without an expectation: {_OTHERS}")]
    return Together(*shown)


_OTHERS = (
    "a model on this machine, a group of rows, an answer that was asked for once more, or an "
    "earlier version."
)


def _summary(groups: Sequence[CacheUse]) -> str:
    expected = sum(group.expected for group in groups)
    if not expected:
        return "no hits were expected"
    usd = [group.usd for group in groups if group.usd is not None]
    paid = f", which cost {sum(usd):.4f} USD" if usd else ""
    missed = sum(group.missed for group in groups)
    return f"{missed:,} of {expected:,} expected tokens were not read{paid}"


def _of_groups(groups: Sequence[CacheUse]) -> dict[str, list[str]]:
    return {
        "run": [_number(group.run) for group in groups],
        "model": [printable(group.model or "unknown") for group in groups],
        "answers": [f"{group.answers:,}" for group in groups],
        "to read": [f"{group.readers:,}" for group in groups],
        "hits": [f"{group.hits:,}" for group in groups],
        "expected tokens": [f"{group.expected:,}" for group in groups],
        "reported": [f"{group.reported:,}" for group in groups],
        "missed": [f"{group.missed:,}" for group in groups],
        "USD lost": [_usd(group.usd) for group in groups],
    }


def _of_causes(groups: Sequence[CacheUse]) -> dict[str, list[str]]:
    rows = [
        (group, cause, group.causes[cause])
        for group in groups
        for cause in Cause
        if cause in group.causes
    ]
    return {
        "run": [_number(group.run) for group, _, _ in rows],
        "model": [printable(group.model or "unknown") for group, _, _ in rows],
        "cause": [cause.title for _, cause, _ in rows],
        "answers": [f"{one.answers:,}" for _, _, one in rows],
        "tokens": [f"{one.tokens:,}" for _, _, one in rows],
        "USD": [_usd(one.usd) for _, _, one in rows],
    }


def as_json(path: str, groups: Sequence[CacheUse]) -> dict[str, Any]:
    """The same; the meaning and remedy of a cause stand beside it."""
    return {
        "ledger": path,
        "runs": [
            {
                "run": group.run,
                "model": group.model,
                "answers": group.answers,
                "without_expectation": group.unplanned,
                "readers": group.readers,
                "hits": group.hits,
                "expected_tokens": group.expected,
                "cached_tokens": group.reported,
                "missed_tokens": group.missed,
                "usd": group.usd,
                "causes": [
                    {
                        "cause": cause.title,
                        "answers": one.answers,
                        "tokens": one.tokens,
                        "usd": one.usd,
                        "meaning": cause.meaning,
                        "remedy": cause.remedy,
                    }
                    for cause, one in group.causes.items()
                ],
            }
            for group in groups
        ],
    }


def as_rows(findings: Sequence[Finding]) -> pa.Table:
    """A row for each answer of which something was expected, or is told why not."""
    rows = [_row(each) for each in findings]
    columns = zip(*rows, strict=True) if rows else ([] for _ in _ROWS)
    return pa.table(
        {
            name: pa.array(values, kind)
            for (name, kind), values in zip(_ROWS.items(), columns, strict=True)
        }
    )


def _row(finding: Finding) -> tuple[Any, ...]:
    one = finding.entry
    prefix = None if one.prefix is None else one.prefix.hex()
    cause = None if finding.cause is None else finding.cause.title
    counts = (one.prompt, finding.expected, one.cached, finding.missed, finding.usd)
    sent = None if one.sent is None else instant(one.sent)
    return (one.key.hex(), one.run, one.model, prefix, *counts, cause, sent, instant(one.came))


def _answers(count: int) -> str:
    return f"{count:,} answer" if count == 1 else f"{count:,} answers"


def _number(run: int | None) -> str:
    return "" if run is None else str(run)


def _usd(usd: float | None) -> str:
    return "" if usd is None else f"{usd:.4f}"


MOST_APART = 1e-3
"""Relative distance of log-probabilities in float32 that rounding explains."""
_PACKAGES = "duckdb", "torch", "transformers", "vllm"


def installation() -> Mapping[str, str]:
    """By name. Raises ConfigError if RELQUERY_TARGET names a target that is not here."""
    found = {
        "relquery": version("relquery"),
        "Python": f"{platform.python_version()}, {platform.platform()}",
        "processor": f"{os.cpu_count()} cores",
        "target": f"{native.target()} of {', '.join(native.targets())}",
    }
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def check_model(name: str) -> None:
    """Print how far a model's logits are from those of transformers. Raises ModelError where they
    are further apart than rounding explains."""
    furthest = 0.0
    for each in compare_with_stock(name):
        told = f"off by {each.off:.0e}, {each.same} of {each.tokens} greedy tokens the same"
        typer.echo(f"{'compared':<13} {told}: {each.text}")
        furthest = max(furthest, each.off)
    if furthest > MOST_APART:
        raise ModelError(
            f"'{name}' computes something else here than in transformers: its log-probabilities "
            f"are off by {furthest:.0e}, and rounding explains {MOST_APART:.0e}. Report it with "
            "its config.json, and run the model on a server such as vLLM meanwhile."
        )
